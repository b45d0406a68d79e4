from __future__ import annotations

import io
import logging
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import CorruptFileError
from headwater.lake.format.conform import conform
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import arrow_schema, type_text
from headwater.storage.parquet import ROW_GROUP_ROWS, Codec, read_footer, resolve_codec, write_parquet
from tests.lake.oracle import Oracle
from tests.lake.random_data import NESTED_TEXTS, SCALAR_TEXTS, columns, table
from tests.lake.test_conform import as_text

SIMPLE = pa.schema([pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "7"})])


def rows(count: int) -> pa.Table:
    return pa.table([pa.array(range(count), pa.int64())], schema=SIMPLE)


def physical(path: str | Path) -> list[tuple[Any, ...]]:
    """What a file's schema says, as DuckDB sees it: physically, and the type DuckDB makes of it."""
    with duckdb.connect() as duck:
        found = duck.execute(
            # Large decimals take as many bytes as they need in ours, always sixteen in DuckDB's.
            "SELECT name, type, CASE WHEN precision IS NULL THEN type_length END, scale, precision, "
            "field_id, num_children, coalesce(regexp_extract(logical_type, '(Micro|Milli|Nano)Seconds'), '') "
            "FROM parquet_schema(?) OFFSET 1",
            [str(path)],
        ).fetchall()
        types = duck.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    return [*found, *types]


def test_every_type_reaches_duckdb_unchanged(tmp_path: Path) -> None:
    oracle = Oracle(tmp_path)
    cols = columns(SCALAR_TEXTS + NESTED_TEXTS)
    data = table(random.Random(11), cols, 80)
    name = oracle.create(cols)
    path = tmp_path / "ours.parquet"

    summary = write_parquet(path, data, arrow_schema(cols))
    oracle.adopt(name, path, data.num_rows, footer_size=summary.footer_size)

    oracle.duck.register("given", data)
    for column in cols:
        text = f'"{column.name}"::{type_text(column)}::VARCHAR'
        found = oracle.duck.execute(f"SELECT {text} FROM {name} ORDER BY rowid").fetchall()
        assert found == oracle.duck.execute(f"SELECT {text} FROM given").fetchall(), column
    oracle.close()


def test_files_have_the_physical_types_of_duckdbs_own(tmp_path: Path) -> None:
    oracle = Oracle(tmp_path)
    # int128 is a decimal in ours (DuckDB's double loses digits); timetz a plain time (no offset either way).
    cols = columns(tuple(t for t in SCALAR_TEXTS + NESTED_TEXTS if t not in ("int128", "uint128", "timetz")))
    data = table(random.Random(12), cols, 5)
    name = oracle.create(cols)
    oracle.insert(name, data)

    write_parquet(tmp_path / "ours.parquet", data, arrow_schema(cols))

    [theirs] = oracle.files(name)
    oracle.close()

    assert physical(tmp_path / "ours.parquet") == physical(theirs)


def test_what_we_write_we_read(tmp_path: Path) -> None:
    cols = columns(SCALAR_TEXTS + NESTED_TEXTS)
    data = table(random.Random(13), cols, 300)

    write_parquet(tmp_path / "f.parquet", data, arrow_schema(cols), row_group_rows=100)

    back = conform(pq.read_table(tmp_path / "f.parquet"), cols)
    assert back.schema.equals(data.schema, check_metadata=True)
    assert as_text(back, cols) == as_text(data, cols)


def test_infinite_seconds_stay_infinite(tmp_path: Path) -> None:
    cols = columns(["timestamp_s"])
    forever = 2**63 - 1
    data = pa.table(
        [pa.array([forever, -forever, 5, None], pa.int64()).cast(pa.timestamp("s"))],
        schema=arrow_schema(cols),
    )

    write_parquet(tmp_path / "f.parquet", data, arrow_schema(cols))

    with duckdb.connect() as duck:
        found = duck.execute(f"SELECT c0::TIMESTAMP_S::VARCHAR FROM '{tmp_path}/f.parquet'").fetchall()
    assert found == [("infinity",), ("-infinity",), ("1970-01-01 00:00:05",), (None,)]
    assert conform(pq.read_table(tmp_path / "f.parquet"), cols).column(0).cast(pa.int64()).to_pylist() == [
        forever, -forever, 5, None,
    ]  # fmt: skip


def test_the_summary_says_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"

    summary = write_parquet(path, rows(1000), SIMPLE, row_group_rows=300)

    raw = path.read_bytes()
    assert summary.file_size == len(raw)
    assert summary.footer_size == int.from_bytes(raw[-8:-4], "little")
    assert summary.record_count == summary.metadata.num_rows == 1000
    assert summary.metadata.num_row_groups == 4


def test_a_sink_that_already_holds_something_is_counted_from_there() -> None:
    sink = io.BytesIO()
    sink.write(b"before")

    summary = write_parquet(sink, rows(10), SIMPLE)

    assert not sink.closed
    assert len(sink.getvalue()) == summary.file_size + 6


@pytest.mark.parametrize("sizes", [[], [0, 0], [1], [5, 0, 10, 300, 1], [1] * 250, [1000]])
def test_batches_of_any_size_become_row_groups_of_the_wanted_size(tmp_path: Path, sizes: list[int]) -> None:
    data = rows(sum(sizes))
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    batches = (
        batch
        for start, size in zip(starts, sizes, strict=True)
        for batch in (data.slice(start, size).to_batches() or [pa.RecordBatch.from_pylist([], schema=SIMPLE)])
    )

    summary = write_parquet(tmp_path / "f.parquet", batches, SIMPLE, row_group_rows=100)

    assert pq.read_table(tmp_path / "f.parquet").column(0).to_pylist() == data.column(0).to_pylist()
    groups = [summary.metadata.row_group(i).num_rows for i in range(summary.metadata.num_row_groups)]
    assert sum(groups) == sum(sizes)
    assert all(size == 100 for size in groups[:-1])


def test_names_and_nullability_come_from_the_schema(tmp_path: Path) -> None:
    [column] = columns(["struct(a int32, l int32[])"])
    schema = arrow_schema([column])
    foreign = pa.table(
        {"x": pa.array([{"a": 1, "l": [1, 2]}], pa.struct({"a": pa.int32(), "l": pa.list_(pa.int32())}))}
    )

    write_parquet(tmp_path / "f.parquet", foreign, schema)

    assert pq.read_schema(tmp_path / "f.parquet").equals(schema, check_metadata=True)


@pytest.mark.parametrize(
    ("given", "name", "stored"),
    [(None, "snappy", "SNAPPY"), ("ZSTD", "zstd", "ZSTD"), ("gzip", "gzip", "GZIP"), (" lz4 ", "lz4", "LZ4"),
     ("none", "none", "UNCOMPRESSED"), ("uncompressed", "none", "UNCOMPRESSED"), ("lz4_raw", "lz4", "LZ4")],
)  # fmt: skip
def test_codecs(tmp_path: Path, given: str | None, name: str, stored: str) -> None:
    codec = resolve_codec(given)
    assert (codec.name, codec.recognised) == (name, True)

    summary = write_parquet(tmp_path / "f.parquet", rows(100), SIMPLE, codec)

    assert summary.metadata.row_group(0).column(0).compression == stored
    with duckdb.connect() as duck:
        assert duck.execute(f"SELECT sum(a) FROM '{tmp_path}/f.parquet'").fetchone() == (4950,)


def test_an_unknown_codec_is_a_warning_and_snappy(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headwater.storage"):
        codec = resolve_codec("brotli-9")

    assert codec == Codec("snappy", recognised=False)
    assert "brotli-9" in caplog.text
    assert "zstd" in caplog.text


def test_columns_of_different_values_get_no_dictionary(tmp_path: Path) -> None:
    count = 40_000
    cols = (
        column_from_text("id", "int64", 1),
        column_from_text("kind", "varchar", 2),
        column_from_text("tags", "varchar[]", 3),
    )
    data = pa.table(
        [pa.array(range(count)), pa.array([f"k{i % 9}" for i in range(count)]), pa.array([["x"]] * count)],
        schema=arrow_schema(cols),
    )

    summary = write_parquet(tmp_path / "f.parquet", data, arrow_schema(cols))

    group = summary.metadata.row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(3)] == [False, True, True]


def test_the_stored_footer_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    size = write_parquet(path, rows(10), SIMPLE).file_size

    with pa.OSFile(str(path)) as file:
        assert read_footer(file, "here", size).num_rows == 10
        with pytest.raises(CorruptFileError, match="bytes") as caught:
            read_footer(file, "here", size + 1)
    assert (caught.value.size, caught.value.expected) == (size, size + 1)

    raw = path.read_bytes()
    for broken in (raw[:-1] + b"X", raw[:-30] + b"\xff" * 22 + raw[-8:], raw[:-4] + b"PARE", b"PAR1", b""):
        path.write_bytes(broken)
        with pa.OSFile(str(path)) as file, pytest.raises(CorruptFileError, match="here"):
            read_footer(file, "here", len(broken))


def test_row_groups_are_as_large_as_duckdbs() -> None:
    assert ROW_GROUP_ROWS == 122_880
