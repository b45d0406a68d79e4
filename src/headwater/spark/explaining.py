"""What a scan will read, and who reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.algebra.predicates import to_sql
from headwater.lake.lake import At
from headwater.spark.reading.deletes import delete_count
from headwater.typedefs import TableName

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def explain_scan(session: LakeSpark, name: TableName | str, at: At = None, where: str | None = None) -> str:
    """The plan of reading a table, as text."""
    everything = session.lake.scan(name, at)
    predicate = None if where is None else session.predicate(everything.table, where)
    plan = everything if predicate is None else session.lake.scan(name, everything.snapshot.id, predicate)
    found = session.reader.read(plan)
    files = found.plan.files
    size = sum(scan.file.file_size_bytes for scan in files)
    lines = [
        f"{found.plan.table.name} at snapshot {found.plan.snapshot.id}",
        f"  files: {len(files)} of {len(everything.files)}, {_size(size)}",
    ]
    if where is not None:
        used = "nothing that statistics can tell" if predicate is None else to_sql(predicate)
        lines.append(f"  pruned by: {used}")
    if found.branches.by_id:
        lines.append(f"  Spark's own reader: {len(found.branches.by_id)} files by field id")
    for numbers in found.branches.by_name.values():
        lines.append(f"  Spark's own reader: {len(numbers)} files by the names of a mapping")
    for reason, numbers in found.branches.in_workers.items():
        lines.append(f"  Python workers: {len(numbers)} files, because {reason.value}")
    if delete_count(files):
        lines.append(f"  deleted rows to leave out: {delete_count(files)}")
    if found.inlined_rows:
        lines.append(f"  rows in the catalog: {found.inlined_rows}")
    return "\n".join(lines)


def _size(count: float) -> str:
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:.0f} {_UNITS[unit]}"
