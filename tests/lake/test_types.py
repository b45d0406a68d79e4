from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import HeadwaterError, InvalidInputError, UnsupportedError
from headwater.lake.format.conform import conform
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import (
    arrow_schema,
    arrow_type,
    can_widen,
    columns_from_arrow,
    decimal_parts,
    empty_table,
    type_text,
)
from headwater.lake.model import Column
from tests.lake.oracle import Oracle
from tests.lake.random_data import NESTED_TEXTS, SCALAR_TEXTS, columns, table
from tests.lake.test_conform import as_text, current_columns

ALL_TEXTS = (*SCALAR_TEXTS, "interval", "variant", "geometry", *NESTED_TEXTS)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    found = Oracle(tmp_path_factory.mktemp("lake"))
    yield found
    found.close()


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ALL_TEXTS)
def test_a_table_of_our_sql_names_has_our_columns_in_duckdbs_catalog(oracle: Oracle, text: str) -> None:
    cols = columns([text])
    name = oracle.create(cols)

    assert current_columns(oracle, name) == cols


@pytest.mark.parametrize(
    "text",
    [
        "BOOLEAN", "bool", "LOGICAL", "TINYINT", "int1", "SMALLINT", "int2", "short", "INTEGER", "int",
        "INT4", "signed", "BIGINT", "int8", "LONG", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
        "UBIGINT", "UHUGEINT", "FLOAT", "real", "FLOAT4", "DOUBLE", "double precision", "FLOAT8", "DECIMAL",
        "decimal(5)", "NUMERIC(10,2)", "dec(4 , 1)", "DATE", "TIME", "TIME WITHOUT TIME ZONE", "TIMETZ",
        "TIME WITH TIME ZONE", "TIMESTAMP", "DATETIME", "timestamp without time zone", "TIMESTAMPTZ",
        "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "timestamp_us",
        "INTERVAL", "VARCHAR", "varchar(10)", "TEXT", "STRING", "CHAR", "bpchar", "CHARACTER VARYING",
        "JSON", "BLOB", "BYTEA", "BINARY", "varbinary", "UUID", "VARIANT", "GEOMETRY", "INTEGER[]",
        "VARCHAR[][]", 'STRUCT(a INTEGER, "b c" VARCHAR[])', "MAP(VARCHAR, INTEGER)",
        'STRUCT("we""ird" DOUBLE PRECISION)', "ROW(a INTEGER)",
        "struct(t TIMESTAMP WITH TIME ZONE, u TIME)[]", "oid", "nvarchar", "integral", "guid",
    ],
)  # fmt: skip
def test_sql_names_mean_what_they_mean_in_duckdb(oracle: Oracle, text: str) -> None:
    name = f"s{abs(hash(text))}"
    oracle.duck.execute(f"CREATE TABLE {name}(v {text})")

    # `int8` is the one name that both know and mean differently: eight bits in DuckLake, eight bytes in SQL.
    expected = "int64" if text == "int8" else current_columns(oracle, name)[0].type
    [stored] = current_columns(oracle, name)
    assert stored.type == expected
    if text != "int8":
        assert column_from_text("v", text) == stored


@pytest.mark.parametrize("text", ALL_TEXTS)
def test_types_read_back_from_their_own_text(text: str) -> None:
    [column] = columns([text])

    assert column_from_text(column.name, type_text(column), column.id) == column


def test_ids_count_depth_first() -> None:
    column = column_from_text("s", "struct(a int32, l struct(x int32)[], m map(varchar, int32))", 10)

    assert [(c.id, c.name) for c in column.walk()] == [
        (10, "s"), (11, "a"), (12, "l"), (13, "element"), (14, "x"), (15, "m"), (16, "key"), (17, "value"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("enum('a')", HeadwaterError, "varchar|not a type"),
        ("ENUM", UnsupportedError, "use varchar"),
        ("bit", UnsupportedError, "use varchar"),
        ("union(a int)", UnsupportedError, "use struct"),
        ("integer[3]", UnsupportedError, "fixed length"),
        ("time_ns", UnsupportedError, "use time"),
        ("integr", InvalidInputError, "did you mean 'integ"),
        ("varchr", InvalidInputError, "did you mean 'varchar'"),
        ("decimal(39,2)", InvalidInputError, "38"),
        ("decimal(4,5)", InvalidInputError, "38"),
        ("struct()", InvalidInputError, "name"),
        ("struct(a int32, A int32)", InvalidInputError, "twice"),
        ("map(int32)", InvalidInputError, "','"),
        ("int32 int32", InvalidInputError, "unexpected"),
        ("list", InvalidInputError, r"'\('"),
        ("", InvalidInputError, "name"),
        ("int32;", InvalidInputError, "unexpected"),
        ("int32[", InvalidInputError, "fixed|expected|'v'"),
    ],
)
def test_text_that_is_no_type_is_refused_with_what_is(
    text: str, error: type[Exception], message: str
) -> None:
    with pytest.raises((error, UnsupportedError), match=message) as caught:
        column_from_text("v", text)

    assert "'v'" in str(caught.value)


# --- Arrow ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ALL_TEXTS)
def test_a_schema_we_hand_out_makes_the_same_columns_again(text: str) -> None:
    cols = columns([text, "int32"])

    assert columns_from_arrow(arrow_schema(cols)) == cols
    assert columns_from_arrow(arrow_schema(cols, field_ids=False)) == cols


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.bool_(), "boolean"), (pa.int8(), "int8"), (pa.uint64(), "uint64"), (pa.float16(), "float32"),
        (pa.decimal32(5, 2), "decimal(5,2)"), (pa.decimal64(18, 0), "decimal(18,0)"),
        (pa.decimal256(38, 5), "decimal(38,5)"), (pa.date64(), "date"), (pa.time32("s"), "time"),
        (pa.time32("ms"), "time"), (pa.time64("us"), "time"), (pa.timestamp("s"), "timestamp_s"),
        (pa.timestamp("ms"), "timestamp_ms"), (pa.timestamp("us"), "timestamp"),
        (pa.timestamp("ns"), "timestamp_ns"),
        (pa.timestamp("s", "Asia/Tokyo"), "timestamptz"), (pa.timestamp("ns", "+02:00"), "timestamptz"),
        (pa.large_string(), "varchar"), (pa.string_view(), "varchar"), (pa.large_binary(), "blob"),
        (pa.binary_view(), "blob"), (pa.binary(16), "blob"), (pa.uuid(), "uuid"), (pa.json_(), "json"),
        (pa.json_(pa.large_string()), "json"), (pa.month_day_nano_interval(), "interval"),
        (pa.dictionary(pa.int16(), pa.large_string()), "varchar"),
    ],
)  # fmt: skip
def test_arrow_types_find_their_home(kind: Any, expected: str) -> None:
    [column] = columns_from_arrow(pa.schema([pa.field("v", kind, nullable=False)]))

    assert column == Column(1, "v", expected, nulls_allowed=False)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.large_list(pa.int32()),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.int32()),
        pa.list_(pa.int32(), 3),
    ],
)
def test_every_kind_of_list_is_a_list(kind: Any) -> None:
    [column] = columns_from_arrow(pa.schema([("v", kind)]))

    assert column == column_from_text("v", "int32[]")


def test_maps_and_structs_with_dictionaries_and_odd_names() -> None:
    inner = pa.struct(
        [
            pa.field("k k", pa.dictionary(pa.int8(), pa.string())),
            pa.field("x", pa.map_(pa.string(), pa.date64())),
        ]
    )

    [column] = columns_from_arrow(pa.schema([("s", inner)]), first_id=5)

    assert column == column_from_text("s", 'struct("k k" varchar, x map(varchar, date))', 5)


def test_metadata_names_a_type_that_arrow_cannot() -> None:
    schema = pa.schema(
        [pa.field("t", pa.time64("us"), metadata={"ducklake:type": "timetz"}),
         pa.field("j", pa.string(), metadata={"ducklake:type": "json"}),
         pa.field("l", pa.list_(pa.field("i", pa.decimal128(38, 0), metadata={"ducklake:type": "int128"}))),
         pa.field("v", pa.string(), metadata={"ducklake:type": "variant"})]
    )  # fmt: skip

    assert [c.type for top in columns_from_arrow(schema) for c in top.walk()] == [
        "timetz", "json", "list", "int128", "variant",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.null(), "cast it"), (pa.duration("s"), "int64"), (pa.time64("ns"), "time64"),
        (pa.decimal256(40, 2), "38"), (pa.decimal128(5, -2), "scale"), (pa.struct([]), "field"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "supported"),
        (pa.dense_union([pa.field("a", pa.int32())]), "supported"),
    ],
)  # fmt: skip
def test_types_without_a_home_are_refused_by_name(kind: Any, hint: str) -> None:
    for schema, path in (
        (pa.schema([pa.field("v", kind)]), "v"),
        (pa.schema([pa.field("s", pa.struct([pa.field("v", kind)]))]), "s.v"),
    ):
        with pytest.raises(InvalidInputError, match=hint) as caught:
            columns_from_arrow(schema)
        assert caught.value.column == path


def test_names_must_differ_by_more_than_case() -> None:
    with pytest.raises(InvalidInputError, match="'A'"):
        columns_from_arrow(pa.schema([("a", pa.int32()), ("A", pa.int32())]))
    with pytest.raises(InvalidInputError, match="empty"):
        columns_from_arrow(pa.schema([("", pa.int32())]))


def test_a_type_of_a_newer_catalog_is_refused_with_what_is_known() -> None:
    with pytest.raises(UnsupportedError, match="supported"):
        arrow_type(Column(1, "v", "hologram"))
    with pytest.raises(UnsupportedError, match="supported"):
        type_text(Column(1, "v", "list"))


def test_what_we_hand_to_duckdb_is_of_the_type_it_should_be() -> None:
    same = [t for t in SCALAR_TEXTS if t not in ("int128", "uint128", "timetz")]
    cols = columns([*same, "geometry", "interval", *NESTED_TEXTS])
    with duckdb.connect() as duck:
        duck.register("t", empty_table(cols))
        types = [row[1] for row in duck.execute("DESCRIBE SELECT * FROM t").fetchall()]

    assert types == [row_type(c) for c in cols]


def row_type(column: Column) -> str:
    with duckdb.connect() as duck:
        return str(duck.execute(f"SELECT typeof(NULL::{type_text(column)})").fetchall()[0][0])


# --- widening ---------------------------------------------------------------------------------------------

WIDENING = (
    *SCALAR_TEXTS,
    "interval",
    "variant",
    "geometry",
    "decimal(10,2)",
    "decimal(10,4)",
    "decimal(38,2)",
)


def widened(oracle: Oracle, old: str, new: str) -> str:
    """A table with values of the old type whose column DuckDB then widened."""
    cols = columns([old])
    name = oracle.create(cols)
    oracle.insert(name, table(random.Random(old), cols, 30))
    oracle.duck.execute(f"ALTER TABLE {name} ALTER c0 TYPE {type_text(columns([new])[0])}")
    return name


# What DuckDB also accepts, and why we do not.
LOSES = {"float32", "float64"}  # digits of large integers and of decimals
BY_SESSION = {("date", "timestamptz"), ("timestamp", "timestamptz")}  # the instant depends on the zone
OVERFLOWS = {"timestamp_ns"}  # years 1677 to 2262 only
OTHER_ORDER = {"json", "variant"}  # statistics of the old type would prune wrongly


@pytest.mark.parametrize("old", WIDENING)
def test_we_widen_only_what_duckdb_widens_and_only_without_loss(oracle: Oracle, old: str) -> None:
    # One column for each type to try.
    name = oracle.create(columns([old] * len(WIDENING)))
    for place, new in enumerate(WIDENING):
        if new == old:
            continue
        target = columns([new])[0]
        try:
            oracle.duck.execute(f"ALTER TABLE {name} ALTER c{place} TYPE {type_text(target)}")
            accepted = True
        except duckdb.Error:
            accepted = False
        if can_widen(columns([old])[0], target.type):
            assert accepted, (old, new)
        elif accepted:
            lossy_decimal = decimal_parts(new) is not None
            excused = new in LOSES | OVERFLOWS | OTHER_ORDER or (old, new) in BY_SESSION or old == "boolean"
            assert excused or lossy_decimal, (old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (old, new)
        for old, new in itertools.permutations(WIDENING, 2)
        if can_widen(columns([old])[0], new) and "int128" not in old
    ],
)
def test_files_written_before_widening_read_as_duckdb_reads_them(oracle: Oracle, old: str, new: str) -> None:
    name = widened(oracle, old, new)
    cols = current_columns(oracle, name)

    parts = [conform(pq.read_table(path, partitioning=None), cols) for path in oracle.files(name)]

    assert as_text(pa.concat_tables(parts), cols) == oracle.read(name)


@pytest.mark.parametrize(
    ("old", "new"),
    [("int64", "float32"), ("int64", "float64"), ("boolean", "int32"), ("decimal(38,10)", "float64"),
     ("varchar", "variant"), ("int32", "json"), ("date", "json"), ("float64", "json"),
     ("date", "timestamptz"), ("timestamp", "timestamptz"), ("uuid", "json"), ("timestamp_s", "timestamp_ns"),
     ("int16", "variant")],
)  # fmt: skip
def test_files_read_right_even_after_changes_that_only_duckdb_makes(
    oracle: Oracle, tmp_path: Path, old: str, new: str
) -> None:
    cols = columns([old])
    name = oracle.create(cols)
    data = table(random.Random(old), cols, 30, nan=False)
    if old == "timestamp_s":
        data = pa.table([pa.array([0, 5, None], pa.timestamp("s"))], schema=arrow_schema(cols))
    oracle.insert(name, data)
    oracle.duck.execute(f"ALTER TABLE {name} ALTER c0 TYPE {type_text(columns([new])[0])}")
    now = current_columns(oracle, name)

    found = conform(pq.read_table(oracle.files(name)[0], partitioning=None), now)

    kind = "::JSON" if new in ("json", "variant") else ""
    expected = oracle.duck.execute(
        f"SELECT CASE WHEN c0 IS NOT NULL THEN c0{kind} END::VARCHAR FROM {name} ORDER BY rowid"
    ).fetchall()
    if kind:
        assert [(v,) for v in found.column(0).cast(pa.string()).to_pylist()] == expected
    else:
        assert sorted(as_text(found, now), key=repr) == sorted(expected, key=repr)


def test_a_table_without_rows_can_have_every_type() -> None:
    cols = columns(ALL_TEXTS)

    found = empty_table(cols)

    assert found.num_rows == 0
    assert found.schema.equals(arrow_schema(cols), check_metadata=True)
