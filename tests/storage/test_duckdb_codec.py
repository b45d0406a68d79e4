"""Files through DuckDB's codec: encrypted ones, and those with types that pyarrow has no writer for."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import CorruptFileError, HeadwaterError, InvalidInputError, UnsupportedError
from headwater.lake.format.conform import conform
from headwater.lake.format.file_columns import (
    check_writable,
    codec_columns,
    needs_duckdb,
    needs_duckdb_to_read,
)
from headwater.lake.format.statistics import file_statistics, long_string_bounds, missing_counts, nan_columns
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import arrow_schema
from headwater.lake.model import ROW_ID_COLUMN, ROW_ID_FIELD, Column
from headwater.storage.duckdb_codec import (
    encrypted_footer,
    new_key,
    read_encrypted,
    read_with_duckdb,
    write_with_duckdb,
)
from headwater.storage.parquet import resolve_codec
from headwater.storage.store import Store
from tests.lake.oracle import Oracle
from tests.lake.random_data import NESTED_TEXTS, SCALAR_TEXTS, columns, table
from tests.lake.test_conform import as_text, current_columns

POINT = struct.pack("<BIdd", 1, 1, 1.0, 2.0)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """An encrypted lake of DuckDB's."""
    found = Oracle(tmp_path_factory.mktemp("sealed"), encrypted=True)
    yield found
    found.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    found = Oracle(tmp_path_factory.mktemp("plain"))
    yield found
    found.close()


def keys(oracle: Oracle, name: str) -> list[str]:
    rows = oracle.meta(
        "SELECT encryption_key FROM $ducklake_data_file WHERE table_id = ?", oracle.table_id(name)
    )
    return [row[0] for row in rows]


def exotic() -> tuple[tuple[Column, ...], pa.Table]:
    cols = (
        column_from_text("i", "interval", 1),
        column_from_text("v", "variant", 2),
        column_from_text("g", "geometry", 3),
        column_from_text("h", "int128", 4),
        column_from_text("il", "interval[]", 5),
        column_from_text("gs", "struct(g geometry, z timetz)", 7),
        column_from_text("n", "int32", 10),
    )
    month_day_nano = pa.month_day_nano_interval()
    schema = arrow_schema(cols)
    rows: list[list[Any]] = [
        [(1, 2, 3_000_000), None, (0, 0, 0)],
        ['{"a": [1, null, "it\'s"]}', None, "5"],
        [POINT, None, POINT],
        [10**37, None, -5],
        [[(0, 1, 0), None], None, []],
        [{"g": POINT, "z": 5}, None, {"g": None, "z": None}],
        [1, None, 3],
    ]
    arrays = [
        pa.array(rows[0], month_day_nano), pa.array(rows[1]), pa.array(rows[2], pa.binary()),
        pa.array([None if v is None else v for v in rows[3]], pa.decimal128(38, 0)),
        pa.array(rows[4], schema.field("il").type), pa.array(rows[5], schema.field("gs").type),
        pa.array(rows[6], pa.int32()),
    ]  # fmt: skip
    return cols, pa.Table.from_arrays(arrays, schema=schema)


def test_a_file_we_encrypt_is_read_by_duckdb_with_the_catalogs_key(sealed: Oracle, tmp_path: Path) -> None:
    cols = columns(SCALAR_TEXTS + NESTED_TEXTS)
    data = table(random.Random(1), cols, 50)
    name, key, location = sealed.create(cols), new_key(), str(tmp_path / "ours.parquet")

    summary = write_with_duckdb(Store(), location, data, codec_columns(cols, data.schema), key=key)
    sealed.adopt(name, Path(location), summary.record_count, footer_size=summary.footer_size, key=key)

    assert sealed.read(name) == as_text(data, cols)
    assert summary.file_size == Path(location).stat().st_size
    assert encrypted_footer(Store(), location, summary.file_size, key).num_rows == 50


def test_an_encrypted_file_of_duckdbs_is_read_with_its_field_ids(sealed: Oracle) -> None:
    cols = columns(tuple(t for t in SCALAR_TEXTS + NESTED_TEXTS if t not in ("int128", "uint128")))
    name = sealed.create(cols)
    sealed.insert(name, table(random.Random(2), cols, 50))
    [path], [key] = sealed.files(name), keys(sealed, name)

    found = conform(read_encrypted(Store(), path, key), cols)

    assert as_text(found, cols) == sealed.read(name)


def test_nested_fields_that_were_renamed_are_found_in_encrypted_files(sealed: Oracle) -> None:
    run = sealed.duck.execute
    run("CREATE TABLE moved(s STRUCT(a INTEGER, b VARCHAR), l STRUCT(q INTEGER)[])")
    run("INSERT INTO moved VALUES ({'a': 1, 'b': 'x'}, [{'q': 1}]), (NULL, NULL)")
    run("ALTER TABLE moved RENAME s.a TO c")
    run("ALTER TABLE moved RENAME s.b TO a")
    run("ALTER TABLE moved ADD COLUMN l.element.r INTEGER")
    cols = current_columns(sealed, "moved")

    found = conform(read_encrypted(Store(), sealed.files("moved")[0], keys(sealed, "moved")[0]), cols)

    assert as_text(found, cols) == sealed.read("moved")


def test_only_wanted_columns_are_read(tmp_path: Path) -> None:
    cols = columns(["int32", "varchar", "struct(a int32)"])
    data, key, location = table(random.Random(3), cols, 5), new_key(), str(tmp_path / "f.parquet")
    write_with_duckdb(Store(), location, data, codec_columns(cols, data.schema), key=key)

    found = read_encrypted(Store(), location, key, ["c2", "c0"])

    assert found.schema.names == ["c2", "c0"]
    assert conform(found, cols).column("c0").to_pylist() == data.column("c0").to_pylist()
    assert conform(found, cols).column("c2").to_pylist() == data.column("c2").to_pylist()


def test_nobody_reads_an_encrypted_file_without_its_key(tmp_path: Path) -> None:
    cols = columns(["varchar"])
    location, key = str(tmp_path / "f.parquet"), new_key()
    data = pa.table([pa.array(["a very secret value"] * 100)], schema=arrow_schema(cols))
    write_with_duckdb(
        Store(), location, data, codec_columns(cols, data.schema), resolve_codec("none"), key=key
    )

    stored = Path(location).read_bytes()
    assert b"secret" not in stored
    assert stored[-4:] == b"PARE"
    with pytest.raises(OSError, match="encrypt"):
        pq.read_table(location)
    for wrong in (new_key(), "not base64!"):
        with pytest.raises(CorruptFileError) as caught:
            read_encrypted(Store(), location, wrong)
        assert wrong not in str(caught.value)
        assert wrong not in repr(caught.value.as_dict())


def test_a_changed_or_cut_file_is_noticed(tmp_path: Path) -> None:
    cols = columns(["int32"])
    path, key = tmp_path / "f.parquet", new_key()
    data = table(random.Random(1), cols, 10)
    summary = write_with_duckdb(Store(), str(path), data, codec_columns(cols, data.schema), key=key)
    raw = path.read_bytes()

    for broken in (raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:], raw[:-8] + b"\xff" * 4 + raw[-4:]):
        path.write_bytes(broken)
        with pytest.raises(CorruptFileError):
            encrypted_footer(Store(), str(path), summary.file_size, key)
    path.write_bytes(raw[:-1])
    with pytest.raises(CorruptFileError):
        encrypted_footer(Store(), str(path), summary.file_size, key)


def test_every_file_gets_a_key_of_its_own() -> None:
    assert len({new_key() for _ in range(100)}) == 100


def test_intervals_variants_and_geometries_reach_duckdb_and_come_back(plain: Oracle, tmp_path: Path) -> None:
    cols, data = exotic()
    assert needs_duckdb(cols)
    assert needs_duckdb_to_read(cols)
    name, location = plain.create(cols), str(tmp_path / "ours.parquet")

    summary = write_with_duckdb(Store(), location, data, codec_columns(cols, data.schema))
    stats = file_statistics(
        summary.metadata, cols, contains_nan=nan_columns(data, cols), counts=missing_counts(data, cols)
    )
    plain.adopt(name, Path(location), 3, footer_size=summary.footer_size, stats=stats)

    rows = plain.duck.execute(
        f"SELECT i::VARCHAR, v::VARCHAR, g::VARCHAR, h, il::VARCHAR, gs::VARCHAR FROM {name}"
    )
    assert rows.fetchall() == [
        ("1 month 2 days 00:00:00.003", "{'a': [1, NULL, it's]}", "POINT (1 2)", 10**37, "[1 day, NULL]",
         "{'g': 'POINT (1 2)', 'z': '00:00:00.000005+00'}"),
        (None, None, None, None, None, None),
        ("00:00:00", "5", "POINT (1 2)", -5, "[]", "{'g': NULL, 'z': NULL}"),
    ]  # fmt: skip
    back = conform(read_with_duckdb(Store(), location), cols)
    expected = data.to_pylist()
    expected[0]["v"] = '{"a":[1,null,"it\'s"]}'
    assert back.to_pylist() == expected


def test_their_statistics_count_right_and_hide_nothing(plain: Oracle, tmp_path: Path) -> None:
    cols, data = exotic()
    name, location = plain.create(cols), str(tmp_path / "ours.parquet")
    summary = write_with_duckdb(Store(), location, data, codec_columns(cols, data.schema))

    stats = file_statistics(summary.metadata, cols, counts=missing_counts(data, cols))

    assert [(s.column_id, s.value_count, s.null_count) for s in stats] == [
        (1, 2, 1), (2, 2, 1), (3, 2, 1), (4, 2, 1), (6, 1, 3), (8, 1, 2), (9, 1, 2), (10, 2, 1),
    ]  # fmt: skip
    assert stats[-1].max_value == "3"
    assert stats[2].extra_stats == (
        '{"bbox": {"xmin": 1.0, "xmax": 1.0, "ymin": 2.0, "ymax": 2.0, "zmin": null, "zmax": null, '
        '"mmin": null, "mmax": null}, "types": ["point"]}'
    )
    plain.adopt(name, Path(location), 3, footer_size=summary.footer_size, stats=stats)
    for where, count in [
        ("i = INTERVAL '1 month 2 days 3 milliseconds'", 1), ("i IS NULL", 1), ("v IS NULL", 1),
        ("g IS NULL", 1),
        ("g IS NOT NULL", 2), ("h > 0", 1), ("h IS NULL", 1), ("n = 3", 1),
    ]:  # fmt: skip
        assert plain.duck.execute(f"SELECT count(*) FROM {name} WHERE {where}").fetchone() == (count,), where


def test_files_of_duckdbs_with_such_types_are_read(plain: Oracle) -> None:
    cols, data = exotic()
    name = plain.create(cols)
    plain.duck.register("given", data)
    plain.duck.execute(f"INSERT INTO {name} SELECT i, v::JSON::VARIANT, g, 5, il, gs, n FROM given")

    [path] = plain.files(name)
    back = conform(read_with_duckdb(Store(), path), cols).to_pylist()

    expected = data.to_pylist()
    expected[0]["v"] = '{"a":[1,null,"it\'s"]}'
    for row in expected:
        row["h"] = 5
    assert back == expected
    # pyarrow alone reads all but the variant.
    without = tuple(c for c in cols if c.type != "variant")
    for row in expected:
        del row["v"]
    assert conform(pq.read_table(path, partitioning=None), without).to_pylist() == expected


def test_row_ids_travel_along(tmp_path: Path) -> None:
    cols = columns(["interval"])
    data = pa.Table.from_arrays(
        [pa.array([(1, 1, 0)], pa.month_day_nano_interval()), pa.array([7])],
        schema=arrow_schema(cols).append(
            pa.field(ROW_ID_COLUMN, pa.int64(), metadata={"PARQUET:field_id": str(ROW_ID_FIELD)})
        ),
    )
    location = str(tmp_path / "f.parquet")

    write_with_duckdb(Store(), location, data, codec_columns(cols, data.schema))

    found = read_with_duckdb(Store(), location)
    assert found.column(ROW_ID_COLUMN).to_pylist() == [7]
    assert found.schema.field(1).metadata == {b"PARQUET:field_id": str(ROW_ID_FIELD).encode()}


@pytest.mark.parametrize("value", [(-1, 0, 0), (0, -1, 0), (0, 0, -1_000_000), (0, 0, 1_500_000), (0, 0, 1)])
def test_intervals_that_no_file_can_hold_are_refused(value: tuple[int, int, int]) -> None:
    cols = columns(["interval", "interval[]"])
    kind = pa.month_day_nano_interval()
    for row in ([value, None], [None, [value]]):
        data = pa.table([pa.array([row[0]], kind), pa.array([row[1]], pa.list_(kind))], names=["c0", "c1"])
        with pytest.raises(InvalidInputError, match="interval"):
            check_writable(data, cols)


def test_a_variant_inside_another_value_is_refused() -> None:
    cols = columns(["struct(v variant)"])
    with pytest.raises(UnsupportedError, match="c0"):
        check_writable(arrow_schema(cols).empty_table(), cols)


@pytest.mark.parametrize("name", ["snappy", "zstd", "gzip", "lz4", "none"])
def test_every_codec_works(tmp_path: Path, name: str) -> None:
    cols = columns(["int32"])
    data, location = table(random.Random(1), cols, 10), str(tmp_path / "f.parquet")

    summary = write_with_duckdb(
        Store(), location, data, codec_columns(cols, data.schema), resolve_codec(name)
    )

    expected = {"none": "UNCOMPRESSED", "lz4": "LZ4"}.get(name, name.upper())
    assert summary.metadata.row_group(0).column(0).compression == expected
    assert pq.read_table(location).column(0).to_pylist() == data.column(0).to_pylist()


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match="nothing"):
        read_encrypted(Store(), str(tmp_path / "nothing.parquet"), new_key())


@pytest.mark.s3
def test_encrypted_files_go_to_an_object_store_and_back(s3: Any) -> None:
    from tests.storage.places import s3_options

    store = Store(s3_options(s3))
    cols = columns(["int32", "struct(a varchar)"])
    data, key = table(random.Random(1), cols, 100), new_key()
    location = f"s3://{s3.bucket}/codec/sealed.parquet"

    summary = write_with_duckdb(store, location, data, codec_columns(cols, data.schema), key=key)

    assert encrypted_footer(store, location, summary.file_size, key).num_rows == 100
    assert conform(read_encrypted(store, location, key), cols).to_pylist() == data.to_pylist()


def test_long_strings_beside_a_variant_keep_their_bounds(tmp_path: Path) -> None:
    cols = (column_from_text("v", "variant", 1), column_from_text("t", "varchar", 2))
    data = pa.table(
        [pa.array(['{"a": {"b": 1}}', "2"]), pa.array(["z" * 9000, "b"])], schema=arrow_schema(cols)
    )

    summary = write_with_duckdb(Store(), str(tmp_path / "f"), data, codec_columns(cols, data.schema))
    bounds = long_string_bounds(data, cols, summary.metadata)
    stats = file_statistics(summary.metadata, cols, bounds=bounds, counts=missing_counts(data, cols))

    assert (stats[1].min_value, stats[1].max_value) == ("b", "z" * 255 + "{")
    assert (stats[0].value_count, stats[0].null_count) == (2, 0)


def test_names_with_quotes_and_dots(tmp_path: Path) -> None:
    cols = (
        column_from_text("we\"ird 'x'; --", "int32", 1),
        column_from_text("a.b", 'struct("c.d" int32, "e\'f""g" int32[])', 2),
    )
    data, key, location = table(random.Random(1), cols, 5), new_key(), str(tmp_path / "it's.parquet")

    write_with_duckdb(Store(), location, data, codec_columns(cols, data.schema), key=key)

    assert conform(read_encrypted(Store(), location, key), cols).to_pylist() == data.to_pylist()
