"""Reading a scan plan into Arrow."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

from headwater.errors import ConflictError
from headwater.lake.connection import Database
from headwater.lake.format.types import no_rows
from headwater.lake.model import DataFile
from headwater.lake.reading.file_reader import read_file
from headwater.lake.reading.inlined_reader import read_inlined
from headwater.lake.reading.request import Request
from headwater.lake.reading.scan import ScanPlan
from headwater.lake.reading.scan import replan as plan_again
from headwater.storage.locations import parse_location
from headwater.storage.store import Store

#: Files read at once. More than cores: an object store makes readers wait.
MAX_THREADS = 8
#: How much of a file `read_plan` decodes at once; a streaming read takes one row group after the other.
ROWS_AT_ONCE = 1 << 20
_REPLANS = 5
Item = TypeVar("Item")


def read_plan(
    plan: ScanPlan,
    store: Store,
    db: Database,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    hidden: Collection[str] = (),
    replan: bool = False,
) -> pa.Table:
    """The rows of a plan: those of files in the order of the plan, then inlined ones.

    `where` is applied exactly, whatever the plan was pruned by. `hidden` may name `rowid`, `snapshot_id`,
    `filename` and `file_row_number`, which follow the columns. Rows that were flushed from the catalog to a
    file since the plan was made are a `ConflictError`, or with `replan` a reason to plan again.
    """
    request = Request.of(plan.table, columns, where, hidden)
    plan, inlined = inlined_of_plan(plan, db, request, replan)
    pieces = [*_file_pieces(plan, store, request), *inlined]
    return pa.concat_tables(pieces) if pieces else no_rows(request.schema)


def iter_plan(
    plan: ScanPlan,
    store: Store,
    db: Database,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    hidden: Collection[str] = (),
    replan: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, holding no more than a row group in memory."""
    request = Request.of(plan.table, columns, where, hidden)
    plan, inlined = inlined_of_plan(plan, db, request, replan)

    def batches() -> Iterator[pa.RecordBatch]:
        for scan in plan.files:
            for piece in read_file(store, plan, scan, request, rows_at_once=1):
                yield from piece.to_batches()
        for piece in inlined:
            yield from piece.to_batches()

    return batches()


def inlined_of_plan(
    plan: ScanPlan, db: Database, request: Request, replan: bool
) -> tuple[ScanPlan, list[pa.Table]]:
    """The inlined rows, to be read before anything else, and the plan that they belong to.

    Rows that were flushed since are a `ConflictError`, or with `replan` a reason to plan again.
    """
    for _ in range(_REPLANS if replan else 0):
        try:
            return plan, read_inlined(db, plan, request)
        except ConflictError:
            plan = plan_again(db, plan)
    return plan, read_inlined(db, plan, request)


def _file_pieces(plan: ScanPlan, store: Store, request: Request) -> Iterator[pa.Table]:
    return read_concurrently(
        plan.files, lambda scan: read_file(store, plan, scan, request, rows_at_once=ROWS_AT_ONCE)
    )


def readers_of(files: Sequence[DataFile]) -> int:
    """How many threads look for a few rows in files: on this machine's disks nobody waits, but for a core."""
    local = all(parse_location(file.path).is_local for file in files[:1])
    return min(MAX_THREADS, os.cpu_count() or 1) if local else MAX_THREADS


def read_concurrently(
    items: Sequence[Item], read: Callable[[Item], Iterable[pa.Table]], most: int = MAX_THREADS
) -> Iterator[pa.Table]:
    """What `read` reads of each item, in their order, several at once."""
    threads = min(most, len(items), 4 * (os.cpu_count() or 1))
    if threads < 2:
        for item in items:
            yield from read(item)
        return
    waiting: deque[Future[list[pa.Table]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="headwater-read") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(lambda one: list(read(one)), item))
                if len(waiting) > 2 * threads:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
