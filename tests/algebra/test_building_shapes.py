"""Which operators a query becomes: what can be kept incrementally must come out as such."""

from __future__ import annotations

from typing import TypeVar

import pytest
import sqlglot
from tests.algebra.building_world import build, expected, filled, result, rows

from headwater.algebra.alone import as_a_whole
from headwater.algebra.relations import (
    Aggregate,
    Filter,
    Join,
    Opaque,
    Project,
    Relation,
    Scan,
    Semi,
    TopK,
    UnionAll,
    Window,
)
from headwater.algebra.render import render

T = TypeVar("T", bound=Relation)


def kinds(sql: str) -> list[str]:
    return [type(one).__name__ for one in build(sql).relation.walk()]


def only(sql: str, kind: type[T]) -> T:
    (found,) = [one for one in build(sql).relation.walk() if isinstance(one, kind)]
    return found


def text(node: object) -> str:
    return node.sql(dialect="spark") if isinstance(node, sqlglot.exp.Expr) else str(node)


def test_only_columns_that_are_used_are_read() -> None:
    scan = only("SELECT a FROM r WHERE b > 1", Scan)
    assert scan.source == "sales.r"
    assert [stored for _, stored in scan.fields] == ["a", "b"]
    assert [stored for _, stored in scan.key_fields] == ["rowid"]


def test_names_are_readable_and_unique() -> None:
    query = build("SELECT p.a, q.a AS other FROM r p JOIN r q ON p.a = q.b")
    assert query.outputs == (("a", "a"), ("other", "a_2"))


def test_a_plain_select_needs_no_projection() -> None:
    assert kinds("SELECT a, b FROM r WHERE a > 1") == ["Filter", "Scan"]


def test_joins_keep_their_condition_and_where_stands_above() -> None:
    assert kinds("SELECT r.a FROM r, s WHERE r.a = s.a") == ["Project", "Filter", "Join", "Scan", "Scan"]
    join = only("SELECT r.a FROM r JOIN s ON r.a = s.a AND r.b > s.b", Join)
    assert text(join.condition) == "`a` = `a_2` AND `b` > `b_2`"


def test_a_right_join_is_a_left_join_the_other_way_round() -> None:
    join = only("SELECT r.a FROM r RIGHT JOIN s ON r.a = s.a", Join)
    assert join.kind == "left"
    assert [one.source for one in join.walk() if isinstance(one, Scan)] == ["sales.s", "sales.r"]


@pytest.mark.parametrize(
    ("sql", "anti"),
    [
        ("SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y > 1)", False),
        ("SELECT a FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y > 1)", True),
        ("SELECT a FROM r WHERE a IN (SELECT a FROM s WHERE y > 1)", False),
        ("SELECT a FROM r LEFT ANTI JOIN (SELECT a FROM s WHERE y > 1) q ON r.a = q.a", True),
    ],
)
def test_membership_is_a_semi_join_with_the_subquerys_own_conditions_below(sql: str, anti: bool) -> None:
    semi = only(sql, Semi)
    assert semi.anti is anti
    assert text(semi.condition) in ("`a_2` = `a`", "`a` = `a_2`")
    (condition,) = [one.condition for one in semi.right.walk() if isinstance(one, Filter)]
    assert text(condition) == "`y` > 1"


def test_groups_and_arguments_are_columns() -> None:
    aggregate = only(
        "SELECT a + 1 AS k, sum(b * 2) AS w, sum(b * 2) / 3 AS z FROM r GROUP BY a + 1", Aggregate
    )
    assert aggregate.groups == ("k",)
    assert [(name, text(call)) for name, call in aggregate.aggregates] == [("w", "SUM(`argument`)")]
    assert isinstance(aggregate.child, Project)


def test_a_filter_of_an_aggregate_is_a_column_too() -> None:
    aggregate = only("SELECT count(*) FILTER (WHERE b > 1) AS n FROM r", Aggregate)
    assert text(aggregate.aggregates[0][1]) == "COUNT(*) FILTER(WHERE `argument`)"


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY b)",
            "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY `b`)",
        ),
        ("listagg(c) WITHIN GROUP (ORDER BY c)", "LISTAGG(`c`, '') WITHIN GROUP (ORDER BY `c`)"),
        ("string_agg(DISTINCT c, '-')", "LISTAGG(DISTINCT `c`, '-')"),
        ("max_by(c, b, 2)", "MAX_BY(`c`, `b`, 2)"),
        ("min_by(c, b)", "MIN_BY(`c`, `b`)"),
        ("collect_list(b)", "COLLECT_LIST(`b`)"),
        ("count(DISTINCT a, b)", "COUNT(DISTINCT `a`, `b`)"),
        ("first(b) IGNORE NULLS", "FIRST(`b`) IGNORE NULLS"),
    ],
)
def test_an_aggregate_is_written_as_it_was_read(call: str, written: str) -> None:
    assert text(only(f"SELECT {call} AS m FROM r", Aggregate).aggregates[0][1]) == written


@pytest.mark.parametrize(
    ("call", "written"),
    [
        ("to_char(x, '99.9')", "TO_CHAR(`x`, '99.9')"),
        ("parse_json(c)", "PARSE_JSON(`c`)"),
        ("unix_date(d)", "UNIX_DATE(`d`)"),
        ("instr(c, 'x', -1, 1)", "INSTR(`c`, 'x', -1, 1)"),
        ("cast(c AS TIME)", "CAST(`c` AS TIME)"),
        ("transform(array(a), e -> e + b)", "TRANSFORM(ARRAY(`a`), e -> e + `b`)"),
    ],
)
def test_a_function_is_written_as_it_was_read(call: str, written: str) -> None:
    assert text(only(f"SELECT {call} AS m FROM r", Project).outputs[0][1]) == written


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT a FROM r WHERE b < (SELECT max(y) FROM s WHERE s.a = r.a)", "inner"),
        ("SELECT a FROM r WHERE b < 2 * (SELECT avg(y) + 1 FROM s WHERE s.a = r.a)", "inner"),
        ("SELECT a FROM r WHERE b < (SELECT count(y) FROM s WHERE s.a = r.a)", "left"),
        ("SELECT a FROM r WHERE b < (SELECT coalesce(max(y), 0) FROM s WHERE s.a = r.a)", "left"),
        ("SELECT a FROM r WHERE b <=> (SELECT max(y) FROM s WHERE s.a = r.a)", "left"),
        ("SELECT a FROM r WHERE b < (SELECT max(y) FROM s WHERE s.a = r.a) OR b = 1", "left"),
        ("SELECT (SELECT max(y) FROM s WHERE s.a = r.a) AS w FROM r", "left"),
    ],
)
def test_a_value_that_is_needed_is_an_inner_join(sql: str, kind: str) -> None:
    assert only(sql, Join).kind == kind


def test_windows_of_one_partition_are_one_node() -> None:
    sql = (
        "SELECT sum(b) OVER (PARTITION BY a, c) AS p, max(b) OVER (PARTITION BY c, a ORDER BY b) AS q, "
        "count(*) OVER (PARTITION BY a) AS n, min(b) OVER () AS m FROM r"
    )
    windows = [one for one in build(sql).relation.walk() if isinstance(one, Window)]
    assert [one.partition for one in windows] == [(), ("a",), ("a", "c")]
    assert [len(one.functions) for one in windows] == [1, 1, 2]


def test_a_chain_of_union_all_is_one_union() -> None:
    union = only("SELECT a FROM r UNION ALL SELECT a FROM s UNION ALL SELECT k FROM t", UnionAll)
    assert len(union.inputs) == 3


def test_an_order_with_a_limit_is_a_top_k() -> None:
    top = only("SELECT a FROM r ORDER BY b DESC, c LIMIT 3 OFFSET 1", TopK)
    assert (top.limit, top.offset) == (3, 1)
    assert [text(one) for one in top.order] == ["`b` DESC", "`c`"]


def test_an_order_without_a_limit_is_left_out_with_a_note() -> None:
    query = build("SELECT a FROM r ORDER BY a")
    assert isinstance(query.relation, Scan)
    assert query.notes == ("ORDER BY without LIMIT is left out: rows of a table have no order.",)
    assert build("SELECT * FROM (SELECT a FROM r ORDER BY a)").notes == ()


def test_tables_are_those_that_are_read() -> None:
    assert build("SELECT a FROM over_big WHERE a IN (SELECT a FROM s)").tables == (
        "sales.over_big",
        "sales.big",
        "sales.r",
        "sales.s",
    )


def test_columns_without_an_alias_are_called_as_spark_calls_them() -> None:
    items = "count(*), max(a) + 1, upper(c), a + b * 2, cast(a AS STRING), 'x'"
    query = build(f"SELECT {items} FROM r GROUP BY a, b, c")
    assert [name for name, _ in query.outputs] == [
        *("count(1)", "(max(a) + 1)", "upper(c)", "(a + (b * 2))", "a", "x"),
    ]


# -- the current time ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "condition"),
    [
        ("SELECT a FROM r WHERE d > current_date - INTERVAL 7 DAYS AND a > 1", "CURRENT_DATE"),
        ("SELECT a FROM r WHERE d > now()", "CURRENT_TIMESTAMP()"),
        ("SELECT r.a FROM r JOIN s ON r.a = s.a AND r.d < current_timestamp", "CURRENT_TIMESTAMP()"),
        ("SELECT a, max(d) AS m FROM r GROUP BY a HAVING max(d) < current_date()", "CURRENT_DATE"),
        (
            "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.a = s.a AND d < now())",
            "CURRENT_TIMESTAMP()",
        ),
    ],
)
def test_the_current_time_stays_in_a_filter_of_its_own(sql: str, condition: str) -> None:
    timed = [
        text(one.condition)
        for one in build(sql).relation.walk()
        if isinstance(one, Filter) and "CURRENT" in text(one.condition)
    ]
    assert len(timed) == 1
    assert condition in timed[0]
    assert " AND " not in timed[0]


@pytest.mark.parametrize("sql", ["SELECT a, rand() AS z FROM r", "SELECT a, current_date AS z FROM r"])
def test_chance_makes_the_whole_query_opaque_if_that_is_asked_for(sql: str) -> None:
    query = build(sql, nondeterministic="full")
    assert isinstance(query.relation, Opaque)
    assert [name for name, _ in query.outputs] == ["a", "z"]
    assert len(filled(1).execute(render(query.relation, dialect="duckdb")).fetchall()) > 1


# -- no rule -------------------------------------------------------------------------------------------

NO_RULE = [
    ("SELECT a, b FROM r LIMIT 100", "LIMIT without ORDER BY"),
    ("SELECT a FROM r WHERE a = (SELECT min(y) FROM s WHERE s.b > r.b)", "something else than equality"),
    ("SELECT a, EXISTS (SELECT 1 FROM s WHERE s.a < r.a) AS z FROM r", "something else than equality"),
    ("SELECT a, (SELECT y FROM s WHERE FALSE) AS z FROM r", "more than one row"),
    (
        "WITH RECURSIVE q(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM q WHERE n < 4) SELECT * FROM q",
        "recursive",
    ),
    ("SELECT a, w FROM r, LATERAL (SELECT max(y) AS w FROM s WHERE s.a = r.a) AS q", "lateral"),
    ("SELECT r.a FROM r LEFT JOIN s ON r.a = s.a AND s.b IN (SELECT k FROM t)", "outer join has a subquery"),
    ("SELECT * FROM (SELECT a, b FROM r LIMIT 100) AS q WHERE a > 1", "LIMIT without ORDER BY"),
    ("SELECT q.a FROM (SELECT * FROM r LIMIT 100) AS q JOIN s ON q.a = s.a", "LIMIT without ORDER BY"),
    ("WITH q AS (SELECT a FROM r WHERE b > 0) SELECT a FROM q ORDER BY a OFFSET 1", "OFFSET without LIMIT"),
    (
        "SELECT (a, b) IN (SELECT a, b FROM s) IS NULL AS z FROM r WHERE a > 0 AND b > 0",
        "more than one column",
    ),
    ("SELECT sales.r.a FROM sales.r WHERE a > (SELECT avg(y) FROM s WHERE s.b < sales.r.b)", "equality"),
    (
        "SELECT a FROM r WHERE NOT EXISTS (SELECT max(y) FROM s WHERE s.a = r.a HAVING count(*) > 1)",
        "GROUP BY",
    ),
    (
        "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s JOIN t ON s.a = r.a RIGHT JOIN t AS u ON u.k = t.k)",
        "below an outer join",
    ),
    (
        "SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s WHERE EXISTS (SELECT 1 FROM t WHERE t.k = r.a))",
        "more than one level out",
    ),
]


@pytest.mark.parametrize(("sql", "reason"), NO_RULE)
def test_what_has_no_rule_is_computed_as_it_stands(sql: str, reason: str) -> None:
    query = build(sql)
    assert reason in only(sql, Opaque).reason
    for seed in (1, 2, 3):
        session = filled(seed)
        assert result(session, query) == expected(session, sql)


def test_only_the_part_without_a_rule_is_opaque() -> None:
    query = build("SELECT r.a FROM r JOIN sales.some AS q ON r.a = q.a")
    assert isinstance(query.relation, Project)
    assert isinstance(query.relation.child, Join)
    assert isinstance(query.relation.child.right, Opaque)


def test_a_sample_and_a_pivot_are_opaque() -> None:
    sampled = only("SELECT a FROM r TABLESAMPLE (50 PERCENT)", Opaque)
    assert "TABLESAMPLE" in sampled.reason
    assert "_hw_input_0" in text(sampled.sql)
    pivot = only("SELECT `1`, `2` FROM (SELECT a, b FROM r) PIVOT (sum(b) FOR a IN (1, 2))", Opaque)
    assert "PIVOT" in pivot.reason


def test_a_star_over_something_unknown_asks_for_names() -> None:
    with pytest.raises(Exception, match="Name the columns"):
        build("SELECT * FROM (SELECT a, b FROM r) PIVOT (sum(b) FOR a IN (1, 2))")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT r.a, t.v FROM r, s, t WHERE r.a = t.a AND t.k = s.b AND r.b > 0",
        "SELECT r.a FROM r, s CROSS JOIN t WHERE r.a = t.a AND s.y = t.v AND s.b < (SELECT max(k) FROM t)",
        "SELECT v FROM r, s, t WHERE r.a = t.a AND t.k = s.b AND EXISTS (SELECT 1 FROM s u WHERE u.b = r.b)",
        "SELECT r.a, s.y FROM r, s, t WHERE r.a = t.a AND t.k = s.b ORDER BY v, y LIMIT 4",
        "SELECT a, b FROM r WHERE x > (SELECT avg(x) FROM r) AND b IS NOT NULL",
        "SELECT r.b, count(*) FROM r, s, t WHERE t.a = s.a AND t.v = r.b GROUP BY r.b",
    ],
)
def test_a_whole_query_joins_along_its_conditions(sql: str) -> None:
    """Tables that are listed side by side are not paired with each other if a third one connects them."""
    query = build(sql)
    whole = as_a_whole(query.relation)
    assert "CROSS" not in render(whole, subqueries=True)
    assert (whole.columns, whole.key) == (query.relation.columns, query.relation.key)
    chosen = ", ".join(f'"{name}"' for _, name in query.outputs)
    text = render(whole, dialect="duckdb", subqueries=True)
    for seed in (None, 1, 2, 3):
        session = filled(seed)
        assert rows(session, f"SELECT {chosen} FROM ({text})") == result(session, query)
