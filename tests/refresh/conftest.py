"""Stream tables on real parts: the lake's PostgreSQL, Spark, and DuckDB as the judge."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.lake.lake import Lake
from headwater.refresh import deciding
from headwater.refresh.model import Action, Definition, Mode, RefreshResult
from headwater.refresh.streams import Streams
from headwater.spark.connector import LakeSpark
from headwater.typedefs import TableName
from tests.spark.conftest import con, session, spark
from tests.spark.judging import plain


class World:
    """A lake with stream tables, and DuckDB beside it."""

    def __init__(self, lake: Lake, session: LakeSpark, con: Any):
        self.lake = lake
        self.session = session
        self.con = con
        self.streams = Streams(lake, lambda: session)
        self.queries: dict[str, str] = {}

    def run(self, *statements: str) -> None:
        """Statements of DuckDB's, one after the other."""
        for text in statements:
            self.con.execute(text)

    def make(self, name: str, query: str, mode: Mode = Mode.STRICT, **options: str) -> RefreshResult:
        definition = Definition(TableName("main", name), query, mode=mode, options=options)
        self.queries[name] = query
        return self.streams.create(definition)

    def refresh(self, *names: str, full: bool = False) -> dict[str, RefreshResult]:
        found = self.streams.refresh(list(names) or None, full=full)
        return {table_of(result.name): result for result in found}

    def rows(self, text: str) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(map(rounded, row)) for row in self.con.execute(text).fetchall())

    def check(self, *names: str) -> None:
        """Stream tables are what DuckDB says that their queries are."""
        for name in names or self.queries:
            found, expected = self.rows(f"FROM {name}"), self.rows(self.queries[name])
            assert _same(found, expected), (
                f"{name}: {(expected - found).most_common(3)}, {(found - expected).most_common(3)}"
            )

    def snapshots(self) -> int:
        return self.lake.snapshot().id


def _same(found: Counter[tuple[Any, ...]], expected: Counter[tuple[Any, ...]]) -> bool:
    """Averages differ in their last digits: Spark's are decimals of a few places, DuckDB's doubles."""
    if found == expected:
        return True
    ours, theirs = (sorted(each.elements(), key=_roughly) for each in (found, expected))
    return len(ours) == len(theirs) and all(map(_close, ours, theirs))


def _roughly(row: tuple[Any, ...]) -> list[str]:
    return [f"{value:.3g}" if isinstance(value, float) else repr(value) for value in row]


def _close(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=2e-6)
        if isinstance(a, float) and isinstance(b, float)
        else a == b
        for a, b in zip(one, other, strict=True)
    )


def table_of(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def rounded(value: Any) -> Any:
    """Numbers of equal value alike: 2, 2.0 and Decimal('2.00')."""
    found = plain(value)
    number = isinstance(found, (int, float, Decimal)) and not isinstance(found, bool)
    return float(found) if number else found


@pytest.fixture
def world(lake: Lake, session: LakeSpark, con: Any, monkeypatch: pytest.MonkeyPatch) -> World:
    # What `auto` tries is not to depend on how busy the machine is.
    monkeypatch.setattr(deciding, "_untried", lambda *_: None)
    return World(lake, session, con)


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """How many Spark jobs ran since the last time one asked."""
    context = spark.sparkContext
    group = "counted"
    context.setJobGroup(group, "counted jobs")
    seen: set[int] = set()

    def count() -> int:
        now = set(context.statusTracker().getJobIdsForGroup(group))
        fresh = now - seen
        seen.update(now)
        return len(fresh)

    yield count
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def actions(results: dict[str, RefreshResult]) -> dict[str, Action]:
    return {name: result.action for name, result in results.items()}


__all__: Sequence[str] = ("World", "actions", "con", "session", "spark")
