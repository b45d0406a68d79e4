"""Commands as statements: split, translated, and known by what they do."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.algebra.duckdb_keys import as_merge, declared_key, read_insert
from headwater.algebra.duckdb_text import edited, statements, words
from headwater.algebra.duckdb_translations import translate
from headwater.playbook.ducklake.appending import reads_no_table
from headwater.playbook.ducklake.statements import Statement, read_commands
from headwater.playbook.task import TaskFailed


def one(text: str, **fields: Any) -> Statement:
    (command,) = read_commands({"command": text, **fields}, "analytics")
    return command.statements[0]


PIECES = st.sampled_from(
    [
        "'a;b'", "'it''s; --'", "E'x\\';'", "$$;'$$", "$t$ ; $$ $t$", '"na;me"', '"q""q"', "-- c ; '\n",
        "/* ; /* ' */ \" */", "1_000", "1.5e-3", ".5", "x", "ünï", "(", ")", "=>", "::", "->>", "'😀'", "\n",
    ]
)  # fmt: skip


@given(
    st.lists(
        st.lists(PIECES, min_size=1, max_size=6).map(lambda parts: "SELECT " + " ".join(parts)), max_size=4
    )
)
def test_texts_are_split_where_duckdb_splits_them(parts: list[str]) -> None:
    text = " ;\n ".join(parts)
    found = statements(text)
    assert [piece.text[:6] for piece in found] == ["SELECT"] * len(parts)
    for piece in found:
        assert text[piece.start : piece.start + len(piece.text)] == piece.text
        assert all(piece.text[word.start : word.end] == word.text for word in piece.words)


@given(st.text(alphabet="ab'\"$-/*;\n\\e ().1", max_size=30))
def test_what_duckdb_can_read_is_split_as_it_does(text: str) -> None:
    try:
        theirs = duckdb.extract_statements(f"SELECT 1;{text}")
    except (duckdb.Error, UnicodeDecodeError):
        return
    assert len(statements(f"SELECT 1;{text}")) == len(theirs)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("FROM t FOR SYSTEM_TIME AS OF SNAPSHOT 5", "FROM t AT (VERSION => 5)"),
        ("SELECT * FROM t for system_time as of snapshot 5 AS s WHERE s.a = 1",
         "SELECT * FROM t AS s AT (VERSION => 5) WHERE s.a = 1"),
        ("SELECT * FROM t s FOR SYSTEM_TIME AS OF SNAPSHOT 5 WHERE a",
         "SELECT * FROM t s AT (VERSION => 5) WHERE a"),
        ("FROM t FOR SYSTEM_TIME AS OF '2025-01-06 10:00:00+00' x, u",
         "FROM t AS x AT (TIMESTAMP => TIMESTAMPTZ '2025-01-06 10:00:00+00'), u"),
        ("FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2025-01-06' JOIN u USING (a)",
         "FROM t AT (TIMESTAMP => TIMESTAMPTZ '2025-01-06') JOIN u USING (a)"),
        ("FROM t FOR SYSTEM_TIME AS OF now() - INTERVAL 1 DAY x",
         "FROM t AS x AT (TIMESTAMP => (now() - INTERVAL 1 DAY)::TIMESTAMPTZ)"),
        ("FROM t FOR SYSTEM_TIME AS OF (SELECT 1) \"Y\"(a, b)",
         "FROM t AS \"Y\"(a, b) AT (TIMESTAMP => ((SELECT 1))::TIMESTAMPTZ)"),
        ("SELECT 'FOR SYSTEM_TIME AS OF SNAPSHOT 5' -- FOR SYSTEM_TIME AS OF SNAPSHOT 5",
         "SELECT 'FOR SYSTEM_TIME AS OF SNAPSHOT 5' -- FOR SYSTEM_TIME AS OF SNAPSHOT 5"),
        ("SELECT current_setting('worker_id'), current_setting('threads')",
         "SELECT getvariable('worker_id'), current_setting('threads')"),
        ("FROM ducklake_table_changes('analytics', 'main', 'sales', 0, 10)",
         "FROM ducklake_table_changes('analytics', 'main', 'sales', 0, "
         "least(10, getvariable('headwater_latest_snapshot')::BIGINT))"),
        ("FROM ducklake_table_changes('other', 'main', 'sales', 0, 10)",
         "FROM ducklake_table_changes('other', 'main', 'sales', 0, 10)"),
    ],
)  # fmt: skip
def test_what_duckdb_does_not_understand_is_translated(written: str, meant: str) -> None:
    assert edited(written, translate(written, words(written), "analytics").edits).text == meant


@given(st.integers(0, 60))
def test_places_in_a_translated_text_are_those_of_the_command(place: int) -> None:
    text = "SELECT 'ü', nope FROM t FOR SYSTEM_TIME AS OF SNAPSHOT 5 WHERE x"
    made = edited(text, translate(text, words(text), "analytics").edits)
    origin = made.origin(min(place, len(made.text) - 1))
    inside = "AT (VERSION => 5)"
    if not made.text.index(inside) <= place < made.text.index(inside) + len(inside) and place < len(
        made.text
    ):
        assert text[origin] == made.text[place]


@pytest.mark.parametrize(
    ("written", "meant", "key"),
    [
        ("CREATE TABLE s (id INTEGER PRIMARY KEY, p VARCHAR)",
         "CREATE TABLE s (id INTEGER NOT NULL, p VARCHAR)", ("id",)),
        ("CREATE OR REPLACE TABLE s (id INT CONSTRAINT pk PRIMARY KEY)",
         "CREATE OR REPLACE TABLE s (id INT NOT NULL)", ("id",)),
        ("CREATE TABLE IF NOT EXISTS a.s (x INT, y DECIMAL(10, 2), PRIMARY KEY (x, y))",
         "CREATE TABLE IF NOT EXISTS a.s (x INT NOT NULL, y DECIMAL(10, 2) NOT NULL)", ("x", "y")),
        ("CREATE TABLE s (x INT UNIQUE, y INT DEFAULT 1)",
         "CREATE TABLE s (x INT , y INT DEFAULT 1)", ("x",)),
        ('CREATE TABLE s (x INT, CONSTRAINT "u" UNIQUE (x))', "CREATE TABLE s (x INT)", ("x",)),
        ('CREATE TABLE s ("the id" INT PRIMARY KEY, x INT UNIQUE)',
         'CREATE TABLE s ("the id" INT NOT NULL, x INT )', ("the id",)),
    ],
)  # fmt: skip
def test_keys_are_taken_out_of_create_table(written: str, meant: str, key: tuple[str, ...]) -> None:
    (piece,) = statements(written)
    found = declared_key(piece)
    assert found is not None
    assert (edited(written, found.edits).text, found.columns) == (meant, key)


@pytest.mark.parametrize(
    "text",
    ["CREATE TEMP TABLE s (id INT PRIMARY KEY)", "CREATE TABLE memory.s (id INT PRIMARY KEY)",
     "CREATE TABLE s AS SELECT 'PRIMARY KEY'",
     "CREATE TABLE s (id INT DEFAULT (1), t VARCHAR DEFAULT 'UNIQUE')"],
)  # fmt: skip
def test_other_tables_keep_what_they_declare(text: str) -> None:
    assert declared_key(statements(text)[0]) is None


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("INSERT OR REPLACE INTO t VALUES (1, 'b', 5), (3, 'c', 1), (3, 'd', 2)", [(1, "a", 0), (2, "z", 0)],
         [(1, "b", 5), (2, "z", 0), (3, "d", 2)]),
        ("INSERT OR IGNORE INTO t VALUES (1, 'b', 5), (3, 'c', 1), (3, 'd', 2)",
         [(1, "a", 0)], [(1, "a", 0), (3, "c", 1)]),
        ("INSERT INTO t (n, id) SELECT 7, 1 ON CONFLICT (id) DO UPDATE SET n = n + excluded.n WHERE n < 9",
         [(1, "a", 1)], [(1, "a", 8)]),
        ("INSERT INTO t (n, id) SELECT 7, 1 ON CONFLICT DO NOTHING", [(1, "a", 1)], [(1, "a", 1)]),
        ("WITH x AS (SELECT 9 AS id) INSERT OR REPLACE INTO t (id) SELECT id FROM x", [], [(9, None, None)]),
    ],
)  # fmt: skip
def test_rows_with_known_keys_become_a_merge(
    text: str, before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, name VARCHAR, n INT)")
    for row in before:
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", row)
    insert = read_insert(statements(text)[0])
    assert insert is not None
    connection.execute(as_merge(insert, ["id", "name", "n"], ["id"]))
    assert connection.execute("FROM t ORDER BY id").fetchall() == after


def test_adding_up_the_same_row_twice_is_refused() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, n INT)")
    insert = read_insert(
        statements("INSERT INTO t VALUES (1, 1), (1, 2) ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n")[
            0
        ]
    )
    assert insert is not None
    with pytest.raises(duckdb.Error, match="twice"):
        connection.execute(as_merge(insert, ["id", "n"], ["id"]))


@pytest.mark.parametrize(
    ("text", "writes", "gives_rows"),
    [
        ("SELECT 1", False, True),
        ("-- c\nFROM t", False, True),
        ("WITH x AS (SELECT 1) FROM x", False, True),
        ("VALUES (1)", False, True),
        ("SHOW TABLES", False, True),
        ("DESCRIBE t", False, True),
        ("SUMMARIZE t", False, True),
        ("PRAGMA table_info('t')", False, True),
        ("EXPLAIN DELETE FROM t", False, True),
        ("EXPLAIN ANALYZE DELETE FROM t", True, True),
        ("CALL ducklake_snapshots('analytics')", False, True),
        ("CALL ducklake_expire_snapshots('analytics', versions => [1])", True, True),
        ("CALL analytics.merge_adjacent_files()", True, True),
        ("SELECT * FROM ducklake_flush_inlined_data('analytics')", True, True),
        ("CHECKPOINT analytics", True, False),
        ("INSERT INTO t VALUES (1)", True, False),
        ("INSERT INTO t VALUES (1) RETURNING *", True, True),
        ("WITH x AS (SELECT 1) INSERT INTO t FROM x", True, False),
        ("MERGE INTO t USING s WHEN MATCHED THEN DELETE", True, False),
        ("COPY t TO 'f.csv'", False, False),
        ("COPY t FROM 'f.csv'", True, False),
        ("TRUNCATE t", True, False),
        ("USE other", False, False),
        ("DROP TABLE t", True, False),
    ],
)
def test_statements_are_known_by_what_they_do(text: str, writes: bool, gives_rows: bool) -> None:
    statement = one(text)
    assert (statement.writes, statement.gives_rows) == (writes, gives_rows)


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("INSERT INTO t VALUES (1, 'select'), (2, \"lower\"('x'))", True),
        ("INSERT INTO t SELECT i FROM range(3) r(i)", True),
        ("INSERT INTO t SELECT 1", True),
        ("INSERT INTO t SELECT max(i) FROM t", False),
        ("INSERT INTO t SELECT i FROM range(3) r(i), t", False),
        ("INSERT INTO t SELECT i FROM range(3) r(i) JOIN t USING (i)", False),
        ("INSERT INTO t VALUES ((SELECT max(i) FROM t))", False),
        ("INSERT INTO t VALUES ((TABLE t))", False),
        ("INSERT INTO t FROM t", False),
        ("INSERT INTO t VALUES (DEFAULT)", False),
        ("INSERT INTO t SELECT * FROM ducklake_snapshots('analytics')", False),
        ("INSERT INTO t SELECT * FROM query('FROM t')", False),
        ("INSERT OR REPLACE INTO t VALUES (1)", False),
        ("WITH x AS (FROM t) INSERT INTO t FROM x", False),
    ],
)
def test_inserts_that_depend_on_no_table_are_recognised(text: str, alone: bool) -> None:
    assert reads_no_table(one(text)) is alone


def test_each_statement_of_a_command_counts_and_so_does_each_entry_of_commands() -> None:
    assert [command.index for command in read_commands({"command": "SELECT 1; SELECT 2;"}, "a")] == [0, 1]
    entries = read_commands({"commands": ["SELECT 1; SELECT 2;", "SELECT 3"]}, "a")
    assert [(entry.index, len(entry.statements)) for entry in entries] == [(0, 2), (1, 1)]


@pytest.mark.parametrize(
    ("fields", "code", "index", "position"),
    [
        ({"command": "SELECT 1; SELECT * FORM t"}, "ParserException", 1, 24),
        ({"commands": ["SELECT 1", "SELECT 'ü' FORM\n  t t t"]}, "ParserException", 1, 18),
        ({"command": "SELECT 'open"}, "ParserException", 0, 7),
        ({"command": "BEGIN; SELECT 1"}, "transaction", 0, None),
        ({"command": "  -- nothing"}, "empty", 0, 0),
    ],
)
def test_mistakes_have_a_command_and_a_place(
    fields: dict[str, Any], code: str, index: int, position: int | None
) -> None:
    with pytest.raises(TaskFailed) as raised:
        read_commands(fields, "analytics")
    error = raised.value.error
    assert (error.code, error.command_index, error.position) == (code, index, position)
