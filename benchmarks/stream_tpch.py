"""TPC-H, all 22 queries as stream tables: a refresh against computing the query anew, on Spark and in DuckDB.

A round deletes a share of the orders with their lines, inserts as many, and then takes each query in turn:
its stream table is refreshed, Spark computes the query at the same snapshot, DuckDB does too (in every other
round the other way round), and the stream table is compared with DuckDB's answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import geometric_mean, median
from typing import Any

import duckdb
import sqlglot

from benchmarks.environment import Environment, Place
from benchmarks.measure import Result, Work, seconds
from benchmarks.spark_session import spark_session
from benchmarks.spark_tpch import check_answer, generated
from headwater.refresh.model import Action, Definition, Mode
from headwater.refresh.streams import Streams
from headwater.spark.connector import LakeSpark
from headwater.spark.sql import run_sql
from headwater.typedefs import TableName

#: Shares of the orders that are deleted, and inserted, in each round.
SHARES = (0.001, 0.01, 0.1)
#: On average over the queries a refresh takes at most this part of computing anew …
TARGET = 1 / 5
#: … and no query takes longer than this.
WORST = 1.15


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    place = environment.place()
    session = generated(place, scale)
    queries = dict(session.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    lake = place.lake()
    with spark_session(environment) as spark:
        connector = LakeSpark(lake, spark)
        streams = Streams(lake, lambda: connector)
        for number, text in queries.items():
            streams.create(Definition(name_of(number), spark_text(text), mode=Mode.AUTO))
        changes = Changes(place, session)
        refresh_all(streams, queries)  # nothing changed; what is compiled once is compiled
        for share in environment.shares or SHARES:
            times: dict[int, list[tuple[float, float, float]]] = {number: [] for number in queries}
            actions: list[Action] = []
            for each in range(environment.rounds(6) + 1):
                environment.say(f"{share:.1%}: a round{'' if each else ' that does not count'} …")
                changes.apply(share)
                for number, text in queries.items():
                    name = str(name_of(number))
                    result: list[Any] = []
                    sides: list[Work] = [
                        lambda: result.extend(streams.refresh([name])),  # noqa: B023
                        lambda: run_sql(connector, spark_text(text)).toArrow(),  # noqa: B023
                        lambda: changes.answer(text),  # noqa: B023
                    ]
                    # Who comes first finds less of the data in memory: they take turns.
                    taken = {side: seconds(sides[side]) for side in (range(3) if each % 2 else (2, 1, 0))}
                    assert result[0].action is not Action.FAILED, result[0].reason
                    try:
                        check(session, name, number, text)
                    except AssertionError as error:
                        error.add_note(f"round {each} of {share:.1%}, after {result[0]}")
                        raise
                    if each:
                        times[number].append((taken[0], taken[1], taken[2]))
                        actions.append(result[0].action)
            yield from lines(times, actions, share, scale)
    session.close()
    lake.close()


def lines(
    times: dict[int, list[tuple[float, float, float]]], actions: Sequence[Action], share: float, scale: float
) -> Iterator[Result]:
    """The mean over the queries, the worst of them, then each query against DuckDB."""
    by_query = {
        number: tuple(tuple(each) for each in zip(*taken, strict=True)) for number, taken in times.items()
    }
    incremental = sum(action is Action.INCREMENTAL for action in actions)
    what = f"stream tables, TPC-H scale {scale:g}, {share:.1%} of orders changed"
    rounds = range(len(next(iter(times.values()))))
    for against, side in (("computing anew, Spark", 1), ("computing anew, DuckDB", 2)):
        means = [
            tuple(geometric_mean([by_query[q][place][each] for q in by_query]) for each in rounds)
            for place in (0, side)
        ]
        target = TARGET if side == 1 else None
        yield Result(f"{what} ({incremental} of {len(actions)} incremental)", against, *means, target)
    ratios = {q: median(o / a for o, a in zip(t[0], t[1], strict=True)) for q, t in by_query.items()}
    worst = max(ratios, key=lambda q: ratios[q])
    yield Result(
        f"… worst, query {worst}", "computing anew, Spark", by_query[worst][0], by_query[worst][1], WORST
    )
    for number, (ours, anew, duck) in by_query.items():
        yield Result(f"… query {number}", "computing anew, Spark", ours, anew)
        yield Result(f"… query {number}", "computing anew, DuckDB", ours, duck)


class Changes:
    """Orders with their lines, deleted and inserted as one snapshot each."""

    def __init__(self, place: Place, session: duckdb.DuckDBPyConnection):
        self.session = session
        self.round = 0
        session.execute("USE lake")
        found = session.execute("SELECT max(o_orderkey) FROM orders").fetchone()
        self.next_key = int(found[0]) + 1 if found else 1

    def apply(self, share: float) -> None:
        """Delete a share of the orders, and insert as many under new keys."""
        self.round += 1
        every = round(1 / share)
        chosen = f"hash(o_orderkey + {self.round}) % {every} = 0"
        self.session.execute(
            "CREATE OR REPLACE TABLE memory.main.fresh AS SELECT * REPLACE "
            f"((row_number() OVER () + {self.next_key})::BIGINT AS o_orderkey), o_orderkey AS old_key "
            f"FROM orders WHERE hash(o_orderkey + {self.round + 7}) % {every} = 0"
        )
        self.session.execute(
            "CREATE OR REPLACE TABLE memory.main.fresh_lines AS "
            "SELECT l.* REPLACE (f.o_orderkey AS l_orderkey) "
            "FROM lineitem l JOIN memory.main.fresh f ON l.l_orderkey = f.old_key"
        )
        self.session.execute("BEGIN")
        self.session.execute(
            f"DELETE FROM lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM orders WHERE {chosen})"
        )
        self.session.execute(f"DELETE FROM orders WHERE {chosen}")
        self.session.execute("COMMIT")
        self.session.execute("BEGIN")
        self.session.execute("INSERT INTO orders SELECT * EXCLUDE (old_key) FROM memory.main.fresh")
        self.session.execute("INSERT INTO lineitem FROM memory.main.fresh_lines")
        self.session.execute("COMMIT")
        count = self.session.execute("SELECT count(*) FROM memory.main.fresh").fetchone()
        self.next_key += int(count[0]) + 1 if count else 1

    def answer(self, text: str) -> list[Any]:
        """DuckDB's answer to a query now."""
        return self.session.execute(text).fetchall()


def refresh_all(streams: Streams, queries: dict[int, str]) -> None:
    for number in queries:
        streams.refresh([name_of(number)])


def name_of(number: int) -> TableName:
    return TableName("main", f"stream_{number}")


def spark_text(text: str) -> str:
    return sqlglot.transpile(text, read="duckdb", write="spark")[0].rstrip(";")


def check(session: duckdb.DuckDBPyConnection, name: str, number: int, text: str) -> None:
    """Compare a stream table with DuckDB's answer.

    Inserted orders are copies of others, so rows often tie, and which of them are among the first is open:
    then the columns that they are ordered by are compared, and each row has to be in the whole answer.
    """
    tree = sqlglot.parse_one(text, read="duckdb")
    columns = "*"
    if tree.args.get("limit"):
        columns = ", ".join(each.this.sql(dialect="duckdb") for each in tree.args["order"].expressions)
        tree.args["limit"].pop()
        strange = session.execute(f"FROM {name} EXCEPT ({tree.sql(dialect='duckdb')})").fetchall()
        assert not strange, f"query {number}: rows that DuckDB does not find: {strange[:5]}"
    found = session.execute(f"SELECT {columns} FROM {name}").fetchall()
    expected = session.execute(f"SELECT {columns} FROM ({text.rstrip().rstrip(';')})").fetchall()
    try:
        check_answer(number, found, expected)
    except AssertionError as error:
        ours, theirs = set(map(str, found)), set(map(str, expected))
        error.add_note(f"ours alone: {sorted(ours - theirs)[:5]}, DuckDB's: {sorted(theirs - ours)[:5]}")
        raise


__all__ = ["Changes", "run"]
