"""Column operations of a transaction: added, dropped, renamed, widened, their defaults and NOT NULLs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headwater.errors import AlreadyExistsError, InvalidInputError
from headwater.lake.catalog import no_column
from headwater.lake.format.layout import is_sorted_by, rename_in_sort
from headwater.lake.format.types import can_widen
from headwater.lake.format.values import DefaultText
from headwater.lake.model import Column, Table
from headwater.lake.writing.columns import build_column, check_columns, check_name, column_default
from headwater.lake.writing.draft import Draft
from headwater.lake.writing.whole import WholeOperations, whole
from headwater.typedefs import ColumnPath, TableName


class ColumnOperations(WholeOperations):
    """Changes to the columns of tables. Mixed into `Transaction`."""

    @property
    @abstractmethod
    def _draft(self) -> Draft: ...

    already_applied: bool

    @whole
    def add_column(
        self,
        table: TableName | str,
        column: ColumnPath,
        type: Any,
        *,
        default: Any = None,
        not_null: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Add a column, or a field of a struct (`("address", "zip")`).

        Rows that are there already get `default`, as do rows written later without a value.
        """
        if self.already_applied:
            return
        found = self._draft.state.table(table)
        path = _path(column)
        siblings = _children_at(found, path[:-1])
        if any(c.name.lower() == path[-1].lower() for c in siblings):
            if if_not_exists:
                return
            raise AlreadyExistsError(
                f"Table {found.name} already has a column {'.'.join(path)!r}.", table=str(found.name)
            )
        check_name(path[-1], "column")
        if not_null and default is None:
            raise InvalidInputError(
                f"A new NOT NULL column {'.'.join(path)!r} needs a default for the rows that are there.",
                table=str(found.name),
            )
        new = build_column(path[-1], type, self._next_column_id(found))
        new = replace(new, nulls_allowed=not not_null)
        if default is not None:
            stored = column_default(default, new)
            if stored.initial_default is None:
                raise InvalidInputError(
                    "Rows that are there already need one value: the default of a new column is a literal.",
                    hint="Add the column without a default, then set_default() for rows to come.",
                    table=str(found.name),
                )
            new = replace(new, **stored._asdict())
        if not path[:-1]:
            check_columns(
                found.name, (*found.columns, new), self._inlining_limit(found.schema_id, found.id) > 0
            )
        self._replace_children(found, path[:-1], (*siblings, new))

    @whole
    def drop_column(self, table: TableName | str, column: ColumnPath, *, if_exists: bool = False) -> None:
        """Drop a column, or a field of a struct; older snapshots still have it."""
        if self.already_applied:
            return
        found = self._draft.state.table(table)
        path = _path(column)
        siblings = _children_at(found, path[:-1])
        target = next((c for c in siblings if c.name.lower() == path[-1].lower()), None)
        if target is None:
            if if_exists:
                return
            raise no_column(found, path)
        if len(siblings) == 1:
            raise InvalidInputError(
                f"{'.'.join(path)!r} is the only column; a table or struct keeps at least one.",
                table=str(found.name),
            )
        used = {f.column_id for f in found.partition.fields} if found.partition else set()
        if used & {c.id for c in target.walk()}:
            raise InvalidInputError(
                f"Table {found.name} is partitioned by {'.'.join(path)!r}.",
                hint="Change the partitioning first (set_partition_by).",
                table=str(found.name),
            )
        if is_sorted_by(found, path):
            raise InvalidInputError(
                f"Table {found.name} is sorted by {'.'.join(path)!r}.",
                hint="Change the sort order first (set_sort_by).",
                table=str(found.name),
            )
        self._replace_children(found, path[:-1], tuple(c for c in siblings if c.id != target.id))

    @whole
    def rename_column(self, table: TableName | str, column: ColumnPath, new_name: str) -> None:
        """Rename a column, or a field of a struct."""
        if self.already_applied:
            return
        check_name(new_name, "column")
        found, path, target = self._find_column(table, column)
        for sibling in _children_at(found, path[:-1]):
            if sibling.id != target.id and sibling.name.lower() == new_name.lower():
                raise AlreadyExistsError(
                    f"Table {found.name} already has a column {new_name!r}.", table=str(found.name)
                )
        renamed = self._replace_column(found, path, replace(target, name=new_name))
        sort = rename_in_sort(found, path, new_name)
        if sort != found.sort:
            renamed = self._draft.put_table(replace(renamed, sort=sort, sort_id=self._draft.new_id()))
        if not path[:-1]:
            check_columns(renamed.name, renamed.columns, self._inlining_limit(found.schema_id, found.id) > 0)

    @whole
    def widen_column(self, table: TableName | str, column: ColumnPath, type: str) -> None:
        """Change a column's type to a wider one that loses nothing (int32 → int64, float32 → float64)."""
        if self.already_applied:
            return
        found, path, target = self._find_column(table, column)
        new_type = build_column(target.name, type, target.id).type
        if new_type == target.type:
            return
        if not can_widen(target, new_type):
            raise InvalidInputError(
                f"Column {'.'.join(path)!r} cannot change from {target.type} to {new_type}.",
                hint="Only changes that keep every value are possible; add a new column instead.",
                table=str(found.name),
                column=".".join(path),
            )
        self._replace_column(found, path, replace(target, type=new_type))

    @whole
    def set_default(self, table: TableName | str, column: ColumnPath, default: Any) -> None:
        """Set the default for rows written from now on; None removes it."""
        if self.already_applied:
            return
        found, path, target = self._find_column(table, column)
        if len(path) > 1:
            raise InvalidInputError("A default is possible for whole columns, not for fields inside one.")
        stored = DefaultText(None, None, "literal") if default is None else column_default(default, target)
        self._replace_column(
            found,
            path,
            replace(target, default_value=stored.default_value, default_type=stored.default_type),
        )

    @whole
    def set_not_null(self, table: TableName | str, column: ColumnPath) -> None:
        """Refuse NULL in a column from now on; an error if it already holds one."""
        if self.already_applied:
            return
        found, path, target = self._find_column(table, column)
        if not target.nulls_allowed:
            return
        if len(path) > 1:
            raise InvalidInputError("NOT NULL is possible for whole columns, not for fields inside one.")
        self._refuse_nulls(found, target)
        self._draft.null_checked.add(found.id)
        self._replace_column(found, path, replace(target, nulls_allowed=False))

    @whole
    def drop_not_null(self, table: TableName | str, column: ColumnPath) -> None:
        """Allow NULL in a column."""
        if self.already_applied:
            return
        found, path, target = self._find_column(table, column)
        self._replace_column(found, path, replace(target, nulls_allowed=True))

    # -- what the transaction provides ----------------------------------------------------------

    @abstractmethod
    def _refuse_nulls(self, table: Table, column: Column) -> None: ...

    @abstractmethod
    def _largest_column_id(self, table: Table) -> int: ...

    @abstractmethod
    def _inlining_limit(self, schema_id: int | None, table_id: int | None) -> int: ...

    # -- helpers --------------------------------------------------------------------------------

    def _next_column_id(self, table: Table) -> int:
        drafted = max(c.id for top in table.columns for c in top.walk())
        return max(drafted, self._largest_column_id(table)) + 1

    def _find_column(self, table: TableName | str, column: ColumnPath) -> tuple[Table, list[str], Column]:
        found = self._draft.state.table(table)
        path = _path(column)
        for candidate in _children_at(found, path[:-1]):
            if candidate.name.lower() == path[-1].lower():
                return found, path, candidate
        raise no_column(found, path)

    def _replace_column(self, table: Table, path: list[str], new: Column) -> Table:
        siblings = _children_at(table, path[:-1])
        return self._replace_children(table, path[:-1], tuple(new if c.id == new.id else c for c in siblings))

    def _replace_children(self, table: Table, path: Sequence[str], children: tuple[Column, ...]) -> Table:
        def rebuild(columns: tuple[Column, ...], rest: Sequence[str]) -> tuple[Column, ...]:
            if not rest:
                return children
            return tuple(
                replace(c, children=rebuild(c.children, rest[1:])) if c.name.lower() == rest[0].lower() else c
                for c in columns
            )

        return self._draft.put_table(replace(table, columns=rebuild(table.columns, path)))


def _path(column: ColumnPath) -> list[str]:
    return [column] if isinstance(column, str) else list(column)


def _children_at(table: Table, path: Sequence[str]) -> tuple[Column, ...]:
    columns = table.columns
    for depth, name in enumerate(path):
        parent = next((c for c in columns if c.name.lower() == name.lower()), None)
        if parent is None or not parent.is_nested:
            raise no_column(table, list(path[: depth + 1]))
        columns = parent.children
    return columns
