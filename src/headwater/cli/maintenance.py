"""What the commands of maintenance share: how their results are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.output import Block, Grid, Line, plain, size

if TYPE_CHECKING:
    from headwater.lake.maintenance.model import CompactionResult, ExpireResult, RemovalResult


@dataclass(frozen=True)
class Maintained:
    """What was done, or would be."""

    compaction: CompactionResult | None = None
    expired: ExpireResult | None = None
    removed: RemovalResult | None = None
    orphans: RemovalResult | None = None

    @property
    def exit_code(self) -> int:
        """1 when a file could not be removed."""
        return 1 if any(part is not None and part.failed for part in (self.removed, self.orphans)) else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        parts = {
            "compaction": self.compaction,
            "expired": self.expired,
            "removed": self.removed,
            "orphans": self.orphans,
        }
        return {name: plain(part) for name, part in parts.items() if part is not None}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if self.expired is not None:
            yield from _expired(self.expired)
        if self.compaction is not None:
            yield from _compacted(self.compaction)
        if self.removed is not None:
            yield from _removed(self.removed, "files that left the catalog")
        if self.orphans is not None:
            yield from _removed(self.orphans, "files that no catalog knows")


def _compacted(result: CompactionResult) -> Iterator[Block]:
    if not result.changed:
        yield Line.of("nothing to compact")
    else:
        yield Grid(
            ("table", "files", "", "size", "", "merged", "rewritten", "deleted rows", "flushed", "skipped"),
            tuple(
                (
                    one.table,
                    f"{one.files_before:,}",
                    f"→ {one.files_after:,}",
                    size(one.bytes_before),
                    "" if result.dry_run else f"→ {size(one.bytes_after)}",
                    f"{one.merged_files:,}",
                    f"{one.rewritten_files:,}",
                    f"{one.deleted_rows:,}",
                    f"{one.flushed:,}",
                    f"{one.skipped:,}",
                )
                for one in result.changed
            ),
            right=frozenset({1, 3, 5, 6, 7, 8, 9}),
        )
        before, after = result.total("files_before"), result.total("files_after")
        would = "would be" if result.dry_run else "are"
        yield Line.of(f"{before:,} files {would} {after:,} now, in {result.seconds:.1f} s")
    if not result.complete:
        yield Line.of("a limit was reached; the rest is for the next time", "warn")


def _expired(result: ExpireResult) -> Iterator[Block]:
    verb = "would expire" if result.dry_run else "expired"
    count = len(result.expired)
    many = "1 snapshot" if count == 1 else f"{count:,} snapshots"
    yield Line.of(f"{many} {verb}; {result.remaining:,} remain")
    for kept in result.kept:
        yield Line.of(f"  {kept}", "dim")
    if result.files or result.tables or result.inlined_rows:
        yield Line.of(
            f"  no longer needed: {result.files:,} files ({size(result.bytes)}), {result.tables:,} tables, "
            f"{result.inlined_rows:,} rows in the catalog"
        )
        yield Line.of("  `headwater cleanup` removes the files", "dim")


def _removed(result: RemovalResult, what: str) -> Iterator[Block]:
    verb = "would be removed" if result.dry_run else "removed"
    known = f" ({size(result.bytes)})" if result.bytes else ""
    yield Line.of(f"{result.files:,} {what} {verb}{known}")
    if result.waiting:
        yield Line.of(f"  {result.waiting:,} more are too young, or a reader may still need them", "dim")
    if result.dry_run:
        for location in result.locations[:20]:
            yield Line.of(f"  {location}", "dim")
    for location in result.left:
        yield Line.of(f"  left alone, not the lake's own: {location}", "dim")
    for location in result.failed:
        yield Line((("fail ", "fail"), (location, "")))
