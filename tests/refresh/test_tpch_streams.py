"""TPC-H: all 22 queries as stream tables that must be incremental, through changes of all tables."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sqlglot

from headwater.lake.duckdb_session import literal
from headwater.refresh.model import Action, Mode
from headwater.storage.duckdb_engine import extension_file
from tests.refresh.conftest import World, actions

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


@pytest.fixture
def tpch(world: World) -> World:
    con = world.con
    con.execute(f"LOAD {literal(str(extension_file('tpch')))}")
    con.execute("USE memory")
    con.execute("CALL dbgen(sf = 0.005)")
    for name in TABLES:
        con.execute(f"CREATE TABLE lake.{name} AS FROM memory.{name}")
    con.execute("USE lake")
    for number, text in con.execute("SELECT query_nr, query FROM tpch_queries()").fetchall():
        spark = sqlglot.transpile(text, read="duckdb", write="spark")[0].rstrip(";")
        world.make(f"q{number}", spark, Mode.STRICT)
        world.queries[f"q{number}"] = text.rstrip().rstrip(";")
    return world


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("changed", "rounds"),
    [(("lineitem", "orders"), 1), pytest.param(TABLES, 10, marks=pytest.mark.slow)],
    ids=["orders and lines", "all tables"],
)
def test_all_22_queries_are_incremental_and_right(tpch: World, changed: tuple[str, ...], rounds: int) -> None:
    tpch.check()
    chance = random.Random(7)
    for number in range(rounds):
        for name in changed:
            _change(tpch.con, name, chance)
        results = tpch.refresh()
        assert set(actions(results).values()) <= {Action.INCREMENTAL, Action.NO_DATA}, results
        # Queries 2, 11 and 16 read neither orders nor lines.
        assert sum(result.action is Action.INCREMENTAL for result in results.values()) >= 19
        tpch.check()
        assert not any(result.error for result in results.values()), number


def _change(con: Any, name: str, chance: random.Random) -> None:
    """Some rows deleted, some inserted again, one column of some rows set to a value that others have."""
    sample = f"1% (bernoulli, {chance.randrange(10**6)})"
    con.execute(f"CREATE OR REPLACE TEMP TABLE taken AS FROM lake.{name} USING SAMPLE {sample}")
    keys = {"lineitem": "l_orderkey", "partsupp": "ps_partkey"}
    key = keys.get(name) or con.execute(f"DESCRIBE lake.{name}").fetchone()[0]
    con.execute(f"DELETE FROM lake.{name} WHERE {key} IN (SELECT {key} FROM taken LIMIT 5)")
    con.execute(f"INSERT INTO lake.{name} FROM taken")
    columns = [row[0] for row in con.execute(f"DESCRIBE lake.{name}").fetchall()]
    column = chance.choice(columns)
    low = chance.randrange(50)
    con.execute(
        f"UPDATE lake.{name} SET {column} = (SELECT max({column}) FROM taken) "
        f"WHERE {key} % 50 = {low} AND (SELECT count(*) FROM taken) > 0"
    )
