"""Files that Spark's own writer stored, as files of a table: read, pruned and changed by everybody."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import CorruptFileError, HeadwaterError, InvalidInputError
from headwater.lake.format.footer_floats import footer_floats, writes_nan_as_greatest
from headwater.lake.format.name_mappings import mapping_rows, names_in_file, needs_names, row_id_column
from headwater.lake.lake import Lake
from headwater.lake.model import ROW_ID_FIELD, ColumnStats, NameMapping, StagedFile
from headwater.lake.writing.stored_files import path_in_table, stage_stored_file
from tests.lake.places import Place
from tests.support import catalog_rows

_numbers = count(1)

SCALARS = {
    "id": "int64", "bo": "boolean", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "f32": "float32", "f64": "float64", "d9": "decimal(9,2)", "d18": "decimal(18,3)", "d38": "decimal(38,10)",
    "s": "varchar", "b": "blob", "dt": "date", "ts": "timestamp", "tz": "timestamptz",
}  # fmt: skip
NESTED = {
    "id": "int64",
    "l": "list(int32)",
    "m": "map(varchar, float64)",
    "st": "struct(x int32, y varchar)",
    "ll": "list(list(struct(p int32, q list(varchar))))",
    "ms": "map(int32, struct(u int32))",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files by Spark, in folders named after what is in them."""
    folder = tmp_path_factory.mktemp("spark") / "files"
    script = Path(__file__).with_name("spark_files.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def found(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def stage(place: Place, path: Path, table: str = "t", **options: Any) -> StagedFile:
    """A file, copied to where the table's files are and looked at."""
    known = place.lake.table(f"{place.schema}.{table}")
    target = Path(known.path) / f"spark-{next(_numbers)}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)
    options.setdefault("columns", known.columns)
    return stage_stored_file(place.lake.store, known, f"file:{target}", **options)


def create(place: Place, columns: dict[str, str], **options: Any) -> str:
    name = f"{place.schema}.t"
    place.run(lambda tx, s: tx.create_table(name, columns, **options))
    return name


def adopt(place: Place, name: str, paths: Sequence[Path], **options: Any) -> list[StagedFile]:
    staged = [stage(place, path, **options) for path in paths]
    place.run(lambda tx, s: tx.add_files(name, staged))
    return staged


@pytest.fixture
def plain() -> Iterator[Callable[[Sequence[Path], str], set[int]]]:
    """Ids of rows that meet a condition, asked of the bare rows: no statistics, nothing pruned."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        known: dict[tuple[Path, ...], str] = {}

        def ask(paths: Sequence[Path], where: str) -> set[int]:
            if tuple(paths) not in known:
                known[tuple(paths)] = f"t{len(known)}"
                listed = [pq.ParquetFile(path).read() for path in paths]
                connection.register("given", pa.concat_tables(listed))
                connection.execute(f"CREATE TABLE t{len(known) - 1} AS SELECT * FROM given")
            rows = connection.execute(f"SELECT id FROM {known[tuple(paths)]} WHERE {where}").fetchall()
            return {row[0] for row in rows}

        yield ask


def check_filters(place: Place, name: str, paths: Sequence[Path], plain: Any, filters: Sequence[str]) -> None:
    for where in filters:
        expected = plain(paths, where)
        theirs = {row[0] for row in place.sql(f"SELECT id FROM {name} WHERE {where}")}
        assert theirs == expected, f"DuckDB: {where}"
        ours = set(place.lake.read(name, columns=["id"], where=where).column(0).to_pylist())
        assert ours == expected, where


def by_column(staged: StagedFile) -> dict[int, ColumnStats]:
    return {stats.column_id: stats for stats in staged.column_stats}


@pytest.mark.slow
def test_every_type_is_described_and_pruned_by(place: Place, files: Path, plain: Any) -> None:
    name = create(place, SCALARS, not_null=["id"])
    paths = found(files / "scalars")
    staged = adopt(place, name, paths)
    assert [file.record_count for file in staged] == [20, 20, 20]
    table = place.lake.table(name)
    first = {c.name: by_column(staged[0])[c.id] for c in table.columns}
    assert {n: (s.value_count, s.null_count) for n, s in first.items()} == {
        n: (20, 0) if n == "id" else (17, 3) for n in SCALARS
    }
    # Rows -30 to -11, without -25, -18 and -11.
    assert {n: (s.min_value, s.max_value) for n, s in first.items()} == {
        "id": ("-30", "-11"),
        "bo": ("0", "0"),
        "i8": ("-30", "-12"),
        "i16": ("-30000", "-12000"),
        "i32": ("-300000000", "-120000000"),
        "i64": ("-3000000000000000000", "-1200000000000000000"),
        "f32": ("-10.0", "-4.0"),
        "f64": ("-4.285714285714286", "-1.7142857142857142"),
        "d9": ("-0.30", "-0.12"),
        "d18": ("-300000000.000", "-120000000.000"),
        "d38": ("-3000000000000000000000.0000000000", "-1200000000000000000000.0000000000"),
        "s": ("s70", "s88"),
        "b": ("46FF", "58FF"),
        "dt": ("1395-01-15", "1740-01-07"),
        "ts": ("1395-01-15 00:00:00.000001", "1740-01-07 00:00:00.000001"),
        "tz": ("1395-01-15 00:00:00.000001+00", "1740-01-07 00:00:00.000001+00"),
    }
    assert [first[n].contains_nan for n in ("f32", "f64", "i32")] == [False, False, None]
    values = {
        n: place.sql(f"SELECT {n}::VARCHAR FROM {name} WHERE id IN (-29, 0, 12) ORDER BY id")
        for n in SCALARS
        if n not in ("b", "bo")
    }
    filters = ["bo", "NOT bo", "b = '\\x70\\xFF'::BLOB", "b < '\\x70'::BLOB"]
    for column, rows in values.items():
        for (value,), operators in zip(rows, (("=", "<="), ("<", ">="), ("=", ">")), strict=True):
            filters += [f"{column} {op} '{value}'" for op in operators]
        filters += [f"{column} IS NULL"]
    check_filters(place, name, paths, plain, filters)
    # Two row groups in each file; what a condition rules out is not read.
    assert len(place.lake.scan(name, where="d38 > 0").files) == 2
    assert len(place.lake.scan(name, where="dt < DATE '1500-01-01'").files) == 1
    place.sql(f"DELETE FROM {name} WHERE id < 0")
    assert place.sql(f"SELECT count(*), min(id), max(s) FROM {name}") == [(30, 0, "s129")]


def test_nan_is_never_lost(place: Place, files: Path, plain: Any) -> None:
    name = create(place, {"id": "int64", "a": "float64", "b": "float32"})
    paths = found(files / "floats")
    staged = {path.parent.name.removeprefix("case="): stage(place, path) for path in paths}
    place.run(lambda tx, s: tx.add_files(name, staged.values()))
    bounds = {
        case: {(s.min_value, s.max_value, s.contains_nan) for s in file.column_stats if s.column_id > 1}
        for case, file in staged.items()
    }
    assert bounds == {
        "allnan": {(None, None, True)},
        "mixed": {("1.0", None, True)},
        "nanfirst": {("-3.0", None, True)},
        "nullnan": {(None, None, True)},
        "naninf": {("inf", None, True)},
        "infinite": {("-inf", "inf", False)},
        "zeros": {("0.0", "0.0", False)},
        "negzero": {("0.0", "0.0", False)},
        "plain": {("1.0", "2.5", False)},
        "null": {(None, None, False)},
    }
    constants = ("'nan'", "'inf'", "'-inf'", "-0.0", "1", "2.5", "100")
    filters = [
        f"{c} {op} {v}::DOUBLE" for c in "ab" for op in ("=", "<", ">", "<=", ">=", "<>") for v in constants
    ]
    filters += [f"{c} IS {no}NULL" for c in "ab" for no in ("", "NOT ")]
    filters += ["isnan(a)", "NOT isnan(b)", "a IN (1, 'nan'::DOUBLE)"]
    check_filters(place, name, paths, plain, filters)


def test_the_first_data_of_a_table_may_be_nan(place: Place, files: Path, plain: Any) -> None:
    name = create(place, {"id": "int64", "a": "float64", "b": "float32"})
    order = ["nullnan", "plain", "mixed", "infinite"]
    paths = [found(files / "floats" / f"case={case}")[0] for case in order]
    for number, path in enumerate(paths, 1):
        adopt(place, name, [path])
        filters = ["a > 1", "a < 2", "isnan(a)", "a = 2.5", "a >= 'nan'::DOUBLE", "b IS NULL", "b = 1"]
        check_filters(place, name, paths[:number], plain, filters)


def test_strings_of_any_length_are_bounded_or_unknown(place: Place, files: Path, plain: Any) -> None:
    name = create(place, {"id": "int64", "a": "varchar", "b": "blob"})
    paths = found(files / "strings")
    staged = {path.parent.name.removeprefix("case="): stage(place, path) for path in paths}
    place.run(lambda tx, s: tx.add_files(name, staged.values()))
    bounds = {
        case: [(s.value_count, s.null_count, s.min_value, s.max_value) for s in file.column_stats][1]
        for case, file in staged.items()
    }
    assert bounds["short"] == (2, 1, "a", "b")
    assert bounds["huge"] == (None, None, None, None)
    assert bounds["unicode"] == (3, 0, "z", "\U0001f600")
    assert bounds["empty"] == (1, 1, "", "")
    assert bounds["nul"] == (2, 0, None, "c")
    assert bounds["long"] == (2, 0, "a" * 256, "z" * 255 + "{")
    filters = [
        "a = ''",
        "a IS NULL",
        "a IS NOT NULL",
        "a > 'é'",
        "a = repeat('z', 300)",
        "a < 'aa'",
        "a = 'c'",
    ]
    filters += [
        "a = repeat('é', 5000)",
        "a LIKE 'a%'",
        "a = chr(128512)",
        "b = 'z'::BLOB",
        "a >= 'zz'",
        "a = 'b'",
    ]
    check_filters(place, name, paths, plain, filters)


def test_a_column_is_found_by_its_field_id(place: Place, files: Path) -> None:
    """Renamed, dropped and added columns, and columns in another order, before the file is added."""
    name = create(place, {"id": "int64", "a": "float64", "b": "float32"})
    place.run(lambda tx, s: tx.rename_column(name, "a", "was_a"))
    place.run(lambda tx, s: tx.drop_column(name, "b"))
    place.run(lambda tx, s: tx.add_column(name, "b", "int32", default=7))
    path = found(files / "floats" / "case=plain")[0]
    columns = place.lake.table(name).columns
    staged = stage(place, path, columns=columns[::-1])
    assert {s.column_id for s in staged.column_stats} == {1, 2}
    place.run(lambda tx, s: tx.add_files(name, [staged]))
    expected = [(1.0, 7), (2.5, 7), (None, 7)]
    assert place.sql(f"SELECT was_a, b FROM {name} ORDER BY 1") == expected
    assert [(r["was_a"], r["b"]) for r in place.lake.read(name).to_pylist()] == expected


def state(place: Place, at: int | None = None) -> list[dict[str, Any]]:
    """Rows with their ids, which both readers must agree on."""
    when = "" if at is None else f"AT (VERSION => {at})"
    theirs = place.session.execute(f"SELECT rowid, * FROM {place.schema}.t {when} ORDER BY rowid")
    expected = theirs.to_arrow_table().to_pylist()
    ours = place.lake.read(f"{place.schema}.t", at, hidden=["rowid"]).to_pylist()
    assert sorted(ours, key=lambda row: row["rowid"]) == expected
    assert place.sql(f"SELECT count(*) FROM {{s}}.t {when}") == [(len(expected),)]
    return expected


def test_nested_columns_are_found_by_name_whatever_becomes_of_them(place: Place, files: Path) -> None:
    name = create(place, NESTED)
    names = names_in_file(place.lake.table(name).columns)
    (path,) = found(files / "nested")
    (with_ids,) = found(files / "nested_row_ids")
    for _ in range(2):
        staged = adopt(place, name, [path, path], mapping=names)
    stats = {
        s.column_id: (s.value_count, s.null_count, s.min_value, s.max_value) for s in staged[0].column_stats
    }
    assert stats == {
        1: (30, 0, "0", "29"),
        3: (40, 30, "1", "30"),
        5: (22, 8, "k1", "k9"),
        6: (22, 8, "1.0", "29.0"),
        8: (24, 6, "1", "29"),
        9: (24, 6, "y1", "y9"),
        13: (15, 30, "1", "29"),
        15: (15, 45, "q", "q"),
        17: (20, 10, "1", "29"),
        19: (20, 10, "1", "29"),
    }
    adopt(place, name, [with_ids], mapping=names, has_row_ids=True)
    before = place.lake.snapshots(1)[0].id
    table_id = place.lake.table(name).id
    mappings = [
        m for m in catalog_rows(place.lake.dsn, "ducklake_column_mapping") if m["table_id"] == table_id
    ]
    assert len(mappings) == 1  # shared by all five files
    whole = state(place)
    assert len(whole) == 150
    assert [row["rowid"] for row in whole[-30:]] == list(range(5000, 5030))
    assert whole[5007 - 5000 + 120] == {
        "rowid": 5007,
        "id": 7,
        "l": [7, None, 8],
        "m": [("k7", 7.0)],
        "st": {"x": 7, "y": "y7"},
        "ll": [[{"p": 7, "q": ["q", None]}], []],
        "ms": [(7, {"u": 7})],
    }
    assert len(place.lake.scan(name, where="st.x > 29").files) == 0
    place.sql(f"DELETE FROM {name} WHERE id = 5")
    place.sql(f"DELETE FROM {name} WHERE id < 4 OR id > 15")
    place.sql(f"UPDATE {name} SET id = id + 100, st = {{'x': 1, 'y': 'new'}} WHERE id BETWEEN 6 AND 9")
    assert len(state(place)) == 55
    for change in (
        "RENAME COLUMN l TO was_l",
        "RENAME COLUMN st.x TO was_x",
        "ADD COLUMN st.z INTEGER DEFAULT 5",
        "ADD COLUMN l VARCHAR DEFAULT 'q'",
    ):
        place.sql(f"ALTER TABLE {name} {change}")
    place.run(lambda tx, s: tx.delete(name, "id = 11"))
    place.run(lambda tx, s: tx.update(name, {"l": "'hello'"}, "id = 12"))
    last = state(place)
    assert (
        state(place, before) == whole
    )  # not after a rewrite: DuckDB then forgets the bounds of old snapshots
    for call in ("rewrite_data_files('lake', 't', schema => '{s}', delete_threshold => 0.0)",
                 "merge_adjacent_files('lake', 't', schema => '{s}')"):  # fmt: skip
        place.sql(f"CALL ducklake_{call}")
        assert state(place) == last


def test_files_found_by_name_are_merged_and_keep_their_row_ids(place: Place, files: Path) -> None:
    name = create(place, NESTED)
    names = names_in_file(place.lake.table(name).columns)
    adopt(place, name, found(files / "nested"), mapping=names)
    adopt(place, name, found(files / "nested_row_ids"), mapping=names, has_row_ids=True)
    before = state(place)
    place.sql("CALL ducklake_merge_adjacent_files('lake', 't', schema => '{s}')")
    assert len(place.lake.scan(name).files) == 1
    assert state(place) == before


def test_row_ids_inside_a_file_are_the_rows_ids(place: Place, files: Path) -> None:
    name = create(place, SCALARS)
    staged = adopt(place, name, found(files / "scalars_row_ids"), has_row_ids=True)
    assert len(staged[0].column_stats) == len(SCALARS)
    assert [row["rowid"] for row in state(place)] == list(range(5000, 5020))
    rows = [r for r in catalog_rows(place.lake.dsn, "ducklake_data_file") if r["path"] == staged[0].path]
    assert [row["row_id_start"] for row in rows] == [None]


def test_a_transaction_reads_and_changes_what_it_added_by_name(place: Place, files: Path) -> None:
    name = create(place, NESTED)
    names = names_in_file(place.lake.table(name).columns)
    with place.lake.transaction() as tx:
        tx.add_files(name, [stage(place, found(files / "nested")[0], mapping=names)])
        assert tx.read(name, where="id = 7").column("st").to_pylist() == [{"x": 7, "y": "y7"}]
        tx.delete(name, "id < 20")
    assert [row["id"] for row in state(place)] == list(range(20, 30))


def test_names_are_numbered_as_duckdb_numbers_them(place: Place, files: Path) -> None:
    name = create(place, NESTED)
    table = place.lake.table(name)
    (path,) = found(files / "nested")
    place.sql(f"CALL ducklake_add_data_files('lake', 't', '{path}', schema => '{{s}}')")
    ids = [
        m["mapping_id"]
        for m in catalog_rows(place.lake.dsn, "ducklake_column_mapping")
        if m["table_id"] == table.id
    ]
    keys = ("column_id", "source_name", "target_field_id", "parent_column", "is_partition")
    rows = [r for r in catalog_rows(place.lake.dsn, "ducklake_name_mapping") if r["mapping_id"] in ids]
    assert sorted(tuple(row[key] for key in keys) for row in rows) == mapping_rows(
        names_in_file(table.columns)
    )
    # The same names again: DuckDB's mapping serves for our files too.
    adopt(place, name, [path], mapping=names_in_file(table.columns))
    used = {
        r["mapping_id"]
        for r in catalog_rows(place.lake.dsn, "ducklake_data_file")
        if r["table_id"] == table.id
    }
    assert used == set(ids)
    assert len(state(place)) == 60


@pytest.mark.parametrize(
    ("columns", "case", "options", "message"),
    [
        (NESTED, "nested", {}, "no field ids in the file, and no mapping"),
        (NESTED, "nested_row_ids", {"mapping": names_in_file}, "has a column of row ids"),
        (NESTED, "nested", {"mapping": names_in_file, "has_row_ids": True}, "must have one column"),
        ({"id": "int64", "tz": "timestamptz"}, "int96", {}, "96 bits"),
        ({"id": "int64", "d": "date"}, "old_dates", {}, "calendar of their time"),
        ({"id": "int64", "l": "varchar"}, "nested", {}, "is of type varchar, but the file has list"),
        ({**SCALARS, "ts": "timestamptz"}, "scalars", {}, "is of type timestamptz, but the file"),
        ({"id": "int64"}, "nested", {"partition_values": ["1"]}, "has 0 partition keys"),
    ],
)  # fmt: skip
def test_what_would_be_read_as_something_else_is_refused(
    place: Place, files: Path, columns: dict[str, str], case: str, options: dict[str, Any], message: str
) -> None:
    name = create(place, columns)
    if "mapping" in options:
        options = {**options, "mapping": names_in_file(place.lake.table(name).columns)}
    with pytest.raises(InvalidInputError, match=message) as caught:
        stage(place, found(files / case)[0], **options)
    assert caught.value.table == str(place.lake.table(name).name)


def test_not_null_is_checked(place: Place, files: Path) -> None:
    name = create(place, {"id": "int64", "a": "varchar", "b": "blob", "c": "int32"}, not_null=["a"])
    for case, message in (("short", "1 rows of the file have NULL"), ("huge", "row 2 has NULL")):
        with pytest.raises(InvalidInputError, match=message) as caught:
            stage(place, found(files / "strings" / f"case={case}")[0])
        assert caught.value.column == "a"
    adopt(place, name, found(files / "strings" / "case=unicode"))  # whatever its length, no NULL
    place.run(lambda tx, s: tx.add_column(name, "d", "int32", default=1))
    place.run(lambda tx, s: tx.set_not_null(name, "d"))
    adopt(place, name, found(files / "strings" / "case=long"))
    assert place.sql(f"SELECT count(*), sum(d) FROM {name}") == [(5, 5)]


def write(path: Path, table: pa.Table, ids: Sequence[int] | None = None) -> Path:
    if ids is not None:
        fields = [
            field.with_metadata({"PARQUET:field_id": str(number)})
            for field, number in zip(table.schema, ids, strict=True)
        ]
        table = table.cast(pa.schema(fields))
    pq.write_table(table, path)
    return path


def test_what_is_no_file_of_the_table_is_refused(place: Place, tmp_path: Path) -> None:
    create(place, {"id": "int64", "x": "float64"}, not_null=["id"])
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "x": [1.0, 2.0]})
    junk = tmp_path / "junk.parquet"
    junk.write_bytes(b"PAR1 this is not Parquet")
    cases: list[tuple[Path, type[HeadwaterError], str]] = [
        (write(tmp_path / "1.parquet", rows), InvalidInputError, "no field ids"),
        (write(tmp_path / "2.parquet", rows.slice(0, 0), [1, 2]), InvalidInputError, "holds no rows"),
        (
            write(tmp_path / "3.parquet", rows, [3, 2]),
            InvalidInputError,
            "NOT NULL, and the file does not have it",
        ),
        (junk, CorruptFileError, "does not end as a Parquet file"),
    ]
    for path, kind, message in cases:
        with pytest.raises(kind, match=message):
            stage(place, path)


def test_the_bounds_of_other_writers_do_not_rule_out_nan(place: Place, tmp_path: Path, plain: Any) -> None:
    name = create(place, {"id": "int64", "x": "float64"})
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "x": [1.0, math.nan, 2.0]})
    path = write(tmp_path / "x.parquet", rows, [1, 2])
    (staged,) = adopt(place, name, [path])
    stats = by_column(staged)[2]
    assert (stats.min_value, stats.max_value, stats.contains_nan) == ("1.0", "2.0", None)
    for where in (
        "x > 5",
        "isnan(x)",
        "x = 1",
        "x < 0",
        "x = 'nan'::DOUBLE",
    ):  # DuckDB's own reader misses NaN
        ours = place.lake.read(name, columns=["id"], where=where).column(0).to_pylist()
        assert set(ours) == plain([path], where)


def test_types_that_spark_has_not_are_read_from_those_it_has(
    place: Place, tmp_path: Path, plain: Any
) -> None:
    """Unsigned numbers, coarse timestamps, UUIDs and JSON in the types that Spark's writer has for them."""
    ids = range(20)
    moment = datetime(2020, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    wanted: dict[str, tuple[str, pa.Array[Any], str]] = {
        "id": ("int64", pa.array(ids, pa.int64()), "3"),
        "u64": ("uint64", pa.array([Decimal(2**63 + i) for i in ids], pa.decimal128(20, 0)), str(2**63 + 3)),
        "u32": ("uint32", pa.array([2**31 + i for i in ids], pa.int64()), str(2**31 + 3)),
        "u8": ("uint8", pa.array([200 + i for i in ids], pa.int16()), "203"),
        "i128": ("int128", pa.array([Decimal(10**9 + i) for i in ids], pa.decimal128(38, 0)), str(10**9 + 3)),
        "s": ("timestamp_s", pa.array([moment.replace(second=i) for i in ids]), "2020-01-01 00:00:03"),
        "ms": ("timestamp_ms", pa.array([moment.replace(second=i) for i in ids]), "2020-01-01 00:00:03"),
        "js": ("json", pa.array([f'{{"a":"{i:02}"}}' for i in ids]), '{"a":"03"}'),
        "uu": ("uuid", pa.array([str(UUID(int=i)) for i in ids]), str(UUID(int=3))),
    }  # fmt: skip
    name = create(place, {column: kind for column, (kind, _, _) in wanted.items()})
    data = pa.table({column: array for column, (_, array, _) in wanted.items()})
    path = write(tmp_path / "x.parquet", data, range(1, len(wanted) + 1))
    (staged,) = adopt(place, name, [path])
    stats = by_column(staged)
    assert (stats[2].min_value, stats[2].max_value) == (str(2**63), str(2**63 + 19))
    assert (stats[6].min_value, stats[6].max_value) == ("2020-01-01 00:00:00", "2020-01-01 00:00:19")
    assert (stats[9].value_count, stats[9].min_value) == (20, None)
    filters = [f"{c} {op} '{value}'" for c, (_, _, value) in wanted.items() for op in ("=", "<", ">")]
    check_filters(place, name, [path], plain, filters)


def test_files_without_a_key_are_no_files_of_an_encrypted_lake(new_database: str, tmp_path: Path) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=True)
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64"})
    path = write(tmp_path / "x.parquet", pa.table({"id": pa.array([1], pa.int64())}), [1])
    table = lake.table("t")
    staged = stage_stored_file(lake.store, table, str(path), columns=table.columns)
    with lake.transaction() as tx, pytest.raises(InvalidInputError, match="the lake is encrypted"):
        tx.add_files("t", [staged])
    lake.close()


def test_a_value_in_a_folders_name_is_no_null(place: Place, tmp_path: Path) -> None:
    name = create(place, {"id": "int64", "part": "int32"}, not_null=["part"])
    table = place.lake.table(name)
    names = (NameMapping("id", 1), NameMapping("part", 2, is_partition=True))
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    for folder in ("part=7", "part=__HIVE_DEFAULT_PARTITION__"):
        (Path(table.path) / folder).mkdir(parents=True)
        write(Path(table.path) / folder / "x.parquet", rows)
    staged = stage_stored_file(
        place.lake.store, table, f"{table.path}part=7/x.parquet", columns=table.columns, mapping=names
    )
    assert staged.path == "part=7/x.parquet"
    place.run(lambda tx, s: tx.add_files(name, [staged]))
    assert place.sql(f"SELECT * FROM {name} ORDER BY 1") == [(1, 7), (2, 7)]
    assert place.rows() == [{"id": 1, "part": 7}, {"id": 2, "part": 7}]
    with pytest.raises(InvalidInputError, match="NOT NULL"):
        stage_stored_file(
            place.lake.store,
            table,
            f"{table.path}part=__HIVE_DEFAULT_PARTITION__/x.parquet",
            columns=table.columns,
            mapping=names,
        )


def test_a_file_elsewhere_is_named_by_its_full_path_and_never_removed(place: Place, tmp_path: Path) -> None:
    name = create(place, {"id": "int64"})
    path = write(tmp_path / "away.parquet", pa.table({"id": pa.array([1, 2], pa.int64())}), [1])
    table = place.lake.table(name)
    staged = stage_stored_file(place.lake.store, table, f"file://{path}", columns=table.columns)
    assert (staged.path, staged.path_is_relative) == (str(path), False)
    with pytest.raises(RuntimeError), place.lake.transaction() as tx:
        tx.add_files(name, [staged])
        raise RuntimeError("changed my mind")
    assert path.exists()
    place.run(lambda tx, s: tx.add_files(name, [staged]))
    assert place.sql(f"SELECT sum(id) FROM {name}") == [(3,)]
    inside = stage(place, path)
    with pytest.raises(RuntimeError), place.lake.transaction() as tx:
        tx.add_files(name, [inside])
        raise RuntimeError("changed my mind")
    assert not Path(table.path, inside.path).exists()


def test_a_path_in_the_tables_folder_is_found_however_it_is_spelled(place: Place) -> None:
    name = create(place, {"id": "int64"})
    table = place.lake.table(name)
    for text in (table.path, f"file:{table.path}", f"file://{table.path}"):
        assert path_in_table(table, text + "a=1/x.parquet") == "a=1/x.parquet"
    assert path_in_table(table, "/elsewhere/x.parquet") is None
    assert path_in_table(table, "s3://bucket" + table.path + "x.parquet") is None


def test_names_are_needed_where_spark_gives_no_ids(place: Place) -> None:
    create(place, {"id": "int64", "st": "struct(x int32)"})
    flat = place.lake.table(f"{place.schema}.t").columns
    place.run(lambda tx, s: tx.create_table(f"{s}.n", NESTED))
    deep = place.lake.table(f"{place.schema}.n").columns
    assert (needs_names(flat), needs_names(deep)) == (False, True)
    assert (row_id_column(flat), row_id_column(deep)) == ("_ducklake_internal_row_id", str(ROW_ID_FIELD))
    assert names_in_file(flat) == (NameMapping("id", 1), NameMapping("st", 2, (NameMapping("x", 3),)))


def test_only_known_writers_are_taken_at_their_word_about_nan() -> None:
    assert writes_nan_as_greatest("parquet-mr version 1.17.0 (build fac0c74)")
    for other in ("parquet-mr version 1.99.0", "parquet-cpp-arrow version 26.0.1", "DuckDB", None):
        assert not writes_nan_as_greatest(other)
    assert footer_floats([(math.nan, math.nan)], nan_is_greatest=False) == (None, None, None)
    assert footer_floats([(math.nan, math.nan), (1.0, 2.0)], nan_is_greatest=True) == (1.0, 2.0, True)
