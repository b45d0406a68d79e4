"""Queries that are refused: what the error says, and where it points."""

from __future__ import annotations

import pytest
from tests.algebra.building_world import build

from headwater.errors import QueryError

#: The query, with ⟨ ⟩ around the place that the error points at; a part of what it says.
REFUSED = [
    ("SELECT a FROM ⟨rr⟩ WHERE a > 1", "no table or view `rr`"),
    ("SELECT a FROM sales.⟨nothing⟩", "no table or view `sales.nothing`"),
    ("SELECT ⟨q⟩ FROM r", "no column `q`"),
    ("SELECT r.a FROM r\nWHERE ⟨r.aa⟩ > 1", "`r` has no column `aa`"),
    ("SELECT ⟨w.a⟩ FROM r", "no column `w.a`"),
    ("SELECT ⟨a⟩ FROM r JOIN s ON r.a = s.a", "`a` is ambiguous"),
    ("SELECT r.a FROM r JOIN s ON ⟨b⟩ = 1", "`b` is ambiguous"),
    ("SELECT a, ⟨b AS a⟩ FROM r", "Two columns of the result are called `a`"),
    ("SELECT a, ⟨b AS _hw_rows⟩ FROM r", "A column of the result is called `_hw_rows`"),
    ("SELECT a FROM r WHERE ⟨sum(b)⟩ > 1", "aggregate function cannot stand here"),
    ("SELECT sum(⟨max(b)⟩) FROM r", "aggregate function cannot stand here"),
    ("SELECT a FROM r WHERE ⟨rank() OVER (ORDER BY a)⟩ = 1", "window function cannot stand here"),
    ("SELECT a, ⟨b⟩ FROM r GROUP BY a", "`b` is neither grouped nor aggregated"),
    ("SELECT ⟨a⟩, count(*) AS n FROM r", "`a` is neither grouped nor aggregated"),
    ("SELECT ⟨*⟩, count(*) OVER () FROM r GROUP BY a", "neither grouped nor aggregated"),
    ("SELECT a FROM r⟨;⟩ SELECT b FROM r", "more than one statement"),
    ("⟨DELETE⟩ FROM r", "not a query"),
    ("⟨DROP⟩ TABLE r", "not a query"),
    ("SELECT a FROM r ⟨|>⟩ WHERE a > 1", "pipe syntax"),
    ("SELECT a, ⟨rand()⟩ AS z FROM r", "rand() gives something else each time"),
    ("SELECT a FROM r WHERE ⟨uuid()⟩ = c", "uuid() gives something else each time"),
    ("SELECT ⟨monotonically_increasing_id()⟩ AS z FROM r", "gives something else each time"),
    ("SELECT a, ⟨rand()⟩ AS z FROM r TABLESAMPLE (50 PERCENT)", "rand() gives something else each time"),
    ("SELECT a FROM r TABLESAMPLE (50 PERCENT) WHERE d < ⟨now()⟩", "part of a query that has no rule"),
    ("SELECT ⟨now()⟩ AS z FROM r", "only in conditions"),
    ("SELECT max(⟨now()⟩) AS z FROM r", "only in conditions"),
    ("SELECT a, ⟨current_date⟩ AS z FROM r", "only in conditions"),
    ("SELECT a FROM r WHERE hour(⟨current_time()⟩) > 10", "cannot be followed"),
    ("SELECT a FROM r WHERE hour(⟨localtime⟩) > 10", "cannot be followed"),
    ("SELECT r.a FROM r LEFT JOIN s ON r.d < ⟨CURRENT_TIMESTAMP⟩", "only in conditions"),
    ("SELECT a, sum(b) FILTER (WHERE d < ⟨current_date()⟩) AS z FROM r GROUP BY a", "only in conditions"),
    ("SELECT ⟨localtimestamp⟩ AS z FROM r", "only in conditions"),
    ("SELECT a FROM r UNION ALL SELECT ⟨a, b FROM s⟩", "UNION of 1 and 2 columns"),
    ("SELECT a FROM r WHERE ⟨a IN (SELECT a, b FROM s)⟩", "1 value cannot be compared with 2 columns"),
    ("SELECT (SELECT ⟨a, b FROM s⟩) AS z FROM r", "used as a value has 2 columns"),
    ("SELECT a FROM r ORDER BY ⟨2⟩ LIMIT 1", "ORDER BY 2: the SELECT has 1 columns"),
    ("SELECT a FROM r GROUP BY ⟨3⟩", "GROUP BY 3: the SELECT has 1 columns"),
    ("SELECT DISTINCT a FROM r ORDER BY ⟨b⟩ LIMIT 1", "can use only what is selected"),
    ("SELECT ⟨w.*⟩ FROM r", "There is no table `w` here"),
    ("SELECT * EXCEPT (⟨zz⟩) FROM r", "there is no such column"),
    ("SELECT r.a FROM r JOIN s USING (⟨x⟩)", "the right side has no such column"),
    ("SELECT a FROM (SELECT a, b FROM r) AS ⟨q(f)⟩", "1 names are given to 2 columns"),
    ("SELECT sum(b) OVER ⟨w⟩ AS z FROM r", "no window `w`"),
    ("SELECT a FROM r WHERE a = ⟨:p⟩", "parameter has no value"),
    ("SELECT id + ⟨explode(tags)⟩ AS z FROM n", "makes rows cannot stand inside"),
    ("SELECT * FROM ⟨r VERSION AS OF 3⟩", "fixed version of a table"),
    ("SELECT b AS b2, ⟨c2⟩ AS z, b AS c2 FROM r", "no column `c2`"),
    ("SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = ⟨r.zz⟩)", "no column `r.zz`"),
    ("SELECT a FROM (SELECT b FROM r) AS q WHERE ⟨q.a⟩ > 1", "`q` has no column `a`"),
]


def marked(text: str) -> tuple[str, int, int, str]:
    before, _, rest = text.partition("⟨")
    fragment, _, after = rest.partition("⟩")
    line = before.count("\n") + 1
    return before + fragment + after, line, len(before) - (before.rfind("\n") + 1) + 1, fragment


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_an_error_points_at_its_place(text: str, says: str) -> None:
    sql, line, column, fragment = marked(text)
    with pytest.raises(QueryError) as caught:
        build(sql)
    assert says in caught.value.message
    assert (caught.value.line, caught.value.column, caught.value.fragment) == (line, column, fragment)


def test_the_detail_shows_the_line_and_a_caret() -> None:
    with pytest.raises(QueryError) as caught:
        build("SELECT a\nFROM r\nWHERE bb > 1")
    assert caught.value.detail == "line 3, column 7:\n    WHERE bb > 1\n          ^^"
    assert caught.value.code == "query"


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT a FROM sales.rr", "Did you mean `sales.r`?"),
        ("SELECT total2 FROM big", "Did you mean `total`?"),
        ("SELECT rr.a FROM r", "Did you mean `r`?"),
        ("SELECT r.tota FROM big AS r", "Did you mean `total`?"),
        ("SELECT a FROM r JOIN s ON r.a = s.a", "Write `sales.r.a` or `sales.s.a`."),
    ],
)
def test_the_hint_names_what_was_meant(sql: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        build(sql)
    assert caught.value.hint == hint


def test_views_that_read_each_other_are_refused() -> None:
    with pytest.raises(QueryError, match=r"view sales\.loop reads itself"):
        build("SELECT * FROM sales.loop")


def test_an_error_inside_a_view_names_the_view() -> None:
    with pytest.raises(
        QueryError, match=r"In the view sales\.broken: there is no column `nowhere`"
    ) as caught:
        build("SELECT * FROM broken")
    assert (caught.value.line, caught.value.column) == (1, 8)


def test_text_that_is_no_sql_is_refused_with_its_place() -> None:
    with pytest.raises(QueryError, match="cannot be understood") as caught:
        build("SELECT a FROM r\nWHERE (a > 1")
    assert caught.value.line == 2


def test_a_query_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(QueryError, match="nested too deeply"):
        build("SELECT " + "abs(" * 3000 + "a" + ")" * 3000 + " FROM r")


@pytest.mark.parametrize("sql", ["", "  ", "-- nothing"])
def test_no_query_is_refused(sql: str) -> None:
    with pytest.raises(QueryError, match="There is no query"):
        build(sql)
