"""A scan plan as one DataFrame: Spark's reader, the workers, inlined rows, without what was deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.algebra.predicates import says_something
from headwater.errors import HeadwaterError
from headwater.lake.format.types import no_rows
from headwater.lake.lake import Lake
from headwater.lake.model import Column
from headwater.lake.reading.read import inlined_of_plan
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import ScanPlan
from headwater.spark.jvm import Jvm
from headwater.spark.reading.branches import Abilities, Branches, branches
from headwater.spark.reading.columns import is_native, native_columns, native_since
from headwater.spark.reading.deletes import Deleted, DeletedRows, without_deleted
from headwater.spark.reading.foreign import ForeignFiles
from headwater.spark.reading.native import NativeReader, Prune
from headwater.spark.reading.pushed import predicate_of
from headwater.spark.reading.workers import hidden_needed, output_schema, read_in_workers, with_hidden
from headwater.spark.stores import JvmStores
from headwater.spark.types import in_pieces, to_spark
from headwater.typedefs import SnapshotId


@dataclass(frozen=True)
class ScanFrame:
    """A scan as Spark runs it."""

    frame: DataFrame
    plan: ScanPlan
    branches: Branches
    inlined_rows: int


class FrameReader:
    """Makes DataFrames of scan plans."""

    def __init__(self, spark: SparkSession, lake: Lake, jvm: Jvm, stores: JvmStores):
        self.spark = spark
        self.lake = lake
        self.jvm = jvm
        self.stores = stores
        self._foreign = ForeignFiles(lake.store)
        self._deleted = DeletedRows(spark, jvm, lake.store, stores.path, stores.reachable)

    def read(
        self,
        plan: ScanPlan,
        *,
        columns: Sequence[Column] | None = None,
        wanted: Collection[str] = (),
        replan: bool = True,
    ) -> ScanFrame:
        """The rows of a plan; `wanted` may name hidden columns, `FILE` and `POSITION`.

        Inlined rows are fetched now, with the plan they belong to: what is flushed later is not seen twice.
        """
        chosen = tuple(plan.table.columns if columns is None else columns)
        names = tuple(wanted)
        plan, inlined = self._inlined(plan, chosen, names, replan)
        divided = branches(plan, self._abilities(plan, chosen))
        parts = self._native(plan, chosen, names, divided)
        if divided.in_workers:
            parts.append(
                read_in_workers(self.spark, plan, divided.worker_files, chosen, names, self.lake.store)
            )
        if inlined.num_rows or not parts:
            parts.append(self.spark.createDataFrame(in_pieces(inlined), output_schema(chosen, names)))
        return ScanFrame(reduce(DataFrame.unionAll, parts), plan, divided, inlined.num_rows)

    def _abilities(self, plan: ScanPlan, columns: Sequence[Column]) -> Abilities:
        history = self.lake.column_history(plan.table)
        return Abilities(
            reachable=self.stores.reachable,
            types=all(map(is_native, columns)),
            since=native_since(columns, history, plan.snapshot.id),
            fits=lambda scan, mapping: self._foreign.reason(plan.table, scan, mapping),
        )

    def _native(
        self, plan: ScanPlan, columns: Sequence[Column], names: tuple[str, ...], divided: Branches
    ) -> list[DataFrame]:
        if not divided.by_id and not divided.by_name:
            return []
        history = self.lake.column_history(plan.table)
        own = native_columns(columns, history)

        parts = []
        for mapping, numbers in [(None, divided.by_id), *divided.by_name.items()]:
            for group, deleted in _alike(plan, numbers):
                gone = self._deleted.of(plan, group) if deleted else Deleted()
                wanted = tuple(dict.fromkeys((*names, *gone.needs)))
                reader = NativeReader(
                    self.spark,
                    self.jvm,
                    plan,
                    own,
                    wanted,
                    self.stores.path,
                    lambda n: self._prune(plan, n),
                    gone.first_words,
                )
                rows = reader.by_id(group) if mapping is None else reader.by_name(group, mapping)
                extra = [name for name in gone.needs if name not in names]
                parts.append(without_deleted(rows, gone).drop(*extra) if deleted else rows)
        return parts

    def _prune(self, plan: ScanPlan, numbers: Sequence[int]) -> Prune:
        """Answers conditions that Spark pushes down, with places in the list of files it was given."""
        places = {plan.files[number].file.id: place for place, number in enumerate(numbers)}

        def prune(question: str) -> str | None:
            predicate = predicate_of(question, plan.table)
            if not says_something(predicate):
                return None
            try:
                left = self.lake.files_left(plan, predicate)
            except HeadwaterError:
                return None  # the catalog does not answer, or the snapshot expired: read everything
            if not {file_id for file_id in left if file_id not in places} <= {s.file.id for s in plan.files}:
                return (
                    None  # rows moved to other files since the plan was made: ours that had them are unknown
                )
            return ",".join(str(places[file_id]) for file_id in left if file_id in places)

        return prune

    def _inlined(
        self, plan: ScanPlan, columns: Sequence[Column], names: tuple[str, ...], replan: bool
    ) -> tuple[ScanPlan, pa.Table]:
        hidden = hidden_needed(names, "rowid")
        read = [column.name for column in columns]
        request = Request.of(plan.table, read, None, hidden or ([] if columns else ["rowid"]))
        plan, tables = inlined_of_plan(plan, self.lake.db, request, replan)
        rows = [
            with_hidden(to_spark(table, columns), columns, names, -1 - place, "rowid")
            for place, table in enumerate(tables)
        ]
        if rows:
            return plan, pa.concat_tables(rows)
        nothing = to_spark(no_rows(request.schema), columns)
        return plan, with_hidden(nothing, columns, names, -1, "rowid")


def _alike(plan: ScanPlan, numbers: Sequence[int]) -> list[tuple[list[int], bool]]:
    """Files that are read in one scan: with or without deletes, with or without rows that are too new.

    Where deleted rows have to be looked for in most rows they are in all: Spark does better with one scan.
    """
    groups: dict[SnapshotId | None, tuple[list[int], list[int]]] = {}
    for number in numbers:
        scan = plan.files[number]
        both = groups.setdefault(scan.max_snapshot, ([], []))
        both[bool(scan.deletes or scan.inlined_deletes)].append(number)
    parts = []
    for whole, pierced in groups.values():
        if pierced and _rows(plan, pierced) >= _rows(plan, whole):
            parts.append((sorted(whole + pierced), True))
        else:
            parts += [(part, deleted) for part, deleted in ((whole, False), (pierced, True)) if part]
    return sorted(parts)


def _rows(plan: ScanPlan, numbers: Sequence[int]) -> int:
    return sum(plan.files[number].file.record_count for number in numbers)
