"""DuckDB and Headwater do the same things; everything their catalogs say afterwards is the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.lake.embedded import EmbeddedServer
from tests.lake.differential import Case, Pair, duckdb_session
from tests.lake.differential_columns import COLUMN_CASES
from tests.lake.differential_rows import ROW_CASES
from tests.lake.differential_schema import SCHEMA_CASES
from tests.support import create_database

CASES = [*SCHEMA_CASES, *COLUMN_CASES, *ROW_CASES]


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with duckdb_session() as opened:
        yield opened


@pytest.fixture(scope="module")
def databases(pg_server: EmbeddedServer) -> tuple[str, str]:
    """Two databases that all cases use one after the other; making new ones takes longer than the cases."""
    return create_database(pg_server.dsn), create_database(pg_server.dsn)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name.replace(" ", "-")) for case in CASES])
def test_catalogs_are_the_same_after_every_step(
    case: Case, session: Any, databases: tuple[str, str], tmp_path: Path
) -> None:
    pair = Pair(session, *databases, tmp_path)
    try:
        seen: set[str] = set()
        for number, one in enumerate(case.steps):
            pair.run(one)
            found, shown = pair.compare(case)
            assert not found, f"after step {number}, {'; '.join(one.statements)}:\n" + "\n".join(found)
            seen |= shown
        assert seen == set(case.differs), "an allowed difference did not show"
        theirs, ours, theirs_read_by_us = pair.rows()
        assert ours == theirs
        assert theirs_read_by_us == theirs
    finally:
        pair.close()
