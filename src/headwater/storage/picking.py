"""A few rows of a large Parquet file, by their positions.

pyarrow decodes every value of a row group to give out a dozen of them. DuckDB decompresses the pages and
passes over the values that are not asked for, which takes a quarter of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.storage.duckdb_engine import cursor
from headwater.storage.locations import parse_location

#: Picking is worth its while where so many times as many rows would be decoded, and so many at least.
SPARSE, _LEAST = 30, 100_000
_POSITION = "file_row_number"
#: So few positions are written into the condition: DuckDB then passes over all of a column but what is
#: around them, which it does not where it joins with a table of positions. Of more, comparing takes longer.
_LISTED = 2_000
#: Signs that make DuckDB look for files of several names.
_PATTERN = frozenset("*?[")
#: What DuckDB says of a file that it cannot read.
_UNREADABLE = (
    duckdb.IOException,
    duckdb.InvalidInputException,
    duckdb.ConversionException,
    duckdb.OutOfMemoryException,
)
#: Types that DuckDB and pyarrow read from a file as the same Arrow values.
_SAME = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal128,
    pa.types.is_date32,
    pa.types.is_string,
)


def worth_picking(footer: pq.FileMetaData, positions: npt.NDArray[np.int64]) -> bool:
    """Whether the row groups that hold these positions, ascending, have many more rows than these."""
    counts = np.array([footer.row_group(group).num_rows for group in range(footer.num_row_groups)], np.int64)
    ends = np.cumsum(counts)
    hit = np.unique(np.searchsorted(ends, positions, "right"))
    rows = int(counts[hit[hit < len(counts)]].sum())
    return rows >= _LEAST and rows >= SPARSE * len(positions)


def pick_rows(
    location: str, schema: pa.Schema, names: Sequence[str], positions: npt.NDArray[np.int64]
) -> pa.Table | None:
    """Columns of the rows at some positions, ascending, as pyarrow reads them; None if it has to do that.

    `schema` is the file's own. What DuckDB cannot read or may read otherwise is left to pyarrow, which also
    says what is wrong with a file.
    """
    place = parse_location(location)
    known = [name.lower() for name in schema.names]
    fields = [schema.field(name) for name in names]
    if not place.is_local or _PATTERN & set(place.path) or len(set(known)) < len(known) or _POSITION in known:
        return None
    if not all(any(same(field.type) for same in _SAME) for field in fields):
        return None
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    listed = 0 < len(positions) <= _LISTED
    wanted = ", ".join(map(str, positions.tolist())) if listed else "SELECT place FROM picked"
    with cursor() as duck:
        duck.register("picked", pa.table({"place": positions}))
        try:
            found: pa.Table = duck.execute(
                f"SELECT {quoted}, {_POSITION} "
                "FROM read_parquet(?, file_row_number = true, hive_partitioning = false) "
                f"WHERE {_POSITION} IN ({wanted})",
                [place.path],
            ).to_arrow_table()
        except _UNREADABLE:
            return None
        finally:
            duck.unregister("picked")
    order = np.argsort(found.column(_POSITION).to_numpy())
    if len(order) != len(positions):
        return None
    columns = found.select(list(range(len(names)))).take(order).columns
    if any(_plain(column.type) != _plain(field.type) for column, field in zip(columns, fields, strict=True)):
        return None
    values = [column.cast(field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(values, schema=pa.schema(fields))


def _plain(kind: Any) -> Any:
    return pa.string() if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else kind


__all__ = ["SPARSE", "pick_rows", "worth_picking"]
