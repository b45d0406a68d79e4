"""Rows of a table that the rows of a small source are equal to, found by the lake's own reader.

Where few bytes are to be compared, reading the columns of the condition into the driver, a piece at a time,
takes less time than Spark needs to start a job. Nothing but the rows that match is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.lake.format.types import decimal_parts
from headwater.lake.lake import Lake
from headwater.lake.model import Column
from headwater.lake.reading.file_reader import parts_of, read_file
from headwater.lake.reading.read import ROWS_AT_ONCE, inlined_of_plan, read_concurrently
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.spark.arrow_values import spark_arrow_type
from headwater.spark.reading.native import FILE, POSITION
from headwater.spark.types import to_spark

#: The number of a row of the source.
SOURCE_ROW = "headwater source row"
#: Types of which Arrow calls two values equal exactly when Spark does.
_COMPARED = frozenset(
    {"boolean", "int8", "int16", "int32", "int64", "varchar", "date", "timestamp", "timestamptz"}
)
#: Up to this many bytes of a table are read in the driver.
_FOR_THE_DRIVER = 128 << 20
#: How many bytes a value has that may be of any length, as a rule.
_USUAL = 32


@dataclass(frozen=True)
class Key:
    """A column of the table, and the place of the column of the source that it must equal."""

    column: Column
    place: int


def can_compare(column: Column) -> bool:
    """Whether values of a column are equal here exactly when they are for Spark."""
    return column.type in _COMPARED or decimal_parts(column.type) is not None


def few_bytes(plan: ScanPlan, columns: Sequence[Column]) -> bool:
    """Whether so little is to be read that the driver does it."""
    rows = sum(scan.file.record_count for scan in plan.files) + sum(i.row_count for i in plan.inlined)
    return rows * sum(map(_width, columns)) <= _FOR_THE_DRIVER


def _width(column: Column) -> int:
    kind = spark_arrow_type(column)
    return max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) else _USUAL


def find_partners(
    lake: Lake, plan: ScanPlan, keys: Sequence[Key], needed: Sequence[Column], source: pa.Table, most: int
) -> pa.Table | None:
    """The rows of a plan that equal rows of the source: `FILE`, `POSITION`, `rowid`, `SOURCE_ROW`.

    Columns that are `needed` stand before them, as Spark has them. None if they are more than `most`.
    """
    columns = tuple({column.id: column for column in (*(key.column for key in keys), *needed)}.values())
    names = [column.name for column in columns]
    match = _Match(columns, tuple(keys), tuple(needed), _numbered(source, keys))
    request = Request.of(plan.table, names, None, ["rowid"])
    _, inlined = inlined_of_plan(plan, lake.db, request, replan=False)
    found = [match.rows(rows, -1 - place, "rowid") for place, rows in enumerate(inlined)]
    request = Request.of(plan.table, names, None, ["rowid", "file_row_number"])

    def read(item: tuple[int, FileScan, tuple[int, int]]) -> Iterator[pa.Table]:
        number, scan, part = item
        for piece in read_file(lake.store, plan, scan, request, ROWS_AT_ONCE, part):
            yield match.rows(piece, number, "file_row_number")

    parts = [
        (number, scan, part)
        for number, scan in enumerate(plan.files)
        for part in parts_of(scan.file, ROWS_AT_ONCE)
    ]
    count = sum(rows.num_rows for rows in found)
    for rows in read_concurrently(parts, read):
        count += rows.num_rows
        if count > most:
            return None
        found.append(rows)
    return pa.concat_tables([*found, match.nothing()])


def _numbered(source: pa.Table, keys: Sequence[Key]) -> pa.Table:
    arrays: list[Any] = [_alike(source.column(key.place), key.column) for key in keys]
    numbers = pa.array(np.arange(source.num_rows), pa.int64())
    return pa.Table.from_arrays([*arrays, numbers], names=[*_names(keys), SOURCE_ROW])


def _alike(values: Any, column: Column) -> Any:
    """Values of either side in the one type that a column is compared in."""
    kind = spark_arrow_type(column)
    return values if values.type.equals(kind) else values.cast(kind)


def _names(keys: Sequence[Key]) -> list[str]:
    return [f"key {place}" for place in range(len(keys))]


@dataclass(frozen=True)
class _Match:
    columns: tuple[Column, ...]
    keys: tuple[Key, ...]
    needed: tuple[Column, ...]
    source: pa.Table

    def rows(self, piece: pa.Table, number: int, position: str) -> pa.Table:
        """The rows of a piece of a file that have partners, in their order, once for each of them."""
        names = _names(self.keys)
        # (What a join carries along cannot be of every type; and NULL equals nothing in it, as in SQL.)
        compared = pa.Table.from_arrays(
            [
                *(_alike(piece.column(key.column.name), key.column) for key in self.keys),
                pa.array(np.arange(piece.num_rows)),
            ],
            names=[*names, "at"],
        )
        joined = compared.join(self.source, keys=names, join_type="inner")
        at, rows = joined.column("at").to_numpy(), joined.column(SOURCE_ROW).to_numpy()
        order = np.lexsort((rows, at))
        left = piece.take(pa.array(at[order], pa.int64()))
        values = to_spark(left.select([column.name for column in self.needed]), self.needed)
        arrays: list[Any] = [
            *values.columns,
            pa.array(np.full(len(at), number), pa.int32()),
            left.column(position),
            left.column("rowid"),
            pa.array(rows[order], pa.int64()),
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def nothing(self) -> pa.Table:
        """No rows, in the form of those that are found."""
        return self._schema.empty_table()

    @property
    def _schema(self) -> pa.Schema:
        fields: list[Any] = [pa.field(c.name, spark_arrow_type(c)) for c in self.needed]
        fields.append(pa.field(FILE, pa.int32()))
        return pa.schema([*fields, *(pa.field(n, pa.int64()) for n in (POSITION, "rowid", SOURCE_ROW))])
