"""What a stream table's next refresh would do, told without doing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from headwater.algebra.describing import operators
from headwater.errors import SnapshotError
from headwater.lake.catalog import CatalogState
from headwater.refresh.compiling import Compiled
from headwater.refresh.costing import expect
from headwater.refresh.model import Mode, Prediction, StreamTable
from headwater.refresh.sources import Source
from headwater.refresh.store import StreamStore
from headwater.spark.connector import LakeSpark


@dataclass(frozen=True)
class ExplainedSource:
    """One input: how large it is and what changed since the last refresh."""

    name: str
    files: int
    bytes: int
    #: Changed rows at most, files they are in, and whether only rows came; None before the first refresh.
    changed_rows: int | None
    changed_files: int | None
    note: str = ""


@dataclass(frozen=True)
class ExplainedStage:
    """One stored result: its strategy, its key, and its operators from the top down."""

    name: str
    strategy: str
    key: tuple[str, ...]
    #: (depth, operator, rule)
    operators: tuple[tuple[int, str, str], ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """How a stream table follows its inputs."""

    name: str
    mode: str
    incremental: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    sources: tuple[ExplainedSource, ...]
    stages: tuple[ExplainedStage, ...]
    prediction: Prediction

    def as_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        how = "follows changes" if self.incremental else "is computed anew"
        yield f"stream table {self.name} (mode {self.mode}): {how}"
        for reason in self.reasons:
            yield f"  because {reason}"
        for note in self.notes:
            yield f"  note: {note}"
        yield "reads"
        for source in self.sources:
            yield f"  {source.name}: {source.files} files, {_size(source.bytes)}{_changes(source)}"
        for stage in self.stages:
            yield f"stage {stage.name}: {_STRATEGIES[stage.strategy]}"
            yield f"  key: {', '.join(stage.key) or '(one row)'}"
            for depth, operator, rule in stage.operators:
                yield f"  {'  ' * depth}{operator}" + (f"   [{rule}]" if rule else "")
        if self.prediction.incremental is not None or self.prediction.full is not None:
            yield (
                f"predicted: incremental {_seconds(self.prediction.incremental)}, "
                f"full {_seconds(self.prediction.full)}"
            )


_STRATEGIES = {
    "rows": "rows are added and removed",
    "sums": "sums are added up",
    "extrema": "sums are added up, smallest and largest values move",
    "groups": "affected groups are computed again",
    "first rows": "the first rows of a stored buffer",
    "anew": "everything is computed anew, and what differs is stored",
}
_BEHIND = (
    "large changes, or an older version, have left what is stored in between behind: the next refresh that "
    "follows changes computes it anew first"
)


def explain(
    session: LakeSpark,
    store: StreamStore,
    stream: StreamTable | None,
    compiled: Compiled,
    state: CatalogState,
    *,
    name: str = "",
) -> Explanation:
    """Describe a compiled stream table and what waits for it."""
    positions = {p.name: p.snapshot_id for p in stream.frontier.sources} if stream and stream.frontier else {}
    sources = tuple(
        _source(session, source, positions.get(each), state) for each, source in compiled.sources.items()
    )
    reasons = compiled.program.reasons
    mode = stream.definition.mode if stream is not None else Mode.AUTO
    return Explanation(
        str(stream.name) if stream is not None else name,
        mode,
        not reasons and mode is not Mode.FULL,
        reasons if mode is not Mode.FULL else (*reasons, "its mode is full"),
        (
            *compiled.query.notes,
            *([_BEHIND] if stream and stream.frontier and stream.frontier.behind else []),
        ),
        sources,
        tuple(
            ExplainedStage(
                "result" if stage.source == "@" else stage.source,
                stage.strategy,
                stage.key,
                tuple(operators(stage)),
                stage.reasons,
            )
            for stage in compiled.program.stages
        ),
        Prediction() if stream is None else expect(store, stream, _pending(sources)).prediction,
    )


def _pending(sources: tuple[ExplainedSource, ...]) -> int:
    return sum(source.changed_rows or 0 for source in sources)


def _source(session: LakeSpark, source: Source, since: int | None, state: CatalogState) -> ExplainedSource:
    plan = session.lake.scan(source.table.name, state.snapshot.id)
    size = sum(scan.file.file_size_bytes for scan in plan.files)
    rows: int | None = None
    files: int | None = None
    note = "stream table" if source.stream is not None else ""
    if since is not None:
        rows = files = 0
        if since < state.snapshot.id:
            try:
                changes = session.lake.plan_changes(source.table.name, since + 1, state.snapshot.id)
                rows, files = changes.rows_at_most, len(changes.files)
            except SnapshotError:
                rows, files, note = None, None, "its changes since the last refresh have expired"
    return ExplainedSource(source.name, len(plan.files), size, rows, files, note)


def _changes(source: ExplainedSource) -> str:
    text = f" ({source.note})" if source.note else ""
    if source.changed_rows is not None:
        text += f"; changed since: at most {source.changed_rows} rows in {source.changed_files} files"
    return text


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} s"


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
