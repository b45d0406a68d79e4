"""Conditions are read as SQL means them, NULL included, and what is not understood is said to be."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.algebra.predicates import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Opaque,
    Or,
    StartsWith,
    columns,
    parse_predicate,
    to_sql,
)
from headwater.errors import InvalidInputError

A, B = ("a",), ("b",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 5", Comparison(A, ">", 5)),
        ("5 < a", Comparison(A, ">", 5)),
        ("(a) == (5)", Comparison(A, "=", 5)),
        ('"a" != -5', Comparison(A, "<>", -5)),
        ("a >= -1.50", Comparison(A, ">=", Decimal("-1.50"))),
        ("a < 1e3", Comparison(A, "<", 1000.0)),
        ("a = 'it''s'", Comparison(A, "=", "it's")),
        ("a = 1_000", Comparison(A, "=", 1000)),
        ("a = DATE '2020-02-29'", Comparison(A, "=", date(2020, 2, 29))),
        ("a = '2020-02-29'::date", Comparison(A, "=", date(2020, 2, 29))),
        (
            "a = TIMESTAMP '2020-02-29 10:00:00.5'",
            Comparison(A, "=", datetime.fromisoformat("2020-02-29T10:00:00.500")),
        ),
        ("a = TIMESTAMP '2020-02-29'", Comparison(A, "=", datetime.fromisoformat("2020-02-29"))),
        (
            "a = TIMESTAMPTZ '2020-02-29 01:00:00+02:30'",
            Comparison(A, "=", datetime(2020, 2, 28, 22, 30, tzinfo=UTC)),
        ),
        ("a = TIME '23:59:59.000001'", Comparison(A, "=", time(23, 59, 59, 1))),
        ("a = CAST('5' AS DECIMAL(10, 2))", Comparison(A, "=", Decimal("5.00"))),
        ("a = '7'::bigint", Comparison(A, "=", 7)),
        ("a = 7::double", Comparison(A, "=", 7.0)),
        (r"a = '\xAAx'::blob", Comparison(A, "=", b"\xaax")),
        (
            "a = '6BA7B810-9dad-11d1-80b4-00c04fd430c8'::uuid",
            Comparison(A, "=", UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
        ),
        ("a", Comparison(A, "=", True)),
        ("NOT a", Comparison(A, "<>", True)),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("a IN (1, 2)", In(A, (1, 2))),
        ("a NOT IN (1, NULL)", Not(In(A, (1, None)))),
        ("a IN (1, 2e0)", In(A, (1.0, 2.0))),
        ("a BETWEEN 1 AND 2", And((Comparison(A, ">=", 1), Comparison(A, "<=", 2)))),
        ("a NOT BETWEEN 1 AND 2", Or((Comparison(A, "<", 1), Comparison(A, ">", 2)))),
        ("a LIKE 'ab%'", StartsWith(A, "ab")),
        ("a NOT LIKE 'ab%'", Not(StartsWith(A, "ab"))),
        ("a LIKE '%ab'", Like(A, "%ab")),
        ("a LIKE 'ab'", Like(A, "ab")),
        ("NOT a LIKE '%ab%c%'", Not(Like(A, "%ab%c%"))),
        ("substring(a, 1, 2) = 'ab'", StartsWith(A, "ab")),
        ("substr(a, 1, 1) <> 'é'", Not(StartsWith(A, "é"))),
        ("substring(a, 1, 2) IN ('ab', 'cd')", Or((StartsWith(A, "ab"), StartsWith(A, "cd")))),
        ("NOT starts_with(a, 'ab')", Not(StartsWith(A, "ab"))),
        ("prefix(a, 'ab')", StartsWith(A, "ab")),
        ("a ^@ 'ab'", StartsWith(A, "ab")),
        ("s.x = 1", Comparison(("s", "x"), "=", 1)),
        ("s['x'].y = 1", Comparison(("s", "x", "y"), "=", 1)),
        ("t.s.x.y.z = 1", Comparison(("t", "s", "x", "y", "z"), "=", 1)),
        ("a = NULL", Constant(None)),
        ("NOT a <> NULL", Constant(None)),
        ("TRUE", Constant(True)),
        ("NOT (a > 5)", Comparison(A, "<=", 5)),
        ("NOT (a > 5 AND b = 'x')", Or((Comparison(A, "<=", 5), Comparison(B, "<>", "x")))),
        ("NOT (a > 5 OR NOT b IS NULL)", And((Comparison(A, "<=", 5), IsNull(B)))),
        ("a IS DISTINCT FROM 5", Or((IsNull(A), Comparison(A, "<>", 5)))),
        ("a IS NOT DISTINCT FROM NULL", IsNull(A)),
        ("a IS TRUE", And((Not(IsNull(A)), Comparison(A, "=", True)))),
        ("a = 1 AND b = 2 -- with a comment", And((Comparison(A, "=", 1), Comparison(B, "=", 2)))),
    ],
)
def test_understood_conditions_become_a_tree(text, expected):
    assert parse_predicate(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a + 1 > 5",
        "a < b",
        "upper(a) = 'X'",
        "a LIKE 'a_c%'",
        r"a LIKE '%a\%'",
        "substring(a, 2, 2) = 'ab'",
        "substring(a, 1, 2) = 'abc'",
        "substring(a, 1) = 'ab'",
        "substring(a, 1, 2) IN ('ab', NULL)",
        "a NOT LIKE 'x$%' ESCAPE '$'",
        "a ILIKE 'x%'",
        "a = 'x' COLLATE NOCASE",
        "a BETWEEN SYMMETRIC 2 AND 1",
        "a IN (1, '2')",
        "a IN (1, b)",
        "a = DATE '44-3-15'",
        "a = DATE 'today'",
        "a = TIMESTAMPTZ '2020-01-01 00:00:00'",
        "a = 'nan'::double",
        "a = 1.55::decimal(3, 1)",
        "a = 300::tinyint",
        "a::date = DATE '2020-01-01'",
        "a = now()",
        "l[1] = 2",
    ],
)
def test_what_is_not_certain_is_opaque(text):
    assert isinstance(parse_predicate(text), Opaque)


def test_opaque_parts_keep_the_rest_useful():
    predicate = parse_predicate("a > 5 AND NOT (upper(b) = s.x)")
    assert predicate == And((Comparison(A, ">", 5), Not(Opaque("UPPER(b) = s.x", (B, ("s", "x"))))))
    assert columns(predicate) == (A, B, ("s", "x"))


@pytest.mark.parametrize(
    "text", ["a = NULL", "NOT NULL > a", "a BETWEEN NULL AND NULL", "TRUE OR a IN (NULL)"]
)
def test_columns_that_decide_nothing_are_still_named(text):
    assert columns(parse_predicate(text)) == (A,)


def test_variables_of_a_lambda_are_not_columns():
    assert columns(parse_predicate("len(list_filter(l, x -> x > a)) > 1")) == (("l",), A)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a >", 1, 3),
        ("a > 5\n  AND AND b", 2, 9),
        ("a > 5) OR (1 = 1", 1, 6),
        ("a > 5; DROP TABLE t", 1, 6),
        ("a > 5 AS b", 1, 8),
        ("SELECT 1", 1, 6),
    ],
)
def test_syntax_errors_say_where(text, line, column):
    with pytest.raises(InvalidInputError) as caught:
        parse_predicate(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  -- nothing",
        "5",
        "'x'",
        "a + 1",
        "*",
        "a = ?",
        "a = $1",
        "#1 = 5",
        "a IN (SELECT 1)",
        "EXISTS (SELECT 1)",
        "max(a) = 2",
        "row_number() OVER () = 1",
        "a = 'open",
        "(" * 5000 + "a" + ")" * 5000,
    ],
)
def test_what_is_not_one_condition_over_a_row_is_refused(text):
    with pytest.raises(InvalidInputError, match="not a condition"):
        parse_predicate(text)


def test_long_chains_are_flat():
    predicate = parse_predicate(" OR ".join(f"a = {i}" for i in range(2000)))
    assert isinstance(predicate, Or)
    assert len(predicate.parts) == 2000


numbers = st.one_of(
    st.integers(-3, 3).map(str),
    st.sampled_from(["1.5", "-0.5", "2e0", "NULL", "'1'", "1::bigint", "1.0::decimal(4,2)"]),
)
texts = st.sampled_from(["'a'", "'b'", "'ab'", "''", "NULL", "'a'::varchar"])
leaves = st.one_of(
    st.builds(
        "{} {} {}".format, st.sampled_from("ij"), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers
    ),
    st.builds(
        "{} {} {}".format, numbers, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.sampled_from("ij")
    ),
    st.builds("v {} {}".format, st.sampled_from(["=", "<>", "<", "IS DISTINCT FROM"]), texts),
    st.builds("i IN ({}, {})".format, numbers, numbers),
    st.builds("i NOT IN ({}, {})".format, numbers, numbers),
    st.builds("j BETWEEN {} AND {}".format, numbers, numbers),
    st.builds("i IS {} DISTINCT FROM {}".format, st.sampled_from(["", "NOT"]), numbers),
    st.sampled_from(
        [
            "i IS NULL",
            "v NOTNULL",
            "v LIKE 'a%'",
            "v NOT LIKE 'a%'",
            "f",
            "NOT f",
            "f IS TRUE",
            "f IS NOT FALSE",
            "f = FALSE",
            "upper(v) = 'A'",
            "i + 1 > j",
            "TRUE",
            "NULL",
        ]
    ),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def rows():
    connection = duckdb.connect()
    connection.execute(
        """
        CREATE TABLE t AS SELECT i, j, v, f
        FROM unnest([-1, 0, 1, 2, NULL]) a(i), unnest([-2, 1, NULL]) b(j),
             unnest(['a', 'ab', 'b', '', NULL]) c(v), unnest([true, false, NULL]) d(f)
        """
    )
    yield connection
    connection.close()


@settings(max_examples=150, deadline=None)
@given(text=conditions)
def test_the_tree_means_what_the_text_means(rows, text):
    """For every row, NULLs included: true, false or NULL as DuckDB has it."""
    tree = to_sql(parse_predicate(text))
    differing = rows.execute(
        f"SELECT count(*) FROM t WHERE (({text})::BOOLEAN) IS DISTINCT FROM (({tree})::BOOLEAN)"
    ).fetchone()
    assert differing == (0,), tree
