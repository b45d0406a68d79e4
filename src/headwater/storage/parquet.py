"""Arrow data to Parquet files, in the physical form DuckDB gives its own files."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptFileError

log = logging.getLogger("headwater.storage")

DEFAULT_CODEC: Literal["snappy"] = "snappy"
#: DuckDB's own default, so that our files split into row groups as its files do.
ROW_GROUP_ROWS = 122_880

CodecName: TypeAlias = Literal["snappy", "zstd", "gzip", "lz4", "none"]
_CODECS: dict[str, CodecName] = {
    "snappy": "snappy",
    "zstd": "zstd",
    "gzip": "gzip",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "none": "none",
    "uncompressed": "none",
}
_MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"


@dataclass(frozen=True, slots=True)
class Codec:
    """A compression codec; `recognised` is false where an unknown name fell back to snappy."""

    name: CodecName
    recognised: bool = True


@dataclass(frozen=True, slots=True)
class ParquetSummary:
    """What was written; `metadata` is the footer, with the statistics of every row group."""

    record_count: int
    file_size: int
    footer_size: int
    metadata: pq.FileMetaData


def resolve_codec(name: str | None) -> Codec:
    """The codec of that name. An unknown one is a warning in the log, and snappy.

    >>> resolve_codec("ZSTD").name
    'zstd'
    """
    if name is None:
        return Codec(DEFAULT_CODEC)
    known = _CODECS.get(name.strip().lower())
    if known is None:
        log.warning("unknown Parquet codec %r, using snappy; known: %s", name, ", ".join(sorted(_CODECS)))
        return Codec(DEFAULT_CODEC, recognised=False)
    return Codec(known)


def write_parquet(
    sink: IO[bytes] | pa.NativeFile | str | Path,
    data: pa.Table | Iterable[pa.RecordBatch],
    schema: pa.Schema,
    codec: Codec | None = None,
    *,
    row_group_rows: int = ROW_GROUP_ROWS,
    compression_level: int | None = None,
) -> ParquetSummary:
    """Write a table, or a stream of record batches, with the field ids that `schema` names.

    `data` must already have the types of `schema`; names, ids and nullability are taken from `schema`.
    An open sink stays open: who opened it decides what becomes of the file.
    """
    if isinstance(sink, str | Path):
        with pa.OSFile(str(sink), "wb") as file:
            return write_parquet(
                file, data, schema, codec, row_group_rows=row_group_rows, compression_level=compression_level
            )
    start = sink.tell()
    footers: list[pq.FileMetaData] = []
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression=(codec or Codec(DEFAULT_CODEC)).name,
        compression_level=compression_level,
        # DuckDB writes small decimals as integers; a file of ours should look the same to other readers.
        store_decimal_as_integer=True,
        # The Arrow schema would only repeat in every file what types and field ids already say.
        store_schema=False,
        metadata_collector=footers,
    )
    with writer:
        if isinstance(data, pa.Table):
            writer.write_table(_relabelled(data, schema), row_group_size=row_group_rows)
        else:
            for table in _row_groups(data, schema, row_group_rows):
                writer.write_table(table, row_group_size=row_group_rows)
    footer = footers[0]
    return ParquetSummary(footer.num_rows, sink.tell() - start, _footer_size(footer), footer)


def _relabelled(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same buffers under the schema's names and nullability; never a copy, never a cast."""
    if data.schema.equals(schema):
        return data
    columns = []
    for field, column in zip(schema, data.columns, strict=True):
        # Nested names and nullability are part of the type; `cast` only relabels where all else is equal.
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """Gather batches into tables of at least `rows` rows, so that small batches do not become row groups."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            table = pa.Table.from_batches(waiting)
            yield _relabelled(table.slice(0, count - count % rows), schema)
            rest = table.slice(count - count % rows)
            waiting, count = rest.to_batches(), rest.num_rows
    if count:
        yield _relabelled(pa.Table.from_batches(waiting), schema)


def _footer_size(footer: pq.FileMetaData) -> int:
    # pyarrow does not tell what it wrote, but serialises the same footer to the same bytes:
    # magic, footer, four bytes of length, magic.
    buffer = io.BytesIO()
    footer.write_metadata_file(buffer)
    return buffer.tell() - 12


def read_footer(file: pa.NativeFile, location: str, size: int) -> pq.FileMetaData:
    """Read the footer of a stored file and check that the file is whole.

    `size` is what was written; a different length, a missing magic number or a footer that cannot be
    parsed raises `CorruptFileError`.
    """
    stored = file.size()
    if stored != size:
        raise CorruptFileError(
            f"{location} has {stored} bytes, but {size} were written",
            hint="write the file again; nothing was committed",
            location=location,
            size=stored,
            expected=size,
        )
    file.seek(max(0, stored - 8))
    tail = file.read(8)
    if tail[4:] != _MAGIC:
        raise CorruptFileError(
            f"{location} does not end as a Parquet file does",
            detail="the footer is encrypted" if tail[4:] == _ENCRYPTED_MAGIC else None,
            location=location,
        )
    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(
            f"the Parquet footer of {location} cannot be read", detail=str(error), location=location
        ) from error
