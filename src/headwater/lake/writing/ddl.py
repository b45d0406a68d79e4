"""Schema operations of a transaction: schemas, tables, columns, layout, tags, views, options."""

from __future__ import annotations

import difflib
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from headwater.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from headwater.lake import options as lake_options
from headwater.lake.catalog import DEFAULT_SCHEMA, check_text, folder, key, no_column, table_name
from headwater.lake.format.expressions import compute, parse_expression
from headwater.lake.format.ids import new_uuid
from headwater.lake.format.layout import is_sorted_by, parse_partition_by, parse_sort_by, rename_in_sort
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import can_widen, columns_from_arrow, type_text
from headwater.lake.format.values import DefaultText, default_text
from headwater.lake.model import Column, PartitionSpec, SchemaInfo, Table, View
from headwater.lake.writing.draft import Draft, NewFile, OptionChange
from headwater.lake.writing.whole import WholeOperations, whole
from headwater.storage.locations import as_folder
from headwater.typedefs import ColumnPath, TableName

_PLAIN_FOLDER = re.compile(r"[A-Za-z0-9_-]{1,200}")
#: Names DuckDB keeps for itself in tables whose rows may be inlined.
RESERVED_COLUMNS = {"row_id", "begin_snapshot", "end_snapshot"}

TableColumns = pa.Schema | Mapping[str, Any] | Sequence[tuple[str, Any]]


class SqlExpression(str):
    """A default that is computed for each row, such as `SqlExpression("now()")`."""


class SchemaOperations(WholeOperations):
    """Changes to what exists. Mixed into `Transaction`."""

    @property
    @abstractmethod
    def _draft(self) -> Draft: ...

    already_applied: bool

    # -- schemas ------------------------------------------------------------------------------

    @whole
    def create_schema(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a schema."""
        if self.already_applied:
            return
        check_name(name, "schema")
        found = self._draft.schemas.get(name.lower())
        if found is not None:
            if if_not_exists:
                return
            raise AlreadyExistsError(f"There is already a schema {found.name!r}.", schema=found.name)
        uuid = new_uuid()
        self._draft.schemas[name.lower()] = SchemaInfo(
            id=self._draft.new_id(),
            uuid=uuid,
            name=name,
            path=_folder_name(name, str(uuid)),
            path_is_relative=True,
            begin_snapshot=-1,
        )

    @whole
    def drop_schema(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Drop a schema; with `cascade` everything in it too."""
        if self.already_applied or (if_exists and name.lower() not in self._draft.schemas):
            return
        schema = self._draft.state.schema(name)
        if schema.name.lower() == DEFAULT_SCHEMA:
            raise InvalidInputError(
                f"Schema {schema.name!r} cannot be dropped.",
                detail="Names without a schema mean it, and DuckDB cannot USE a lake without it.",
                hint="Drop the tables in it.",
                schema=schema.name,
            )
        tables = [t for t in self._draft.tables.values() if t.schema_id == schema.id]
        views = [v for v in self._draft.views.values() if v.schema_id == schema.id]
        if (tables or views) and not cascade:
            listed = ", ".join([str(t.name) for t in tables] + [str(v.name) for v in views])
            raise InvalidInputError(
                f"Schema {schema.name!r} is not empty: {listed}.",
                hint="Drop what is in it first, or pass cascade=True.",
                schema=schema.name,
            )
        for table in tables:
            self.drop_table(table.name)
        for view in views:
            self.drop_view(view.name)
        del self._draft.schemas[name.lower()]

    # -- tables -------------------------------------------------------------------------------

    @whole
    def create_table(
        self,
        name: TableName | str,
        columns: TableColumns,
        *,
        partition_by: Iterable[str] = (),
        sort_by: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
        not_null: Iterable[str] = (),
        comment: str | None = None,
        tags: Mapping[str, str] | None = None,
        path: str | None = None,
        if_not_exists: bool = False,
        or_replace: bool = False,
    ) -> None:
        """Create a table.

        `columns` is an Arrow schema, or names with types (`{"id": "int64", "price": "decimal(10,2)"}`).
        `partition_by` takes `"region"`, `"year(ts)"`, `"bucket(8, id)"`; `sort_by` takes `"ts desc"`.
        Fields that are not nullable in the Arrow schema become NOT NULL, as do those in `not_null`.
        `path` is an absolute folder for its files, inside or outside the lake's data path.
        """
        if self.already_applied:
            return
        wanted = table_name(name)
        check_name(wanted.name, "table")
        draft = self._draft
        schema = draft.state.schema(wanted.schema)
        wanted = TableName(schema.name, wanted.name)
        existing = draft.tables.get(key(wanted))
        if existing is not None and if_not_exists:
            return
        if existing is not None and or_replace:
            self.drop_table(wanted)
        draft.refuse_taken(wanted)
        uuid = new_uuid()
        stored_path = as_folder(path) if path is not None else _folder_name(wanted.name, str(uuid))
        built = with_details(build_columns(columns), defaults or {}, not_null)
        check_columns(wanted, built, inlining=self._inlining_limit(schema.id, None) > 0)
        table = Table(
            id=draft.new_id(),
            uuid=uuid,
            schema_id=schema.id,
            name=wanted,
            path=folder(draft.base.data_path, schema, stored_path, path is None),
            columns=built,
            begin_snapshot=-1,
            tags={**(tags or {}), **({"comment": comment} if comment is not None else {})},
            stored_path=stored_path,
            path_is_relative=path is None,
        )
        draft.put_table(table)
        if partition_fields := tuple(partition_by):
            self.set_partition_by(wanted, partition_fields)
        if sort_fields := tuple(sort_by):
            self.set_sort_by(wanted, sort_fields)

    @whole
    def drop_table(self, name: TableName | str, *, if_exists: bool = False) -> None:
        """Drop a table; older snapshots still have it."""
        if self.already_applied:
            return
        if if_exists and self._draft.state.find_table(name) is None:
            return
        found = self._draft.state.table(name)
        self._discard(found, self._draft.remove_table(found))

    @whole
    def rename_table(self, name: TableName | str, new_name: str) -> None:
        """Give a table another name in the same schema; files stay where they are."""
        if self.already_applied:
            return
        check_name(new_name, "table")
        table = self._draft.state.table(name)
        renamed = TableName(table.name.schema, new_name)
        if key(renamed) != key(table.name):
            self._draft.refuse_taken(renamed)
        del self._draft.tables[key(table.name)]
        self._draft.put_table(replace(table, name=renamed))

    # -- columns ------------------------------------------------------------------------------

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
            stored = _default(default, new)
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
        stored = DefaultText(None, None, "literal") if default is None else _default(default, target)
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

    # -- layout, tags -------------------------------------------------------------------------

    @whole
    def set_partition_by(self, table: TableName | str, fields: Iterable[str]) -> None:
        """Split files written from now on by these keys; an empty list ends partitioning."""
        if self.already_applied:
            return
        found = self._draft.state.table(table)
        parsed = parse_partition_by(found, fields)
        if found.partition is None and not parsed:
            return
        if found.partition is not None and found.partition.fields == parsed:
            return
        written = self._draft.data.get(found.id)
        if written is not None and any((new.staged.partition_id or 0) < 0 for new in written.files):
            raise InvalidInputError(
                f"Table {found.name} has rows of this transaction that are partitioned in another new way.",
                hint="Commit them first, or set the partitioning before they are written.",
                table=str(found.name),
            )
        self._draft.put_table(replace(found, partition=PartitionSpec(self._draft.new_id(), parsed)))

    @whole
    def set_sort_by(self, table: TableName | str, fields: Iterable[str]) -> None:
        """Sort files written from now on; an empty list ends sorting."""
        if self.already_applied:
            return
        found = self._draft.state.table(table)
        parsed = parse_sort_by(found, fields)
        if parsed == found.sort:
            return
        self._draft.put_table(replace(found, sort=parsed, sort_id=self._draft.new_id() if parsed else None))

    def set_comment(
        self, name: TableName | str, comment: str | None, *, column: ColumnPath | None = None
    ) -> None:
        """Set or, with None, clear the comment of a table, a view or a column."""
        self.set_tag(name, "comment", comment, column=column)

    @whole
    def set_tag(
        self, name: TableName | str, tag: str, value: str | None, *, column: ColumnPath | None = None
    ) -> None:
        """Set or, with None, clear a tag of a table, a view or a column."""
        if self.already_applied:
            return
        check_name(tag, "tag")
        if value is not None:
            check_text(value, "a comment" if tag == "comment" else "the value of a tag")
        if column is not None and tag != "comment":
            raise InvalidInputError(
                f"A column has no tags but its comment, not {tag!r}.",
                detail="DuckDB could no longer read the catalog.",
                hint="Tag the table.",
            )
        view = self._draft.state.find_view(name)
        if column is not None:
            found, path, target = self._find_column(name, column)
            self._replace_column(found, path, replace(target, tags={**target.tags, tag: value}))
        elif view is not None:
            self._draft.put_view(replace(view, tags={**view.tags, tag: value}))
        else:
            found = self._draft.state.table(name)
            self._draft.put_table(replace(found, tags={**found.tags, tag: value}))

    # -- views --------------------------------------------------------------------------------

    @whole
    def create_view(
        self,
        name: TableName | str,
        sql: str,
        *,
        column_aliases: Sequence[str] = (),
        comment: str | None = None,
        tags: Mapping[str, str] | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Register a view. `sql` is one SELECT in DuckDB's SQL; name tables as `schema.table`."""
        if self.already_applied:
            return
        wanted = table_name(name)
        check_name(wanted.name, "view")
        for alias in column_aliases:
            check_name(alias, "column")
        schema = self._draft.state.schema(wanted.schema)
        wanted = TableName(schema.name, wanted.name)
        existing = self._draft.views.get(key(wanted))
        if existing is not None and if_not_exists:
            return
        if existing is not None and or_replace:
            self.drop_view(wanted)
        self._draft.refuse_taken(wanted)
        self._draft.put_view(
            View(
                id=self._draft.new_id(),
                uuid=new_uuid(),
                schema_id=schema.id,
                name=wanted,
                dialect="duckdb",
                sql=check_select(sql),
                column_aliases=",".join('"' + a.replace('"', '""') + '"' for a in column_aliases),
                begin_snapshot=-1,
                tags={**(tags or {}), **({"comment": comment} if comment is not None else {})},
            )
        )

    @whole
    def drop_view(self, name: TableName | str, *, if_exists: bool = False) -> None:
        """Drop a view."""
        if self.already_applied or (if_exists and self._draft.state.find_view(name) is None):
            return
        del self._draft.views[key(self._draft.state.view(name).name)]

    @whole
    def rename_view(self, name: TableName | str, new_name: str) -> None:
        """Give a view another name in the same schema."""
        if self.already_applied:
            return
        check_name(new_name, "view")
        view = self._draft.state.view(name)
        renamed = TableName(view.name.schema, new_name)
        if key(renamed) != key(view.name):
            self._draft.refuse_taken(renamed)
        del self._draft.views[key(view.name)]
        self._draft.put_view(replace(view, name=renamed))

    # -- options ------------------------------------------------------------------------------

    @whole
    def set_option(
        self,
        name: str,
        value: Any,
        *,
        schema: str | None = None,
        table: TableName | str | None = None,
    ) -> None:
        """Set an option of the lake, of a schema or of a table; None removes it."""
        if self.already_applied:
            return
        checked = lake_options.checked(name, value)
        scope, scope_id = None, None
        if table is not None:
            scope, scope_id = "table", self._draft.state.table(table).id
        elif schema is not None:
            scope, scope_id = "schema", self._draft.state.schema(schema).id
        self._draft.options.append(OptionChange(*checked, scope, scope_id))

    # -- what the transaction provides ----------------------------------------------------------

    @abstractmethod
    def _discard(self, table: Table, files: Iterable[NewFile]) -> None: ...

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


def check_name(name: str, what: str) -> None:
    """Names may hold anything but NUL, and may not be empty."""
    if not check_text(name, f"a name for a {what}"):
        raise InvalidInputError(f"{name!r} is not a name for a {what}.", hint="Names are non-empty text.")


def check_select(text: str) -> str:
    """One SELECT statement in DuckDB's grammar, without its semicolon."""
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.ParserException as error:
        raise InvalidInputError("The view's SQL cannot be parsed.", detail=str(error).strip()) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InvalidInputError("A view is defined by exactly one SELECT statement.")
    return statements[0].query.strip().rstrip(";").strip()


def check_columns(table: TableName, columns: tuple[Column, ...], inlining: bool) -> None:
    """At least one column, no name twice, none of DuckDB's own names."""
    if not columns:
        raise InvalidInputError(f"Table {table} needs at least one column.", table=str(table))
    seen: set[str] = set()
    for column in columns:
        check_name(column.name, "column")
        lowered = column.name.lower()
        if lowered in seen:
            raise InvalidInputError(f"Table {table} has the column {column.name!r} twice.", table=str(table))
        seen.add(lowered)
        if lowered.startswith("_ducklake_internal_") or (inlining and lowered in RESERVED_COLUMNS):
            raise InvalidInputError(
                f"The column name {column.name!r} is reserved by DuckLake.",
                hint="Choose another name"
                + (", or set data_inlining_row_limit to 0." if lowered in RESERVED_COLUMNS else "."),
                table=str(table),
            )


def build_columns(columns: TableColumns) -> tuple[Column, ...]:
    """Columns with ids, from an Arrow schema or from names and types."""
    if isinstance(columns, pa.Schema):
        return columns_from_arrow(columns)
    pairs = columns.items() if isinstance(columns, Mapping) else columns
    built: list[Column] = []
    next_id = 1
    for name, type_ in pairs:
        check_name(name, "column")
        column = build_column(name, type_, next_id)
        next_id = max(c.id for c in column.walk()) + 1
        built.append(column)
    return tuple(built)


def build_column(name: str, type_: Any, first_id: int) -> Column:
    """One column from a type in DuckLake's or DuckDB's words, or an Arrow type."""
    if isinstance(type_, pa.Field):
        return columns_from_arrow(pa.schema([type_.with_name(name)]), first_id)[0]
    if isinstance(type_, pa.DataType):
        return columns_from_arrow(pa.schema([pa.field(name, type_)]), first_id)[0]
    if isinstance(type_, str):
        return column_from_text(name, type_, first_id)
    raise InvalidInputError(
        f"{type_!r} is not a type for column {name!r}.",
        hint='Use text such as "int64" or "decimal(10,2)", or an Arrow type.',
    )


def with_details(
    columns: tuple[Column, ...], defaults: Mapping[str, Any], not_null: Iterable[str]
) -> tuple[Column, ...]:
    """The columns with their defaults and NOT NULLs."""
    names = {c.name.lower() for c in columns}
    required = {name.lower() for name in not_null}
    given = {name.lower(): value for name, value in defaults.items()}
    for name in (*given, *required):
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            raise NotFoundError(
                f"There is no column {name!r} to set a default or NOT NULL on.",
                hint=f"Did you mean {close[0]!r}?" if close else None,
                column=name,
            )
    result = []
    for column in columns:
        if column.name.lower() in required:
            column = replace(column, nulls_allowed=False)
        if given.get(column.name.lower()) is not None:
            column = replace(column, **_default(given[column.name.lower()], column)._asdict())
        result.append(column)
    return tuple(result)


def _default(value: Any, column: Column) -> DefaultText:
    if isinstance(value, SqlExpression):
        expression = parse_expression(value)
        compute(expression, type_text(column))
        return DefaultText(None, expression.text, "expression")
    return default_text(value, column)


def _folder_name(name: str, uuid: str) -> str:
    return (name if _PLAIN_FOLDER.fullmatch(name) else uuid) + "/"


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
