"""The table that rows are written to: found, created or extended, and checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from headwater.errors import ConflictError, InvalidInputError
from headwater.lake.format.align import align_input
from headwater.lake.format.types import no_rows
from headwater.lake.model import Column, Table
from headwater.lake.writing.transaction import Transaction
from headwater.spark.types import arrow_type_of, columns_of, from_spark, spark_type
from headwater.typedefs import TableName, quote_name

#: Types that text is parsed into elsewhere; Spark's users expect an error, as its own tables give.
_NOT_FROM_TEXT = re.compile(r"u?int\d+|float\d+|decimal.*|boolean|date|time.*|interval")


@dataclass(frozen=True, slots=True)
class Target:
    """How the table has to be for the rows to fit in."""

    name: TableName
    schema: st.StructType
    """Of the rows."""
    merge_schema: bool = False
    replace_schema: bool = False
    """Overwrite the columns too."""
    partition_by: tuple[str, ...] = ()
    """For a table that is created."""

    def make(self, tx: Transaction) -> Table:
        """Create or extend the table in a transaction where that is needed, and say what it is like."""
        existing = tx.state.find_table(self.name)
        if existing is None:
            self._create(tx, self.partition_by)
        elif self.replace_schema and not self._fits_exactly(existing):
            self._create(tx, self.partition_by or self._kept_partitioning(existing), or_replace=True)
        elif self.merge_schema:
            self._add_fields(tx, (), self.schema, existing.columns)
        return tx.state.table(self.name)

    def _create(self, tx: Transaction, partition_by: Sequence[str], *, or_replace: bool = False) -> None:
        tx.create_schema(self.name.schema, if_not_exists=True)
        tx.create_table(self.name, columns_of(self.schema), partition_by=partition_by, or_replace=or_replace)

    def _fits_exactly(self, table: Table) -> bool:
        have = [(column.name.lower(), spark_type(column).simpleString().lower()) for column in table.columns]
        return have == [(f.name.lower(), f.dataType.simpleString().lower()) for f in self.schema.fields]

    def _kept_partitioning(self, table: Table) -> tuple[str, ...]:
        """The partitioning that the table has, if the new columns still allow it."""
        names = {field.name.lower() for field in self.schema.fields}
        by_id = table.by_id()
        found = []
        for field in table.partition.fields if table.partition else ():
            column = by_id.get(field.column_id)
            if column is None or column.name.lower() not in names:
                return ()
            name, bucket = quote_name(column.name), re.fullmatch(r"bucket\((\d+)\)", field.transform)
            found.append(f"bucket({bucket[1]}, {name})" if bucket else f"{field.transform}({name})")
        return tuple(found)

    def _add_fields(
        self, tx: Transaction, path: tuple[str, ...], schema: st.StructType, columns: Sequence[Column]
    ) -> None:
        known = {column.name.lower(): column for column in columns}
        for field in schema.fields:
            place = (*path, field.name)
            column = known.get(field.name.lower())
            if column is None:
                kind = arrow_type_of(field.dataType, ".".join(place))
                tx.add_column(self.name, list(place), kind)
            elif column.type == "struct" and isinstance(field.dataType, st.StructType):
                self._add_fields(tx, (*path, column.name), field.dataType, column.children)

    def check(self, table: Table) -> None:
        """Refuse rows that cannot fit, whatever their values are."""
        empty = no_rows(to_arrow_schema(self.schema, timezone="UTC"))
        for field in self.schema.fields:
            column = table.column(field.name)
            if column is not None:
                _refuse_text(field.dataType, column, column.name)
        try:
            align_input(from_spark(empty, table.columns), table.columns)
        except InvalidInputError as error:
            extra = "columns" in error.facts
            merge = 'Add it to the table with .option("mergeSchema", "true"); ' if extra else ""
            raise InvalidInputError(
                f"The rows do not fit into table {table.name}: {error.message}.",
                detail=error.detail,
                hint=(merge + (error.hint or "")) or None,
                **{"table": str(table.name), **error.facts},
            ) from None
        given = {field.name.lower() for field in self.schema.fields}
        for column in table.columns:
            if column.name.lower() not in given and not column.nulls_allowed and column.default_value is None:
                raise InvalidInputError(
                    f"The rows have no column {column.name!r}, which is NOT NULL in table {table.name} "
                    "and has no default.",
                    table=str(table.name),
                    column=column.name,
                )


def _refuse_text(kind: st.DataType, column: Column, path: str) -> None:
    if isinstance(kind, st.StringType) and _NOT_FROM_TEXT.fullmatch(column.type):
        wanted = spark_type(column).simpleString()
        raise InvalidInputError(
            f"Column {path!r} is {column.type}, and the rows have text.",
            hint=f"Cast it first: CAST({quote_name(path)} AS {wanted}).",
            column=path,
        )
    if isinstance(kind, st.StructType) and column.type == "struct":
        by_name = {child.name.lower(): child for child in column.children}
        for field in kind.fields:
            if field.name.lower() in by_name:
                _refuse_text(field.dataType, by_name[field.name.lower()], f"{path}.{field.name}")
    if isinstance(kind, st.ArrayType) and column.type == "list":
        _refuse_text(kind.elementType, column.children[0], f"{path}.element")


def same_layout(staged: Table, now: Table) -> bool:
    """Whether files stored for one fit the other: columns by id and type, partitioning, the table itself."""

    def layout(table: Table) -> tuple[object, ...]:
        spec = table.partition if table.partition and table.partition.fields else None
        # What is new has provisional numbers, which differ between transactions.
        number = spec.id if spec is not None and table.id >= 0 else None
        columns = [(c.id, c.type, c.nulls_allowed) for top in table.columns for c in top.walk()]
        return columns, spec.fields if spec else None, number

    same_table = staged.id == now.id if staged.id >= 0 else now.id < 0
    return same_table and layout(staged) == layout(now)


def changed_meanwhile(table: Table) -> ConflictError:
    """The table is no longer the one that files were stored for."""
    return ConflictError(
        f"Table {table.name} was altered or replaced while rows were written to it.",
        hint="Write again; nothing was applied.",
        table=str(table.name),
    )


def as_lake_rows(batches: Sequence[pa.RecordBatch], table: Table, first_row: int = 0) -> pa.Table:
    """Batches of Spark as rows of the table: columns by name, defaults, checked values."""
    return align_input(
        from_spark(pa.Table.from_batches(batches), table.columns), table.columns, first_row=first_row
    )
