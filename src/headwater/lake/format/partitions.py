"""Splitting rows by a partition spec, and the folders and values of the parts, as DuckDB has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.format.buckets import bucket_numbers
from headwater.lake.format.texts import FLOATS, TICKS, plain_array, plain_values, to_text
from headwater.lake.format.types import AnyArray, AnyType, arrow_type
from headwater.lake.model import Column, PartitionField

#: The folder name of NULL.
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
#: Longer names do not exist on common file systems.
_LONGEST_NAME = 255
CALENDAR = ("year", "month", "day", "hour")
_BUCKET = re.compile(r"bucket\((\d+)\)")
_NAIVE: dict[int, AnyType] = {
    1: pa.timestamp("s"),
    10**3: pa.timestamp("ms"),
    10**6: pa.timestamp("us"),
    10**9: pa.timestamp("ns"),
}


def check_partition_field(field: PartitionField, column: Column) -> None:
    """Raise unless DuckDB (and we) can partition by this transform of this column."""
    transform, type_ = field.transform, column.type
    if transform == "identity":
        if column.is_nested or type_ in ("variant", "geometry"):
            raise UnsupportedError(
                f"column {column.name!r} of type {type_} cannot be a partition key",
                hint="partition by a scalar column",
                column=column.name,
            )
        return
    if transform in CALENDAR:
        fits = type_ == "date" or type_.startswith("timestamp") or (transform == "hour" and type_ == "time")
        if not fits:
            raise InvalidInputError(
                f"{transform}({column.name}) needs a date or a timestamp, and the column is {type_}",
                column=column.name,
            )
        return
    count = bucket_count(transform)
    if count is None:
        raise InvalidInputError(
            f"unknown partition transform {transform!r}",
            hint="use identity, year, month, day, hour or bucket(N)",
            column=column.name,
        )
    if count < 1 or column.is_nested or type_ == "variant":
        raise InvalidInputError(
            f"{transform} of column {column.name!r} ({type_}) is not possible", column=column.name
        )


def bucket_count(transform: str) -> int | None:
    """N of `bucket(N)`; None for every other transform."""
    match = _BUCKET.fullmatch(transform)
    return int(match[1]) if match else None


def split_by_partition(
    table: pa.Table, fields: Sequence[PartitionField], columns: Sequence[Column]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    """The table in parts of equal partition values, with those values as the catalog stores them.

    `columns` are the table's first columns; what follows them (row ids) goes along. Rows keep their order
    within a part. A table that is all one part is returned as it is.
    """
    if table.num_rows == 0:
        return
    places = {column.id: place for place, column in enumerate(columns)}
    combined = np.zeros(table.num_rows, np.int64)
    encoded = []
    for field in fields:
        if field.column_id not in places:
            raise InvalidInputError(
                f"the partition key with column id {field.column_id} is no column of the table",
                column_id=field.column_id,
            )
        place = places[field.column_id]
        codes, texts = _encode(table.column(place), columns[place], field.transform)
        encoded.append((codes, texts))
        if int(combined.max()) > 2**62 // len(texts):
            combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
        combined = combined * len(texts) + codes
    _, first, parts = np.unique(combined, return_index=True, return_inverse=True)
    values = [tuple(texts[codes[row]] for codes, texts in encoded) for row in first.tolist()]
    if len(values) == 1:
        yield values[0], table
        return
    ordered = table.take(np.argsort(parts, kind="stable"))
    start = 0
    for value, rows in zip(values, np.bincount(parts).tolist(), strict=True):
        yield value, ordered.slice(start, rows)
        start += rows


def _encode(data: AnyArray, column: Column, transform: str) -> tuple[npt.NDArray[np.int64], list[str | None]]:
    """A number for every row, and the value that each number stands for; the last one is NULL."""
    check_partition_field(PartitionField(column.id, transform), column)
    array = data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], arrow_type(column))
    keys = _keys(array, column, transform).dictionary_encode()
    codes = pc.fill_null(keys.indices, len(keys.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [*_texts(keys.dictionary, column, transform), None]


def _keys(array: AnyArray, column: Column, transform: str) -> AnyArray:
    if transform == "identity":
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        if column.type in FLOATS:
            return pc.add(array, pa.scalar(0.0, array.type))  # no minus zero
        if column.type == "interval":
            values = plain_values(array, column)
            return pa.array([None if v is None else to_text(v, column.type) for v in values], pa.string())
        return array
    buckets = bucket_count(transform)
    if buckets is not None:
        if isinstance(array.type, pa.BaseExtensionType) and column.type == "json":
            array = array.storage
        return bucket_numbers(array, column, buckets)
    return _calendar_part(array, column, transform)


def _calendar_part(array: AnyArray, column: Column, transform: str) -> AnyArray:
    if column.type == "time":
        return pc.hour(array)
    if column.type == "date":
        raw = array.cast(pa.int32())
        finite = _finite(raw, 2**31 - 1).cast(pa.date32())
        if transform == "hour":
            return pc.if_else(finite.is_null(), pa.scalar(None, pa.int64()), pa.scalar(0, pa.int64()))
    else:
        # In UTC, as DuckDB takes the parts of a TIMESTAMPTZ in a session whose zone is UTC.
        naive = _NAIVE[TICKS[column.type]]
        finite = _finite(array.cast(pa.int64()), 2**63 - 1).cast(naive)
    part: AnyArray = getattr(pc, transform)(finite)
    return part


def _finite(raw: AnyArray, infinity: int) -> AnyArray:
    endless = pc.is_in(raw, value_set=pa.array([infinity, -infinity], raw.type))
    return pc.if_else(endless, pa.scalar(None, raw.type), raw)


def _texts(values: AnyArray, column: Column, transform: str) -> list[str]:
    if transform != "identity" or column.type == "interval":
        return [str(value) for value in values.to_pylist()]
    if column.type == "uuid":
        values = values.cast(pa.uuid())
    texts = [to_text(value, column.type) for value in plain_values(values, column)]
    for text in texts:
        if "\x00" in text:
            raise InvalidInputError(
                f"column {column.name!r} is a partition key, and a value has a NUL character",
                detail="PostgreSQL cannot store it in the catalog",
                column=column.name,
            )
    return texts


def hive_path(
    fields: Sequence[PartitionField], columns: Sequence[Column], values: Sequence[str | None]
) -> str:
    """The folder of a part, ending in `/`: `bucket=0/region=north%20east/`.

    Empty where a value is too long for the name of a folder: no reader needs the folders, since the catalog
    has the values.
    """
    by_id = {column.id: column for column in columns}
    taken: set[str] = set()
    path = ""
    for field, value in zip(fields, values, strict=True):
        column = by_id[field.column_id]
        key = column.name if field.transform == "identity" else field.transform.partition("(")[0]
        while key.lower() in taken:
            key += "_" + column.name
        taken.add(key.lower())
        folder = f"{quote(key, safe='')}={NULL_FOLDER if value is None else quote(value, safe='')}"
        if len(folder) > _LONGEST_NAME:
            return ""
        path += folder + "/"
    return path


def transformed_text(value: Any, column: Column, transform: str) -> str | None:
    """The partition value of one plain value, for pruning: `transformed_text(19782, date_column, "year")`."""
    codes, texts = _encode(plain_array([value], column), column, transform)
    return texts[int(codes[0])]
