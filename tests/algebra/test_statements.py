"""Statements about stream tables: what is read, and what errors point at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.references import table_references
from headwater.algebra.statements import (
    AlterStream,
    CreateStream,
    DropStream,
    ExplainStream,
    RefreshStream,
    ShowStreams,
    moved_error,
    parse_stream_statement,
)
from headwater.errors import QueryError


def created(text: str) -> CreateStream:
    found = parse_stream_statement(text)
    assert isinstance(found, CreateStream)
    return found


def options(found: CreateStream | AlterStream) -> dict[str, str | None]:
    return {option.name: option.value for option in found.options}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM sales.orders",
        "SELECT stream, stream_table FROM stream",
        "CREATE TABLE stream (a INT)",
        "CREATE STREAMING TABLE x AS SELECT 1 -- a stream of Spark's",
        "CREATE OR REPLACE TABLE stream AS SELECT 1",
        "EXPLAIN SELECT * FROM stream",
        "SHOW TABLES -- no stream",
        "DROP TABLE stream; DROP STREAM TABLE x",
        "REFRESH TABLE stream",
        "SELECT 'stream",
        "",
        "stream",
    ],
)
def test_other_statements_are_left_alone(text: str) -> None:
    assert parse_stream_statement(text) is None


def test_create_with_everything() -> None:
    found = created(
        "create or replace stream table sales.totals\n"
        "  SCHEDULE '5s' REFRESH MODE strict\n"
        "  WITH (max_failures = 3, Sink = ducklake, note = 'it\\'s', off = NULL, low = -1)\n"
        "AS -- the query\n  SELECT ';' AS x FROM o /* all */ WHERE a = 'b' -- end\n;"
    )
    assert (found.name, found.or_replace, found.if_not_exists) == (("sales", "totals"), True, False)
    assert found.query == "SELECT ';' AS x FROM o /* all */ WHERE a = 'b'"
    assert options(found) == {
        "schedule": "5s",
        "refresh_mode": "strict",
        "max_failures": "3",
        "sink": "ducklake",
        "note": "it's",
        "off": None,
        "low": "-1",
    }


@pytest.mark.parametrize(
    "clauses",
    [
        "SCHEDULE '1h' REFRESH MODE full WITH (a = 1)",
        "WITH (a = 1) REFRESH MODE full SCHEDULE '1h'",
        "REFRESH MODE 'full' WITH (a = 1) SCHEDULE '1h'",
        "WITH (a = 1, refresh_mode = full, schedule = '1h')",
        "WITH (a = 1) WITH (schedule = '1h') /* twice */ refresh\nmode full",
    ],
)
def test_clauses_stand_in_any_order(clauses: str) -> None:
    found = created(f"CREATE STREAM TABLE IF NOT EXISTS t {clauses} AS SELECT 1")
    assert options(found) == {"a": "1", "refresh_mode": "full", "schedule": "1h"}
    assert found.if_not_exists


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("totals", ("totals",)),
        ("`odd name`.`a``b`", ("odd name", "a`b")),
        ('sales."Odd Name"', ("sales", "Odd Name")),
        ("lake . sales /* here */ . totals", ("lake", "sales", "totals")),
        ("`as`", ("as",)),
        ("table", ("table",)),
        ("größe", ("größe",)),
    ],
)
def test_names_may_be_quoted(written: str, name: tuple[str, ...]) -> None:
    found = parse_stream_statement(f"DROP STREAM TABLE IF EXISTS {written}")
    assert isinstance(found, DropStream)
    assert (found.name, found.if_exists) == (name, True)


def test_the_query_may_begin_with_with_values_or_a_parenthesis() -> None:
    for query in ("WITH a AS (SELECT 1) SELECT * FROM a", "VALUES (1)", "(SELECT 1) UNION ALL (SELECT 2)"):
        assert created(f"CREATE STREAM TABLE t AS {query};").query == query


def test_alter_refresh_show_and_explain() -> None:
    def read(text: str) -> object:
        return parse_stream_statement(text)

    altered = read("ALTER STREAM TABLE t SET (schedule = '1m', refresh_mode = auto)")
    assert isinstance(altered, AlterStream)
    assert options(altered) == {"schedule": "1m", "refresh_mode": "auto"}
    suspended, resumed = read("ALTER STREAM TABLE t SUSPEND"), read("-- now\nalter stream table t resume;")
    assert isinstance(suspended, AlterStream)
    assert isinstance(resumed, AlterStream)
    assert (suspended.status, resumed.status) == ("suspended", "active")
    queried = read("ALTER STREAM TABLE t AS\nSELECT 1")
    assert isinstance(queried, AlterStream)
    assert (queried.query, queried.options) == ("SELECT 1", ())
    for text, full in (("REFRESH STREAM TABLE t", False), ("refresh stream table t full;", True)):
        refreshed = read(text)
        assert isinstance(refreshed, RefreshStream)
        assert refreshed.full is full
    assert isinstance(read("SHOW STREAM TABLES"), ShowStreams)
    assert isinstance(read("EXPLAIN /* */ STREAM TABLE t;"), ExplainStream)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("CREATE STREAM TABLE AS SELECT 1", (1, 21), "Expected a name, found AS."),
        (
            "CREATE STREAM TABLE t SELECT 1",
            (1, 23),
            "Expected SCHEDULE, REFRESH MODE, WITH or AS, found SELECT.",
        ),
        ("CREATE STREAM TABLE t\n  SCHEDULE 5s AS SELECT 1", (2, 12), "Expected a schedule, found 5s."),
        ("CREATE STREAM TABLE t SCHEDULE", (1, 31), "Expected a schedule, but the statement ends here."),
        ("CREATE STREAM TABLE t REFRESH auto AS SELECT 1", (1, 31), "Expected MODE, found auto."),
        ("CREATE STREAM TABLE t WITH (a = 1 b = 2) AS SELECT 1", (1, 35), "Expected , or ), found b."),
        ("CREATE STREAM TABLE t WITH (a 1) AS SELECT 1", (1, 31), "Expected =, found 1."),
        (
            "CREATE STREAM TABLE t WITH ('a' = 1) AS SELECT 1",
            (1, 29),
            "Expected the name of an option, found 'a'.",
        ),
        ("CREATE STREAM TABLE t WITH (a = (1)) AS SELECT 1", (1, 33), "Expected a value, found (."),
        (
            "CREATE STREAM TABLE t SCHEDULE '1s' SCHEDULE '2s' AS SELECT 1",
            (1, 46),
            "schedule is given twice.",
        ),
        ("CREATE STREAM TABLE t AS", (1, 25), "Expected a query, but the statement ends here."),
        ("CREATE STREAM TABLE t AS ;", (1, 26), "Expected a query, but the statement ends here."),
        ("CREATE STREAM TABLE t AS INSERT INTO a SELECT 1", (1, 26), "Expected a query, found INSERT."),
        ("CREATE STREAM TABLE t AS SELECT 1; SELECT 2", (1, 36), "Expected the end, found SELECT."),
        ("CREATE STREAM TABLE t AS\nSELECT 'a' || 'b", (2, 15), "What begins here is never closed."),
        ("CREATE STREAM TABLE t AS SELECT \"it's", (1, 33), "What begins here is never closed."),
        (
            "CREATE OR REPLACE STREAM TABLE IF NOT EXISTS t AS SELECT 1",
            (1, 32),
            "OR REPLACE and IF NOT EXISTS exclude each other.",
        ),
        ("CREATE STREAM t AS SELECT 1", (1, 15), "Expected TABLE, found t."),
        ("DROP STREAM TABLE IF EXIST t", (1, 22), "Expected EXISTS, found EXIST."),
        ("DROP STREAM TABLE a-b", (1, 20), "Expected the end of the name, found -."),
        ("DROP STREAM TABLE 'a'", (1, 19), "Expected a name, found 'a'."),
        ("DROP STREAM TABLE a.b.c.d", (1, 25), "A name has a schema and a name, here are more parts."),
        (
            "ALTER STREAM TABLE t",
            (1, 21),
            "Expected SET, SUSPEND, RESUME, ADD SINK, DROP SINK or AS, but the statement ends here.",
        ),
        ("ALTER STREAM TABLE t SUSPEND now", (1, 30), "Expected the end, found now."),
        ("REFRESH STREAM TABLE t FUL", (1, 24), "Expected FULL or the end, found FUL."),
        ("SHOW STREAM TABLE", (1, 13), "Expected TABLES, found TABLE."),
    ],
)
def test_errors_say_what_was_expected_and_where(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_stream_statement(text)
    assert (caught.value.message, (caught.value.line, caught.value.column)) == (message, place)
    assert "^" in str(caught.value.detail)


@given(st.text(alphabet="stream table createonAS('\"`;.,=)-/*\n5", max_size=60))
def test_no_text_breaks_the_reader(rest: str) -> None:
    caught = []
    for beginning in ("CREATE STREAM TABLE ", "ALTER STREAM TABLE t ", "DROP STREAM TABLE ", ""):
        try:
            parse_stream_statement(beginning + rest)
        except QueryError as error:
            caught.append(error)
    assert all(error.line >= 1 for error in caught)


def test_an_error_in_the_query_is_shown_in_the_statement() -> None:
    statement = created("CREATE STREAM TABLE t\nAS SELECT a,\n  FROM b WHERE c")
    inner = QueryError("No c.", detail="x\n  line 2, column 16:\n …", line=2, column=16, fragment="c")
    moved = moved_error(inner, statement.text, statement.query_place.start)
    assert (moved.line, moved.column, moved.fragment) == (3, 16, "c")
    assert moved.detail == "x\n  line 3, column 16:\n      FROM b WHERE c\n" + " " * 19 + "^"
    first = QueryError("No a.", line=1, column=8, fragment="a")
    assert (moved_error(first, statement.text, 25).line, moved_error(first, statement.text, 25).column) == (
        2,
        11,
    )
    without = QueryError("Nowhere.", line=None, column=None)
    assert moved_error(without, statement.text, 25) is without


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT * FROM a JOIN s.b USING (id)", [("a",), ("s", "b")]),
        ("SELECT * FROM lake.s.b, A, a", [("lake", "s", "b"), ("A",), ("a",)]),
        ("WITH a AS (SELECT * FROM a), b AS (SELECT * FROM a) SELECT * FROM b, c", [("a",), ("c",)]),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a", []),
        (
            "SELECT (SELECT max(x) FROM `o d`.d) FROM a WHERE EXISTS (SELECT 1 FROM e)",
            [("o d", "d"), ("a",), ("e",)],
        ),
        ("SELECT * FROM (SELECT * FROM a) b LATERAL VIEW explode(b.x) t AS y", [("a",)]),
        ("SELECT * FROM range(10)", []),
        ("VALUES (1)", []),
        ("SELECT * FROM a UNION ALL SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a)", [("a",)]),
    ],
)
def test_the_tables_of_a_query_are_found(query: str, names: list[tuple[str, ...]]) -> None:
    assert list(table_references(query)) == names


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT 1 FROM a WHERE\n  x = = 1", (2, 7)),
        ("SELECT 'a", (1, 8)),
        ("DELETE FROM a", (1, 1)),
        ("SELECT 1; SELECT 2", (1, 1)),
    ],
)
def test_a_query_that_cannot_be_read_is_an_error_with_its_place(query: str, place: tuple[int, int]) -> None:
    with pytest.raises(QueryError) as caught:
        table_references(query)
    assert (caught.value.line, caught.value.column) == place
