"""The procedures of `CALL lake.system.…`, in the words of SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from headwater.engine.maintenance import Maintenance, parse_age
from headwater.errors import InvalidInputError

if TYPE_CHECKING:
    from headwater.lake.maintenance.model import Age, CompactionResult, ExpireResult, RemovalResult

Rows = Sequence[Mapping[str, Any]]


def procedures(maintenance: Maintenance) -> dict[str, Callable[..., Rows]]:
    """All procedures by name; their parameters are the arguments that SQL gives."""

    def compact(
        table: Any = None,
        target_size: Any = None,
        delete_ratio: Any = None,
        sort_by: Any = None,
        dry_run: Any = False,
    ) -> Rows:
        return _compacted(
            maintenance.compact(
                _names(table),
                target_size=target_size,
                delete_ratio=_ratio(delete_ratio),
                sort_by=_keys(sort_by),
                dry_run=_flag(dry_run),
            )
        )

    def rewrite(table: Any = None, delete_ratio: Any = None, dry_run: Any = False) -> Rows:
        done = maintenance.compact(
            _names(table), delete_ratio=_ratio(delete_ratio), merge=False, dry_run=_flag(dry_run)
        )
        return _compacted(done)

    def flush(table: Any = None) -> Rows:
        return _compacted(maintenance.flush(_names(table)))

    def expire_snapshots(
        older_than: Any = None, retain_last: Any = None, snapshot_ids: Any = None, dry_run: Any = False
    ) -> Rows:
        return _expired(
            maintenance.expire(
                older_than=_age(older_than),
                keep_last=None if retain_last is None else int(_number(retain_last)),
                versions=None if snapshot_ids is None else [int(one) for one in snapshot_ids],
                dry_run=_flag(dry_run),
            )
        )

    def cleanup(older_than: Any = "1d", dry_run: Any = False) -> Rows:
        return _removed(maintenance.cleanup(older_than=_age(older_than), dry_run=_flag(dry_run)))

    def remove_orphans(older_than: Any = "1d", dry_run: Any = True) -> Rows:
        return _removed(maintenance.remove_orphans(older_than=_age(older_than), dry_run=_flag(dry_run)))

    def optimize(
        table: Any = None, target_size: Any = None, sort_by: Any = None, dry_run: Any = False
    ) -> Rows:
        done = maintenance.optimize(
            _names(table), target_size=target_size, sort_by=_keys(sort_by), dry_run=_flag(dry_run)
        )
        return _compacted(done.compaction)

    listed = (compact, rewrite, flush, expire_snapshots, cleanup, remove_orphans, optimize)
    return {procedure.__name__: procedure for procedure in listed}


def _compacted(result: CompactionResult) -> Rows:
    return [
        {
            "table": one.table,
            "files_before": one.files_before,
            "files_after": one.files_after,
            "bytes_before": one.bytes_before,
            "bytes_after": one.bytes_after,
            "merged_files": one.merged_files,
            "rewritten_files": one.rewritten_files,
            "deleted_rows": one.deleted_rows,
            "flushed": one.flushed,
            "skipped": one.skipped,
        }
        for one in result.tables
    ]


def _expired(result: ExpireResult) -> Rows:
    return [
        {
            "expired": len(result.expired),
            "remaining": result.remaining,
            "kept": "; ".join(map(str, result.kept)),
            "files": result.files,
            "bytes": result.bytes,
            "tables": result.tables,
        }
    ]


def _removed(result: RemovalResult) -> Rows:
    return [
        {
            "files": result.files,
            "bytes": result.bytes,
            "waiting": result.waiting,
            "failed": len(result.failed),
            "dry_run": result.dry_run,
        }
    ]


def _names(value: Any) -> str | Sequence[str] | None:
    return value if value is None or isinstance(value, str) else [str(name) for name in value]


def _keys(value: Any) -> list[str] | None:
    if value is None:
        return None
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{value!r} is neither true nor false.")
    return value


def _ratio(value: Any) -> float | None:
    return None if value is None else _number(value)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{value!r} is not a number.") from None


def _age(value: Any) -> Age | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001 - taken as UTC
    if isinstance(value, datetime):
        return value.astimezone()
    return None if value is None else parse_age(value)
