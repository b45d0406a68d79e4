"""Which values of a column are among some others, and which values it has."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format.types import AnyArray

Mask = npt.NDArray[np.bool_]

#: Whole numbers have a table, with a place for each number between the least and the greatest of them, if it
#: has so many places at most, or so many for each number. (To hash them takes several times as long.)
_ANYHOW, _FOR_EACH = 1 << 22, 64


class Members:
    """Distinct values without NULL."""

    def __init__(self, values: AnyArray):
        self.values = values

    def among(self, column: AnyArray) -> Mask:
        """For each value of a column whether it is one of them; NULL is not."""
        table = self._table
        if table is None or column.null_count or not pa.types.is_signed_integer(column.type):
            mask: Any = pc.is_in(column, value_set=self.values, skip_nulls=True)
            found: Mask = mask.to_numpy() if isinstance(mask, pa.ChunkedArray) else mask.to_numpy(False)
            return found
        return self.of_numbers(column.to_numpy())

    @property
    def tabled(self) -> bool:
        """Whether `of_numbers` can be asked."""
        return self._table is not None

    def of_numbers(self, numbers: npt.NDArray[Any]) -> Mask:
        """The same of whole numbers that are none of them NULL."""
        if self._table is None:
            raise ValueError("these values have no table")
        least, table = self._table
        # What is too small wraps around, and is too large then.
        places = numbers.astype(np.int64) - least
        inside = places.view(np.uint64) < len(table)
        found: Mask = table.take(places, mode="clip") & inside
        return found

    @cached_property
    def _table(self) -> tuple[int, Mask] | None:
        return _table(self.values)


def distinct(column: pa.ChunkedArray[Any]) -> AnyArray:
    """The values of a column, each once; NULL too if there is one."""
    found = _table(column.drop_null()) if pa.types.is_signed_integer(column.type) else None
    if found is None:
        return pc.unique(column)
    least, table = found
    values = pa.array(np.flatnonzero(table) + least, pa.int64()).cast(column.type)
    return pa.concat_arrays([values, pa.nulls(1, column.type)]) if column.null_count else values


def _table(values: AnyArray) -> tuple[int, Mask] | None:
    """Which of the numbers from the least one on are there."""
    if not len(values) or not pa.types.is_signed_integer(values.type):
        return None
    numbers = values.to_numpy().astype(np.int64)
    least, most = int(numbers.min()), int(numbers.max())
    if most - least >= max(_ANYHOW, _FOR_EACH * len(numbers)):
        return None
    table = np.zeros(most - least + 1, np.bool_)
    table[numbers - least] = True
    return least, table
