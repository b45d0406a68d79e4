"""Random stream tables on Spark: inputs changed by both engines, refreshed in waves, judged by DuckDB."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.errors import QueryError
from headwater.refresh import computing, cutting, deciding, narrowing, programs
from headwater.refresh.costing import Expected
from headwater.refresh.deciding import Decision
from headwater.refresh.model import Action, Definition, Mode
from headwater.spark.sql import run_sql
from headwater.typedefs import TableName
from tests.algebra.choices import Choices
from tests.algebra.duck_refresh import duck_type
from tests.algebra.following import counted, in_duckdb
from tests.algebra.grammar import Contents, Grammar, Schema, change, contents, schema
from tests.refresh.conftest import World

#: Queries in a world, and waves over them: each wave is a refresh of all, and each of those is a step.
#: The same rules go through many more steps in DuckDB alone: tests/algebra/test_random_queries.py.
QUERIES, WAVES = 10, 3
#: So many worlds make 300 steps; all of them, with the long run in DuckDB alone, take about an hour.
FEW, WORLDS = 11, int(os.environ.get("HEADWATER_RANDOM_WORLDS", "40"))


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "seed", [*range(FEW), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(FEW, WORLDS))]
)
def test_random_stream_tables_are_what_duckdb_computes(
    world: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = Choices(f"streams {seed}")
    decisions = Choices(f"decisions {seed}")
    files = Choices(f"files {seed}")

    def full_now_and_then(expected: Expected, rows: int, behind: bool) -> Decision | None:
        return Decision(Action.FULL, "cheaper", "Chosen by chance.") if decisions.chance(4) else None

    monkeypatch.setattr(deciding, "_cheaper", full_now_and_then)
    choose_few = (computing.FEW, -1)  # what is computed anew is compared here, or by Spark
    sizes = Choices(f"sizes {seed}")
    if not sizes.chance(2):  # as where much changed: rows that lead to nothing are left out
        monkeypatch.setattr(narrowing, "_MUCH", -1)
        monkeypatch.setattr(cutting, "_WORTH", 0.99)
    if sizes.chance(4):  # …, and plans are compiled
        monkeypatch.setattr(programs, "_FEW", -1)
    tasks = Choices(f"tasks {seed}")
    if tasks.chance(3):  # … of several tasks, and repeated values are left out
        monkeypatch.setattr(programs, "_FEW", -1)
        monkeypatch.setattr(programs, "_MOST", -1)
        monkeypatch.setattr(programs, "_SIMPLE", 100)
        monkeypatch.setattr(narrowing, "_MANY", -1)
    tables = schema(choices)
    held = contents(choices, tables)
    if files.chance(2):
        world.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    _create(world, tables, held)
    if files.chance(4):
        world.run(*(f"ALTER TABLE {name} SET SORTED BY (own_id DESC)" for name in tables))
    queries = {
        f"q{number}": Grammar(choices, tables).whole(1 + choices.below(3)) for number in range(QUERIES)
    }
    for name, text in list(queries.items()):
        try:
            world.streams.create(Definition(TableName("main", name), _for_spark(text), mode=Mode.AUTO))
        except QueryError as error:
            if "current time" not in error.message:
                raise
            del queries[name]  # refused by policy: what is computed as it stands may not speak of the time
    _check(world, queries, f"seed {seed}, at first")
    for wave in range(WAVES):
        before = held.copy()
        change(choices, held)
        _apply(world, before, held, by_spark=choices.chance(3))
        if choices.chance(3):
            world.run("CALL ducklake_flush_inlined_data('lake')")
        if choices.chance(3) or files.chance(2):
            # Rows that were updated in files, or that are sorted, may lose their row ids.
            world.run("CALL ducklake_merge_adjacent_files('lake')")
        monkeypatch.setattr(computing, "FEW", choose_few[decisions.below(2)])
        results = world.refresh()
        if any("same row id" in result.reason for result in results.values()):
            _write_anew(world, tables)
            results = world.refresh()
        failed = {name: result.error for name, result in results.items() if result.action is Action.FAILED}
        assert not failed, f"seed {seed}, wave {wave}: {failed}"
        _check(world, queries, f"seed {seed}, wave {wave}")


def _for_spark(text: str) -> str:
    """The first of no elements is an error for Spark and NULL for DuckDB."""
    return re.sub(r"(sort_array\(collect_(?:set|list)\([^()]*\)\))\[0\]", r"get(\1, 0)", text)


def _create(world: World, tables: Schema, held: Contents) -> None:
    for name, columns in tables.items():
        typed = ", ".join(f"{column} {duck_type(text)}" for column, text in columns)
        world.run(f"CREATE TABLE {name} ({typed}, own_id BIGINT)")
        _insert(world, name, [(*row, row_id) for row_id, row in held.rows[name].items()])


def _apply(world: World, before: Contents, after: Contents, *, by_spark: bool) -> None:
    """The difference of two contents as statements, by one engine or the other."""

    def run(text: str) -> None:
        if by_spark:
            run_sql(world.session, text)
        else:
            world.run(text)

    for name, columns in after.tables.items():
        old, new = before.rows[name], after.rows[name]
        gone = [str(row_id) for row_id in old if row_id not in new]
        if gone:
            run(f"DELETE FROM {name} WHERE own_id IN ({', '.join(gone)})")
        for row_id, row in new.items():
            if row_id in old and old[row_id] != row:
                values = ", ".join(
                    f"{column} = {_typed(value, text)}"
                    for (column, text), value in zip(columns, row, strict=True)
                )
                run(f"UPDATE {name} SET {values} WHERE own_id = {row_id}")
        _insert(world, name, [(*row, row_id) for row_id, row in new.items() if row_id not in old])


def _write_anew(world: World, tables: Schema) -> None:
    """Give rows that share a row id, since DuckDB merged their files, ids of their own."""
    for name in tables:
        world.run(
            "CREATE OR REPLACE TEMP TABLE twice AS "
            f"SELECT rowid AS r FROM {name} GROUP BY r HAVING count(*) > 1",
            f"CREATE OR REPLACE TEMP TABLE kept AS SELECT * FROM {name} WHERE rowid IN (SELECT r FROM twice)",
            "BEGIN",
            f"DELETE FROM {name} WHERE rowid IN (SELECT r FROM twice)",
            f"INSERT INTO {name} FROM kept",
            "COMMIT",
        )


def _insert(world: World, name: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        marks = ", ".join("?" for _ in rows[0])
        world.con.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)


def _typed(value: Any, type_text: str) -> str:
    if value is None:
        return "NULL"
    quoted = str(value).replace("'", "''")
    return f"CAST('{quoted}' AS {'VARCHAR(10)' if type_text == 'string' else type_text})"


def _check(world: World, queries: dict[str, str], when: str) -> None:
    today = datetime.now(UTC).date()
    for name, text in queries.items():
        expected = counted(world.con.execute(in_duckdb(text, today)).fetchall())
        found = counted(world.con.execute(f"FROM {name}").fetchall())
        assert found == expected, (
            f"{when}: {text}\nmissing {dict((expected - found).most_common(4))}, "
            f"too many {dict((found - expected).most_common(4))}"
        )
