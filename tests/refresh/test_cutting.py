"""Rows that are left out before anything is looked up for them or computed with them."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import types as st

from headwater.algebra.narrowing import Link
from headwater.algebra.predicates import parse_predicate, says_something
from headwater.refresh import computing, narrowing
from headwater.refresh.cutting import Cutting
from headwater.refresh.excluding import without_excluded
from headwater.refresh.local_rows import Found
from headwater.refresh.model import Action
from tests.refresh.conftest import World

SCHEMA = st.StructType([st.StructField("k", st.IntegerType())])


def found(*values: int | None) -> Found:
    return Found(pa.table({"k": pa.array(values, pa.int32())}), SCHEMA)


def link(*leaves: str, nulls: bool = False) -> Link:
    return Link("k", frozenset((leaf, "k") for leaf in leaves), nulls)


def cut(known: Mapping[str, Found], links: Mapping[str, list[Link]]) -> dict[str, list[int | None]]:
    left = dict(known)
    Cutting(links, 0).run(left)
    return {leaf: each.rows.column("k").to_pylist() for leaf, each in left.items()}


def test_rows_stay_that_lead_to_a_row_and_those_these_lead_to() -> None:
    known = {"a": found(*range(100), *range(100)), "b": found(*range(50)), "c": found(3, 70)}
    links = {"a": [link("b")], "b": [link("c")]}
    assert cut(known, links) == {"a": [3, 3], "b": [3], "c": [3, 70]}


def test_nothing_is_left_where_nothing_is_met() -> None:
    known = {"a": found(1, 2, 3, 4), "b": found(5), "c": found()}
    links = {"a": [link("b"), link("c")], "b": [link("a"), link("c")], "c": [link("a")]}
    assert cut(known, links) == {"a": [], "b": [], "c": []}


@pytest.mark.parametrize(
    ("nulls", "other", "left"), [(False, None, [3]), (True, None, [None, 3, None]), (True, 9, [3])]
)
def test_null_is_met_where_it_is_a_value_and_there(
    nulls: bool, other: int | None, left: list[int | None]
) -> None:
    known = {"a": found(None, 1, 2, 3, None, 4, 5), "b": found(3, other)}
    assert cut(known, {"a": [link("b", nulls=nulls)]})["a"] == left


def test_values_of_several_scans_count_and_of_those_that_are_not_here_nothing_is_known() -> None:
    known = {"a": found(1, 2, 3, 4, 5, 6), "b": found(1), "c": found(2)}
    assert cut(known, {"a": [link("b", "c")]})["a"] == [1, 2]
    assert cut(known, {"a": [link("b", "d")]})["a"] == [1, 2, 3, 4, 5, 6]


TEXTS = (
    "",
    "a",
    "ab",
    "abc",
    "xab",
    "a\nb",
    "ab\ncab",
    "éa",
    "e\u0301a",
    "a%b",
    "a_b",
    "AB",
    None,
    "13-5",
    "31",
    "1",
)


@pytest.mark.parametrize(
    "condition",
    [
        "v LIKE '%b'",
        "v LIKE 'a%b'",
        "v LIKE 'ab'",
        "v LIKE '%'",
        "v NOT LIKE '%a%b%'",
        "v NOT LIKE 'a%'",
        "substring(v, 1, 2) IN ('13', '31')",
        "substring(v, 1, 1) <> 'é'",
        "v LIKE '%\u0301%' OR v = 'ab'",
        "v LIKE '%a%' AND NOT (v LIKE '%b' OR v IS NULL)",
    ],
)
def test_conditions_on_texts_leave_what_duckdb_leaves(condition: str) -> None:
    rows = pa.table({"v": pa.array(TEXTS, pa.string())})
    predicate = parse_predicate(condition, "spark")
    assert says_something(predicate)
    expected = duckdb.sql(f"SELECT v FROM rows WHERE {condition}").fetchall()
    assert [(v,) for v in without_excluded(rows, predicate).column("v").to_pylist()] == expected


def test_what_is_not_understood_leaves_all_rows() -> None:
    rows = pa.table({"v": pa.array(TEXTS, pa.string())})
    predicate = parse_predicate("upper(v) = 'AB' OR v = 'a'", "spark")
    assert not says_something(predicate)
    assert without_excluded(rows, predicate).num_rows == len(TEXTS)


def test_changes_that_lead_to_nothing_reach_neither_lookups_nor_spark(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the changed lines only those of green parts matter, and of suppliers in one region."""
    monkeypatch.setattr(narrowing, "_MUCH", 100)
    monkeypatch.setattr(narrowing, "_WHOLE", 100)
    world.run(
        "CREATE TABLE part (p INT, name VARCHAR)",
        "INSERT INTO part "
        "SELECT range, CASE range % 50 WHEN 7 THEN 'light green' ELSE 'red' END FROM range(4000)",
        "CREATE TABLE supplier (s INT, region INT)",
        "INSERT INTO supplier SELECT range, range % 5 FROM range(50)",
        "CREATE TABLE line (p INT, s INT, qty INT)",
        "INSERT INTO line SELECT range % 4000, range % 50, range % 30 FROM range(8000)",
    )
    world.make(
        "green",
        "SELECT line.s, count(*) AS n, sum(qty) AS qty FROM line, part, supplier "
        "WHERE name LIKE '%green%' AND ("
        "(line.p = part.p AND line.s = supplier.s AND region = 2 AND qty < 10) OR "
        "(line.s = supplier.s AND line.p = part.p AND region = 2 AND qty > 20)) GROUP BY line.s",
    )
    seen: list[int] = []
    real = computing.first_rows

    def spy(session, statement, frame_of, rows):  # type: ignore[no-untyped-def]
        assert len(rows) == len(statement.leaves)
        seen.append(sum(each.rows.num_rows for each in rows.values()))
        return real(session, statement, frame_of, rows)

    monkeypatch.setattr(computing, "first_rows", spy)
    world.run(
        "DELETE FROM line WHERE p % 4 = 3",
        "INSERT INTO line SELECT range % 4000, range % 50, range % 30 FROM range(8000, 11000)",
    )
    assert world.refresh()["green"].action is Action.INCREMENTAL
    world.check()
    assert 0 < sum(seen) < 300  # of five thousand that changed
