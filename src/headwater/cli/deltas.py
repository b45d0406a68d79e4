"""`headwater deltas`: datasets of the delta store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Grid, Line, moment
from headwater.cli.refreshes import opened

if TYPE_CHECKING:
    from headwater.deltas.dataset import DeltaDataset
    from headwater.deltas.model import Backlog, CompactResult, Delta, ErasureReport
    from headwater.engine import Headwater


@dataclass(frozen=True)
class DatasetList:
    """Datasets, and what waits in them."""

    datasets: tuple[tuple[str, str, Backlog, str | None], ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "datasets": [
                {"name": name, "key": key, "due": due, **backlog.as_dict()}
                for name, key, backlog, due in self.datasets
            ]
        }

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.datasets:
            yield Line.of("no datasets")
            return
        yield Grid(
            ("name", "key", "base rows", "base files", "waiting rows", "files", "tombstones", "for", "due"),
            tuple(
                (
                    name,
                    key,
                    f"{backlog.base_rows:,}",
                    f"{backlog.base_files:,}",
                    f"{backlog.rows:,}",
                    f"{backlog.files:,}",
                    f"{backlog.tombstones:,}",
                    f"{backlog.seconds:.0f} s",
                    due or "no",
                )
                for name, key, backlog, due in self.datasets
            ),
            right=frozenset(range(2, 8)),
        )


@dataclass(frozen=True)
class DeltaList:
    """What was written to a dataset, and its compactions."""

    name: str
    deltas: tuple[Delta, ...]
    compactions: tuple[CompactResult, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "name": self.name,
            "deltas": [delta.as_dict() for delta in self.deltas],
            "compactions": [result.as_dict() for result in self.compactions],
        }

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.deltas:
            yield Line.of("no deltas wait")
        else:
            yield Grid(
                ("written (UTC)", "kind", "rows", "snapshot", "actor", "reason", "folded in"),
                tuple(
                    (
                        "" if delta.written_at is None else moment(delta.written_at),
                        delta.kind,
                        f"{delta.rows:,}",
                        str(delta.snapshot_id),
                        delta.actor or "",
                        delta.reason or "",
                        "" if delta.folded_snapshot is None else str(delta.folded_snapshot),
                    )
                    for delta in self.deltas
                ),
                right=frozenset({2, 3, 6}),
            )
        if self.compactions:
            yield Line.of()
            yield compaction_grid(self.compactions)


@dataclass(frozen=True)
class Compacted:
    """What compactions did."""

    results: tuple[CompactResult, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"compactions": [result.as_dict() for result in self.results]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        done = [result for result in self.results if result.outcome != "nothing"]
        if done:
            yield compaction_grid(done)
        for result in self.results:
            if result.outcome == "nothing":
                yield Line.of(f"{result.dataset}: nothing to do")
        if not self.results:
            yield Line.of("nothing is due")


@dataclass(frozen=True)
class Tombstoned:
    """Keys that were erased."""

    name: str
    delta: Delta
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"name": self.name, "delta": self.delta.as_dict()}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        count = self.delta.rows
        what = "1 key is" if count == 1 else f"{count:,} keys are"
        yield Line.of(f"{what} hidden in {self.name} since snapshot {self.delta.snapshot_id}")
        yield Line.of(f"to erase the rows from files: headwater deltas compact {self.name}", "dim")


@dataclass(frozen=True)
class Reported:
    """Where rows of a key are still stored."""

    report: ErasureReport

    @property
    def exit_code(self) -> int:
        """1 while something is left."""
        return 0 if self.report.erased else 1

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return self.report.as_dict()

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        key = ", ".join(f"{name} = {value}" for name, value in self.report.key.items())
        state = ("erased", "ok") if self.report.erased else ("not erased", "fail")
        yield Line(((f"{self.report.dataset}, {key}: ", "bold"), state))
        yield Grid(
            ("where", "place", "rows", "detail"),
            tuple(
                (one.store, one.place, "?" if one.rows is None else f"{one.rows:,}", one.detail)
                for one in self.report.findings
            ),
            right=frozenset({2}),
        )
        for step in self.report.next_steps:
            yield Line.of(f"next: {step}")
        for record in self.report.audit:
            yield Line.of(f"{moment(record.at)} {record.actor}: {record.reason}")
        yield Line.of("not looked into: " + "; ".join(self.report.not_covered), "dim")


def compaction_grid(results: tuple[CompactResult, ...] | list[CompactResult]) -> Grid:
    """Compactions as rows."""
    return Grid(
        (
            "name",
            "rows",
            "deltas",
            "new rows",
            "dropped",
            "unmatched",
            "files",
            "bytes",
            "snapshot",
            "seconds",
        ),
        tuple(
            (
                one.dataset,
                f"{one.base_rows:,} to {one.final_rows:,}",
                f"{one.deltas_merged:,}",
                f"{one.delta_rows:,}",
                f"{one.rows_dropped_by_tombstones:,}",
                f"{one.tombstones_unmatched:,}",
                f"{one.base_files_rewritten + one.log_files:,} to {one.files_out:,}",
                f"{one.bytes_in:,} to {one.bytes_out:,}",
                "" if one.snapshot_id is None else str(one.snapshot_id),
                f"{one.seconds:.2f}",
            )
            for one in results
        ),
        right=frozenset(range(1, 10)),
    )


@click.group("deltas")
@common_options
def command() -> None:
    """Small changes beside large tables: deltas, tombstones, compaction, proof of erasure."""


@command.command("list")
@common_options
def list_(  # `list` is Python's own
) -> DatasetList:
    """List datasets and what waits in them."""
    from headwater.deltas.model import CompactionPolicy, bind

    with opened("looking") as (hw, _):
        rows = []
        for one in hw.datasets.all():
            backlog = one.pending()
            bound = bind(one.definition, hw.lake.state())
            key = ", ".join(pair.name for pair in bound.key)
            rows.append((str(one.name), key, backlog, CompactionPolicy().reason(backlog)))
        return DatasetList(tuple(rows))


@command.command("show")
@click.argument("name", metavar="DATASET")
@click.option("--all", "everything", is_flag=True, help="Also deltas that were folded.")
@common_options
def show(name: str, everything: bool) -> DeltaList:
    """List the deltas of a dataset and its last compactions."""
    with opened("looking") as (hw, _):
        found = _dataset(hw, name)
        deltas = found.list_deltas(folded=everything)
        return DeltaList(name, tuple(deltas), tuple(found.compactions(5)))


@command.command("compact")
@click.argument("names", metavar="[DATASET]...", nargs=-1)
@click.option("--due", is_flag=True, help="Only datasets in which much waits, or for long.")
@click.option("--operation-id", help="Never apply twice what has this id.")
@common_options
def compact(names: tuple[str, ...], due: bool, operation_id: str | None) -> Compacted:
    """Fold what waits into the base, of the named datasets, of all, or of those that are due.

    The name of a stream table that accumulates takes out of its log what came and went again.
    """
    from headwater.deltas.model import CompactionPolicy

    with opened("compacting") as (hw, tell):
        if due and not names:
            return Compacted(tuple(hw.datasets.compact_due()))
        chosen = [hw.deltas(name) for name in names] or hw.datasets.all()
        results = []
        for one in chosen:
            tell(f"compacting {one.name}")
            policy = CompactionPolicy() if due else None
            results.append(one.compact(operation_id=operation_id, policy=policy))
        return Compacted(tuple(results))


@command.command("tombstone")
@click.argument("name", metavar="DATASET")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option("--actor", required=True, help="Who asks for it.")
@click.option("--reason", required=True, help="Why.")
@click.option("--operation-id", help="Never apply twice what has this id.")
@common_options
def tombstone(
    name: str, keys: tuple[str, ...], actor: str, reason: str, operation_id: str | None
) -> Tombstoned:
    """Hide the rows of keys at once; the next compaction takes them out of the files.

    A key of several columns is JSON: '{"region": "eu", "id": 7}'.
    """
    with opened("erasing") as (hw, _):
        found = _dataset(hw, name)
        given = [_key(text) for text in keys]
        return Tombstoned(name, found.tombstone(given, actor=actor, reason=reason, operation_id=operation_id))


@command.command("erasure-report")
@click.argument("name", metavar="DATASET")
@click.argument("key", metavar="KEY")
@common_options
def erasure_report(name: str, key: str) -> Reported:
    """Show where rows of a key are still stored; exit code 1 while there is such a place.

    A key of several columns is JSON: '{"region": "eu", "id": 7}'.
    """
    with opened("looking") as (hw, _):
        return Reported(_dataset(hw, name).erasure_report(_key(key)))


def _dataset(hw: Headwater, name: str) -> DeltaDataset:
    from headwater.deltas.dataset import DeltaDataset

    found = hw.deltas(name)
    if not isinstance(found, DeltaDataset):
        raise click.UsageError(f"{name} is a stream table: only `headwater deltas compact` is for its log.")
    return found


def _key(text: str) -> Any:
    """A key as it is typed: a text in the column's own type, or JSON by column."""
    if not text.startswith("{"):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"{text} is not JSON: {error}", param_hint="KEY") from None
