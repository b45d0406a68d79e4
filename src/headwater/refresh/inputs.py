"""What the stages of a stream table read in one refresh: sources and stored rows, before and after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.algebra.changes import PLACE
from headwater.algebra.relations import ROW_ID, WEIGHT, Scan
from headwater.algebra.stages import SHOWN
from headwater.lake.model import Table
from headwater.lake.reading.change_plan import ChangePlan
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.writing.transaction import Transaction
from headwater.refresh.compiling import FUNCTION, Compiled
from headwater.refresh.deltas import Delta
from headwater.refresh.model import Frontier, StreamTable
from headwater.refresh.shared_changes import SharedChanges
from headwater.refresh.sources import Source, shown
from headwater.spark.connector import LakeSpark, live_rows
from headwater.spark.literals import name_sql
from headwater.spark.reading.native import FILE, POSITION
from headwater.typedefs import SnapshotId


@dataclass
class Reading:
    """What was read, by the catalog's own figures."""

    files: int = 0
    bytes: int = 0


@dataclass
class WaveState:
    """What the stream tables of one wave share: a transaction, its snapshot, and what changed so far."""

    session: LakeSpark
    tx: Transaction
    #: What was read of changes, by this wave and those before.
    shared: SharedChanges = field(default_factory=SharedChanges)
    #: Where the changes of a table are between two snapshots, if that was asked before.
    planned: Callable[[Table, SnapshotId, SnapshotId], ChangePlan] | None = None
    #: Changes of stored results by table id, as this wave makes them.
    moved: dict[int, Delta] = field(default_factory=dict)
    #: Results that this wave makes from nothing, by table id.
    made: dict[int, DataFrame] = field(default_factory=dict)
    #: Keys of stored tables by table id.
    keys: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _frames: dict[tuple[int, SnapshotId, frozenset[str]], tuple[DataFrame, int, int]] = field(
        default_factory=dict
    )
    _changes: dict[tuple[int, SnapshotId, frozenset[str]], tuple[Delta, ChangePlan]] = field(
        default_factory=dict
    )
    _plans: dict[int, ScanPlan] = field(default_factory=dict)
    _stored: dict[int, DataFrame] = field(default_factory=dict)
    _kept: list[DataFrame] = field(default_factory=list)

    @property
    def snapshot_id(self) -> SnapshotId:
        """The snapshot that everything is read at."""
        return self.tx.base_snapshot_id

    def frame(self, table: Table, at: SnapshotId, columns: Collection[str], reading: Reading) -> DataFrame:
        """Columns of a committed table, its rows' ids maybe among them."""
        place = (table.id, at, frozenset(columns))
        if place not in self._frames:
            plan = self.session.lake.scan(table.name, at)
            chosen = [column for column in plan.table.columns if column.name in columns]
            wanted = (ROW_ID,) if ROW_ID in columns or not chosen else ()
            frame = self.session.reader.read(plan, columns=chosen, wanted=wanted).frame
            size = sum(scan.file.file_size_bytes for scan in plan.files)
            self._frames[place] = (frame, len(plan.files), size)
        frame, files, size = self._frames[place]
        reading.files += files
        reading.bytes += size
        return frame

    def stored_plan(self, table: Table) -> ScanPlan:
        """Where the rows of a result are, as committed."""
        if table.id not in self._plans:
            self._plans[table.id] = self.tx.scan(table.name)
        return self._plans[table.id]

    def stored(self, table: Table, reading: Reading) -> DataFrame:
        """The rows of a result as committed, with their places in `stored_plan`."""
        plan = self.stored_plan(table)
        if table.id not in self._stored:
            # Inlined rows that are flushed meanwhile are a conflict, and the transaction runs again.
            frame = self.session.reader.read(plan, wanted=(FILE, POSITION, ROW_ID), replan=False).frame
            names = zip((FILE, POSITION, ROW_ID), PLACE, strict=True)
            placed = [F.col(name_sql(old)).alias(new) for old, new in names]
            own = [F.col(name_sql(column.name)) for column in table.columns]
            self._stored[table.id] = frame.select(*own, *placed)
        reading.files += len(plan.files)
        reading.bytes += sum(scan.file.file_size_bytes for scan in plan.files)
        return self._stored[table.id]

    def delta(self, table: Table, since: SnapshotId, used: frozenset[str], reading: Reading) -> Delta:
        """What became of a committed table's rows; changes that only Spark can hold are read once a wave."""
        place = (table.id, since, used)
        if place not in self._changes:
            ask = self.planned or self._planned
            plan = ask(table, since, self.snapshot_id)
            delta = self.shared.delta(self.session, plan, used)
            if (make := delta.by_spark) is not None:
                delta = replace(delta, by_spark=lambda: self.keep(make()))
            self._changes[place] = delta, plan
        delta, plan = self._changes[place]
        reading.files += len(plan.files)
        reading.bytes += sum(change.file.file_size_bytes for change in plan.files)
        return delta

    def _planned(self, table: Table, since: SnapshotId, until: SnapshotId) -> ChangePlan:
        return self.session.lake.plan_changes(table.name, since + 1, until)

    def nothing_moved(self, table: Table, since: SnapshotId, used: frozenset[str]) -> bool:
        """Whether the changes that were found are all that happened: compaction moves rows besides."""
        found = self._changes.get((table.id, since, used))
        return found is not None and not found[1].moves and not found[1].mixed

    def row_ids_lost(self, table: Table, since: SnapshotId, used: frozenset[str]) -> SnapshotId | None:
        """The first snapshot among the changes that were found whose rows may have other ids than before."""
        found = self._changes.get((table.id, since, used))
        return None if found is None else self.shared.first_loss(self.session, found[1])

    def keep(self, frame: DataFrame) -> DataFrame:
        """Let Spark hold what it computes of this, as long as the wave lasts."""
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def release(self) -> None:
        """Give back what Spark holds for this wave."""
        for frame in self._kept:
            frame.unpersist()

    def after(self, table: Table, before: DataFrame) -> DataFrame:
        """A result's rows with this wave's changes."""
        if table.id in self.made:
            return self.made[table.id]
        delta = self.moved.get(table.id)
        if delta is None or delta.empty:
            return before
        names = [column.name for column in table.columns if column.name in before.columns]
        rows = delta.data(self.session)
        came = rows.where(F.col(WEIGHT) > 0).select(*map(name_sql, names))
        keys = self.keys[table.id]
        if not keys:
            return came
        went = rows.where(F.col(WEIGHT) < 0).select(
            *(F.col(name_sql(name)).alias(f"_hw_gone_{number}") for number, name in enumerate(keys))
        )
        same = [
            before[name_sql(name)].eqNullSafe(went[f"_hw_gone_{number}"]) for number, name in enumerate(keys)
        ]
        kept = before.join(went, reduce(lambda a, b: a & b, same), "left_anti")
        return kept.select(*map(name_sql, names)).unionAll(came)


class Inputs:
    """The inputs of one stream table in a wave."""

    def __init__(
        self,
        wave: WaveState,
        compiled: Compiled,
        tables: Mapping[str, Table],
        frontier: Frontier | None,
    ):
        self.wave = wave
        self.compiled = compiled
        #: The stored tables of the stages, by the stages' names.
        self.tables = tables
        self.frontier = frontier
        self.reading = Reading()
        self.deltas: dict[str, Delta] = {}
        self._found = False
        self._since = (
            {position.name: position.snapshot_id for position in frontier.sources} if frontier else {}
        )

    def find_changes(self) -> None:
        """Find out which sources changed since the refresh before, once."""
        if self._found:
            return
        self._found = True
        for name, source in self.compiled.sources.items():
            delta = self._source_delta(name, source)
            if delta is not None and not delta.empty:
                self.deltas[name] = delta

    def _source_delta(self, name: str, source: Source) -> Delta | None:
        used = self.compiled.used_columns[name]
        since, until = self._since[name], self.wave.snapshot_id
        committed = None
        if since < until:
            committed = self.wave.delta(source.table, since, used, self.reading)
        moved = self.wave.moved.get(source.table.id)
        if moved is None or moved.empty:
            return committed
        if committed is None or committed.empty:
            return moved
        # Committed since, and changed again by this wave: the two together.
        names = [name_sql(c.name) for c in source.table.columns if c.name in used] + [WEIGHT]
        session = self.wave.session
        both = committed.data(session).select(*names).unionAll(moved.data(session).select(*names))
        return Delta(both.schema, frame=both, at_most=committed.expected + moved.expected)

    def stayed_in_place(self, name: str) -> bool:
        """Whether no row of a source was moved from file to file since, or is changed by this wave."""
        source = self.compiled.sources[name]
        if source.table.id in self.wave.moved or source.table.id in self.wave.made:
            return False
        return self.wave.nothing_moved(source.table, self._since[name], self.compiled.used_columns[name])

    def row_ids_lost(self) -> tuple[str, SnapshotId] | None:
        """A source whose rows may no longer have the ids that are stored, and since which snapshot."""
        for name in sorted(self.compiled.by_row_id):
            used = self.compiled.used_columns[name]
            at = self.wave.row_ids_lost(self.compiled.sources[name].table, self._since[name], used)
            if at is not None:
                return name, at
        return None

    def since(self, name: str) -> SnapshotId:
        """The snapshot a source was seen at by the refresh before."""
        return self._since[name]

    @property
    def changed(self) -> frozenset[str]:
        """The sources and stages that changed."""
        return frozenset(self.deltas)

    def rows_of(self, name: str) -> int:
        """How many rows a source had before this wave, by the catalog's own figures."""
        table = self.compiled.sources[name].table
        if table.id in self.wave.made:
            return 0
        return live_rows(self.wave.session.lake.scan(table.name, self.wave.snapshot_id))

    @property
    def changed_rows(self) -> int:
        """How many rows of the sources changed, at most."""
        return sum(self.deltas[name].expected for name in self.compiled.sources if name in self.deltas)

    def frame(self, scan: Scan) -> DataFrame:
        """The rows a scan reads."""
        if scan.source == FUNCTION and self.compiled.function is not None:
            return self.compiled.function({name: self._shown(name) for name in self.compiled.sources})
        if scan.version == "delta":
            return self.deltas[scan.source].data(self.wave.session)
        if scan.source in self.tables:
            return self._stage(scan)
        source = self.compiled.sources[scan.source]
        used = self.compiled.used_columns[scan.source]
        if all(stored != ROW_ID for _, stored in (*scan.fields, *scan.key_fields)):
            used -= {ROW_ID}
        if scan.version == "old":
            return self.wave.frame(source.table, self._since[scan.source], used, self.reading)
        if source.stream is None:
            return self.wave.frame(source.table, self.wave.snapshot_id, used, self.reading)
        if source.table.id in self.wave.made:
            return self.wave.made[source.table.id]
        now = self.wave.frame(source.table, self.wave.snapshot_id, used, self.reading)
        return self.wave.after(source.table, now.drop(ROW_ID))

    def _shown(self, name: str) -> DataFrame:
        """A source's rows as they are now, as queries see them."""
        source = self.compiled.sources[name]
        rows = self.frame(Scan(name, (), ()))
        if any(column.name == SHOWN for column in source.table.columns):
            rows = rows.where(F.col(SHOWN))
        return rows.select(*(name_sql(column.name) for column in shown(source)))

    def _stage(self, scan: Scan) -> DataFrame:
        table = self.tables[scan.source]
        if table.id in self.wave.made:
            return self.wave.made[table.id]
        rows = self.wave.stored(table, self.reading)
        return rows if scan.version == "old" else self.wave.after(table, rows)


def upstream_of(streams: Sequence[StreamTable], wanted: Collection[str]) -> list[StreamTable]:
    """Stream tables by id with everything they read, each after what it reads."""
    by_id = {stream.id: stream for stream in streams}
    ordered: dict[str, StreamTable] = {}

    def visit(identity: str) -> None:
        stream = by_id.get(identity)
        if stream is None or identity in ordered:
            return
        for above in stream.upstream:
            visit(above)
        ordered[identity] = stream

    for identity in wanted:
        visit(identity)
    return list(ordered.values())
