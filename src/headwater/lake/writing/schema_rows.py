"""The catalog rows that turn one schema state into another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.lake.connection import Database
from headwater.lake.format.changes import Change
from headwater.lake.model import Column, Table, View
from headwater.lake.writing.draft import Draft
from headwater.lake.writing.statements import Statement, end, insert

_COLUMN_FIELDS = (
    "column_id",
    "begin_snapshot",
    "table_id",
    "column_order",
    "column_name",
    "column_type",
    "initial_default",
    "default_value",
    "nulls_allowed",
    "parent_column",
    "default_value_type",
    "default_value_dialect",
)
_TABLE_FIELDS = (
    "table_id",
    "table_uuid",
    "begin_snapshot",
    "schema_id",
    "table_name",
    "path",
    "path_is_relative",
)
_VIEW_FIELDS = (
    "view_id",
    "view_uuid",
    "begin_snapshot",
    "schema_id",
    "view_name",
    "dialect",
    "sql",
    "column_aliases",
)
#: Everything that ends with its table.
_TABLE_PARTS = (
    "ducklake_table",
    "ducklake_partition_info",
    "ducklake_column",
    "ducklake_column_tag",
    "ducklake_data_file",
    "ducklake_delete_file",
    "ducklake_sort_info",
)


@dataclass
class Numbers:
    """The counters of the snapshot being written."""

    snapshot_id: int
    schema_version: int
    next_catalog_id: int
    next_file_id: int
    ids: dict[int, int] = field(default_factory=dict)
    """Real ids of objects that were new in the draft."""

    def file_id(self) -> int:
        """The next id for a data file, delete file or mapping."""
        self.next_file_id += 1
        return self.next_file_id - 1

    def real(self, draft_id: int) -> int:
        """The catalog id of a drafted object; drawn on first use, in the order of creation."""
        if draft_id >= 0:
            return draft_id
        return self.ids[draft_id]

    def draw(self, draft_ids: Iterable[int]) -> None:
        """Draw catalog ids for new objects, in the order in which they were made."""
        for draft_id in sorted({i for i in draft_ids if i < 0}, reverse=True):
            self.ids[draft_id] = self.next_catalog_id
            self.next_catalog_id += 1


@dataclass
class SchemaRows:
    """What the schema part of a commit writes."""

    statements: list[Statement] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    layout_changed: set[int] = field(default_factory=set)
    """Draft ids of tables that are new or whose columns, partitioning or name changed."""
    reshaped: set[int] = field(default_factory=set)
    """Those of them whose inlined rows go to a new table from now on: all but changed defaults and NULLs.

    What an inlined table holds is read by the columns of its schema version, so that even a field renamed
    inside a struct needs a new one.
    """
    retyped: bool = False
    """Some column changed its type."""


def schema_rows(db: Database, draft: Draft, numbers: Numbers) -> SchemaRows:
    """Everything needed to get from the draft's base to the draft. Raises the schema version if needed."""
    rows = SchemaRows()
    base = draft.base
    new_tables = {t.id: t for t in draft.tables.values()}
    old_tables = {t.id: t for t in base.tables.values()}
    new_views = {v.id: v for v in draft.views.values()}
    old_views = {v.id: v for v in base.views.values()}
    new_schemas = {s.id: s for s in draft.schemas.values()}
    old_schemas = {s.id: s for s in base.schemas.values()}
    numbers.draw(
        [
            *new_schemas,
            *new_tables,
            *new_views,
            *(t.partition.id for t in new_tables.values() if t.partition),
            *(t.sort_id for t in new_tables.values() if t.sort_id is not None),
        ]
    )
    at = numbers.snapshot_id

    for schema_id in old_schemas.keys() - new_schemas.keys():
        rows.statements += end(db, "ducklake_schema", ["schema_id"], at, [(schema_id,)])
        rows.changes.append(Change("dropped_schema", schema_id))
    for schema in new_schemas.values():
        if schema.id < 0:
            rows.statements += insert(
                db,
                "ducklake_schema",
                ("schema_id", "schema_uuid", "begin_snapshot", "schema_name", "path", "path_is_relative"),
                [
                    (
                        numbers.real(schema.id),
                        schema.uuid,
                        at,
                        schema.name,
                        schema.path,
                        schema.path_is_relative,
                    )
                ],
            )
            rows.changes.append(Change("created_schema", (schema.name,)))
    for table_id in sorted(old_tables.keys() - new_tables.keys()):
        for part in _TABLE_PARTS:
            rows.statements += end(db, part, ["table_id"], at, [(table_id,)])
        rows.statements += end(db, "ducklake_tag", ["object_id"], at, [(table_id,)])
        rows.changes.append(Change("dropped_table", table_id))
    for table in new_tables.values():
        old = old_tables.get(table.id)
        if table is not old:
            _table(db, rows, numbers, old, table)
    for view_id in sorted(old_views.keys() - new_views.keys()):
        rows.statements += end(db, "ducklake_view", ["view_id"], at, [(view_id,)])
        rows.statements += end(db, "ducklake_tag", ["object_id"], at, [(view_id,)])
        rows.changes.append(Change("dropped_view", view_id))
    for view in new_views.values():
        old_view = old_views.get(view.id)
        if view is not old_view:
            _view(db, rows, numbers, old_view, view)

    if rows.changes:
        numbers.schema_version += 1
        rows.statements += insert(
            db,
            "ducklake_schema_versions",
            ("begin_snapshot", "schema_version", "table_id"),
            [
                (at, numbers.schema_version, numbers.real(table_id))
                for table_id in sorted(rows.layout_changed, key=numbers.real)
            ],
        )
    return rows


def _table(db: Database, rows: SchemaRows, numbers: Numbers, old: Table | None, new: Table) -> None:
    at = numbers.snapshot_id
    table_id = numbers.real(new.id)
    renamed = old is not None and old.name != new.name
    if renamed:
        rows.statements += end(db, "ducklake_table", ["table_id"], at, [(table_id,)], expected=1)
    if old is None or renamed:
        rows.statements += insert(
            db,
            "ducklake_table",
            _TABLE_FIELDS,
            [
                (
                    table_id,
                    new.uuid,
                    at,
                    numbers.real(new.schema_id),
                    new.name.name,
                    new.stored_path,
                    new.path_is_relative,
                )
            ],
        )
        rows.changes.append(Change("created_table", tuple(new.name)))
        rows.layout_changed.add(new.id)
        rows.reshaped.add(new.id)
    altered = _columns(db, rows, numbers, old.columns if old else (), new)
    if _partition(db, rows, numbers, old, new):
        rows.reshaped.add(new.id)
        altered = True
    if altered:
        rows.layout_changed.add(new.id)
    altered |= _sort(db, rows, numbers, old, new)
    altered |= _tags(db, rows, numbers, table_id, old.tags if old else {}, new.tags)
    if altered and old is not None:
        rows.changes.append(Change("altered_table", table_id))


def _flat(columns: Iterable[Column], parent: int | None = None) -> dict[int, tuple[Column, int | None]]:
    flat: dict[int, tuple[Column, int | None]] = {}
    for column in columns:
        flat[column.id] = (column, parent)
        flat.update(_flat(column.children, column.id))
    return flat


def _shape(columns: tuple[Column, ...]) -> list[tuple[int, str, str]]:
    return [(c.id, c.name, c.type) for top in columns for c in top.walk()]


def _stored(column: Column, parent: int | None) -> tuple[Any, ...]:
    """What the catalog holds of a column, to compare and to write."""
    default_type = "" if column.is_nested and column.default_value is None else column.default_type
    default = "NULL" if column.default_value is None else column.default_value
    return (
        column.name,
        column.type,
        column.initial_default,
        default,
        column.nulls_allowed,
        parent,
        default_type,
        "duckdb",
    )


def _columns(
    db: Database, rows: SchemaRows, numbers: Numbers, old_columns: tuple[Column, ...], table: Table
) -> bool:
    at = numbers.snapshot_id
    table_id = numbers.real(table.id)
    old, new = _flat(old_columns), _flat(table.columns)
    changed = [
        column_id
        for column_id, (column, parent) in new.items()
        if column_id not in old or _stored(*old[column_id]) != _stored(column, parent)
    ]
    ended = [i for i in old if i not in new or i in changed]
    rows.statements += end(
        db,
        "ducklake_column",
        ["table_id", "column_id"],
        at,
        [(table_id, column_id) for column_id in ended],
        expected=len(ended),
    )
    rows.statements += insert(
        db,
        "ducklake_column",
        _COLUMN_FIELDS,
        [(column_id, at, table_id, column_id, *_stored(*new[column_id])) for column_id in changed],
    )
    rows.retyped |= any(i in old and old[i][0].type != new[i][0].type for i in changed)
    tagged = False
    for column_id, (column, _) in new.items():
        before = old[column_id][0].tags if column_id in old else {}
        fresh = {k: v for k, v in column.tags.items() if k not in before or before[k] != v}
        fresh = {k: v for k, v in fresh.items() if v is not None or k in before}
        if fresh:
            tagged = True
            replaced = [(table_id, column_id, k) for k in fresh if k in before]
            rows.statements += end(db, "ducklake_column_tag", ["table_id", "column_id", "key"], at, replaced)
            rows.statements += insert(
                db,
                "ducklake_column_tag",
                ("table_id", "column_id", "begin_snapshot", "key", "value"),
                [(table_id, column_id, at, k, v) for k, v in fresh.items()],
            )
    if _shape(old_columns) != _shape(table.columns):
        rows.reshaped.add(table.id)
    if changed or ended:
        rows.layout_changed.add(table.id)
    elif tagged and old:
        rows.changes.append(Change("altered_table", table_id))
    return bool(changed or ended)


def _partition(db: Database, rows: SchemaRows, numbers: Numbers, old: Table | None, new: Table) -> bool:
    before = old.partition if old else None
    if new.partition is None or (before is not None and before.id == new.partition.id):
        return False
    at, table_id, spec = numbers.snapshot_id, numbers.real(new.id), numbers.real(new.partition.id)
    if before is not None:
        rows.statements += end(db, "ducklake_partition_info", ["table_id"], at, [(table_id,)])
    rows.statements += insert(
        db,
        "ducklake_partition_info",
        ("partition_id", "table_id", "begin_snapshot"),
        [(spec, table_id, at)],
    )
    rows.statements += insert(
        db,
        "ducklake_partition_column",
        ("partition_id", "table_id", "partition_key_index", "column_id", "transform"),
        [(spec, table_id, i, f.column_id, f.transform) for i, f in enumerate(new.partition.fields)],
    )
    return True


def _sort(db: Database, rows: SchemaRows, numbers: Numbers, old: Table | None, new: Table) -> bool:
    before = old.sort_id if old else None
    if before == new.sort_id:
        return False
    at, table_id = numbers.snapshot_id, numbers.real(new.id)
    if before is not None:
        rows.statements += end(db, "ducklake_sort_info", ["table_id"], at, [(table_id,)])
    if new.sort_id is not None:
        sort_id = numbers.real(new.sort_id)
        rows.statements += insert(
            db, "ducklake_sort_info", ("sort_id", "table_id", "begin_snapshot"), [(sort_id, table_id, at)]
        )
        rows.statements += insert(
            db,
            "ducklake_sort_expression",
            (
                "sort_id",
                "table_id",
                "sort_key_index",
                "expression",
                "dialect",
                "sort_direction",
                "null_order",
            ),
            [
                (sort_id, table_id, i, f.expression, f.dialect, f.direction, f.null_order)
                for i, f in enumerate(new.sort)
            ],
        )
    return True


def _tags(
    db: Database,
    rows: SchemaRows,
    numbers: Numbers,
    object_id: int,
    before: Mapping[str, str | None],
    after: Mapping[str, str | None],
) -> bool:
    fresh = {k: v for k, v in after.items() if k not in before or before[k] != v}
    fresh = {k: v for k, v in fresh.items() if v is not None or k in before}
    at = numbers.snapshot_id
    replaced = [(object_id, k) for k in fresh if k in before]
    rows.statements += end(db, "ducklake_tag", ["object_id", "key"], at, replaced)
    rows.statements += insert(
        db,
        "ducklake_tag",
        ("object_id", "begin_snapshot", "key", "value"),
        [(object_id, at, k, v) for k, v in fresh.items()],
    )
    return bool(fresh)


def _view(db: Database, rows: SchemaRows, numbers: Numbers, old: View | None, new: View) -> None:
    at = numbers.snapshot_id
    view_id = numbers.real(new.id)
    renamed = old is not None and old.name != new.name
    if renamed:
        rows.statements += end(db, "ducklake_view", ["view_id"], at, [(view_id,)], expected=1)
    if old is None or renamed:
        row = (
            view_id,
            new.uuid,
            at,
            numbers.real(new.schema_id),
            new.name.name,
            new.dialect,
            new.sql,
            new.column_aliases,
        )
        rows.statements += insert(db, "ducklake_view", _VIEW_FIELDS, [row])
        rows.changes.append(Change("created_view", tuple(new.name)))
    if _tags(db, rows, numbers, view_id, old.tags if old else {}, new.tags) and old is not None:
        rows.changes.append(Change("altered_view", view_id))
