"""Names by which the columns of a file are found that has no field ids, or none below its top level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.lake.model import ROW_ID_COLUMN, ROW_ID_FIELD, Column, NameMapping
from headwater.typedefs import ColumnId

#: What DuckDB itself calls the elements of a list in a mapping, whatever the file calls them.
LIST_CHILD = "list"
#: What the column of row ids must be called in a file with a mapping (it has its field id all the same).
#: DuckDB sees by the field id that the file has row ids, and then looks for the id among the names.
MAPPED_ROW_ID_COLUMN = str(ROW_ID_FIELD)


def needs_names(columns: Iterable[Column]) -> bool:
    """Must a file of Spark's writer be read by names? True for lists and maps at any level."""
    return any(inner.type in ("list", "map") for column in columns for inner in column.walk())


def row_id_column(columns: Iterable[Column]) -> str:
    """What Spark's writer must call the column of row ids in a file of these columns."""
    return MAPPED_ROW_ID_COLUMN if needs_names(columns) else ROW_ID_COLUMN


def names_in_file(columns: Sequence[Column]) -> tuple[NameMapping, ...]:
    """The mapping for a file whose columns have the names that these columns have now.

    Spark writes such files: it gives field ids to columns and the fields of structs, but not to the elements
    of lists and the keys and values of maps.
    """
    return tuple(_entry(column, column.name) for column in columns)


def _entry(column: Column, name: str) -> NameMapping:
    children = (
        _entry(child, LIST_CHILD if column.type == "list" else child.name) for child in column.children
    )
    return NameMapping(name, column.id, tuple(children))


def mapping_rows(
    mapping: Sequence[NameMapping],
) -> list[tuple[int, str, ColumnId, int | None, bool]]:
    """Rows of `ducklake_name_mapping` but for its first column, numbered from 0, parents first."""
    rows: list[tuple[int, str, ColumnId, int | None, bool]] = []
    _number(mapping, None, rows)
    return rows


def _number(
    entries: Sequence[NameMapping],
    parent: int | None,
    rows: list[tuple[int, str, ColumnId, int | None, bool]],
) -> None:
    for entry in entries:
        own = len(rows)
        rows.append((own, entry.source_name, entry.target_id, parent, entry.is_partition))
        _number(entry.children, own, rows)
