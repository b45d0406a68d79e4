"""Folding on Spark: rows stay in the cluster, and what comes to the driver is counted in files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, Window
from pyspark.sql import functions as F

from headwater.deltas.folding import Fold, Folded, stored_bytes, top_columns
from headwater.deltas.frames import BACK, BEFORE, column, ordered, same_key
from headwater.deltas.model import DELETE, DELTA, OPERATION, PLACE, SEQUENCE, UPSERT
from headwater.deltas.pruning import between
from headwater.lake.format.texts import plain_values
from headwater.lake.model import StagedFile
from headwater.lake.reading.scan import ScanPlan
from headwater.spark.connector import LakeSpark
from headwater.spark.reading.native import FILE
from headwater.spark.types import from_spark
from headwater.spark.writing.conforming import stored_rows
from headwater.spark.writing.native import ROW_ID

#: What the log said first of a key, and the tombstone that did, if it was one.
_FIRST, _FIRST_DELTA, _FIRST_PLACE = "_hw_first", "_hw_first_delta", "_hw_first_place"
_MATCHED = "_hw_matched"
#: Tombstones that one job brings to this process.
_FETCHED_AT_ONCE = 100_000


@dataclass
class SparkFold:
    """Folds a log as Spark jobs. Use it in a `with` block: it keeps what several of them need."""

    fold: Fold
    session: LakeSpark
    _kept: list[DataFrame] = field(default_factory=list)
    _last_count: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for frame in self._kept:
            frame.unpersist()

    def run(self) -> Folded:
        """Store what the base is to hold."""
        log = self._keep(self._ordered_log())
        folded = self._counted(log)
        newest = self._keep(log.where(F.col(BACK) == 1).drop(BACK, BEFORE))
        plan = self._pruned(newest)
        matched = self._keep(self._matched(plan, newest))
        self._count_matches(folded, plan, matched)
        self._match_tombstones(folded, log, newest, matched)
        folded.rewritten = self._store_rewritten(folded, newest)
        folded.added = self._store_added(folded, newest, matched)
        return folded

    def twins(self, plan: ScanPlan) -> bool:
        """Whether two rows of stored files have one key."""
        keys = self.session.reader.read(plan, columns=self.fold.bound.key_columns).frame
        names = [column(one.name) for one in self.fold.bound.key_columns]
        return bool(keys.groupBy(*names).count().where("count > 1").limit(1).collect())

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(kept)
        return kept

    # -- the log ------------------------------------------------------------------------------------

    def _ordered_log(self) -> DataFrame:
        fold = self.fold
        log = self.session.reader.read(fold.log, wanted=(SEQUENCE,), replan=False).frame
        by_key = Window.partitionBy(*(column(pair.log.name) for pair in fold.bound.key))
        first = by_key.orderBy(F.col(SEQUENCE)).rowsBetween(
            Window.unboundedPreceding, Window.unboundedFollowing
        )
        return ordered(log, fold.bound.key).withColumns(
            {
                _FIRST: F.first(OPERATION).over(first),
                _FIRST_DELTA: F.first(DELTA).over(first),
                _FIRST_PLACE: F.first(PLACE).over(first),
            }
        )

    def _counted(self, log: DataFrame) -> Folded:
        upsert, delete = F.col(OPERATION) == UPSERT, F.col(OPERATION) == DELETE
        row = log.agg(
            F.count_if(F.col(BACK) == 1).alias("keys"),
            F.count_if(upsert).alias("rows"),
            F.count_distinct(F.when(upsert, F.col(DELTA))).alias("deltas"),
            F.count_if(delete & (F.col(BEFORE) == UPSERT)).alias("applied"),
        ).collect()[0]
        return Folded(keys=row["keys"], delta_rows=row["rows"], deltas=row["deltas"], applied=row["applied"])

    # -- the base -----------------------------------------------------------------------------------

    def _pruned(self, newest: DataFrame) -> ScanPlan:
        """The base without the files that, by their statistics, hold no key of the log."""
        fold = self.fold
        pair = fold.bound.key[0]
        key = column(pair.log.name)
        limits = newest.agg(F.min(key).alias("low"), F.max(key).alias("high")).toArrow()
        ends = []
        for name in ("low", "high"):
            one = from_spark(limits.select([name]).rename_columns([pair.log.name]), [pair.log])
            ends += plain_values(one.column(0).combine_chunks(), pair.log)
        left = set(fold.lake.files_left(fold.base, between(pair.base, *ends)))
        return replace(fold.base, files=[scan for scan in fold.base.files if scan.file.id in left])

    def _matched(self, plan: ScanPlan, newest: DataFrame) -> DataFrame:
        """Rows of the base that have a key of the log: the file, the key, and what the log says of it."""
        key = self.fold.bound.key
        base = self.session.reader.read(
            plan, columns=self.fold.bound.key_columns, wanted=(FILE,), replan=False
        ).frame
        said = newest.select(*(column(pair.log.name) for pair in key), OPERATION, _FIRST)
        joined = base.alias("b").join(said.alias("l"), same_key(key, "b", "l"))
        names = (column(pair.log.name, "l").alias(pair.log.name) for pair in key)
        return joined.select(column(FILE, "b").alias(FILE), *names, f"l.{OPERATION}", f"l.{_FIRST}")

    def _count_matches(self, folded: Folded, plan: ScanPlan, matched: DataFrame) -> None:
        rows = (
            matched.groupBy(column(FILE).alias("file"))
            .agg(
                F.count_if(F.col(OPERATION) == UPSERT).alias("updated"),
                F.count_if(F.col(OPERATION) == DELETE).alias("removed"),
                F.count_if(F.col(_FIRST) == DELETE).alias("applied"),
            )
            .collect()
        )
        folded.updated = sum(row["updated"] for row in rows)
        folded.removed = sum(row["removed"] for row in rows)
        folded.applied += sum(row["applied"] for row in rows)
        folded.file_ids = sorted(plan.files[row["file"]].file.id for row in rows if row["file"] >= 0)

    def _match_tombstones(
        self, folded: Folded, log: DataFrame, newest: DataFrame, matched: DataFrame
    ) -> None:
        """Tombstones that met nothing: after another one, or first of a key that the base has not."""
        again = log.where((F.col(OPERATION) == DELETE) & (F.col(BEFORE) == DELETE)).select(DELTA, PLACE)
        first = self._not_in(newest.where(F.col(_FIRST) == DELETE), matched)
        missed = self._keep(again.unionAll(first.select(_FIRST_DELTA, _FIRST_PLACE)))
        # All tasks work for the count; what they found is then fetched piece by piece.
        if missed.count() > _FETCHED_AT_ONCE:
            rows = missed.toLocalIterator(prefetchPartitions=True)
        else:
            rows = iter(missed.collect())
        folded.unmatched.add((row[0], row[1]) for row in rows)

    def _not_in(self, newest: DataFrame, matched: DataFrame) -> DataFrame:
        condition = F.lit(True)
        for pair in self.fold.bound.key:
            name = pair.log.name
            condition = condition & column(name, "n").eqNullSafe(column(name, "m"))
        return newest.alias("n").join(matched.alias("m"), condition, "left_anti")

    # -- storing ------------------------------------------------------------------------------------

    def _store_rewritten(self, folded: Folded, newest: DataFrame) -> list[StagedFile]:
        """Rows of affected files, and those that the catalog keeps for the base, as the log leaves them."""
        fold, bound = self.fold, self.fold.bound
        scans = fold.chosen(folded.file_ids)
        if not scans and not fold.base.inlined:
            return []
        plan = replace(fold.base, files=scans)
        base = self.session.reader.read(plan, wanted=(SEQUENCE,), replan=False).frame
        said = newest.withColumn(_MATCHED, F.lit(True)).alias("l")
        joined = base.alias("b").join(said, same_key(bound.key, "b", "l"), "left")
        stays = joined.where(F.col(f"l.{_MATCHED}").isNull() | (F.col(f"l.{OPERATION}") == UPSERT))
        logged = {pair.base.name: pair.log.name for pair in bound.columns}
        chosen = []
        for one in bound.base.columns:
            old = column(one.name, "b")
            new = column(logged[one.name], "l") if one.name in logged else F.lit(None)
            chosen.append(F.when(F.col(f"l.{_MATCHED}").isNull(), old).otherwise(new).alias(one.name))
        rows = stays.select(*chosen, column(SEQUENCE, "b").alias(ROW_ID))
        return self._store(folded, rows, stored_bytes(scans))

    def _store_added(self, folded: Folded, newest: DataFrame, matched: DataFrame) -> list[StagedFile]:
        """Rows of keys that the base has not."""
        bound = self.fold.bound
        new = self._not_in(newest.where(F.col(OPERATION) == UPSERT), matched)
        rows = new.select(*(column(pair.log.name).alias(pair.base.name) for pair in bound.columns))
        staged = self._store(folded, rows, stored_bytes(self.fold.log.files))
        folded.inserted = self._last_count
        return staged

    def _store(self, folded: Folded, rows: DataFrame, size: int) -> list[StagedFile]:
        """Store rows in files of the target size, each of them a range of keys."""
        tx, base = self.fold.tx, self.fold.bound.base
        keys = [column(one.name) for one in self.fold.bound.key_columns]
        count = max(1, -(-size // max(1, tx.stager.target_size(base))))
        # (Ranges cost a job that samples the keys.)
        parts = rows.repartition(1) if count == 1 else rows.repartitionByRange(int(count), *keys)
        laid_out = parts.sortWithinPartitions(*keys)
        names = {one.name for one in top_columns(base.columns)} & set(rows.columns)
        watched = [one for one in base.columns if one.name in names]
        seen = Observation()
        counts = [F.sum(column(one.name).isNull().cast("long")).alias(f"n{one.id}") for one in watched]
        observed = stored_rows(laid_out, base).observe(seen, F.count(F.lit(1)).alias("rows"), *counts)
        staged = self.fold.keep(self.session.writer.stage(tx, base, observed))
        found = seen.get
        self._last_count = int(found["rows"])
        for one in watched:
            folded.nulls[one.id] = folded.nulls.get(one.id, 0) + int(found[f"n{one.id}"] or 0)
        return staged
