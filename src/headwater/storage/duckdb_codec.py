"""DuckDB as the codec of files that pyarrow cannot write or read as DuckDB does.

Those are all files of encrypted lakes, and files with intervals, variants or geometries. DuckDB writes to a
file of its own among the temporary ones, in encrypted lakes encrypted from the first byte, and the store
takes it from there; reading goes the other way. Keys are passed as parameters and appear in no message.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptFileError, StorageError
from headwater.storage.duckdb_engine import codec as engine
from headwater.storage.duckdb_engine import cursor, sandbox
from headwater.storage.locations import parse_location
from headwater.storage.parquet import ROW_GROUP_ROWS, Codec, ParquetSummary
from headwater.storage.sealed import footer_length, open_footer
from headwater.storage.store import Store

__all__ = [
    "CodecColumn", "FieldIds", "cursor", "encrypted_footer", "new_key", "read_encrypted", "read_with_duckdb",
    "sandbox", "write_with_duckdb",
]  # fmt: skip

#: The id of a field or, for one with fields inside, its id and theirs by name.
FieldIds: TypeAlias = "int | tuple[int, Mapping[str, FieldIds]]"
_FIELD_ID_KEY = b"PARQUET:field_id"
_KEY_BYTES = 16
_CODECS = {"snappy": "snappy", "zstd": "zstd", "gzip": "gzip", "lz4": "lz4_raw", "none": "uncompressed"}


@dataclass(frozen=True, slots=True)
class CodecColumn:
    """How a column of an Arrow table goes into a file: the SQL types it is cast to, in turn, and its ids."""

    name: str
    casts: tuple[str, ...]
    ids: FieldIds


def new_key() -> str:
    """A fresh random key, in the form the catalog stores."""
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def _raw_key(key: str, location: str) -> bytes:
    try:
        return base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        # The key itself is not part of the message, nor of its cause.
        raise CorruptFileError(
            f"the catalog's encryption key of {location} is not base64", location=location
        ) from None


# --- writing ----------------------------------------------------------------------------------------------


def write_with_duckdb(
    store: Store,
    location: str,
    data: pa.Table,
    columns: Sequence[CodecColumn],
    codec: Codec | None = None,
    *,
    key: str | None = None,
    row_group_rows: int = ROW_GROUP_ROWS,
    compression_level: int | None = None,
) -> ParquetSummary:
    """Write a table through DuckDB and store it; with `key` the file is encrypted with it."""
    name = codec.name if codec is not None else "snappy"
    options = [
        "FORMAT parquet",
        "GEOPARQUET_VERSION 'NONE'",  # geometries by Parquet's own type, as in DuckLake's files
        f"COMPRESSION {_CODECS[name]}",
        f"ROW_GROUP_SIZE {int(row_group_rows)}",
        f"FIELD_IDS {_ids_sql({column.name: column.ids for column in columns})}",
    ]
    if compression_level is not None and name == "zstd":
        options.append(f"COMPRESSION_LEVEL {int(compression_level)}")
    parameters: list[Any] = []
    if key is not None:
        options.append("ENCRYPTION_CONFIG {footer_key_value: ?}")
        parameters.append(_raw_key(key, location))
    selected = ", ".join(_cast_sql(column) for column in columns)
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        path = Path(folder) / "file.parquet"
        statement = f"COPY (SELECT {selected} FROM given) TO {_text(str(path))} ({', '.join(options)})"
        with engine() as duck:
            duck.register("given", data)
            try:
                duck.execute(statement, parameters)
            except duckdb.Error as error:
                raise StorageError(
                    f"DuckDB could not write {location}", detail=_first_line(error), location=location
                ) from None
            finally:
                duck.unregister("given")
        with path.open("rb") as written, store.open_output(location) as sink:
            shutil.copyfileobj(written, sink, 1 << 20)
        size = path.stat().st_size
        footer = _local_footer(path, key, location)
        return ParquetSummary(footer.num_rows, size, _footer_size(path), footer)


def _cast_sql(column: CodecColumn) -> str:
    text = _name(column.name)
    for type_ in column.casts:
        text = f"CAST({text} AS {type_})"
    return f"{text} AS {_name(column.name)}"


def _ids_sql(ids: Mapping[str, FieldIds]) -> str:
    parts = []
    for name, value in ids.items():
        if isinstance(value, int):
            parts.append(f"{_text(name)}: {value}")
        else:
            own, inner = value
            parts.append(f"{_text(name)}: {_ids_sql({'__duckdb_field_id': own, **inner})}")
    return "{" + ", ".join(parts) + "}"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


# --- reading ----------------------------------------------------------------------------------------------


def read_encrypted(store: Store, location: str, key: str, names: Sequence[str] | None = None) -> pa.Table:
    """The rows of an encrypted file, in the file's own columns, with its field ids in the schema."""
    return read_with_duckdb(store, location, key, names)


def read_with_duckdb(
    store: Store, location: str, key: str | None = None, names: Sequence[str] | None = None
) -> pa.Table:
    """The rows of a file as DuckDB reads them, in the file's order; `names` are the columns to read.

    Field ids are in the schema at every level, as pyarrow's own reader puts them there. Variants are JSON.
    """
    source, parameters = "read_parquet(?, hive_partitioning = false)", []
    if key is not None:
        source = "read_parquet(?, hive_partitioning = false, encryption_config = {footer_key_value: ?})"
        parameters.append(_raw_key(key, location))
    with _local(store, location) as path:
        footer = _local_footer(path, key, location)
        schema = footer.schema.to_arrow_schema()
        if names is not None:
            schema = pa.schema([schema.field(name) for name in names])
        with engine() as duck:
            try:
                types = dict(_types(duck, source, [str(path), *parameters]))
                selected = ", ".join(_readable(name, types[name]) for name in schema.names)
                found = duck.execute(
                    f"SELECT {selected or '1'} FROM {source}", [str(path), *parameters]
                ).to_arrow_table()
            except duckdb.Error as error:
                raise CorruptFileError(
                    f"DuckDB could not read {location}", detail=_first_line(error), location=location
                ) from None
    fields = [_labelled(found.schema.field(i), schema.field(i)) for i in range(len(schema))]
    return pa.Table.from_arrays(found.columns[: len(fields)], schema=pa.schema(fields))


def encrypted_footer(store: Store, location: str, size: int, key: str) -> pq.FileMetaData:
    """The footer of a stored, encrypted file: proof that it is whole and that the key opens it."""
    length = footer_length(store.read_tail(location, size, 8), location)
    return open_footer(store.read_tail(location, size, length + 8), _raw_key(key, location), location)


@contextmanager
def _local(store: Store, location: str) -> Iterator[Path]:
    """The file on a local disk; what is fetched for it is as encrypted as what is stored."""
    place = parse_location(location)
    if place.is_local:
        if not store.exists(location):
            store.size(location)  # raises what a missing file raises
        yield Path(place.path)
        return
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        path = Path(folder) / "file.parquet"
        with store.reading(location), store.open_input(location) as source, path.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
        yield path


def _local_footer(path: Path, key: str | None, location: str) -> pq.FileMetaData:
    if key is None:
        try:
            return pq.read_metadata(path)
        except pa.ArrowException as error:
            raise CorruptFileError(
                f"the Parquet footer of {location} cannot be read", detail=str(error), location=location
            ) from error
    length = footer_length(_tail(path, 8), location)
    return open_footer(_tail(path, length + 8), _raw_key(key, location), location)


def _footer_size(path: Path) -> int:
    return int.from_bytes(_tail(path, 8)[:4], "little")


def _tail(path: Path, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - length))
        return file.read()


def _types(duck: duckdb.DuckDBPyConnection, source: str, parameters: list[Any]) -> Iterator[tuple[str, Any]]:
    relation = duck.sql(f"SELECT * FROM {source}", params=parameters)
    yield from zip(relation.columns, relation.types, strict=True)


def _readable(name: str, type_: Any) -> str:
    """A column in a type that has an Arrow form: variants as JSON, times without their (lost) offset."""
    quoted = _name(name)
    if type_.id == "variant":
        # Cast alone, NULL would become the JSON text null.
        return f"CASE WHEN {quoted} IS NOT NULL THEN CAST({quoted} AS JSON) END AS {quoted}"
    wanted = _arrow_ready(type_)
    return quoted if wanted == str(type_) else f"CAST({quoted} AS {wanted}) AS {quoted}"


def _arrow_ready(type_: Any) -> str:
    children = dict(type_.children) if type_.id in ("struct", "list", "map") else {}
    if type_.id == "struct":
        parts = ", ".join(f"{_name(name)} {_arrow_ready(child)}" for name, child in children.items())
        return f"STRUCT({parts})"
    if type_.id == "list":
        return f"{_arrow_ready(children['child'])}[]"
    if type_.id == "map":
        return f"MAP({_arrow_ready(children['key'])}, {_arrow_ready(children['value'])})"
    return "TIME" if type_.id == "time with time zone" else str(type_)


def _labelled(found: Any, stored: Any) -> Any:
    """DuckDB's field under the ids of the footer's; shapes differ only for variants, which have no fields."""
    metadata = dict(found.metadata or {})
    own = (stored.metadata or {}).get(_FIELD_ID_KEY)
    if own is not None:
        metadata[_FIELD_ID_KEY] = own
    kind, beneath = found.type, stored.type
    if pa.types.is_struct(kind) and pa.types.is_struct(beneath):
        pairs = zip(list(kind), list(beneath), strict=True)
        kind = pa.struct([_labelled(a, b) for a, b in pairs])
    elif pa.types.is_map(kind) and pa.types.is_map(beneath):
        map_of: Any = pa.map_
        keys = _labelled(kind.key_field, beneath.key_field).with_nullable(False)
        kind = map_of(keys, _labelled(kind.item_field, beneath.item_field))
    elif pa.types.is_list(kind) and pa.types.is_list(beneath):
        kind = pa.list_(_labelled(kind.value_field, beneath.value_field))
    return pa.field(found.name, kind, nullable=True, metadata=metadata or None)
