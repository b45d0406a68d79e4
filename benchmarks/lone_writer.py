"""One commit after the other by a single writer: the latency that nobody else is to blame for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from benchmarks.environment import Environment
from benchmarks.measure import Result, in_turns

COMMITS = 20


def run(environment: Environment) -> Iterator[Result]:
    lake = environment.place().lake()
    session = environment.place().duckdb()
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "name": "varchar"})
    session.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
    row = pa.table({"id": [1], "name": ["one"]})

    def ours() -> None:
        for _ in range(COMMITS):
            with lake.transaction() as tx:
                tx.append("t", row)

    def theirs() -> None:
        for _ in range(COMMITS):
            session.execute("INSERT INTO t VALUES (1, 'one')")

    mine, other = in_turns([ours, theirs], environment.rounds(15), warm_up=2)
    yield Result(
        "commit of one row, lone writer",
        "DuckDB, INSERT",
        tuple(time / COMMITS for time in mine),
        tuple(time / COMMITS for time in other),
    )
    session.close()
    lake.close()
