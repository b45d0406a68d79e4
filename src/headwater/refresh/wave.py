"""A wave: stream tables that are brought to one snapshot of their sources, and committed as one."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from headwater.errors import (
    ConflictError,
    HeadwaterError,
    InvariantError,
    QueryError,
    SnapshotError,
    StreamTableError,
)
from headwater.lake.catalog import CatalogState
from headwater.lake.lake import Lake
from headwater.lake.model import Table
from headwater.lake.reading.change_plan import ChangePlan
from headwater.lake.reading.quiet_tables import QuietTables
from headwater.lake.writing.transaction import Transaction
from headwater.refresh.catalog_tables import UPSTREAM_FAILED
from headwater.refresh.compiling import Compiled, compile_definition
from headwater.refresh.computing import Computation, Outcome
from headwater.refresh.deciding import ROW_IDS_LOST, Decision, behind, decide
from headwater.refresh.fitting import check_fit, column_types
from headwater.refresh.home_sinks import has_sinks_to_mend, publish_at_home
from headwater.refresh.inputs import WaveState, upstream_of
from headwater.refresh.model import (
    Action,
    Frontier,
    Mode,
    RefreshResult,
    SourcePosition,
    Status,
    StreamTable,
)
from headwater.refresh.moving_on import that_can_move
from headwater.refresh.options import DEFAULTS
from headwater.refresh.shared_changes import SharedChanges
from headwater.refresh.store import Refreshed, StreamStore
from headwater.refresh.viewing import written_by
from headwater.sinks.model import SinkState
from headwater.spark.connector import LakeSpark
from headwater.typedefs import SnapshotId

log = logging.getLogger("headwater.refresh")

#: What stands for the snapshot that a commit becomes, until it is known.
THIS_COMMIT = -1
#: How often a wave is tried when what it needs does not answer.
TRIES = 3


@dataclass
class Wave:
    """One refresh of some stream tables and everything they read."""

    lake: Lake
    store: StreamStore
    connector: Callable[[], LakeSpark]
    compiled: Callable[[LakeSpark, StreamTable, CatalogState, Sequence[StreamTable]], Compiled]
    streams: Sequence[StreamTable]
    full: bool = False
    shared: SharedChanges = field(default_factory=SharedChanges)
    wave_id: str = field(default_factory=lambda: uuid4().hex)
    _tries: int = 0
    _plans: dict[tuple[int, SnapshotId, SnapshotId], ChangePlan] = field(default_factory=dict)
    _quiet: QuietTables = field(default_factory=lambda: QuietTables(0, 0, ()))
    _newest: SnapshotId = 0

    def run(self, wanted: Sequence[str]) -> list[RefreshResult]:
        """Refresh stream tables, by id, after all that they read."""
        members = upstream_of(self.streams, wanted)
        active = [stream for stream in members if stream.status is Status.ACTIVE or stream.id in wanted]
        results = {stream.id: self._no_data(stream) for stream in active}
        due = self._due(active, wanted)
        if due:
            results.update(self._refresh(due, wanted))
        idle = [stream for stream in active if stream.id not in {each.id for each in due}]
        self.store.move_on(that_can_move(idle, self._quiet, self._newest))
        self._record([(results[stream.id], stream) for stream in active])
        return [results[stream.id] for stream in active]

    def _record(self, results: Sequence[tuple[RefreshResult, StreamTable]]) -> None:
        """Note what no snapshot tells of; who failed too often in a row is left alone from now on."""
        unseen = [
            (result, stream.id)
            for result, stream in results
            if result.action is Action.FAILED
            or (result.action is Action.NO_DATA and result.snapshot_id is None)
        ]
        failures = self.store.record_all(unseen)
        for _, stream in results:
            most = int({**DEFAULTS, **stream.definition.options}["max_failures"])
            if failures.get(stream.id, 0) >= most and stream.status is Status.ACTIVE:
                self.store.set_status(stream.id, Status.SUSPENDED)

    # -- what is to be done -------------------------------------------------------------------------

    def _due(self, active: Sequence[StreamTable], wanted: Sequence[str]) -> list[StreamTable]:
        """Those whose inputs may have changed, told by the catalog alone."""
        state = self.lake.state()
        seen = [at.snapshot_id for stream in active if stream.frontier for at in stream.frontier.sources]
        self._newest = state.snapshot.id
        self._quiet = self.lake.quiet_tables(min(seen, default=self._newest), self._newest)
        due: dict[str, StreamTable] = {}
        for stream in active:
            asked = self.full and stream.id in wanted
            if asked or any(above in due for above in stream.upstream) or self._may_differ(stream, state):
                due[stream.id] = stream
        return list(due.values())

    def _may_differ(self, stream: StreamTable, state: CatalogState) -> bool:
        if stream.frontier is None or stream.depends_on_time or has_sinks_to_mend(stream):
            return True
        for position in stream.frontier.sources:
            table = state.table_by_id(position.table_id)
            if table is None:
                return True
            if position.snapshot_id >= state.snapshot.id:
                continue
            try:
                plan = self._planned(table, position.snapshot_id, state.snapshot.id)
            except SnapshotError:
                return True
            kinds = column_types(table)
            if plan.rows_at_most or kinds != {**kinds, **dict(position.columns)}:
                return True
        return False

    def _planned(self, table: Table, since: SnapshotId, until: SnapshotId) -> ChangePlan:
        """Where the changes of a table are: asked of the catalog once a wave."""
        place = table.id, since, until
        if place not in self._plans:
            quiet = self._quiet.plan(table, since, until)
            self._plans[place] = quiet or self.lake.plan_changes(table.name, since + 1, until)
        return self._plans[place]

    def _no_data(self, stream: StreamTable) -> RefreshResult:
        return RefreshResult(
            str(stream.name),
            Action.NO_DATA,
            "nothing",
            "no_changes",
            "Nothing it reads has changed.",
            mode=stream.definition.mode,
            refresh_id=uuid4().hex,
            wave_id=self.wave_id,
            started_at=datetime.now(UTC),
            data_snapshot_id=stream.frontier.data_snapshot_id if stream.frontier else None,
        )

    # -- doing it -----------------------------------------------------------------------------------

    def _refresh(self, due: Sequence[StreamTable], wanted: Sequence[str]) -> dict[str, RefreshResult]:
        session = self.connector()
        held: list[Transaction] = []

        def attempt(tx: Transaction) -> dict[str, RefreshResult]:
            if held:  # once more: somebody was in the way, maybe by moving what was planned to be read
                self._plans.clear()
            held[:] = [tx]
            return self._attempt(session, tx, due, wanted)

        def run() -> dict[str, RefreshResult]:
            self._tries += 1
            return self.lake.run(attempt)

        results: dict[str, RefreshResult] = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            stop=stop_after_attempt(TRIES),
            reraise=True,
        )(run)
        snapshot = held[0].snapshot_id if any(map(_wrote, results.values())) else None
        return {
            identity: replace(result, snapshot_id=snapshot) if result.snapshot_id == THIS_COMMIT else result
            for identity, result in results.items()
        }

    def _as_they_are(self, due: Sequence[StreamTable]) -> list[StreamTable]:
        """The stream tables with their frontiers as they are now: somebody may have refreshed them."""
        self.streams = self.store.all()
        now = {stream.id: stream for stream in self.streams}
        return [now[stream.id] for stream in due if stream.id in now]

    def _attempt(
        self, session: LakeSpark, tx: Transaction, due: Sequence[StreamTable], wanted: Sequence[str]
    ) -> dict[str, RefreshResult]:
        state = WaveState(session, tx, self.shared, self._planned)
        moment = datetime.now(UTC)
        results: dict[str, RefreshResult] = {}
        failed: dict[str, str] = {}
        done: list[Refreshed] = []
        sinks: list[tuple[str, SinkState]] = []
        try:
            for stream in self._as_they_are(due):
                broken = [failed[above] for above in stream.upstream if above in failed]
                if broken:
                    failed[stream.id] = str(stream.name)
                    why = self._failed(stream, _upstream_failed(stream, broken[0]), 0.0)
                    results[stream.id] = replace(why, reason_code=UPSTREAM_FAILED)
                    continue
                began = time.monotonic()
                known = dict(state.moved)
                full = self.full and stream.id in wanted
                try:
                    with tx.savepoint():
                        result, frontier = self._one(state, stream, moment, full=full)
                        written = publish_at_home(state, stream, result.refresh_id, moment)
                except ConflictError:
                    raise  # somebody else was in the way: all from the start, on the new state
                except HeadwaterError as error:
                    if _may_pass(error) and self._tries < TRIES:
                        raise
                    broken_by: Exception | None = error
                except Exception as error:  # whatever it is, the other stream tables are refreshed
                    if not isinstance(error, (PySparkException, Py4JError)):
                        log.exception("%s failed by an error that nobody expected", stream.name)
                    broken_by = error
                else:
                    broken_by = None
                if broken_by is not None:
                    state.moved = known
                    failed[stream.id] = str(stream.name)
                    results[stream.id] = self._failed(stream, broken_by, time.monotonic() - began)
                    continue
                results[stream.id] = result = replace(result, seconds=time.monotonic() - began)
                done.append(Refreshed(stream.id, frontier, result, stream.frontier, stream=stream))
                sinks += [(stream.id, sink) for sink in written]
            self._say(tx, results, {stream_id for stream_id, _ in sinks})
            if done:
                tx.join(self.store.commit_refreshes(done))
            if sinks:
                tx.join(self.store.note_sinks(sinks))
        finally:
            state.release()
        return results

    def _one(
        self, state: WaveState, stream: StreamTable, moment: datetime, *, full: bool
    ) -> tuple[RefreshResult, Frontier]:
        catalog = state.tx.state
        compiled = self._compiled(state.session, stream, catalog)
        tables = {stage.source: catalog.table(stage.table) for stage in stream.stages}
        result = replace(self._no_data(stream), data_snapshot_id=state.snapshot_id)
        if compiled.program.reasons and stream.definition.mode is Mode.STRICT:
            raise StreamTableError(
                f"Stream table {stream.name} cannot be refreshed incrementally, and its mode is strict.",
                detail="; ".join(compiled.program.reasons),
                hint="ALTER STREAM TABLE … SET (refresh_mode = 'auto') lets it be computed anew.",
                stream_table=str(stream.name),
            )
        check_fit(stream, compiled, tables)
        for name in compiled.by_row_id:
            state.tx.rely_on_row_ids(compiled.sources[name].table.id)
        computation = Computation(state, str(stream.name), compiled, tables, stream.frontier, moment)
        decision = decide(stream, compiled, computation, self.store, full=full)
        try:
            outcome = computation.follow(decision.extent)
        except InvariantError as error:
            if decision.code != ROW_IDS_LOST:
                raise
            raise _ids_twice(stream, decision, error) from error
        frontier = replace(
            frontier_of(state, stream, compiled, moment), behind=behind(stream, compiled, decision)
        )
        return (result if outcome is None else _filled(result, decision, outcome)), frontier

    def _compiled(self, session: LakeSpark, stream: StreamTable, catalog: CatalogState) -> Compiled:
        try:
            return self.compiled(session, stream, catalog, self.streams)
        except QueryError as error:
            # The query was right when it was given: what it reads has changed.
            raise StreamTableError(
                f"Stream table {stream.name} cannot be refreshed: {error.message}",
                detail=error.detail,
                hint=error.hint
                or "Give it another query with ALTER STREAM TABLE … AS, or bring back what it reads.",
                stream_table=str(stream.name),
            ) from error

    def _failed(self, stream: StreamTable, error: Exception, seconds: float) -> RefreshResult:
        return replace(
            self._no_data(stream),
            action=Action.FAILED,
            reason_code=str(_as_dict(error)["code"]),
            reason=_first_line(error),
            seconds=seconds,
            error=_as_dict(error),
        )

    def _say(self, tx: Transaction, results: Mapping[str, RefreshResult], published: Set[str]) -> None:
        done = [result for one, result in results.items() if _wrote(result) or one in published]
        if not done:
            return
        identity = done[0].refresh_id if len(done) == 1 else self.wave_id
        tx.describe(
            author=written_by(",".join(result.name for result in done), identity),
            message=f"refresh of {', '.join(result.name for result in done)}",
            extra_info=json.dumps(
                {
                    "wave_id": self.wave_id,
                    "refreshes": [
                        {
                            "name": result.name,
                            "refresh_id": result.refresh_id,
                            "action": result.action,
                            "rows_inserted": result.rows_inserted,
                            "rows_deleted": result.rows_deleted,
                        }
                        for result in done
                    ],
                }
            ),
        )


def _wrote(result: RefreshResult) -> bool:
    """Whether a refresh changed anything that is stored, be it unseen by users."""
    return any(stage.rows_inserted or stage.rows_deleted for stage in result.stages)


def _may_pass(error: BaseException) -> bool:
    """Whether trying again can help: a catalog or a store that does not answer may answer soon."""
    return isinstance(error, HeadwaterError) and error.retryable and not isinstance(error, ConflictError)


def frontier_of(state: WaveState, stream: StreamTable, compiled: Compiled, moment: datetime) -> Frontier:
    """Up to where a stream table will have seen its inputs once this wave is committed."""
    positions = []
    for name, source in compiled.sources.items():
        changed = source.table.id in state.moved or source.table.id in state.made
        kinds = column_types(source.table)
        used = tuple((c, kinds[c]) for c in sorted(compiled.used_columns[name]) if c in kinds)
        at = THIS_COMMIT if changed else state.snapshot_id
        positions.append(SourcePosition(source.table.id, name, at, used))
    return Frontier(state.snapshot_id, THIS_COMMIT, moment, tuple(positions))


def _filled(result: RefreshResult, decision: Decision, outcome: Outcome) -> RefreshResult:
    return replace(
        result,
        action=decision.action,
        strategy=outcome.strategy,
        reason_code=decision.code,
        reason=decision.reason,
        prediction=decision.prediction,
        rows_inserted=outcome.rows_inserted,
        rows_deleted=outcome.rows_deleted,
        rows_in=outcome.rows_in,
        files_read=outcome.files_read,
        bytes_read=outcome.bytes_read,
        stages=outcome.stages,
        snapshot_id=THIS_COMMIT,
    )


def _ids_twice(stream: StreamTable, decision: Decision, error: InvariantError) -> StreamTableError:
    return StreamTableError(
        f"Stream table {stream.name} was not refreshed, since rows that it reads have the same row id.",
        detail=f"{decision.reason} {error.message}",
        hint="In DuckDB, SELECT rowid FROM … GROUP BY rowid HAVING count(*) > 1 names them: delete these "
        "rows and insert them again, in one transaction.",
        stream_table=str(stream.name),
    )


def _upstream_failed(stream: StreamTable, name: str) -> StreamTableError:
    return StreamTableError(
        f"Stream table {stream.name} was not refreshed, since {name}, which it reads, failed.",
        hint=f"`headwater history {name}` says why.",
        stream_table=str(stream.name),
    )


def _first_line(error: Exception) -> str:
    text = str(_as_dict(error)["message"])
    return text.splitlines()[0] if text else type(error).__name__


def _as_dict(error: Exception) -> dict[str, object]:
    if isinstance(error, HeadwaterError):
        return error.as_dict()
    said = str(error).strip()
    if isinstance(error, (PySparkException, Py4JError)):
        return {"code": "spark", "message": said[:2000], "retryable": False}
    return {"code": "unexpected", "message": f"{type(error).__name__}: {said}"[:2000], "retryable": False}


__all__ = ["THIS_COMMIT", "Wave", "compile_definition", "frontier_of"]
