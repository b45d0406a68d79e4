"""Sources of another version of PostgreSQL than the lake's own.

The package that brings the embedded one brings an older one too. Any other version runs all tests of sources:
`HEADWATER_SOURCE_POSTGRES=/usr/lib/postgresql/15/bin pytest tests/sources`.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from headwater.lake.embedded.accounts import find_bin
from headwater.lake.lake import Lake
from tests.sources.conftest import World, other_postgres, world_of
from tests.support import create_database


@pytest.fixture(scope="module")
def older() -> Iterator[str]:
    with other_postgres(find_bin().parents[1] / "pginstall" / "bin") as dsn:
        yield dsn


@pytest.fixture
def shop(lake: Lake, older: str) -> Iterator[World]:
    with world_of(lake, create_database(older)) as world:
        assert world.pg.info.server_version < 170000
        yield world
        for source in world.sources.all():  # a slot would keep the database
            world.sources.remove(source.name)


@pytest.mark.parametrize("method", ["triggers", "replication"])
def test_an_older_server_is_followed_like_our_own(shop: World, method: str) -> None:
    shop.method = method
    shop.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE t (id int PRIMARY KEY, a text, n numeric(10,2), at timestamptz, l int[], m mood)",
        "CREATE TABLE u (a int, b text)",
        "ALTER TABLE u REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT i, 'r' || i, i / 4.0, to_timestamp(i), ARRAY[i, NULL], 'ok' "
        "FROM generate_series(1, 100) i",
        "INSERT INTO u VALUES (1, 'x'), (1, 'x'), (NULL, NULL)",
    )
    shop.add("t", "u")
    shop.check("t")
    shop.check("u")
    with psycopg.connect(shop.dsn) as long:  # begins first, commits last
        long.execute("INSERT INTO u VALUES (7, 'long')")
        shop.run(
            "INSERT INTO t VALUES (1000, NULL, 7.25, NULL, '{}', 'sad')",
            "UPDATE t SET a = repeat('large', 3000) WHERE id <= 3",
            "UPDATE t SET n = n + 1 WHERE id <= 3",
            "UPDATE t SET id = id + 5000 WHERE id = 50",
            "DELETE FROM t WHERE id BETWEEN 90 AND 95",
            "DELETE FROM u WHERE ctid = (SELECT min(ctid) FROM u)",
        )
        shop.capture()
        shop.check("t")
        assert not shop.here("FROM u WHERE a = 7")
        long.commit()
    shop.capture()
    shop.check("u")
    shop.run("ALTER TABLE t ADD COLUMN z int", "UPDATE t SET z = id", "TRUNCATE u")
    shop.capture()
    shop.check("t")
    shop.check("u")
