"""Calls about the order in which a lake is kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headwater.engine.facade.services import Services

if TYPE_CHECKING:
    from headwater.engine.maintenance import OptimizeResult
    from headwater.lake.maintenance.model import Age, CompactionResult, ExpireResult, RemovalResult


class MaintenanceCalls(Services):
    """Maintenance: compact, expire, clean up."""

    def compact(
        self,
        table: str | Sequence[str] | None = None,
        *,
        target_size: int | str | None = None,
        delete_ratio: float | None = None,
        sort_by: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> CompactionResult:
        """Merge small files, and write files with many deleted rows again; of all tables by default.

        Rows keep their ids, and every snapshot reads the same as before. `target_size` (`128MB`) is the
        table's own option by default. With `sort_by` rows are sorted within files and across them.
        """
        return self.maintenance.compact(
            table, target_size=target_size, delete_ratio=delete_ratio, sort_by=sort_by, dry_run=dry_run
        )

    def expire(
        self,
        *,
        older_than: Age | str | None = None,
        keep_last: int | None = None,
        versions: Collection[int] | None = None,
        dry_run: bool = False,
    ) -> ExpireResult:
        """Expire snapshots older than a time or an age (`7d`) but the newest `keep_last`, or those named.

        The latest stays, and so does what a stream table, an outbox or a reader's lease needs; the result
        says so. Files that no snapshot names any more are removed by `cleanup`.
        """
        return self.maintenance.expire(
            older_than=older_than, keep_last=keep_last, versions=versions, dry_run=dry_run
        )

    def cleanup(self, *, older_than: Age | str | None = "1d", dry_run: bool = False) -> RemovalResult:
        """Remove files that left the catalog longer ago than an age; None removes all of them."""
        return self.maintenance.cleanup(older_than=older_than, dry_run=dry_run)

    def remove_orphans(self, *, older_than: Age | str | None = "1d", dry_run: bool = True) -> RemovalResult:
        """Remove files of killed writers, which no catalog knows. A dry run unless told otherwise."""
        return self.maintenance.remove_orphans(older_than=older_than, dry_run=dry_run)

    def optimize(
        self,
        table: str | Sequence[str] | None = None,
        *,
        target_size: int | str | None = None,
        delete_ratio: float | None = None,
        sort_by: Sequence[str] | None = None,
        expire_older_than: Age | str | None = None,
        keep_last: int | None = None,
        cleanup_older_than: Age | str | None = None,
        dry_run: bool = False,
    ) -> OptimizeResult:
        """Flush what is kept in the catalog, and compact; if asked, expire before and clean up after."""
        return self.maintenance.optimize(
            table,
            target_size=target_size,
            delete_ratio=delete_ratio,
            sort_by=sort_by,
            expire_older_than=expire_older_than,
            keep_last=keep_last,
            cleanup_older_than=cleanup_older_than,
            dry_run=dry_run,
        )
