"""Files of a plan through Spark's own Parquet reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as st

from headwater.lake.format.conform import NameMapping, hive_values
from headwater.lake.format.name_mappings import MAPPED_ROW_ID_COLUMN
from headwater.lake.model import (
    ROW_ID_COLUMN,
    ROW_ID_FIELD,
    SNAPSHOT_ID_COLUMN,
    SNAPSHOT_ID_FIELD,
    Column,
)
from headwater.lake.reading.scan import FileScan, ScanPlan
from headwater.spark.jvm import Jvm
from headwater.spark.literals import name_sql
from headwater.spark.reading.columns import NativeColumn
from headwater.spark.types import spark_type

#: Constants of a file, which Spark offers as partition columns.
FILE = "headwater file"
_PATH = "headwater path"
_FIRST_ROW_ID = "headwater first row id"
_SNAPSHOT = "headwater snapshot"
#: Where the deleted rows of a file begin in the array of all of them.
FIRST_WORD = "headwater first word"
#: The position of a row in its file, or the row id of an inlined row.
POSITION = "headwater position"
_CONSTANTS = {
    FILE: st.IntegerType(),
    _PATH: st.StringType(),
    _FIRST_ROW_ID: st.LongType(),
    _SNAPSHOT: st.LongType(),
    FIRST_WORD: st.LongType(),
}

#: Bytes that Spark expects of a value, of one whose type is not named here, and of each row besides.
_WIDTHS = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "float": 4, "date": 4, "string": 20}
_USUAL, _ROW = 8, 8

Prune = Callable[[str], str | None]


@dataclass(frozen=True)
class NativeReader:
    """Builds scans of one plan. `wanted` names hidden columns, and `FILE` and `POSITION`."""

    spark: SparkSession
    jvm: Jvm
    plan: ScanPlan
    columns: Sequence[NativeColumn]
    wanted: Sequence[str]
    jvm_path: Callable[[str], str]
    prune: Callable[[Sequence[int]], Prune] | None = None
    """For the files of a scan, what answers the conditions Spark pushes down to it."""
    first_words: Mapping[int, int] = field(default_factory=dict)
    """What `FIRST_WORD` is, by file number; files without deleted rows have none."""

    def by_id(self, numbers: Sequence[int]) -> DataFrame:
        """Rows of files that have field ids, deleted ones among them."""
        limit = self._limit(numbers)
        fields = [column.field() for column in self.columns]
        frame = self._scan(numbers, [*fields, *self._embedded(limit)], {})
        values = [f"{native.value()} AS {name_sql(native.column.name)}" for native in self.columns]
        # As one text: Spark's functions in Python are a dozen calls into the JVM for each column.
        return self.jvm.selected(_until(frame, limit), [*values, *self._hidden(ROW_ID_COLUMN)])

    def by_name(self, numbers: Sequence[int], mapping: Sequence[NameMapping]) -> DataFrame:
        """Rows of files whose columns are found by the names that a mapping gives."""
        limit = self._limit(numbers)
        found = {one.target_id: one for one in mapping}
        fields: list[st.StructField] = []
        values: list[SparkColumn] = []
        folders: dict[str, str] = {}
        for native in self.columns:
            column, one = native.column, found.get(native.column.id)
            if one is None:
                values.append(_default(native))
            elif one.is_partition:
                folders[f"headwater {column.id}"] = one.source_name
                read = F.col(f"`headwater {column.id}`")
                values.append(read.cast(spark_type(column)).alias(column.name))
            else:
                fields.append(st.StructField(one.source_name, _mapped_type(column, one)))
                source = F.expr(NativeColumn(column, one.source_name).value())
                values.append(source.cast(spark_type(column)).alias(column.name))
        embedded = [_plain(field) for field in self._embedded(limit)]
        if "rowid" in self.wanted:
            embedded.append(st.StructField(MAPPED_ROW_ID_COLUMN, st.LongType()))
        frame = self._scan(numbers, [*fields, *embedded], folders)
        hidden = map(F.expr, self._hidden(MAPPED_ROW_ID_COLUMN))
        return _until(frame, limit).select(*values, *hidden)

    def _limit(self, numbers: Sequence[int]) -> int | None:
        """Read only rows up to this snapshot: the same for all files of a scan."""
        return self.plan.files[numbers[0]].max_snapshot

    def _embedded(self, limit: int | None) -> list[st.StructField]:
        found = []
        if "rowid" in self.wanted:
            found.append(_field(ROW_ID_COLUMN, ROW_ID_FIELD))
        if "snapshot_id" in self.wanted or limit is not None:
            found.append(_field(SNAPSHOT_ID_COLUMN, SNAPSHOT_ID_FIELD))
        return found

    def _scan(
        self, numbers: Sequence[int], fields: Iterable[st.StructField], folders: Mapping[str, str]
    ) -> DataFrame:
        constants = self._constants()
        types = [
            *(st.StructField(name, _CONSTANTS[name]) for name in constants),
            *(_text(n) for n in folders),
        ]
        listing = []
        for number in numbers:
            scan = self.plan.files[number]
            row: list[Any] = [self.jvm_path(scan.file.path), scan.file.file_size_bytes]
            row += [self._constant(name, number, scan) for name in constants]
            if folders:
                values = hive_values(scan.file.path)
                row += [values.get(key) for key in folders.values()]
            listing.append(row)
        read = list(fields)
        return self.jvm.files(
            self.spark,
            f"{self.plan.table.name}@{self.plan.snapshot.id}",
            st.StructType(read),
            st.StructType(types),
            json.dumps(listing),
            None if self.prune is None else self.prune(numbers),
            min(
                1.0, _width(each.dataType for each in read) / _width(map(spark_type, self.plan.table.columns))
            ),
        )

    def _constants(self) -> list[str]:
        found = [FILE] if FILE in self.wanted else []
        if "filename" in self.wanted:
            found.append(_PATH)
        if "rowid" in self.wanted:
            found.append(_FIRST_ROW_ID)
        if "snapshot_id" in self.wanted:
            found.append(_SNAPSHOT)
        if FIRST_WORD in self.wanted:
            found.append(FIRST_WORD)
        return found

    def _constant(self, name: str, number: int, scan: FileScan) -> Any:
        match name:
            case "headwater file":
                return number
            case "headwater path":
                return scan.file.path
            case "headwater first row id":
                return scan.file.row_id_start
            case "headwater first word":
                return self.first_words.get(number)
        return scan.file.begin_snapshot

    def _hidden(self, row_ids: str) -> list[str]:
        """What else is wanted, in Spark's SQL."""
        position = "_metadata.row_index"
        texts = {
            "rowid": f"coalesce({ROW_ID_COLUMN}, `{row_ids}`, `{_FIRST_ROW_ID}` + {position})",
            "snapshot_id": f"coalesce({SNAPSHOT_ID_COLUMN}, `{_SNAPSHOT}`)",
            "filename": f"`{_PATH}`",
            "file_row_number": position,
            POSITION: position,
        }
        return [f"{texts.get(name, f'`{name}`')} AS `{name}`" for name in self.wanted]


def _width(types: Iterable[st.DataType]) -> int:
    """How many bytes Spark expects of a row."""
    return _ROW + sum(_WIDTHS.get(kind.typeName(), _USUAL) for kind in types)


def _until(frame: DataFrame, limit: int | None) -> DataFrame:
    """The rows up to a snapshot, where some are newer."""
    return frame if limit is None else frame.where(F.col(SNAPSHOT_ID_COLUMN) <= F.lit(limit))


def _field(name: str, field_id: int) -> st.StructField:
    return st.StructField(name, st.LongType(), True, {"parquet.field.id": field_id})


def _plain(field: st.StructField) -> st.StructField:
    return st.StructField(field.name, field.dataType)


def _text(name: str) -> st.StructField:
    return st.StructField(name, st.StringType())


def _default(native: NativeColumn) -> SparkColumn:
    """The value of rows in files that lack the column."""
    text = native.field().metadata.get("EXISTS_DEFAULT", "NULL")
    return F.expr(text).cast(spark_type(native.column)).alias(native.column.name)


def _mapped_type(column: Column, mapping: NameMapping) -> st.DataType:
    """The column's type with the names that the file's own fields have."""
    inner = {child.target_id: child for child in mapping.children}
    kinds = [(inner[c.id].source_name, _mapped_type(c, inner[c.id])) for c in column.children]
    if column.type == "struct":
        return st.StructType([st.StructField(name, kind) for name, kind in kinds])
    if column.type == "list":
        return st.ArrayType(kinds[0][1])
    if column.type == "map":
        return st.MapType(kinds[0][1], kinds[1][1])
    return st.BinaryType() if column.type == "uuid" else spark_type(column)
