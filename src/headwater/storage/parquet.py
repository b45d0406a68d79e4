"""Arrow data to Parquet files, in the physical form DuckDB gives its own files."""

from __future__ import annotations

import io
import itertools
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
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
#: A column whose sample has fewer distinct values than this share is worth a dictionary.
_REPEATING, _SAMPLE_ROWS = 0.75, 4096
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
    without_statistics: Collection[str] = (),
) -> ParquetSummary:
    """Write a table, or a stream of record batches, with the field ids that `schema` names.

    `data` must already have the types of `schema`; names, ids and nullability are taken from `schema`.
    An open sink stays open: who opened it decides what becomes of the file. Columns named in
    `without_statistics` get none.
    """
    if isinstance(sink, str | Path):
        with pa.OSFile(str(sink), "wb") as file:
            return write_parquet(
                file,
                data,
                schema,
                codec,
                row_group_rows=row_group_rows,
                compression_level=compression_level,
                without_statistics=without_statistics,
            )
    schema = _stored_schema(schema)
    start = sink.tell()
    tables = _tables(data, schema, row_group_rows)
    first = next(tables)
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression=(codec or Codec(DEFAULT_CODEC)).name,
        compression_level=compression_level,
        use_dictionary=_dictionary_columns(first),
        write_statistics=_described_columns(schema, without_statistics),
        # DuckDB writes small decimals as integers; a file of ours should look the same to other readers.
        store_decimal_as_integer=True,
        # The Arrow schema would only repeat in every file what types and field ids already say.
        store_schema=False,
    )
    try:
        for table in itertools.chain([first], tables):
            writer.write_table(table, row_group_size=row_group_rows)
        writer.close()
    except BaseException:
        _abandon(writer)
        raise
    footer = writer.writer.metadata
    return ParquetSummary(footer.num_rows, sink.tell() - start, _footer_size(footer), footer)


def _abandon(writer: pq.ParquetWriter) -> None:
    """Close a writer whose sink failed; that it fails again says nothing new."""
    try:
        writer.close()
    except (pa.ArrowException, OSError):
        log.debug("the Parquet writer of a failed file could not be closed")
        writer.is_open = False  # or it tries once more when it is collected


def _dictionary_columns(table: pa.Table) -> Any:
    """The columns to encode with a dictionary, judged by a sample.

    Where nearly every value is different, a dictionary is built in vain for every row group: with row groups
    of DuckDB's size that is up to half of the time of writing.
    """
    if table.num_rows < 4 * _SAMPLE_ROWS:
        return True
    chosen: list[str] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if field.type.num_fields:
            chosen += _leaf_paths(field.name, field.type)
        elif not pa.types.is_boolean(field.type) and _repeats(column.slice(0, _SAMPLE_ROWS)):
            chosen.append(field.name)
    return chosen or False


def _described_columns(schema: pa.Schema, without: Collection[str]) -> Any:
    if not without:
        return True
    kept = [field for field in schema if field.name not in without]
    return [path for field in kept for path in _leaf_paths(field.name, field.type)] or False


def _repeats(sample: Any) -> bool:
    if isinstance(sample.type, pa.BaseExtensionType):
        storage: Any = sample.type.storage_type
        sample = pa.chunked_array([chunk.storage for chunk in sample.chunks], storage)
    try:
        return bool(pc.count_distinct(sample).as_py() < _REPEATING * _SAMPLE_ROWS)
    except pa.ArrowNotImplementedError:
        return True


def _leaf_paths(path: str, kind: Any) -> list[str]:
    """Parquet's names of the columns inside a nested one."""
    if pa.types.is_struct(kind):
        return [found for field in kind for found in _leaf_paths(f"{path}.{field.name}", field.type)]
    if pa.types.is_map(kind):
        keys = _leaf_paths(f"{path}.key_value.key", kind.key_type)
        return keys + _leaf_paths(f"{path}.key_value.value", kind.item_type)
    if pa.types.is_list(kind):
        return _leaf_paths(f"{path}.list.element", kind.value_type)
    return [path]


def _tables(
    data: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema, row_group_rows: int
) -> Iterator[pa.Table]:
    """What to write, in one piece or several; at least one, so that a file without rows is a file too."""
    if isinstance(data, pa.Table):
        yield _relabelled(data, schema)
        return
    written = False
    for table in _row_groups(data, schema, row_group_rows):
        written = True
        yield table
    if not written:
        # (`Schema.empty_table` gives up on extension types inside lists.)
        kinds: list[Any] = [field.type for field in schema]
        yield pa.Table.from_arrays([pa.nulls(0, kind) for kind in kinds], schema=schema)


def _relabelled(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same buffers under the schema's names and nullability; never a copy, never a cast."""
    if data.schema.equals(schema):
        return data
    columns = []
    for field, column in zip(schema, data.columns, strict=True):
        if pa.types.is_timestamp(field.type) and not column.type.equals(field.type):
            chunks = [rescaled(chunk, field.type) for chunk in column.chunks]
            columns.append(pa.chunked_array(chunks, field.type))
        else:
            # Nested names and nullability are part of the type; `cast` relabels where all else is equal.
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    """Seconds become microseconds, as in DuckDB's files: Parquet has no seconds."""
    return pa.schema([field.with_type(_stored_type(field.type)) for field in schema])


def _stored_type(kind: Any) -> Any:
    if "timestamp[s" not in str(kind):
        return kind
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored_type(field.type)) for field in kind])
    map_of: Any = pa.map_
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return map_of(key.with_type(_stored_type(key.type)), item.with_type(_stored_type(item.type)))
    return pa.list_(kind.value_field.with_type(_stored_type(kind.value_type)))


def rescaled(array: Any, target: Any) -> Any:
    """Timestamps in another unit, without loss; infinity has the same bits in every unit and stays itself."""
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        raw: Any = array.cast(pa.int64())
        endless: Any = pc.is_in(raw, value_set=pa.array([2**63 - 1, -(2**63 - 1)], pa.int64()))
        if not pc.any(endless).as_py():
            raise
        finite = pc.if_else(endless, pa.scalar(None, pa.int64()), raw).cast(array.type).cast(target)
        return pc.if_else(endless, raw, finite.cast(pa.int64())).cast(target)


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
