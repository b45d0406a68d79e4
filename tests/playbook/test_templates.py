"""Templates: what they give, what they may not do, and values in SQL that stay values."""

from __future__ import annotations

import json
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.errors import PlaybookError, TemplateError
from headwater.playbook.language.document import Text, parse_document
from headwater.playbook.templates.engine import holds, render
from headwater.playbook.templates.rendering import render_fields
from headwater.playbook.templates.scopes import ResultView
from headwater.playbook.templates.sql_literals import literal
from headwater.playbook.templates.sql_scanner import Scanner, unclosed
from headwater.playbook.templates.sql_templates import render_sql

NAMES: dict[str, Any] = {
    "ids": [7, 8],
    "name": "Ada",
    "nothing": None,
    "flag": True,
    "workload": {"ids": [7, 8], "items": 3, "deep": {"a": 1}},
    "day": date(2025, 1, 6),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{{ ids }}", [7, 8]),
        ("  {{ ids }}\n", [7, 8]),
        ("{{ nothing }}", None),
        ("{{ ids[0] + 1 }}", 8),
        ("{{ ids[0] }} of {{ ids | length }}", "7 of 2"),
        ("{{ flag }} {{ day }} {{ ids }}", "true 2025-01-06 [7, 8]"),
        ("{{ workload.items }}", 3),  # the key, not a method of Python's
        ("{{ workload.deep.items() | list }}", [["a", 1]]),
        ("{{ workload.deep.get('b', 5) }}", 5),
        ("{{ missing | default(4) }}", 4),
        ("{{ workload.nope is defined }}", False),
        ("{{ ids | map('string') | join('-') }}", "7-8"),
        ("{{ name.upper() ~ '!' ~ nothing }}", "ADA!"),
        ("{% for x in ids %}{{ loop.index }}:{{ x }};{% endfor %}", "1:7;2:8;"),
        ("{% if flag %}yes{% else %}no{% endif %}", "yes"),
        ("{% set twice = ids[0] * 2 %}{{ twice }}", "14"),
        ("{{ {'a': ids} | tojson }}", '{"a": [7, 8]}'),
        ("{{ 'a b'.split(' ') }}", ["a", "b"]),
        ("{{ ids[1:] }} {{ name[:2] }}", "[8] Ad"),
        ("{{ name | replace('a', 'o') }}", "Ado"),
    ],
)
def test_what_templates_give(text: str, expected: Any) -> None:
    assert render(text, NAMES) == expected


def test_values_are_rendered_through_lists_and_mappings_and_never_twice() -> None:
    hostile = "{{ secret }}"
    given = {"a": ["{{ x }}", 1, {"b": "is {{ x }}"}], "c": True}
    assert render(given, {"x": hostile}) == {"a": [hostile, 1, {"b": f"is {hostile}"}], "c": True}


def test_both_spellings_of_a_result_are_the_same() -> None:
    result = ResultView({"command_count": 3, "commands": [{}, {}, {"row_count": 2, "rows": [{"n": 1}]}]})
    for text in ("{{ result.data.command_2.row_count }}", "{{ result.commands[2].row_count }}"):
        assert render(text, {"result": result}) == 2
    assert json.dumps(render("{{ result }}", {"result": result}))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("{{ event.name == 'loop.done' }}", True),
        ("event.name == 'loop.done'", True),
        ("{{ event.name != 'loop.done' }}", False),
        ("true", True),
        ("{{ 0 }}", False),
        ("{% if event.name %}false{% endif %}", False),
    ],
)
def test_conditions(condition: str, expected: bool) -> None:
    assert holds(condition, {"event": {"name": "loop.done"}}) is expected


def test_a_condition_that_is_neither_true_nor_false_is_an_error() -> None:
    with pytest.raises(TemplateError, match="not true or false"):
        holds("{{ name }} {{ name }}", NAMES)


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("a: '{{ nam }}'", "f:1:8", "`nam` is not defined", "`name`"),
        ("a: |\n  x\n  y {{ ids[0] }} {{ nam }}\n", "f:3:21", "`nam` is not defined", "`name`"),
        ("a: '{{ workload.item }}'", "f:1:17", "`item` is not defined", "`items`"),
        ("a: '{{ ids[5] }}'", "f:1:12", "the list has 2", None),
        ("a: '{{ nothing.x }}'", "f:1:16", "`x` is not defined", None),
        ("a: '{{ env.HOME }}'", "f:1:8", "`env` is not defined", "do not see the environment"),
        ("a: '{{ ids'", "f:1:5", "unexpected end of template", None),
        ("a: '{{ ids | nope }}'", "f:1:5", "No filter named", None),
        ("a: 'x {{ nothing }}'", "f:1:7", "null, in the middle", "default"),
        ("a: '{{ 1 / 0 }}'", "f:1:5", "division by zero", None),
        ("a: '{{ name + 1 }}'", "f:1:5", "TypeError", None),
        ("a: '{{ workload[1:] }}'", "f:1:5", "no slices", None),
        ("a: '{{ ids | map(attribute=nope) }}'", "f:1:28", "`nope` is not defined", None),
    ],
)
def test_errors_have_a_place_and_name_the_nearest(
    text: str, place: str, message: str, hint: str | None
) -> None:
    with pytest.raises(TemplateError) as caught:
        render(parse_document(text, "f").content["a"], NAMES)
    assert caught.value.message.startswith(f"{place}: ")
    assert message in caught.value.message
    if hint is not None:
        assert hint in (caught.value.hint or "")


ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ ids.__class__ }}",
    "{{ name.__init__.__globals__ }}",
    "{{ name['__class__'] }}",
    "{{ (ids | map(attribute='__class__') | list)[0] }}",
    "{{ name | attr('__class__') }}",
    "{{ self._TemplateReference__context }}",
    "{{ self }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ namespace.__init__ }}",
    "{{ range.__class__ }}",
    "{{ ids.append(3) }}",
    "{{ workload.update({'x': 1}) }}",
    "{{ '{0.__class__}'.format(name) }}",
    "{{ '%s' % name }}",
    "{{ ids.index.__self__ }}",
    "{{ get_flashed_messages.__globals__ }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% extends 'x' %}",
    "{% macro f() %}{{ caller }}{% endmacro %}{{ f() }}",
    "{% set x %}{{ name }}{% endset %}{{ x }}",
    "{% filter upper %}x{% endfilter %}",
    "{{ ids | random }}",
    "{{ open('/etc/passwd') }}",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_no_way_leads_out_of_the_sandbox(text: str) -> None:
    with pytest.raises(TemplateError):
        render(text + " ", dict(NAMES))
    assert NAMES["ids"] == [7, 8]


GROWING = [
    "{{ 'a' * 1000000000 }}",
    "{{ [1] * 1000000000 }}",
    "{{ 10 ** 10000000 }}",
    "{{ 2 ** 4000 * 2 ** 4000 }}",
    "{{ range(1000000000) | list }}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(90000) %}{{ many | sum }}{% endfor %}",
    "{% set a = 'x' * 4000000 %}{% set b = a ~ a %}{% set c = b ~ b %}{{ c }}",
    "{% set a = 'x' * 4000000 %}{% set b = a + a %}{% set c = b + b %}{{ c }}",
    "{% set a = 'x' * 4000 %}{{ a | replace('x', a) }}",
    "{% set a = 'x' * 400000 %}{{ many | join(a) }}",
    "{% set a = 'x' * 400000 %}{% for i in range(1000) %}{{ a }}{% endfor %}",
    "{{ 'x'.ljust(1000000000) }}",
    "{{ name | center(1000000000) }}",
    "{{ '{:>1000000000}'.format(1) }}",
]


@pytest.mark.parametrize("text", GROWING)
def test_no_template_grows_or_runs_without_end(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(TemplateError):
        render(text, {"many": list(range(1000)), "name": "x"})
    assert time.monotonic() - began < 15


# --- SQL -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "value", "expected"),
    [
        ("SELECT {{ x }}", 5, "SELECT 5"),
        ("SELECT {{ x }}", -5, "SELECT -5"),
        ("SELECT 3 -{{ x }}", -5, "SELECT 3 - -5"),
        ("SELECT {{ x }}", None, "SELECT NULL"),
        ("SELECT {{ x }}", True, "SELECT TRUE"),
        ("SELECT {{ x }}", 1.5, "SELECT 1.5e0"),
        ("SELECT {{ x }}", Decimal("1.50"), "SELECT 1.50"),
        ("SELECT {{ x }}", "O'Neil", "SELECT 'O''Neil'"),
        ("SELECT {{ x }}", date(2025, 1, 6), "SELECT DATE '2025-01-06'"),
        ("SELECT {{ x }}", [1, "a"], "SELECT [1, 'a']"),
        ("SELECT {{ x }}", {"a": [None]}, "SELECT {'a': [NULL]}"),
        ("SELECT '{{ x }}'", "O'Neil", "SELECT 'O''Neil'"),
        ("SELECT '{{ x }}'", 5, "SELECT '5'"),
        ("SELECT E'{{ x }}'", "\\'", "SELECT E'\\\\'''"),
        ("SELECT E'it''s {{ x }}'", "\\'", "SELECT E'it''s \\\\'''"),
        ('FROM "t_{{ x }}"', 'a"b', 'FROM "t_a""b"'),
        ("FROM t_{{ x }}", 5, "FROM t_5"),
        ("FROM {{ x | identifier }}", 'a"b', 'FROM "a""b"'),
        ("SELECT {{ x | identifier }}", ["a", "b"], 'SELECT "a", "b"'),
        ("IN ({{ x | each }})", [1, "b"], "IN (1, 'b')"),
        ("IN ({{ x | each }})", [], "IN (NULL)"),
        ("SELECT {{ x | raw }}", "now()", "SELECT now()"),
        ("SELECT {{ x | raw }}{{ x }}'", "'", "SELECT ''''"),
        ("-- about {{ x }}\nSELECT 1", "a\nDROP TABLE t", "-- about  a DROP TABLE t \nSELECT 1"),
        ("/* {{ x }} */ SELECT 1", "*/ DROP", "/*     DROP  */ SELECT 1"),
        ("SELECT $$ {{ x }} $$", "it's", "SELECT $$ it's $$"),
        ("SELECT 'a' || {{ x }}", "c", "SELECT 'a' || 'c'"),
        ("SELECT 'a' {{ x | identifier }}", "c", "SELECT 'a' \"c\""),
        ("SELECT E'a'\n -- b\n '{{ x }}'", "\\", "SELECT E'a'\n -- b\n '\\\\'"),
        ("SELECT a$b$, {{ x }}", "c", "SELECT a$b$, 'c'"),
        ("{% for i in x %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}", ["a", 1], "'a', 1"),
    ],
)
def test_values_become_what_their_place_needs(sql: str, value: Any, expected: str) -> None:
    assert render_sql(sql, {"x": value}) == expected


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("FROM t_{{ x }}", "a"),
        ("FROM {{ x }}_t", "a"),
        ("SELECT e{{ x }}", "a"),
        ("SELECT {{ x }}{{ x }}", 1.5),
        ("SELECT '{{ x }}'", None),
        ("SELECT '{{ x }}'", "a\0b"),
        ("SELECT U&'{{ x }}'", "a"),
        ("SELECT E'\\{{ x }}'", "'"),
        ("SELECT $$ {{ x }} $$", "$$"),
        ("SELECT $a$ ${{ x }}a$ $a$", ""),
        ("SELECT 1$$ {{ x }} $$", "a"),
        ("SELECT 1e'{{ x }}'", "a"),
        ("SELECT 'a'{{ x }}", "b"),
        ("SELECT E'a'\n{{ x }}", "\\"),
        ("SELECT E'a' /* */ '{{ x }}'", "\\"),
        ("SELECT {{ x }} {{ x }}", "a"),
        ("FROM {{ x | identifier }}", ""),
        ("FROM {{ x | identifier }}", []),
        ("SELECT {{ x }}", "\ud800"),
        ("SELECT {{ x }}", {}),
    ],
)
def test_a_value_in_a_place_that_cannot_hold_it_is_refused(sql: str, value: Any) -> None:
    with pytest.raises(TemplateError):
        render_sql(sql, {"x": value})


def test_an_error_inside_sql_is_at_the_line_of_the_value() -> None:
    text = parse_document("sql: |\n  SELECT 1,\n    '{{ x }}'\n", "f").content["sql"]
    with pytest.raises(TemplateError, match="f:3:6: the value is null"):
        render_sql(text, {"x": None})


@pytest.mark.parametrize(
    ("value", "dialect", "expected"),
    [
        ("it's \\", "spark", "'it\\'s \\\\'"),
        ("it's \\", "postgres", "'it''s \\'"),
        ([1, 2], "postgres", "ARRAY[1, 2]"),
        ([1, 2], "spark", "array(1, 2)"),
        ({"a": 1}, "postgres", "CAST('{\"a\": 1}' AS jsonb)"),
        ({"a": 1}, "spark", "named_struct('a', 1)"),
        (b"\x01", "duckdb", "from_hex('01')"),
        (float("nan"), "postgres", "CAST('nan' AS DOUBLE PRECISION)"),
        (datetime(2025, 1, 6, tzinfo=UTC), "duckdb", "TIMESTAMP WITH TIME ZONE '2025-01-06 00:00:00+00:00'"),
    ],
)
def test_literals_of_other_engines(value: Any, dialect: Any, expected: str) -> None:
    assert literal(value, dialect) == expected


def test_spark_has_its_own_quotes() -> None:
    assert render_sql("SELECT '{{ x }}', \"{{ x }}\"", {"x": "'\"\\"}, "spark") == (
        "SELECT '\\'\\\"\\\\', \"\\'\\\"\\\\\""
    )
    assert render_sql("FROM `{{ x }}`", {"x": "a`b"}, "spark") == "FROM `a``b`"
    # Spark would put the variable's value there, before it parses.
    for sql in ("SELECT {{ x }}", "SELECT '{{ x }}'", "SELECT '${{ y }}'", "SELECT 1 -- {{ x }}"):
        assert "${" not in render_sql(sql, {"x": "${env:HOME}", "y": "{env:HOME}"}, "spark")
    for sql in ("SELECT r'{{ x }}'", "SELECT `{{ x }}`", "SELECT `${{ y }}`", "SELECT {{ x | identifier }}"):
        with pytest.raises(TemplateError):
            render_sql(sql, {"x": "${env:HOME}", "y": "{env:HOME}"}, "spark")


@pytest.fixture(scope="module")
def judge() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE victim (x INTEGER)")
    return connection


#: Text of the sort that tries to be more than text.
HOSTILE = st.text(alphabet=st.sampled_from(list("'\"\\$-/*;ae \n\r\0`E{}%#&u{}\x85\u2028é🦆")), max_size=12)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(text=HOSTILE | ANY_TEXT)
@example("x'); DROP TABLE victim; --")
@example("\\' OR 1=1 --")
@example("$$; DROP TABLE victim; $$")
def test_any_text_goes_through_duckdb_and_comes_back(judge: duckdb.DuckDBPyConnection, text: str) -> None:
    sql = render_sql("SELECT {{ x }}, [{{ x }}], {'k': {{ x }}}['k'] -- {{ x }}\n /* {{ x }} */", {"x": text})
    assert judge.execute(sql).fetchall() == [(text, [text], text)]
    quoted = text.replace("\0", "")
    sql = render_sql("SELECT '<{{ x }}>', E'<{{ x }}>', '' || '{{ x }}'", {"x": quoted})
    assert judge.execute(sql).fetchall() == [(f"<{quoted}>", f"<{quoted}>", quoted)]
    sql = render_sql(
        'SELECT "n{{ x }}" FROM (SELECT 5 AS {{ n | identifier }})', {"x": quoted, "n": "n" + quoted}
    )
    assert judge.execute(sql).fetchall() == [(5,)]
    if "$" not in quoted:
        assert judge.execute(render_sql("SELECT $q$<{{ x }}>$q$", {"x": quoted})).fetchall() == [
            (f"<{quoted}>",)
        ]
    assert judge.execute("SELECT count(*) FROM victim").fetchall() == [(0,)]


def test_any_text_goes_through_postgres_and_comes_back(new_database: str) -> None:
    with psycopg.connect(new_database) as connection:

        @given(text=(HOSTILE | ANY_TEXT).map(lambda text: text.replace("\0", "")))
        @example("\\'; DROP TABLE victim; --")
        def check(text: str) -> None:
            sql = "SELECT {{ x }}, '<{{ x }}>', E'<{{ x }}>', $q$<{{ y }}>$q$, ({{ [x] }})[1] -- {{ x }}"
            plain = text.replace("$", "")
            rows = connection.execute(render_sql(sql, {"x": text, "y": plain}, "postgres")).fetchall()
            assert rows == [(text, f"<{text}>", f"<{text}>", f"<{plain}>", text)]

        check()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | ANY_TEXT | st.floats(allow_nan=False),
    lambda inner: st.dictionaries(st.text("abcd'\" ", min_size=1, max_size=5), inner, min_size=1, max_size=3),
    max_leaves=5,
)


@given(value=VALUES)
def test_any_value_is_a_literal_that_means_itself(judge: duckdb.DuckDBPyConnection, value: Any) -> None:
    if isinstance(value, dict) and len({key.lower() for key in value}) < len(value):
        return
    assert judge.execute(render_sql("SELECT {{ x }}", {"x": value})).fetchall() == [(value,)]


#: Pieces of SQL that open, close and confuse.
PIECES = st.sampled_from(
    [
        "'",
        '"',
        "''",
        "--",
        "/*",
        "*/",
        "\n",
        "$$",
        "$a$",
        "$",
        "e'",
        "E'",
        "\\",
        "x",
        "1",
        " ",
        "a$",
        ";",
        "-",
        "/",
    ]
)


@given(pieces=st.lists(PIECES, max_size=10), text=HOSTILE.filter(lambda text: "\0" not in text))
def test_no_value_escapes_whatever_stands_around_it(
    judge: duckdb.DuckDBPyConnection, pieces: list[str], text: str
) -> None:
    """A value changes neither how many statements there are nor their kinds, wherever it is put."""
    around = "SELECT " + "".join(pieces)
    try:
        with_text = render_sql(around + " {{ x }} ", {"x": text})
        with_word = render_sql(around + " {{ x }} ", {"x": "word"})
    except TemplateError:
        return
    assert _shape(judge, with_text) == _shape(judge, with_word)


def _shape(judge: duckdb.DuckDBPyConnection, sql: str) -> Any:
    try:
        return [statement.type for statement in judge.extract_statements(sql)]
    except duckdb.ParserException:
        return None


@given(pieces=st.lists(PIECES, max_size=10))
def test_the_scanner_agrees_with_duckdb_about_what_is_not_closed(
    judge: duckdb.DuckDBPyConnection, pieces: list[str]
) -> None:
    sql = "SELECT " + "".join(pieces)
    scanner = Scanner("duckdb")
    scanner.feed(sql)
    if scanner.lost:
        return
    try:
        judge.extract_statements(sql)
        said = ""
    except duckdb.ParserException as error:
        said = str(error)
    if not said or "unterminated" in said:  # else DuckDB stopped at another mistake before the end
        assert bool(said) == (unclosed(sql) is not None)


# --- fields --------------------------------------------------------------------------------------------


def test_fields_are_rendered_by_the_table_of_their_tool() -> None:
    fields = {
        "auth": "{{ warehouse }}",
        "catalog_name": "c_{{ n }}",
        "data_path": "/data",
        "threads": "{{ n }}",
        "create_catalog": "false",
        "commands": ["SELECT {{ name }}", "SELECT '{{ name }}'"],
    }
    assert render_fields("ducklake", fields, {"n": 2, "name": "O'"}, {"warehouse"}) == {
        "auth": "warehouse",
        "catalog_name": "c_2",
        "data_path": "/data",
        "threads": 2,
        "create_catalog": False,
        "use_catalog": True,
        "transaction": True,
        "max_rows": 10_000,
        "commands": ["SELECT 'O'''", "SELECT 'O'''"],
    }


def test_a_credential_may_be_a_value_of_the_workload() -> None:
    given = {"auth": "{{ warehouse }}", "command": "SELECT 1"}
    assert render_fields("postgres", given, {"warehouse": "pg_main"}, {"warehouse"})["auth"] == "pg_main"
    with pytest.raises(PlaybookError, match="neither a value nor a credential"):
        render_fields("postgres", given, {}, {"other"})


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("ducklake", {"threads": "{{ name }}"}),
        ("refresh", {"full": "{{ name }}"}),
        ("http", {"method": "{{ name }}"}),
        ("python", {"args": "{{ name }}"}),
        ("duckdb", {"commands": "{{ name }}"}),
    ],
)
def test_a_value_of_another_type_is_refused(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(PlaybookError, match="must be"):
        render_fields(kind, fields, NAMES)


def test_code_is_not_rendered() -> None:
    assert render_fields("python", {"code": "x = '{{ y }}'"}, {})["code"] == "x = '{{ y }}'"


def test_texts_without_a_document_have_errors_without_a_place() -> None:
    with pytest.raises(TemplateError) as caught:
        render("{{ nope }}", {})
    assert caught.value.message == "`nope` is not defined."
    assert not isinstance("{{ nope }}", Text)
