"""Reading 1,000,000 rows into Arrow, and deleting a tenth of them: for information."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pyarrow.parquet as pq

from benchmarks.data import COLUMNS, ROWS, orders
from benchmarks.environment import Environment, Place
from benchmarks.measure import Result, in_turns

DELETE = "customer % 10 = 3"


def _filled(environment: Environment, copies: int) -> Place:
    """A lake with the rows in several tables, written by Headwater; both sides use it, or one like it."""
    place = environment.place()
    lake = place.lake()
    rows = orders()
    with lake.transaction() as tx:
        for number in range(copies):
            tx.create_table(f"orders_{number}", COLUMNS)
            tx.append(f"orders_{number}", rows)
    lake.close()
    return place


def run(environment: Environment) -> Iterator[Result]:
    yield from _reading(environment)
    yield from _deleting(environment)


def _reading(environment: Environment) -> Iterator[Result]:
    place = _filled(environment, 1)
    lake, session = place.lake(), place.duckdb()
    path = lake.scan("orders_0").files[0].file.path
    ours, plain, theirs = in_turns(
        [
            lambda: lake.read("orders_0"),
            lambda: pq.read_table(path),
            lambda: session.execute("FROM orders_0").to_arrow_table(),
        ],
        environment.rounds(9),
    )
    what = f"read {ROWS:,} rows into Arrow"
    yield Result(what, "pyarrow, read_table", ours, plain)
    yield Result(what, "DuckDB, SELECT", ours, theirs)
    some = "city = 'city 17' AND price > 120"
    ours, theirs = in_turns(
        [
            lambda: lake.read("orders_0", columns=["id", "price"], where=some),
            lambda: session.execute(f"SELECT id, price FROM orders_0 WHERE {some}").to_arrow_table(),
        ],
        environment.rounds(9),
    )
    yield Result(f"read two columns of {ROWS:,} rows by a condition", "DuckDB, SELECT", ours, theirs)
    session.close()
    lake.close()


def _deleting(environment: Environment) -> Iterator[Result]:
    """Every delete has a table of its own: a second one on the same table would find nothing."""
    rounds = environment.rounds(5)
    place, other = _filled(environment, rounds + 1), _filled(environment, rounds + 1)
    lake, session = place.lake(), other.duckdb()

    def numbered(work: Callable[[str], object]) -> Callable[[], object]:
        names = (f"orders_{number}" for number in itertools.count())
        return lambda: work(next(names))

    def ours(name: str) -> None:
        with lake.transaction() as tx:
            tx.delete(name, DELETE)

    mine, theirs = in_turns(
        [numbered(ours), numbered(lambda name: session.execute(f"DELETE FROM {name} WHERE {DELETE}"))], rounds
    )
    left = [
        one.execute("SELECT count(*) FROM orders_0").fetchall() for one in (lake.duckdb(), other.duckdb())
    ]
    assert left[0] == left[1], f"both sides delete the same rows, but {left} are left"
    yield Result(f"delete a tenth of {ROWS:,} rows by a condition", "DuckDB, DELETE", mine, theirs)
    session.close()
    lake.close()
