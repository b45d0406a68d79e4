"""One Parquet file of a table: written, stored, read back, described."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptFileError
from headwater.lake.format.file_columns import check_writable, codec_columns, needs_duckdb
from headwater.lake.format.statistics import (
    file_statistics,
    long_string_bounds,
    missing_counts,
    nan_bounds,
    nan_columns,
)
from headwater.lake.model import Column, ColumnStats
from headwater.storage.duckdb_codec import encrypted_footer, new_key, write_with_duckdb
from headwater.storage.parquet import Codec, read_footer, write_parquet
from headwater.storage.store import Store
from headwater.typedefs import ColumnId


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How files are written."""

    codec: Codec
    compression_level: int | None
    row_group_rows: int
    encrypted: bool


@dataclass(frozen=True, slots=True)
class Written:
    """What is stored now."""

    size: int
    footer_size: int
    column_stats: tuple[ColumnStats, ...]
    encryption_key: str | None = None
    rows: int = 0


def write_file(
    store: Store,
    location: str,
    data: pa.Table,
    schema: pa.Schema,
    columns: tuple[Column, ...],
    form: FileFormat,
) -> Written:
    """Store rows as one Parquet file and check what is there before anybody relies on it."""
    check_writable(data, columns)
    own = data.select(list(range(len(columns))))  # without embedded row ids
    nan = nan_columns(own, columns)
    # DuckDB orders NaN after every number, and would skip row groups by bounds that leave it out.
    undescribed = [c.name for c in columns if any(nan.get(inner.id) for inner in c.walk())]
    key = new_key() if form.encrypted else None
    if key is not None or needs_duckdb(columns):
        summary = write_with_duckdb(
            store,
            location,
            data,
            codec_columns(columns, data.schema),
            form.codec,
            key=key,
            row_group_rows=form.row_group_rows,
            compression_level=form.compression_level,
        )
    else:
        with store.open_output(location) as sink:
            summary = write_parquet(
                sink,
                data,
                schema,
                form.codec,
                row_group_rows=form.row_group_rows,
                compression_level=form.compression_level,
                without_statistics=undescribed,
            )
    footer = _stored_footer(store, location, summary.file_size, key)
    if footer.num_rows != data.num_rows:
        raise CorruptFileError(
            f"{location} holds {footer.num_rows} rows, but {data.num_rows} were written.", location=location
        )
    stats = file_statistics(
        footer,
        columns,
        contains_nan=nan,
        bounds={**long_string_bounds(own, columns, footer), **nan_bounds(own, columns, nan)},
        counts=missing_counts(own, columns, undescribed),
    )
    return Written(summary.file_size, summary.footer_size, stats, key, footer.num_rows)


def can_stream(columns: Sequence[Column], form: FileFormat) -> bool:
    """Whether a file can be written piece by piece: DuckDB, as a codec, takes it as a whole."""
    return not form.encrypted and not needs_duckdb(columns)


def write_stream(
    store: Store,
    location: str,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    columns: tuple[Column, ...],
    form: FileFormat,
    maybe_nan: Collection[ColumnId] = (),
) -> Written:
    """The same for rows that come piece by piece.

    What a footer says of NaN must be decided before the first row is written, so float columns that can hold
    one (`maybe_nan`) get no bounds.
    """
    undescribed = [c.name for c in columns if any(inner.id in maybe_nan for inner in c.walk())]
    nan: dict[ColumnId, bool] = {}
    counts: dict[ColumnId, tuple[int, int]] = {}

    def seen() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            own = pa.Table.from_batches([batch]).select(list(range(len(columns))))
            check_writable(own, columns)
            for column_id, found in nan_columns(own, columns).items():
                nan[column_id] = nan.get(column_id, False) or found
            for column_id, (values, nulls) in missing_counts(own, columns, undescribed).items():
                before = counts.get(column_id, (0, 0))
                counts[column_id] = before[0] + values, before[1] + nulls
            yield batch

    with store.open_output(location) as sink:
        summary = write_parquet(
            sink,
            seen(),
            schema,
            form.codec,
            row_group_rows=form.row_group_rows,
            compression_level=form.compression_level,
            without_statistics=undescribed,
        )
    footer = _stored_footer(store, location, summary.file_size, None)
    if footer.num_rows != summary.record_count:
        raise CorruptFileError(
            f"{location} holds {footer.num_rows} rows, but {summary.record_count} were written.",
            location=location,
        )
    stats = file_statistics(footer, columns, contains_nan=nan, counts=counts)
    return Written(summary.file_size, summary.footer_size, stats, rows=footer.num_rows)


def _stored_footer(store: Store, location: str, size: int, key: str | None) -> pq.FileMetaData:
    if key is not None:
        return encrypted_footer(store, location, size, key)
    with store.reading(location), store.open_input(location) as stored:
        return read_footer(stored, location, size)
