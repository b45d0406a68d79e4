"""Every operation on the catalog: seen at once by a DuckDB session that was open before, and right at every
older snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headwater.errors import AlreadyExistsError, InvalidInputError, NotFoundError, SettingsError
from headwater.lake.lake import Lake
from headwater.lake.writing.columns import SqlExpression
from headwater.typedefs import TableName
from tests.lake.places import Place, Work, make
from tests.support import duck

# --- seen at once, and right at older snapshots -----------------------------------------------------------

COMMENTS = "SELECT comment FROM duckdb_{}() WHERE schema_name = '{{s}}' AND {} = '{}'"

#: What is done, how DuckDB is asked, and its answer afterwards and (where it differs) at the snapshot before.
OPERATIONS: dict[str, tuple[Work, str, Any]] = {
    "create a table": (
        lambda tx, s: tx.create_table(f"{s}.new", {"q": "int32"}),
        "SELECT count(*) FROM {s}.new",
        [(0,)],
    ),
    "rename a table": (lambda tx, s: tx.rename_table(f"{s}.t", "t2"), "SELECT count(*) FROM {s}.t2", [(20,)]),
    "rename a table with inlined rows": (
        lambda tx, s: tx.rename_table(f"{s}.small", "t2"),
        "SELECT count(*) FROM {s}.t2",
        [(2,)],
    ),
    "replace a table": (
        lambda tx, s: tx.create_table(f"{s}.t", {"z": "date"}, or_replace=True),
        "SELECT count(z) FROM {s}.t",
        [(0,)],
    ),
    "add a column with a default": (
        lambda tx, s: tx.add_column(f"{s}.t", "c", "decimal(5,1)", default="1.5"),
        "SELECT sum(c)::VARCHAR, count(*) FROM {s}.t",
        [("30.0", 20)],
    ),
    "add a column to inlined rows": (
        lambda tx, s: tx.add_column(f"{s}.small", "c", "int32", default=7),
        "SELECT a, b, c FROM {s}.small ORDER BY a",
        [(1, "x", 7), (2, None, 7)],
    ),
    "drop a column": (
        lambda tx, s: tx.drop_column(f"{s}.t", "b"),
        "SELECT * FROM {s}.t WHERE a = 1",
        [(1, {"x": 1, "y": "u"})],
    ),
    "rename a column": (
        lambda tx, s: tx.rename_column(f"{s}.small", "b", "bb"),
        "SELECT bb FROM {s}.small WHERE a = 1",
        [("x",)],
    ),
    "exchange two columns' names": (
        lambda tx, s: (
            tx.rename_column(f"{s}.small", "a", "tmp"),
            tx.rename_column(f"{s}.small", "b", "a"),
            tx.rename_column(f"{s}.small", "tmp", "b"),
        ),
        "SELECT a FROM {s}.small WHERE b = 1",
        [("x",)],
    ),
    "widen a column": (
        lambda tx, s: (tx.widen_column(f"{s}.t", "a", "int64"), tx.append(f"{s}.t", [{"a": 1 << 40}])),
        "SELECT max(a), typeof(max(a)) FROM {s}.t",
        [(1 << 40, "BIGINT")],
    ),
    "add a field": (
        lambda tx, s: (
            tx.add_column(f"{s}.t", ("s", "z"), "date"),
            tx.append(f"{s}.t", [{"a": 99, "s": {"x": 1}}]),
        ),
        "SELECT s FROM {s}.t WHERE a = 1",
        [({"x": 1, "y": "u", "z": None},)],
    ),
    "rename a field": (
        lambda tx, s: tx.rename_column(f"{s}.t", ("s", "y"), "w"),
        "SELECT s.w FROM {s}.t WHERE a = 1",
        [("u",)],
    ),
    "drop a field": (
        lambda tx, s: tx.drop_column(f"{s}.t", ("s", "x")),
        "SELECT s FROM {s}.t WHERE a = 1",
        [({"y": "u"},)],
    ),
    "widen a field": (
        lambda tx, s: tx.widen_column(f"{s}.t", ("s", "x"), "int64"),
        "SELECT typeof(s), s.x FROM {s}.t WHERE a = 1",
        [("STRUCT(x BIGINT, y VARCHAR)", 1)],
    ),
    "comment on a table": (
        lambda tx, s: tx.set_comment(f"{s}.t", "it's"),
        COMMENTS.format("tables", "table_name", "t"),
        [("it's",)],
    ),
    "comment on a column": (
        lambda tx, s: tx.set_comment(f"{s}.t", "it's", column="a"),
        COMMENTS.format("columns", "table_name", "t") + " AND column_name = 'a'",
        [("it's",)],
    ),
    "comment on a view": (
        lambda tx, s: tx.set_comment(f"{s}.v", "it's"),
        COMMENTS.format("views", "view_name", "v"),
        [("it's",)],
    ),
    "create a view": (
        lambda tx, s: tx.create_view(f"{s}.w", f"SELECT max(a) AS m FROM {s}.t;", column_aliases=['m "x"']),
        'SELECT "m ""x""" FROM {s}.w',
        [(19,)],
    ),
    "replace a view": (
        lambda tx, s: tx.create_view(f"{s}.v", f"SELECT 5 AS a FROM {s}.small", or_replace=True),
        "SELECT sum(a) FROM {s}.v",
        [(10,)],
    ),
    "rename a view": (lambda tx, s: tx.rename_view(f"{s}.v", "w"), "SELECT count(*) FROM {s}.w", [(20,)]),
    "append": (
        lambda tx, s: tx.append(f"{s}.small", [{"a": 3}]),
        "SELECT max(a), count(*) FROM {s}.small",
        [(3, 3)],
    ),
    "append a file": (
        lambda tx, s: tx.append(f"{s}.small", pa.table({"a": range(100, 150)})),
        "SELECT max(a), count(*) FROM {s}.small",
        [(149, 52)],
    ),
    "delete": (lambda tx, s: tx.delete(f"{s}.t", "a < 5"), "SELECT min(a), count(*) FROM {s}.t", [(5, 15)]),
    "delete most rows": (
        lambda tx, s: tx.delete(f"{s}.t", "a < 15"),
        "SELECT min(a), count(*) FROM {s}.t",
        [(15, 5)],
    ),
    "delete inlined rows": (lambda tx, s: tx.delete(f"{s}.small", "a = 2"), "FROM {s}.small", [(1, "x")]),
    "update": (lambda tx, s: tx.update(f"{s}.t", {"b": "'q'"}), "SELECT DISTINCT b FROM {s}.t", [("q",)]),
    "update inlined rows": (
        lambda tx, s: tx.update(f"{s}.small", {"a": "a * 100"}),
        "SELECT sum(a) FROM {s}.small",
        [(300,)],
    ),
    "truncate": (
        lambda tx, s: (tx.truncate(f"{s}.t"), tx.truncate(f"{s}.small")),
        "FROM {s}.t UNION ALL BY NAME FROM {s}.small",
        [],
    ),
    "flush": (
        lambda tx, s: tx.flush_inlined(f"{s}.small"),
        "SELECT count(*), max(b) FROM {s}.small",
        [(2, "x")],
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_open_duckdb_session_sees_it_at_once_and_older_snapshots_stay(place: Place, name: str) -> None:
    before = make(place)
    work, question, answer = OPERATIONS[name]
    old = {table: sorted(map(repr, place.rows(table))) for table in ("t", "small")}

    snapshot = place.run(work)

    assert snapshot == before + 1
    assert place.sql(question) == answer
    for table, rows in old.items():
        assert sorted(map(repr, place.rows(table, before))) == rows
        theirs = place.session.execute(
            f"FROM {place.schema}.{table} AT (VERSION => {before})"
        ).to_arrow_table()
        assert sorted(map(repr, theirs.to_pylist())) == rows


@pytest.mark.parametrize(
    ("work", "gone"),
    [
        (lambda tx, s: tx.drop_table(f"{s}.t"), ["t"]),
        (lambda tx, s: tx.drop_view(f"{s}.v"), ["v"]),
        (lambda tx, s: tx.drop_schema(s, cascade=True), ["t", "small", "v"]),
        (lambda tx, s: tx.rename_table(f"{s}.t", "x"), ["t"]),
        (lambda tx, s: tx.rename_view(f"{s}.v", "x"), ["v"]),
    ],
    ids=["table", "view", "schema", "renamed table", "renamed view"],
)
def test_what_is_dropped_is_gone_at_once_and_still_there_before(
    place: Place, work: Work, gone: list[str]
) -> None:
    before = make(place)
    place.run(work)
    for name in gone:
        with pytest.raises(duckdb.CatalogException):
            place.sql(f"FROM {{s}}.{name}")
        expected = 2 if name == "small" else 20
        assert place.sql(f"SELECT count(*) FROM {{s}}.{name} AT (VERSION => {before})") == [(expected,)]


def test_defaults_and_not_null_bind_duckdb_at_once(place: Place) -> None:
    make(place)
    place.run(lambda tx, s: (tx.set_default(f"{s}.small", "b", "d"), tx.set_not_null(f"{s}.small", "a")))
    place.sql("INSERT INTO {s}.small (a) VALUES (5)")
    assert place.sql("SELECT b FROM {s}.small WHERE a = 5") == [("d",)]
    with pytest.raises(duckdb.ConstraintException):
        place.sql("INSERT INTO {s}.small VALUES (NULL, 'x')")
    place.run(
        lambda tx, s: (
            tx.drop_not_null(f"{s}.small", "a"),
            tx.set_default(f"{s}.small", "b", SqlExpression("upper('e')")),
        )
    )
    place.sql("INSERT INTO {s}.small (a) VALUES (NULL)")
    assert place.sql("SELECT b FROM {s}.small WHERE a IS NULL") == [("E",)]
    place.run(lambda tx, s: tx.append(f"{s}.small", [{"a": 6}]))
    assert place.sql("SELECT b FROM {s}.small WHERE a = 6") == [("E",)]


def test_duckdb_follows_partitioning_and_sort_order_at_once(place: Place) -> None:
    make(place)
    place.run(
        lambda tx, s: (tx.set_partition_by(f"{s}.small", ["b"]), tx.set_sort_by(f"{s}.small", ["a desc"]))
    )
    place.sql("INSERT INTO {s}.small SELECT range, 'p' || range % 2 FROM range(40)")
    files = place.sql("SELECT data_file FROM ducklake_list_files('lake', 'small', schema => '{s}')")
    assert sorted(name.split("/")[-2] for (name,) in files) == ["b=p0", "b=p1"]
    for (name,) in files:
        values = [row[0] for row in place.session.execute(f"SELECT a FROM read_parquet('{name}')").fetchall()]
        assert values == sorted(values, reverse=True)
    place.run(lambda tx, s: (tx.set_partition_by(f"{s}.small", []), tx.set_sort_by(f"{s}.small", [])))
    place.sql("INSERT INTO {s}.small SELECT range, 'p' || range % 2 FROM range(40)")
    files = place.sql("SELECT data_file FROM ducklake_list_files('lake', 'small', schema => '{s}')")
    assert sum("b=p" in name for (name,) in files) == 2
    assert len(files) == 3


def test_a_new_duckdb_session_follows_options(place: Place) -> None:
    # An open one has read them when it attached the lake, whoever changes them later.
    make(place)
    files = "SELECT data_file FROM ducklake_list_files('fresh', 'small', schema => '{s}')"
    with place.lake.transaction() as tx:
        tx.set_option("data_inlining_row_limit", 0, table=f"{place.schema}.small")
        tx.set_option("parquet_compression", "zstd", schema=place.schema)
    with place.lake.duckdb("fresh") as fresh:
        fresh.execute(f"INSERT INTO {place.schema}.small VALUES (9, 'file')")
        [(name,)] = fresh.execute(files.replace("{s}", place.schema)).fetchall()
        codec = fresh.execute(f"SELECT DISTINCT compression FROM parquet_metadata('{name}')").fetchall()
    assert codec == [("ZSTD",)]
    with place.lake.transaction() as tx:
        tx.set_option("data_inlining_row_limit", None, table=f"{place.schema}.small")
        tx.set_option("parquet_compression", None, schema=place.schema)
    with place.lake.duckdb("fresh") as fresh:
        fresh.execute(f"INSERT INTO {place.schema}.small VALUES (10, 'inlined')")
        assert len(fresh.execute(files.replace("{s}", place.schema)).fetchall()) == 1


def test_tags_of_tables_and_views_are_kept_and_do_not_disturb_duckdb(place: Place) -> None:
    make(place)
    place.run(lambda tx, s: (tx.set_tag(f"{s}.t", "owner", "me"), tx.set_tag(f"{s}.v", "owner", "you")))
    place.run(lambda tx, s: tx.set_tag(f"{s}.t", "since", "2026"))
    before = place.run(lambda tx, s: tx.set_comment(f"{s}.t", "words", column=("s", "x")))
    place.run(lambda tx, s: tx.set_tag(f"{s}.t", "owner", None))
    assert place.sql("SELECT count(*) FROM {s}.t, {s}.v") == [(400,)]
    assert place.sql("SELECT tags FROM duckdb_tables() WHERE schema_name = '{s}' AND table_name = 't'") == [
        ({"since": "2026"},)
    ]
    state, old = place.lake.state(), place.lake.state(before)
    assert state.view(f"{place.schema}.v").tags == {"owner": "you"}
    assert old.table(f"{place.schema}.t").tags == {"owner": "me", "since": "2026"}
    assert place.lake.table(f"{place.schema}.t").columns[2].children[0].tags == {"comment": "words"}


@pytest.mark.parametrize("kind", ["uuid", "json", "interval", "blob", "boolean", "timestamptz", "varchar"])
def test_a_table_can_be_sorted_by_any_plain_column(place: Place, kind: str) -> None:
    s = place.schema
    with place.lake.transaction() as tx:
        tx.create_table(f"{s}.t", {"k": "int32", "c": kind}, sort_by=["c desc", "k"])
        tx.append(f"{s}.t", pa.table({"k": range(20)}))
    place.sql("INSERT INTO {s}.t SELECT range, NULL FROM range(20)")
    assert place.sql("SELECT count(*) FROM {s}.t") == [(40,)]


def test_a_new_column_may_have_any_constant_default(place: Place) -> None:
    make(place)
    place.run(
        lambda tx, s: (
            tx.add_column(f"{s}.t", "bytes", "blob", default=b"\x00'\xff"),
            tx.add_column(f"{s}.t", "word", "varchar", default="NULL"),
            tx.add_column(f"{s}.t", "big", "uint64", default=2**64 - 1),
        )
    )
    place.sql("INSERT INTO {s}.t (a) VALUES (100)")
    expected = (b"\x00'\xff", "NULL", 2**64 - 1)
    assert place.sql("SELECT DISTINCT bytes, word, big FROM {s}.t") == [expected]
    assert {(r["bytes"], r["word"], r["big"]) for r in place.rows()} == {expected}


# --- what DuckDB does is seen here at once ----------------------------------------------------------------


def test_an_open_lake_sees_what_duckdb_does_at_once(place: Place) -> None:
    before = make(place)
    lake, s = place.lake, place.schema
    place.sql("ALTER TABLE {s}.t ADD COLUMN c DATE DEFAULT '2020-01-01'")
    assert [c.name for c in lake.table(f"{s}.t").columns] == ["a", "b", "s", "c"]
    place.sql("ALTER TABLE {s}.t RENAME COLUMN s.x TO xx")
    place.sql("ALTER TABLE {s}.t SET PARTITIONED BY (bucket(4, a))")
    place.sql("ALTER TABLE {s}.t SET SORTED BY (b DESC)")
    place.sql("COMMENT ON TABLE {s}.t IS 'c'")
    place.sql("COMMENT ON COLUMN {s}.t.a IS 'd'")
    place.sql("ALTER TABLE {s}.t ALTER a SET NOT NULL")
    table = lake.table(f"{s}.t")
    assert [c.name for c in table.columns[2].children] == ["xx", "y"]
    assert table.partition is not None
    assert [f.transform for f in table.partition.fields] == ["bucket(4)"]
    assert [(f.expression, f.direction) for f in table.sort] == [("b", "DESC")]
    assert (table.comment, table.columns[0].tags["comment"]) == ("c", "d")
    assert not table.columns[0].nulls_allowed
    with pytest.raises(InvalidInputError, match="NULL"):
        place.run(lambda tx, s: tx.append(f"{s}.t", [{"b": "no a"}]))
    place.sql("CREATE VIEW {s}.w (one) AS SELECT 1")
    assert lake.state().view(f"{s}.w").column_aliases == '"one"'
    place.sql("ALTER TABLE {s}.t RENAME TO t2")
    place.run(lambda tx, s: tx.append(f"{s}.t2", pa.table({"a": range(100, 130)})))
    assert place.sql("SELECT count(*) FROM {s}.t2") == [(50,)]
    assert lake.read(f"{s}.t2", where="a = 120").to_pylist()[0]["c"].isoformat() == "2020-01-01"
    assert [c.name for c in lake.table(f"{s}.t", before).columns] == ["a", "b", "s"]
    with pytest.raises(NotFoundError):
        lake.table(f"{s}.t")


# --- where the catalog is ---------------------------------------------------------------------------------


def test_a_schema_name_that_cannot_be_used_is_refused(new_database: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="without a %"):
        Lake.open(new_database, data_path=tmp_path, metadata_schema="per%cent")


def test_two_lakes_in_one_database_know_nothing_of_each_other(new_database: str, tmp_path: Path) -> None:
    names = ["public", 'Odd "schema".x']
    lakes = [
        Lake.open(new_database, data_path=tmp_path / str(i), metadata_schema=name)
        for i, name in enumerate(names)
    ]
    for i, lake in enumerate(lakes):
        with lake.transaction() as tx:
            tx.create_table("t", {"a": "int32"})
            tx.append("t", [{"a": i}])
        with lake.transaction() as tx:
            tx.append("t", pa.table({"a": [i] * 30}))
            tx.delete("t", f"a = {i} AND rowid = 5")
    for i, (name, lake) in enumerate(zip(names, lakes, strict=True)):
        with duck(new_database, metadata_schema=name) as session, lake.duckdb() as own:
            for one in (session, own):
                assert one.execute("SELECT min(a), max(a), count(*) FROM t").fetchall() == [(i, i, 30)]
            session.execute("INSERT INTO t VALUES (100)")
        again = Lake.open(new_database, metadata_schema=name, create=False)
        assert sorted(again.read("t").column("a").to_pylist()) == [*[i] * 30, 100]
        assert again.metadata_schema == name
        again.close()
    for lake in lakes:
        lake.close()


def test_a_lake_that_duckdb_made_in_a_schema_of_its_own_opens_here(new_database: str, tmp_path: Path) -> None:
    with duck(new_database, tmp_path / "data", metadata_schema="meta") as session:
        session.execute("CREATE SCHEMA sales")
        session.execute("CREATE TABLE sales.t AS SELECT range AS a FROM range(30)")
    lake = Lake.open(new_database, metadata_schema="meta")
    assert lake.read("sales.t").num_rows == 30
    with pytest.raises(NotFoundError, match="no DuckLake catalog"):
        Lake.open(new_database, data_path=tmp_path / "data", create=False)
    lake.close()


# --- names ------------------------------------------------------------------------------------------------

NAMES = [
    'quo"te',
    '"',
    "it's",
    "dot.ted",
    " space ",
    "größe 🦆 数据",
    "x" * 200,
    "ä" * 100,
    "select",
    "SELECT",
    "CamelCase",
    "1st",
    "per%cent",
    "{brace}",
    "back\\slash",
    "semi;colon--",
    "a/b/../c",
    "new\nline",
    "$1 %s %(x)s ?",
]


@pytest.mark.parametrize("name", NAMES, ids=[ascii(n)[1:12] for n in NAMES])
def test_any_name_works_for_schemas_tables_columns_views_and_fields(
    shared: tuple[Lake, Any], name: str
) -> None:
    lake, session = shared
    quoted = '"' + name.replace('"', '""') + '"'
    table, view = TableName(name, name), TableName(name, name + "v")
    with lake.transaction() as tx:
        tx.create_schema(name)
        tx.create_table(table, {name: "int32", "s": pa.struct([pa.field(name, pa.string())]), "k": "varchar"})
        tx.create_view(view, f"SELECT {quoted} FROM {quoted}.{quoted}", column_aliases=[name + "c"])
        tx.set_comment(table, name)
        tx.set_comment(table, name, column=name)
    with lake.transaction() as tx:
        tx.append(table, [{name: 1, "s": {name: "x"}, "k": name}])
    with lake.transaction() as tx:
        tx.drop_column(table, "s")
        if len(name.encode()) < 60:  # DuckDB makes a folder of it
            tx.set_partition_by(table, [name])
        tx.set_sort_by(table, [quoted])
    with lake.transaction() as tx:
        tx.append(table, [{name: 2, "k": name}])
    with lake.transaction() as tx:
        tx.append(table, pa.table({name: [3] * 20, "k": [name] * 20}))
        tx.update(table, {name: f"{quoted} + 10"}, f"{quoted} = 2")
        tx.delete(table, f"{quoted} = 1")

    assert session.execute(f"SELECT DISTINCT {quoted}, k FROM {quoted}.{quoted} ORDER BY 1").fetchall() == [
        (3, name),
        (12, name),
    ]
    assert session.execute(f'SELECT sum("{name.replace(chr(34), chr(34) * 2)}c") FROM {view}').fetchall() == [
        (72,)
    ]
    session.execute(f"INSERT INTO {quoted}.{quoted} VALUES (4, 'theirs')")
    session.execute(f"UPDATE {quoted}.{quoted} SET k = 'u' WHERE {quoted} = 12")
    session.execute(f'ALTER TABLE {quoted}.{quoted} ADD COLUMN {quoted[:-1]}2" INTEGER')
    session.execute(f"INSERT INTO {quoted}.{quoted} VALUES (5, 'theirs', 6)")
    rows = lake.read(table, where=f"{quoted} IN (4, 5, 12)").to_pylist()
    assert sorted((row[name], row["k"], row[name + "2"]) for row in rows) == [
        (4, "theirs", None),
        (5, "theirs", 6),
        (12, "u", None),
    ]
    assert lake.table(str(table)).name == table, "the name as it is shown can be given back"
    assert lake.table(table).comment == name
    with lake.transaction() as tx:
        tx.rename_table(table, name + "n")
        tx.rename_column((name, name + "n"), name, name + "n")
    assert session.execute(f"SELECT count(*) FROM {TableName(name, name + 'n')}").fetchall() == [(23,)]
    with lake.transaction() as tx:
        tx.drop_schema(name, cascade=True)
    assert session.execute(
        "SELECT count(*) FROM duckdb_schemas() WHERE schema_name = ?", [name]
    ).fetchall() == [(0,)]


def test_names_are_found_without_regard_to_case_and_keep_theirs(place: Place) -> None:
    s = place.schema
    place.run(lambda tx, s: tx.create_table(f"{s}.Orders", {"Id": "int32", "S": "struct(Inner int32)"}))
    place.run(lambda tx, s: tx.append(f"{s.upper()}.ORDERS", [{"ID": 1, "s": {"inner": 2}}]))
    place.run(lambda tx, s: tx.rename_column(f"{s}.orders", "ID", "iD"))
    place.run(lambda tx, s: tx.rename_column(f"{s}.orders", ("s", "INNER"), "inner"))
    place.run(lambda tx, s: tx.rename_table(f"{s}.ORDERS", "orders"))
    assert place.lake.table(f"{s}.oRDERS").name == TableName(s, "orders")
    assert place.rows("ORDERS") == [{"iD": 1, "S": {"inner": 2}}]
    assert place.sql("SELECT id, s.INNER FROM {s}.Orders") == [(1, 2)]
    for work in (
        lambda tx, s: tx.create_table(f"{s}.ORDERS", {"a": "int32"}),
        lambda tx, s: tx.create_view(f"{s}.ORDERS", "SELECT 1"),
        lambda tx, s: tx.create_schema(s.upper()),
        lambda tx, s: tx.add_column(f"{s}.orders", "ID", "int32"),
        lambda tx, s: tx.add_column(f"{s}.orders", ("s", "INNER"), "int32"),
    ):
        with pytest.raises(AlreadyExistsError):
            place.run(work)
    with pytest.raises(InvalidInputError, match="twice"):
        place.run(lambda tx, s: tx.create_table(f"{s}.x", {"a": "int32", "A": "int32"}))
