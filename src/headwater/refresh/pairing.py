"""A small result as it is now beside what is stored of it: which rows differ, found without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.algebra.changes import IS, OLD, PLACE, WAS
from headwater.lake.format.equality import row_keys


def paired(now: pa.Table, was: pa.Table, names: Sequence[str], key: Sequence[str]) -> pa.Table:
    """Rows as they are now and as they were, by their key, where the two differ.

    Of stored rows with the same key all but one go. Whoever asks has seen to it that no new ones have it.
    """
    rows, stored = row_keys(now.select(names)), row_keys(was.select(names))
    left = {each: number for number, each in enumerate(row_keys(now.select(key)))}
    at_now: list[int | None] = []
    at_was: list[int | None] = []
    for number, each in enumerate(row_keys(was.select(key))):
        same = left.pop(each, None)
        if same is None or rows[same] != stored[number]:
            at_now.append(same)
            at_was.append(number)
    at_now += left.values()
    at_was += [None] * len(left)
    came, went = pa.array(at_now, pa.int64()), pa.array(at_was, pa.int64())
    columns = [
        *now.select(names).take(came).columns,
        *was.select([*names, *PLACE]).take(went).columns,
        came.is_valid(),
        went.is_valid(),
    ]
    return pa.table(columns, names=[*names, *(OLD + name for name in names), *PLACE, IS, WAS])


__all__ = ["paired"]
