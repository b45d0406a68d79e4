"""How a MERGE runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as st

from headwater.algebra.predicates import Predicate
from headwater.errors import InvalidInputError
from headwater.lake.model import Column
from headwater.lake.writing.transaction import Transaction
from headwater.spark.literals import default_sql, name_sql
from headwater.spark.reading.native import FILE
from headwater.spark.types import columns_of, from_spark, in_pieces, spark_schema, spark_type
from headwater.spark.writing.assigning import assignments
from headwater.spark.writing.conforming import as_stored, fit, stored_as
from headwater.spark.writing.join_keys import rows_met
from headwater.spark.writing.located import locate, located
from headwater.spark.writing.native import ROW_ID
from headwater.spark.writing.partners import SOURCE_ROW, Key, can_compare, few_bytes, find_partners
from headwater.spark.writing.row_level import PLACE
from headwater.spark.writing.rows import FOR_THE_DRIVER, few_rows, most_rows, row_bytes
from headwater.spark.writing.transactions import WriteResult
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark
    from headwater.spark.merge import Clause, Merge

#: Number of the clause that applies; mark of rows of a large source.
_CLAUSE = "headwater clause"
_FROM_SOURCE = "headwater source"
_NO_CLAUSE = -1
#: What the place of a row and its number take.
_PLACE_BYTES = 28


def run_merge(session: LakeSpark, tx: Transaction, name: TableName | str, merge: Merge) -> WriteResult:
    """Apply a MERGE to a transaction."""
    return _Run(session, tx, name, merge).run()


@dataclass(frozen=True)
class _Compared:
    sides: DataFrame
    """No row of the table, joined with the source."""
    equal: Sequence[tuple[int, int]]
    """Places of columns of the table and of the source that must be equal."""
    whole: bool
    """Whether that is all that is wanted of them."""


@dataclass
class _Run:
    session: LakeSpark
    tx: Transaction
    name: TableName | str
    merge: Merge

    def run(self) -> WriteResult:
        from headwater.spark.merge import Case

        self.old = self.tx.state.table(self.name)
        by_source = self.merge.of(Case.NOT_MATCHED_BY_SOURCE)
        source = self.merge.source
        # (Columns are added after the scan, so a scan that adds some cannot be made again.)
        if not by_source and not self.merge.schema_may_change and _is_plain(source.schema):
            # What is compared is found out while Spark computes the source.
            with ThreadPoolExecutor(1, thread_name_prefix="headwater-merge") as beside:
                compared = beside.submit(self._compared, source)
                rows = few_rows(source)
            done = None if rows is None else self._small(source, rows, compared.result())
            if done is not None:
                return done
        return self._large(source)

    @property
    def _on(self) -> SparkColumn:
        return self.merge.on if isinstance(self.merge.on, SparkColumn) else F.expr(self.merge.on)

    def _target(self, met: Predicate | None = None) -> DataFrame:
        """The table's rows, without those that cannot have a partner; then its columns may change."""
        found = self.session.reader.read(self.tx.scan(self.name, met), wanted=(*PLACE, "rowid"), replan=False)
        self.plan, target = found.plan, found.frame
        if self.merge.schema_may_change:
            self._add_columns()
        self.table = self.tx.state.table(self.name)
        for column in self.table.columns[len(self.old.columns) :]:
            target = target.withColumn(column.name, F.lit(None).cast(spark_type(column)))
        return target.alias(self.merge.target_alias)

    def _add_columns(self) -> None:
        everything = any(clause.values is None for clause in self.merge.clauses)
        known = {column.name.lower() for column in self.old.columns}
        new = [f for f in self.merge.source.schema.fields if f.name.lower() not in known]
        if everything and new:
            for column in columns_of(st.StructType(new)):
                self.tx.add_column(self.name, column.name, column)

    # -- a small source -----------------------------------------------------------------------------

    def _compared(self, source: DataFrame) -> _Compared:
        """The two sides as the condition sees them, and what it wants to be equal."""
        fields = spark_schema(self.old.columns).fields
        if self.old.column("rowid") is None:
            fields.append(st.StructField("rowid", st.LongType()))
        empty = self.session.jvm.empty(self.session.spark, fields)
        sides = empty.alias(self.merge.target_alias).join(source.alias(self.merge.source_alias), self._on)
        found, whole = self.session.jvm.equalities(sides)
        equal = [(mine, theirs) for mine, theirs in found if mine < len(self.old.columns)]
        return _Compared(sides, equal, whole and len(equal) == len(found))

    def _small(self, source: DataFrame, rows: pa.Table, compared: _Compared) -> WriteResult | None:
        """The source in the driver, its rows numbered; its partners are found there too, or by one Spark job.

        None if those are many: a single row of the source may have any number of partners.
        """
        from headwater.spark.merge import Case

        self.table = self.old
        met = rows_met(self.old, source.schema, rows, compared.equal)
        matched = self.merge.of(Case.MATCHED)
        self.plan = self.tx.scan(self.name, met)
        keys = self._keys(source.schema, compared.equal) if compared.whole else None
        found = None if keys is None else self._found_here(compared.sides, source, rows, keys, matched)
        if found is None:
            found = self._found_by_spark(source, rows, met, matched)
        if found is None:
            return None
        applied = found.filter(pa.array(found.column(_CLAUSE).to_numpy() >= 0))
        updated, deleted = self._replace(applied, matched)
        lonely = np.ones(rows.num_rows, np.bool_)
        lonely[found.column(SOURCE_ROW).to_numpy()] = False
        inserted = self._insert(rows.filter(pa.array(lonely)), source.schema)
        return WriteResult(inserted=inserted, updated=updated, deleted=deleted)

    def _keys(self, schema: st.StructType, equal: Sequence[tuple[int, int]]) -> list[Key] | None:
        """The columns that are compared, if that can be done without Spark."""
        keys = [Key(self.old.columns[mine], theirs) for mine, theirs in equal]
        alike = all(
            can_compare(key.column) and schema.fields[key.place].dataType == spark_type(key.column)
            for key in keys
        )
        return keys if keys and alike else None

    def _found_here(
        self,
        sides: DataFrame,
        source: DataFrame,
        rows: pa.Table,
        keys: Sequence[Key],
        matched: Sequence[Clause],
    ) -> pa.Table | None:
        """What becomes of the partners, found in the driver; None where that is not for the driver."""
        compared = [key.column for key in keys]
        copied = self._copied(rows, source.schema, matched)
        if copied is not None:
            if not few_bytes(self.plan, compared):
                return None
            most = max(
                4 * FOR_THE_DRIVER // (_PLACE_BYTES + rows.nbytes // max(1, rows.num_rows)), rows.num_rows
            )
            found = find_partners(self.session.lake, self.plan, keys, (), rows, most)
            return None if found is None else _with_copies(found, copied, bool(matched))
        selected = self._changes(sides, matched, ())
        places = self.session.jvm.needed(selected)
        if places is None or any(place >= len(self.old.columns) for place in places):
            return None
        needed = [self.old.columns[place] for place in places]
        if not few_bytes(self.plan, [*compared, *needed]):
            return None
        found = find_partners(
            self.session.lake, self.plan, keys, needed, rows, max(most_rows(sides), rows.num_rows)
        )
        if found is None:
            return None
        of_source = rows.take(found.column(SOURCE_ROW))
        names = [*found.schema.names[: len(needed)], *rows.schema.names, *found.schema.names[len(needed) :]]
        arrays: list[Any] = [*found.columns[: len(needed)], *of_source.columns, *found.columns[len(needed) :]]
        both = pa.Table.from_arrays(arrays, names=[f"headwater {place}" for place in range(len(arrays))])
        kinds = [spark_type(column) for column in needed]
        kinds += [f.dataType for f in source.schema.fields]
        kinds += [st.IntegerType(), st.LongType(), st.LongType(), st.LongType()]
        fields = [st.StructField(name, kind) for name, kind in zip(both.schema.names, kinds, strict=True)]
        frame = self.session.spark.createDataFrame(in_pieces(both), st.StructType(fields))
        aliases = (self.merge.target_alias, self.merge.source_alias)
        joined = self.session.jvm.as_joined(frame, names, len(needed), aliases)
        return self._changes(joined, matched).toArrow()

    def _found_by_spark(
        self, source: DataFrame, rows: pa.Table, met: Predicate | None, matched: Sequence[Clause]
    ) -> pa.Table | None:
        """The same by a Spark job; None if the partners are many."""
        numbers = pa.array(np.arange(rows.num_rows), pa.int64())
        numbered = self._local(rows.append_column(SOURCE_ROW, numbers), source.schema)
        joined = self._target(met).join(F.broadcast(numbered), self._on, "inner")
        changes = self._changes(joined, matched)
        most = max(most_rows(changes), rows.num_rows)
        found: pa.Table = changes.limit(most + 1).toArrow()
        return found if found.num_rows <= most else None

    def _changes(
        self,
        joined: DataFrame,
        matched: Sequence[Clause],
        places: Sequence[str] = (SOURCE_ROW, *PLACE, "rowid"),
    ) -> DataFrame:
        """Which clause applies to each pair of rows, where they are, and the values it makes."""
        named = {"rowid": ROW_ID}
        return self._chosen(joined, matched).select(
            F.col(f"`{_CLAUSE}`"),
            *(F.col(f"`{place}`").alias(named.get(place, place)) for place in places),
            *self._values(joined, matched),
        )

    def _copied(self, rows: pa.Table, schema: st.StructType, matched: Sequence[Clause]) -> pa.Table | None:
        """The rows of the source as rows of the table, where the clause wants that or no row at all."""
        from headwater.spark.merge import Action

        if not matched or _only_deletes(matched):
            return rows.select([])
        (clause, *more) = matched
        if (
            more
            or clause.condition is not None
            or clause.values is not None
            or clause.action is Action.DELETE
        ):
            return None
        return as_stored(rows, schema, self.table.columns)

    def _local(self, rows: pa.Table, schema: st.StructType) -> DataFrame:
        fields = [*schema.fields]
        if SOURCE_ROW in rows.schema.names:
            fields.append(st.StructField(SOURCE_ROW, st.LongType()))
        frame = self.session.spark.createDataFrame(in_pieces(rows), st.StructType(fields))
        return frame.alias(self.merge.source_alias)

    def _replace(self, changes: pa.Table, clauses: Sequence[Clause]) -> tuple[int, int]:
        """Take matched rows out, and put the updated ones in."""
        from headwater.spark.merge import Action

        numbers = changes.column(_CLAUSE).to_numpy()
        updates = [i for i, clause in enumerate(clauses) if clause.action is Action.UPDATE]
        if _only_deletes(clauses):
            changes = _distinct_places(changes)
        found = located(changes)
        self.tx.remove_rows(self.name, self.plan, found.files(self.plan), found.inlined(self.plan))
        changed = changes.filter(pa.array(np.isin(numbers, updates))) if updates else changes.slice(0, 0)
        if not changed.num_rows:
            return 0, found.count
        values = changed.select([column.name for column in self.table.columns])
        row_ids = changed.column(ROW_ID).to_numpy()
        updated = self.tx.replace_rows(self.name, from_spark(values, self.table.columns), row_ids)
        return updated, found.count - updated

    def _insert(self, rows: pa.Table, schema: st.StructType) -> int:
        from headwater.spark.merge import Case

        clauses = self.merge.of(Case.NOT_MATCHED)
        if not clauses or not rows.num_rows:
            return 0
        if clauses[0].values is None and clauses[0].condition is None:
            stored = as_stored(rows, schema, self.table.columns)
            if stored is not None:
                return self.tx.append(self.name, from_spark(stored, self.table.columns))
        source = self._local(rows, schema)
        chosen = self._chosen(source, clauses)
        new = chosen.where(F.col(f"`{_CLAUSE}`") >= 0).select(*self._values(source, clauses))
        return self.session.writer.write(self.tx, self.table, new, small=True)

    # -- a large source -----------------------------------------------------------------------------

    def _large(self, source: DataFrame) -> WriteResult:
        from headwater.spark.merge import Action, Case

        marked = source.withColumn(_FROM_SOURCE, F.lit(True)).alias(self.merge.source_alias)
        by_source, inserts = self.merge.of(Case.NOT_MATCHED_BY_SOURCE), self.merge.of(Case.NOT_MATCHED)
        how = {(True, True): "full", (True, False): "left", (False, True): "right"}.get(
            (bool(by_source), bool(inserts)), "inner"
        )
        joined = self._target().join(marked, self._on, how)
        has_target, has_source = F.col(f"`{FILE}`").isNotNull(), F.col(f"`{_FROM_SOURCE}`").isNotNull()
        cases = {
            Case.MATCHED: has_target & has_source,
            Case.NOT_MATCHED: ~has_target,
            Case.NOT_MATCHED_BY_SOURCE: ~has_source,
        }
        clauses = self.merge.clauses
        chosen = self._chosen(joined, clauses, [cases[clause.case] for clause in clauses])
        changes = chosen.where(F.col(f"`{_CLAUSE}`") >= 0).select(
            F.col(f"`{_CLAUSE}`"),
            *(F.col(f"`{place}`") for place in PLACE),
            F.col("rowid").alias(ROW_ID),
            *self._values(joined, clauses),
        )
        kept = changes.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            once = not _only_deletes(self.merge.of(Case.MATCHED))
            found = locate(kept.where(F.col(f"`{FILE}`").isNotNull()), once=once)
            self.tx.remove_rows(self.name, self.plan, found.files(self.plan), found.inlined(self.plan))
            updated = self._write(kept, Action.UPDATE)
            inserted = self._write(kept.drop(ROW_ID), Action.INSERT)
            return WriteResult(inserted=inserted, updated=updated, deleted=found.count - updated)
        finally:
            kept.unpersist()

    def _write(self, changes: DataFrame, action: object) -> int:
        numbers = [i for i, clause in enumerate(self.merge.clauses) if clause.action is action]
        if not numbers:
            return 0
        rows = changes.where(F.col(f"`{_CLAUSE}`").isin(numbers)).drop(_CLAUSE, *PLACE)
        small = rows.count() * row_bytes(rows) <= FOR_THE_DRIVER
        return self.session.writer.write(self.tx, self.table, rows, small=small)

    # -- clauses ------------------------------------------------------------------------------------

    def _chosen(
        self, joined: DataFrame, clauses: Sequence[Clause], cases: Sequence[SparkColumn] | None = None
    ) -> DataFrame:
        """The rows with the number of the first clause that applies to each."""
        number: SparkColumn | None = None
        for place, clause in enumerate(clauses):
            condition = _condition(clause)
            if cases is not None:
                condition = cases[place] & condition
            number = (
                F.when(condition, F.lit(place)) if number is None else number.when(condition, F.lit(place))
            )
        chosen = F.lit(_NO_CLAUSE) if number is None else number.otherwise(F.lit(_NO_CLAUSE))
        return joined.withColumn(_CLAUSE, chosen)

    def _values(self, joined: DataFrame, clauses: Sequence[Clause]) -> list[SparkColumn]:
        """Every column of the table, by the clause that applies."""
        from headwater.spark.merge import Action

        by_clause: dict[int, Mapping[str, SparkColumn]] = {}
        for place, clause in enumerate(clauses):
            if clause.action is not Action.DELETE:
                by_clause[place] = self._assigned(joined, clause)
        found = []
        for column in self.table.columns:
            value: SparkColumn = F.lit(None).cast(spark_type(column))
            for place, values in by_clause.items():
                value = F.when(F.col(f"`{_CLAUSE}`") == place, values[column.name]).otherwise(value)
            found.append(value.alias(column.name))
        return found

    def _assigned(self, joined: DataFrame, clause: Clause) -> dict[str, SparkColumn]:
        """What a clause makes of each column, checked and in the column's type."""
        from headwater.spark.merge import Action

        values = self._from_source() if clause.values is None else clause.values
        if clause.action is Action.UPDATE:
            columns = assignments(self.table, values, self.merge.target_alias)
        else:
            columns = assignments(self.table, {**self._defaults(values), **values})
        typed = joined.select(*columns)
        fit(typed, self.table)
        return {
            column.name: stored_as(value, column, field.dataType)
            for column, value, field in zip(self.table.columns, columns, typed.schema.fields, strict=True)
        }

    def _from_source(self) -> dict[str, SparkColumn]:
        alias = name_sql(self.merge.source_alias)
        given = {name.lower(): name for name in self.merge.source.columns}
        missing = [c.name for c in self.table.columns if c.name.lower() not in given]
        if missing and not self.merge.schema_may_change:
            raise InvalidInputError(
                f"The source of the MERGE lacks {', '.join(map(repr, missing))} of table {self.name}.",
                hint="Name the columns of the clause, or allow it with with_schema_evolution().",
                table=self.name,
                columns=missing,
            )
        return {
            column.name: F.col(f"{alias}.{name_sql(given[column.name.lower()])}")
            for column in self.table.columns
            if column.name.lower() in given
        }

    def _defaults(self, values: Mapping[str, SparkColumn]) -> dict[str, SparkColumn]:
        given = {name.lower() for name in values}
        return {
            column.name: F.expr(_default(column)).cast(spark_type(column))
            for column in self.table.columns
            if column.name.lower() not in given
        }


def _condition(clause: Clause) -> SparkColumn:
    if clause.condition is None:
        return F.lit(True)
    return clause.condition if isinstance(clause.condition, SparkColumn) else F.expr(clause.condition)


def _default(column: Column) -> str:
    if column.default_value is None:
        return "NULL"
    text = default_sql(column, column.default_value) if column.default_type == "literal" else None
    if text is None:
        raise InvalidInputError(
            f"The default of column {column.name!r} is an expression that only DuckDB computes.",
            hint="Give the column a value in the clause.",
            column=column.name,
        )
    return text


def _only_deletes(clauses: Sequence[Clause]) -> bool:
    """One clause that deletes whatever matches: then it does not matter how often."""
    from headwater.spark.merge import Action

    return len(clauses) == 1 and clauses[0].action is Action.DELETE and clauses[0].condition is None


def _distinct_places(changes: pa.Table) -> pa.Table:
    places = np.stack([changes.column(place).to_numpy().astype(np.int64) for place in PLACE])
    _, first = np.unique(places, axis=1, return_index=True)
    return changes.take(pa.array(np.sort(first), pa.int64()))


def _with_copies(found: pa.Table, copied: pa.Table, applies: bool) -> pa.Table:
    """Pairs of rows, the clause that applies to all of them, and the values of the source."""
    clause = np.full(found.num_rows, 0 if applies else _NO_CLAUSE, np.int32)
    values = copied.take(found.column(SOURCE_ROW)) if copied.num_columns else copied
    arrays: list[Any] = [pa.array(clause), *found.columns, *values.columns]
    places = [ROW_ID if name == "rowid" else name for name in found.schema.names]
    return pa.Table.from_arrays(arrays, names=[_CLAUSE, *places, *values.schema.names])


_PLAIN = (
    st.BooleanType,
    st.NumericType,
    st.StringType,
    st.BinaryType,
    st.DateType,
    st.TimestampType,
    st.TimestampNTZType,
)


def _is_plain(kind: st.DataType) -> bool:
    """Whether rows of this type go through Arrow and back unchanged."""
    if isinstance(kind, st.StructType):
        return all(_is_plain(one.dataType) for one in kind.fields)
    if isinstance(kind, st.ArrayType):
        return _is_plain(kind.elementType)
    if isinstance(kind, st.MapType):
        return _is_plain(kind.keyType) and _is_plain(kind.valueType)
    return isinstance(kind, _PLAIN)
