"""Plans that are made once and run over other rows each time."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.algebra.relations import Scan
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


def _rows(dice: random.Random, count: int, *, nulls: bool = True) -> pa.Table:
    none: list[Any] = [None] if nulls else []
    return pa.Table.from_pylist(
        [
            {
                "k": dice.choice([*none, *range(6)]),
                "word": dice.choice([*none, "", "a", "ß", "long" * 9]),
                "amount": dice.choice([*none, Decimal(dice.randrange(-999, 999)) / 4]),
                "at": dice.choice([*none, dice.randrange(10**15)]),
            }
            for _ in range(count)
        ],
        _ARROW,
    )


def _over(session: LakeSpark, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    catalyst = Catalyst(session)
    text = re.sub(r"\b(FROM|JOIN) ([abc])\b(?! [xy])", r"\1 \2 AS \2", text)
    return catalyst.frame(session.jvm.over(session.jvm.without_named_queries(catalyst.parse(text)), frames))


class _Statement:
    """What `first_rows` asks of a statement, for a query over `a`, `b` and `c`."""

    def __init__(self, text: str):
        self.text = text
        named = re.findall(r"\b(?:FROM|JOIN) ([abc])\b", text)
        self.leaves = {leaf: Scan(leaf, (), ()) for leaf in named}
        self.programs: dict[Any, Any] = {}

    def over(
        self, session: LakeSpark, frame_of: Callable[[Scan], DataFrame], given: Mapping[str, DataFrame]
    ) -> DataFrame:
        return _over(session, self.text, given)


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
            assert made.schema.types == wanted.schema.types
            assert _sorted(made) == _sorted(wanted), count


@pytest.mark.parametrize("spread", [False, True], ids=["one task", "several tasks"])
@pytest.mark.parametrize("name", _QUERIES)
def test_plans_for_many_rows_give_the_same(
    session: LakeSpark, name: str, spread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_FEW", -1)
    monkeypatch.setattr(programs, "_MOST", -1 if spread else 10**9)
    dice = random.Random(name)
    text = _QUERIES[name]
    statement: Any = _Statement(text)
    for count, nulls in ((0, True), (12, True), (300, False), (40, False), (1200, True)):
        found = {
            leaf: Found(_rows(dice, count if leaf == "a" else min(count, 60), nulls=nulls), _SCHEMA)
            for leaf in statement.leaves
        }
        made = programs.first_rows(session, statement, programs._no_frame, found)
        frames = {leaf: each.data(session) for leaf, each in found.items()}
        wanted = _over(session, text, frames).toArrow()
        assert made is not None
        assert made.schema.types == wanted.schema.types
        assert _sorted(made) == _sorted(wanted), count
    planned = [program for known in statement.programs.values() for program in known]
    assert any(program is not None for _, program in planned)


_DECIMALS = st.StructType(
    [
        st.StructField("k", st.IntegerType()),
        st.StructField("w", st.IntegerType()),
        *(
            st.StructField(f"d{p}_{s}", st.DecimalType(p, s))
            for p, s in ((18, 0), (18, 6), (15, 2), (18, 9), (9, 2), (38, 2))
        ),
    ]
)


@pytest.mark.parametrize("nulls", [True, False])
def test_sums_of_decimals_are_exact(session: LakeSpark, nulls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added up as whole numbers, in halves: the largest and the least of each kind among them."""
    monkeypatch.setattr(programs, "_FEW", -1)
    kinds = [field.dataType for field in _DECIMALS.fields[2:]]
    sums = ", ".join(
        f"sum({d}), sum(CASE WHEN w < 0 THEN -({d}) ELSE {d} END), sum(CASE WHEN w > 0 THEN {d} END), "
        f"sum({d}) FILTER (WHERE w > 1), avg({d})"
        for d in _DECIMALS.names[2:]
    )
    named = iter(range(10**6))
    sums = re.sub(r"\)(, |$)", lambda found: f") AS s{next(named)}{found[1]}", sums)
    text = f"SELECT k, {sums} FROM a GROUP BY k"
    statement: Any = _Statement(text)
    dice = random.Random(3)

    def value(kind: Any) -> Decimal | None:
        if nulls and dice.random() < 0.2:
            return None
        # Of the widest kind a sum of the largest values would not fit.
        most = 10 ** min(kind.precision, 30) - 1
        return Decimal(dice.choice([most, -most, 0, 1, -1, dice.randint(-most, most)])).scaleb(-kind.scale)

    def columns(count: int) -> dict[str, list[Any]]:
        keys = [dice.choice([None, 1, 2, 3, 4]) if nulls else dice.randrange(4) for _ in range(count)]
        weights = [dice.choice([-1, 1, 2]) for _ in range(count)]
        numbers = [[value(kind) for _ in range(count)] for kind in kinds]
        return dict(zip(_DECIMALS.names, [keys, weights, *numbers], strict=True))

    for count in (0, 1, 30, 2000):
        rows = pa.table(columns(count), programs._arrow_schema(_DECIMALS))
        found = {"a": Found(rows, _DECIMALS)}
        made = programs.first_rows(session, statement, programs._no_frame, found)
        wanted = _over(session, text, {"a": found["a"].data(session)}).toArrow()
        assert made is not None
        assert made.schema.types == wanted.schema.types
        assert _sorted(made) == _sorted(wanted), count


def test_what_finds_no_memory_is_left_to_spark(session: LakeSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators of one task hold what they have at the same time; Spark's own plans have several."""
    text = " UNION ALL ".join("SELECT a.k, b.word FROM a JOIN b ON a.k = b.k" for _ in range(3))
    statement: Any = _Statement(text)
    dice = random.Random(5)
    found = {leaf: Found(_rows(dice, 50), _SCHEMA) for leaf in "ab"}
    monkeypatch.setattr(programs, "_FEW", -1)
    wanted = _over(session, text, {leaf: each.data(session) for leaf, each in found.items()}).toArrow()
    asked = []

    class OutOfMemoryError(Py4JJavaError):
        def __init__(self) -> None:
            pass

        def __str__(self) -> str:
            return "… SparkOutOfMemoryError: [UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 8 bytes of memory"

    def fail(self: Any, *_: Any) -> pa.Table:
        asked.append(self)
        raise OutOfMemoryError

    monkeypatch.setattr(programs.Program, "run", fail)
    made = programs.first_rows(session, statement, programs._no_frame, found)
    assert asked
    assert made is not None
    assert _sorted(made) == _sorted(wanted)


@pytest.mark.parametrize("spread", [False, True], ids=["one task", "several tasks"])
def test_many_rows_of_any_length_are_read_as_they_are(
    session: LakeSpark, spread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie one after the other in arrays, and tasks begin in the middle of them."""
    monkeypatch.setattr(programs, "_FEW", -1)
    monkeypatch.setattr(programs, "_MOST", -1 if spread else 10**9)
    statement: Any = _Statement(
        "SELECT k, count(*) AS n, sum(length(word)) AS w, sum(hash(word, amount, at)) AS h FROM a GROUP BY k"
    )
    dice = random.Random(7)
    for count, lengths in ((1001, [5 << 20, 3]), (140_000, [300, 70_000]), (1003, [1 << 16])):
        rows = _rows(dice, 500)
        rows = pa.concat_tables([rows] * (count // 500 + 1)).slice(0, count).combine_chunks()
        long = {dice.randrange(count): "é" * (length // 2) for length in lengths}
        words = [long.get(place, word) for place, word in enumerate(rows.column("word").to_pylist())]
        rows = rows.set_column(1, "word", pa.array(words))
        found = {"a": Found(rows, _SCHEMA)}
        made = programs.first_rows(session, statement, programs._no_frame, found)
        wanted = _over(session, statement.text, {"a": found["a"].data(session)}).toArrow()
        assert made is not None
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
