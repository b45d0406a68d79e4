"""What a Parquet footer says of floats, where NaN may be among them.

The format leaves NaN out of bounds, and pyarrow and DuckDB do so: their bounds do not tell whether there is
one. Spark's writer (parquet-mr) orders values as Java does, with NaN above infinity, and writes what it
finds: a maximum of NaN means that there is one, and a minimum of NaN that there is nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_WRITER = re.compile(r"parquet-mr version 1\.(\d+)\.")
#: Versions whose files were looked at (that of Spark 4), and those since which nothing changed there. The
#: format is about to get counts of NaN: later versions may leave them out of the bounds.
_KNOWN = range(15, 18)


def writes_nan_as_greatest(created_by: str | None) -> bool:
    """Does the writer of a file let NaN be a bound, so that bounds without it say that there is none?"""
    found = _WRITER.match(created_by or "")
    return found is not None and int(found[1]) in _KNOWN


def footer_floats(
    pairs: Iterable[tuple[float, float]], nan_is_greatest: bool
) -> tuple[float | None, float | None, bool | None]:
    """Least and greatest number of all row groups (given by their bounds), and whether there is a NaN.

    None is unknown, except that both bounds are None when there is nothing but NaN.

    >>> nan = math.nan
    >>> footer_floats([(1.0, 2.0), (nan, nan)], nan_is_greatest=True)
    (1.0, 2.0, True)
    >>> footer_floats([(1.0, nan)], nan_is_greatest=True)
    (1.0, None, True)
    >>> footer_floats([(nan, nan)], nan_is_greatest=True)
    (None, None, True)
    >>> footer_floats([(1.0, 2.0)], nan_is_greatest=False)
    (1.0, 2.0, None)
    """
    given = list(pairs)
    if not nan_is_greatest:
        if any(math.isnan(bound) for pair in given for bound in pair):
            return None, None, None
        return min(low for low, _ in given), max(high for _, high in given), None
    has_nan = any(math.isnan(high) for _, high in given)
    numbers = [(low, high) for low, high in given if not math.isnan(low)]
    if not numbers:
        return None, None, True
    highs = [high for _, high in numbers]
    return (
        min(low for low, _ in numbers),
        None if any(map(math.isnan, highs)) else max(highs),
        has_nan,
    )
