"""Random changes, random failures: every sink equals what DuckDB computes, after each refresh."""

from __future__ import annotations

import random

import psycopg
import pytest

from headwater.lake.embedded import EmbeddedServer
from headwater.refresh.model import Action
from tests.refresh.conftest import World
from tests.sinks.conftest import Elsewhere
from tests.sinks.test_remote_sinks import allow, publisher

QUERIES = {
    "grouped": ("SELECT k, sum(v) AS total, count(*) AS n FROM facts GROUP BY k", "*"),
    "plain": ("SELECT k, v % 3 AS rest FROM facts WHERE v > 2", "k, rest"),
    "joined": ("SELECT f.k, d.name, f.v FROM facts f JOIN names d ON d.k = f.k", "k, name, v"),
    "once": ("SELECT DISTINCT v % 4 AS rest FROM facts", "*"),
}


def shake(world: World, chance: random.Random) -> None:
    """A few random statements."""
    for _ in range(chance.randint(1, 3)):
        number, key = chance.randint(0, 1000), chance.choice(["'a'", "'b'", "'c'", "NULL"])
        world.run(
            chance.choice(
                [
                    f"INSERT INTO facts SELECT i, {key}, i % 7 FROM range({number}, {number + 5}) t(i)",
                    f"INSERT INTO facts VALUES ({number}, {key}, 4), ({number}, {key}, 4)",
                    f"DELETE FROM facts WHERE id % 5 = {number % 5}",
                    f"UPDATE facts SET v = v + 1 WHERE id % 3 = {number % 3}",
                    f"UPDATE facts SET k = {key} WHERE id % 4 = {number % 4}",
                    f"UPDATE names SET name = name || '!' WHERE k = {key}",
                ]
            )
        )


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_sink_equals_the_query(
    world: World, elsewhere: Elsewhere, pg_server: EmbeddedServer, seed: int
) -> None:
    chance = random.Random(seed)
    world.run(
        "CREATE TABLE facts (id INTEGER, k VARCHAR, v INTEGER)",
        "CREATE TABLE names (k VARCHAR, name VARCHAR)",
        "INSERT INTO facts SELECT i, chr(97 + i::INTEGER % 3), i % 7 FROM range(40) t(i)",
        "INSERT INTO names VALUES ('a', 'ann'), ('b', 'bob'), ('b', 'ben'), (NULL, 'nobody')",
    )
    for name, (query, _) in QUERIES.items():
        world.make(
            name,
            query,
            sink="ducklake, postgres",
            ducklake_sink_mode=chance.choice(["merge", "accumulate", "replace"]),
            postgres_sink_dsn=elsewhere.dsn,
        )
        world.streams.add_sink(name, "copy", {"ducklake_sink_table": f"{name}_copy"})
        world.streams.add_sink(
            name,
            "far",
            {
                "ducklake_sink_catalog": elsewhere.dsn,
                "ducklake_sink_path": f"{elsewhere.folder}/",
                "ducklake_sink_mode": chance.choice(["merge", "accumulate", "replace"]),
            },
        )
    for turn in range(6):
        shake(world, chance)
        up = chance.random() > 0.3 or turn == 5
        allow(pg_server, elsewhere, up)
        with psycopg.connect(world.lake.dsn) as connection:
            connection.execute("UPDATE headwater.sink SET next_try_at = now() WHERE failures > 0")
        results = world.refresh()
        assert not [result for result in results.values() if result.action is Action.FAILED]
        allow(pg_server, elsewhere, True)
        world.check()
        if up:
            publisher(world).deliver(force=True)
        for name, (query, columns) in QUERIES.items():
            expected = world.rows(query)
            assert world.rows(f"FROM {name}_copy") == expected, (turn, name)
            if up:
                assert elsewhere.rows(name, columns) == expected, (turn, name)
                assert elsewhere.lake_rows(f"FROM main.{name}") == expected, (turn, name)
