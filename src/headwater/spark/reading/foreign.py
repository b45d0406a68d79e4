"""Files of writers that Headwater does not know, looked into before Spark reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.lake.format.conform import NameMapping, field_id
from headwater.lake.format.types import arrow_type
from headwater.lake.model import Column, Table
from headwater.lake.reading.scan import FileScan
from headwater.spark.reading.branches import Reason
from headwater.storage.store import Store

#: Types of which the text in a folder's name is read alike by Spark and DuckDB.
_FROM_TEXT = frozenset(
    {"varchar", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "boolean", "date"}
)


class ForeignFiles:
    """Looks into files; each once, for files never change."""

    def __init__(self, store: Store):
        self._schema = lru_cache(maxsize=100_000)(lambda path: _schema(store, path))

    def reason(self, table: Table, scan: FileScan, mapping: Sequence[NameMapping] | None) -> Reason | None:
        """Why Spark cannot read a file of a table as it should; None if it can."""
        fields = list(self._schema(scan.file.path))
        if mapping is None:
            return None if any(field_id(f) is not None for f in fields) else Reason.NO_FIELD_IDS
        by_name = {f.name.lower(): f for f in fields}
        columns = {column.id: column for column in table.columns}
        for one in mapping:
            column = columns.get(one.target_id)
            if column is None:
                continue
            if one.is_partition:
                if column.type not in _FROM_TEXT:
                    return Reason.MAPPED_TYPE
            elif not _fits(by_name.get(one.source_name.lower()), column, one):
                return Reason.MAPPED_TYPE
        return None


def _schema(store: Store, path: str) -> pa.Schema:
    with store.reading(path), store.open_input(path) as source:
        return pq.read_schema(source)


def _fits(field: Any, column: Column, mapping: NameMapping) -> bool:
    """Whether a field of the file has just the column's type, with a mapping for every child."""
    if field is None:
        return False
    kind = field.type
    if not column.is_nested:
        wanted = arrow_type(column)
        storage = getattr(wanted, "storage_type", wanted)
        return bool(getattr(kind, "storage_type", kind).equals(storage))
    inner = {child.target_id: child for child in mapping.children}
    if set(inner) != {child.id for child in column.children}:
        return False
    if column.type == "struct" and pa.types.is_struct(kind):
        names = {kind.field(i).name.lower(): kind.field(i) for i in range(kind.num_fields)}
        return all(_fits(names.get(inner[c.id].source_name.lower()), c, inner[c.id]) for c in column.children)
    if column.type == "list" and pa.types.is_list(kind):
        (child,) = column.children
        return _fits(kind.value_field, child, inner[child.id])
    if column.type == "map" and pa.types.is_map(kind):
        key, value = column.children
        return _fits(kind.key_field, key, inner[key.id]) and _fits(kind.item_field, value, inner[value.id])
    return False
