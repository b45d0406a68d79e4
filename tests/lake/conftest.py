"""A lake that tests share, because making one takes longer than what most of them do with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.lake.embedded import EmbeddedServer
from headwater.lake.lake import Lake
from tests.lake.places import Place
from tests.support import create_database

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def shared(pg_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, Any]]:
    lake = Lake.open(create_database(pg_server.dsn), data_path=tmp_path_factory.mktemp("lake"))
    session = lake.duckdb()
    yield lake, session
    session.close()
    lake.close()


@pytest.fixture
def place(shared: tuple[Lake, Any]) -> Place:
    schema = f"s{next(_numbers)}"
    with shared[0].transaction() as tx:
        tx.create_schema(schema)
    return Place(*shared, schema)
