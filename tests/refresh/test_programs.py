"""Plans that are made once and run over other rows each time."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.refresh import programs
from headwater.refresh.local_rows import Found
from headwater.spark.connector import LakeSpark
from headwater.spark.sql.catalyst import Catalyst

_SCHEMA = st.StructType(
    [
        st.StructField("k", st.IntegerType()),
        st.StructField("word", st.StringType()),
        st.StructField("amount", st.DecimalType(12, 2)),
        st.StructField("at", st.TimestampType()),
    ]
)
_ARROW = pa.schema(
    {
        "k": pa.int32(),
        "word": pa.string(),
        "amount": pa.decimal128(12, 2),
        "at": pa.timestamp("us", "UTC"),
    }
)
_QUERIES = {
    "join": "SELECT a.k, a.word, b.amount, b.at FROM a JOIN b ON a.k = b.k AND a.word <=> b.word",
    "outer join": "SELECT a.k, b.word, c.amount FROM a FULL JOIN b ON a.k = b.k LEFT JOIN c ON b.k = c.k",
    "unequal join": "SELECT a.k, b.k AS other FROM a LEFT JOIN b ON a.amount < b.amount AND a.k <> b.k",
    "groups": "SELECT word, count(*) AS n, sum(amount) AS total, max(at) AS last FROM a GROUP BY word",
    "everything": "SELECT count(*) AS n, sum(k) AS total FROM a",
    "union": "SELECT k, sum(n) AS n FROM (SELECT k, 1 AS n FROM a UNION ALL SELECT k, -1 FROM b) GROUP BY k",
    "distinct": "SELECT DISTINCT a.k, a.word FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "not in": "SELECT k FROM a WHERE k NOT IN (SELECT k FROM b)",
    "window": "SELECT k, amount, row_number() OVER (PARTITION BY word ORDER BY k, amount, at) AS n FROM a",
    "the same twice": "SELECT x.k, y.word FROM a x JOIN a y ON x.k = y.k JOIN b ON b.k = x.k",
    "a constant": "SELECT x.n, a.k FROM (SELECT 1 AS n) x LEFT JOIN a ON a.k = x.n",
    "first": "SELECT k, word FROM a ORDER BY k NULLS LAST, word, amount, at LIMIT 3",
}


def _rows(dice: random.Random, count: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "k": dice.choice([None, *range(6)]),
                "word": dice.choice([None, "", "a", "ß", "long" * 9]),
                "amount": dice.choice([None, Decimal(dice.randrange(-999, 999)) / 4]),
                "at": dice.choice([None, dice.randrange(10**15)]),
            }
            for _ in range(count)
        ],
        _ARROW,
    )


def _over(session: LakeSpark, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    catalyst = Catalyst(session)
    text = re.sub(r"\b(FROM|JOIN) ([abc])\b(?! [xy])", r"\1 \2 AS \2", text)
    return catalyst.frame(session.jvm.over(session.jvm.without_named_queries(catalyst.parse(text)), frames))


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


@pytest.mark.parametrize(
    "settings", [programs._INTERPRETED, programs._ALONE], ids=["interpreted", "compiled"]
)
@pytest.mark.parametrize("name", _QUERIES)
def test_a_plan_gives_what_spark_gives_for_the_rows_of_each_time(
    session: LakeSpark, name: str, settings: Mapping[str, str]
) -> None:
    dice = random.Random(name)
    with programs._set(session, settings):
        places = {leaf: session.jvm.place(session.spark, leaf, _SCHEMA) for leaf in "abc"}
        plan = session.jvm.planned(_over(session, _QUERIES[name], places))
        assert plan is not None
        for count in (0, 12, 1, 40, 1200):
            rows = {leaf: _rows(dice, dice.choice([0, min(count, 40)])) for leaf in "bc"}
            rows["a"] = _rows(dice, count)
            found = {leaf: Found(table, _SCHEMA) for leaf, table in rows.items()}
            frames = {leaf: each.data(session) for leaf, each in found.items()}
            expected = _over(session, _QUERIES[name], frames)
            schema = programs._arrow_schema(expected.schema)
            held = {leaf: each.held(session) for leaf, each in found.items()}
            made = session.jvm.run(session.spark, plan, held, schema)
            wanted = expected.toArrow()
            assert made.schema.equals(wanted.schema)
            assert _sorted(made) == _sorted(wanted), count


def test_a_plan_that_asks_another_query_first_is_not_kept(session: LakeSpark) -> None:
    """Its answer would be that of the first time."""
    text = "SELECT k FROM a WHERE k > (SELECT max(k) FROM b)"
    with programs._set(session, programs._ALONE):
        places = {leaf: session.jvm.place(session.spark, leaf, _SCHEMA) for leaf in "ab"}
        assert session.jvm.planned(_over(session, text, places)) is None


def test_many_rows_of_a_plan_are_gone_when_it_has_run(session: LakeSpark) -> None:
    """Few are sent along with the task; these are left with Spark's blocks, which it never forgets itself."""

    def room() -> int:
        status = str(session.spark._jsc.sc().getExecutorMemoryStatus())
        return int(re.findall(r",(\d+)\)", status)[0])

    times = 40  # what other tests left behind comes and goes meanwhile, some megabytes of it
    dice = random.Random(1)
    rows = _rows(dice, 20_000)
    with programs._set(session, programs._ALONE):
        places = {"a": session.jvm.place(session.spark, "a", _SCHEMA)}
        frame = _over(session, "SELECT k FROM a WHERE k > 1000", places)
        plan = session.jvm.planned(frame)
        before = room()
        held = {"a": Found(rows, _SCHEMA).held(session)}
        for _ in range(times):
            schema = programs._arrow_schema(frame.schema)
            assert not session.jvm.run(session.spark, plan, held, schema).num_rows
        assert before - room() < times * rows.nbytes / 2
