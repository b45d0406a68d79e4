"""Schema operations of a transaction: schemas, tables, layout, tags, views, options."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from headwater.errors import AlreadyExistsError, InvalidInputError
from headwater.lake import options as lake_options
from headwater.lake.catalog import DEFAULT_SCHEMA, check_text, folder, key, table_name
from headwater.lake.format.ids import new_uuid
from headwater.lake.format.layout import parse_partition_by, parse_sort_by
from headwater.lake.model import PartitionSpec, SchemaInfo, Table, View
from headwater.lake.writing.column_operations import ColumnOperations
from headwater.lake.writing.columns import (
    TableColumns,
    build_columns,
    check_columns,
    check_name,
    with_details,
)
from headwater.lake.writing.draft import NewFile, OptionChange
from headwater.lake.writing.whole import whole
from headwater.storage.locations import as_folder
from headwater.typedefs import ColumnPath, TableName

_PLAIN_FOLDER = re.compile(r"[A-Za-z0-9_-]{1,200}")


class SchemaOperations(ColumnOperations):
    """Changes to what exists. Mixed into `Transaction`."""

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


def check_select(text: str) -> str:
    """One SELECT statement in DuckDB's grammar, without its semicolon."""
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.ParserException as error:
        raise InvalidInputError("The view's SQL cannot be parsed.", detail=str(error).strip()) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InvalidInputError("A view is defined by exactly one SELECT statement.")
    return statements[0].query.strip().rstrip(";").strip()


def _folder_name(name: str, uuid: str) -> str:
    return (name if _PLAIN_FOLDER.fullmatch(name) else uuid) + "/"
