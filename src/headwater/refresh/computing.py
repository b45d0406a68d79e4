"""One stream table in a wave: its stages from first to last, computed by Spark, put into the transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.algebra.changes import DOUBTFUL
from headwater.algebra.narrowing import surely_empty
from headwater.algebra.stages import Stage
from headwater.lake.model import Table
from headwater.refresh.binding import Statement, bound, moment_text
from headwater.refresh.compiling import Compiled, Prepared, Situation
from headwater.refresh.deciding import Extent
from headwater.refresh.deltas import GIVEN
from headwater.refresh.inputs import Inputs, WaveState
from headwater.refresh.local_rows import Found
from headwater.refresh.model import Frontier, StageReport
from headwater.refresh.narrowing import Narrowing
from headwater.refresh.programs import first_rows
from headwater.refresh.storing import Stored, Storing, Unfit
from headwater.spark.literals import name_sql

#: A file of what is stored at first has so many rows, where there are more.
FILE_ROWS = 500_000
#: Stored results of up to this many rows are compared with what they are now in this process, if that is not
#: many rows either.
FEW, MANY = 5_000, 20_000


@dataclass(frozen=True)
class Outcome:
    """What became of a stream table."""

    stages: tuple[StageReport, ...]
    rows_inserted: int
    rows_deleted: int
    rows_in: int
    files_read: int
    bytes_read: int
    strategy: str


class Computation:
    """The refresh of one stream table."""

    def __init__(
        self,
        wave: WaveState,
        name: str,
        compiled: Compiled,
        tables: Mapping[str, Table],
        frontier: Frontier | None,
        moment: datetime,
    ):
        self.wave = wave
        self.name = name
        self.compiled = compiled
        self.tables = tables
        self.frontier = frontier
        self.moment = moment
        self.inputs = Inputs(wave, compiled, tables, frontier)
        for stage in compiled.program.stages:
            wave.keys[tables[stage.source].id] = stage.key

    @property
    def _moments(self) -> Mapping[str, str]:
        before = self.frontier.moment if self.frontier is not None else self.moment
        return {"now": moment_text(self.moment), "before": moment_text(before)}

    @property
    def time_moved(self) -> bool:
        """Whether time alone may have changed rows."""
        depends = any(stage.depends_on_time for stage in self.compiled.program.stages)
        return depends and self.frontier is not None and self.frontier.moment != self.moment

    def load(self) -> Outcome:
        """Compute everything from nothing into tables that this transaction made."""
        reports = []
        inserted = 0
        for stage in self.compiled.program.stages:
            began = time.monotonic()
            table = self.tables[stage.source]
            rows = bound(
                self.wave.session, stage.relation, self.inputs.frame, moments=self._moments, whole=True
            )
            rows = rows.select(*(F.col(name_sql(inner)).alias(name) for name, inner in stage.fields))
            rows = self.wave.keep(rows)
            inserted = self.wave.session.writer.write(self.wave.tx, table, _in_few_files(rows))
            self.wave.made[table.id] = rows
            reports.append(StageReport(stage.source, "anew", time.monotonic() - began, inserted))
        return self._outcome(reports, "anew", 0)

    def follow(self, anew: Extent) -> Outcome | None:
        """Follow the changes of the inputs, but for what is computed anew; None if nothing changed."""
        if anew is Extent.RESULT:
            return self._result_alone()
        if anew is not Extent.EVERYTHING:
            self.inputs.find_changes()
            if not self.inputs.deltas and not self.time_moved:
                return None
        rows_in = self.inputs.changed_rows
        reports = [
            report
            for stage in self.compiled.program.stages
            if (report := self._refreshed(stage, anew)) is not None
        ]
        strategy = ", ".join(dict.fromkeys(report.strategy for report in reports)) or "nothing"
        return self._outcome(reports, strategy, rows_in)

    def _result_alone(self) -> Outcome:
        """Compute the result from the sources, and leave what is stored in between as it is."""
        report = self._anew(self.compiled.program.result, alone=True)
        return self._outcome([report], report.strategy, self.inputs.changed_rows)

    def _refreshed(self, stage: Stage, anew: Extent) -> StageReport | None:
        if anew is Extent.RESULT_BESIDE and stage is self.compiled.program.result:
            return self._anew(stage, alone=True)
        return self._anew(stage) if self._is_anew(stage, anew) else self._stage(stage)

    def _is_anew(self, stage: Stage, anew: Extent) -> bool:
        """Whether a stage is computed from all that it reads."""
        if anew is Extent.EVERYTHING or self.compiled.function is not None:
            return True
        changed = any(name in self.inputs.deltas for name in stage.inputs)
        return bool(stage.reasons) and (changed or (self.time_moved and stage.depends_on_time))

    def _stage(self, stage: Stage, *, few: bool = True) -> StageReport | None:
        """Store what the changes of its inputs mean; None if they mean nothing."""
        began = time.monotonic()
        deltas = [self.inputs.deltas[name] for name in stage.inputs if name in self.inputs.deltas]
        counts = [delta.count for delta in deltas]
        here = few and all(count is not None for count in counts)
        situation = Situation(
            stage.source,
            frozenset(name for name in stage.inputs if name in self.inputs.deltas),
            time_moved=self.time_moved,
            only_came=all(delta.only_came for delta in deltas),
            small=here,
        )
        prepared = self.compiled.prepared(situation, self._moments)
        if prepared is None:
            return None
        storing = Storing(self.wave, stage, self.tables[stage.source], self.name)
        local = self._narrowed(prepared.statement, {}) if here else {}
        if _nothing_follows(prepared.statement, local):
            return StageReport(stage.source, stage.strategy, time.monotonic() - began)
        alone = len(local) == len(prepared.statement.leaves)
        if here and not alone and max(filter(None, counts), default=0) > GIVEN:
            return self._stage(stage, few=False)
        stored: Stored | Unfit
        if here:
            rows = self._first_rows(prepared.statement, local)
            if rows is None:
                return self._stage(stage, few=False)
            stored = storing.few(prepared.shape, rows, lambda keys: self._settled(situation, keys))
        else:
            frame = prepared.statement.over(self.wave.session, self.inputs.frame)
            stored = storing.store(prepared.shape, frame)
        if stored is Unfit.SHORT:  # look for the first rows everywhere
            return self._anew(stage)
        if isinstance(stored, Unfit):
            return self._stage(stage, few=False)
        return self._done(stage, stage.strategy, stored, began)

    def _anew(self, stage: Stage, *, alone: bool = False) -> StageReport:
        """Compute everything, compare it with what is stored, and store what differs."""
        began = time.monotonic()
        storing = Storing(self.wave, stage, self.tables[stage.source], self.name)
        situation = Situation(stage.source, full=True, alone=alone)
        stored = self._compared_here(storing, situation)
        if stored is None:
            prepared = self._prepared(situation)
            frame = prepared.statement.over(self.wave.session, self.inputs.frame)
            stored = storing.store(prepared.shape, frame, full=True)
        if isinstance(stored, Unfit):
            raise ValueError("what is computed anew is never too little")
        return self._done(stage, "difference", stored, began)

    def _compared_here(self, storing: Storing, situation: Situation) -> Stored | Unfit | None:
        """Let Spark compute the rows alone, and compare them in this process; None if they are not few."""
        if self.wave.session.live_rows(self.wave.tx, storing.table.name) > FEW:
            return None
        statement = self._prepared(replace(situation, part="computed")).statement
        frame = statement.over(self.wave.session, self.inputs.frame)
        rows = frame.limit(MANY + 1).toArrow()
        if rows.num_rows > MANY:
            return None
        stored = self._prepared(replace(situation, part="stored")).statement
        found = self._narrowed(stored, {})
        return storing.everything(rows, *(each.rows for each in found.values())) if found else None

    def _done(self, stage: Stage, how: str, stored: Stored, began: float) -> StageReport:
        if not stored.delta.empty:
            self.wave.moved[self.tables[stage.source].id] = stored.delta
            self.inputs.deltas[stage.source] = stored.delta
        return StageReport(stage.source, how, time.monotonic() - began, stored.inserted, stored.deleted)

    def _prepared(self, situation: Situation) -> Prepared:
        prepared = self.compiled.prepared(situation, self._moments)
        if prepared is None:
            raise ValueError(f"stage {situation.stage} always has something to compute")
        return prepared

    def _settled(self, situation: Situation, keys: Found) -> pa.Table | None:
        """The changes of groups whose smallest or largest value may have gone; None if they are too many."""
        prepared = self._prepared(replace(situation, part="doubtful"))
        leaves = prepared.statement.leaves
        given = {leaf: keys for leaf, scan in leaves.items() if scan.source == DOUBTFUL}
        return self._first_rows(prepared.statement, self._narrowed(prepared.statement, given))

    def _narrowed(self, statement: Statement, given: Mapping[str, Found]) -> dict[str, Found]:
        """What of the statement's inputs is few rows, given those that are."""
        return Narrowing(self.inputs, self.compiled.whole_tables, statement).run(given)

    def _first_rows(self, statement: Statement, local: Mapping[str, Found]) -> pa.Table | None:
        return first_rows(self.wave.session, statement, self.inputs.frame, local)

    def _outcome(self, reports: list[StageReport], strategy: str, rows_in: int) -> Outcome:
        last = reports[-1] if reports and reports[-1].source == "@" else None
        return Outcome(
            tuple(reports),
            last.rows_inserted if last else 0,
            last.rows_deleted if last else 0,
            rows_in,
            self.inputs.reading.files,
            self.inputs.reading.bytes,
            strategy,
        )


def _in_few_files(rows: DataFrame) -> DataFrame:
    """Rows that Spark holds, in parts that are worth a file each.

    How many parts a query has tells of its inputs. What is stored in many files has a file of deletes for
    each of them after a few refreshes, and every lookup opens them all.
    """
    return rows.coalesce(max(1, -(-rows.count() // FILE_ROWS)))


def _nothing_follows(statement: Statement, local: Mapping[str, Found]) -> bool:
    """Whether it is clear without computing anything that nothing changes."""
    empty = {leaf for leaf, found in local.items() if not found.rows.num_rows}
    return bool(empty) and surely_empty(statement.relation, empty)
