"""Rows that a scan found, told to a transaction: which rows of which files are gone.

Positions travel as bitmaps that Spark's own aggregate makes: a bit for each row of a file at most, however
many rows are deleted, and no Python in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.errors import InvalidInputError
from headwater.lake.reading.scan import ScanPlan
from headwater.spark.reading.native import FILE, POSITION

Positions = npt.NDArray[np.int64]
#: Positions in one bitmap of Spark's.
_PER_BITMAP = 32768


@dataclass
class Located:
    """Rows of a plan: positions by file number; row ids of inlined rows by the number of their table."""

    positions: dict[int, list[Positions]] = field(default_factory=dict)
    count: int = 0

    def files(self, plan: ScanPlan) -> dict[int, Positions]:
        """Positions by file id."""
        return {
            plan.files[number].file.id: np.concatenate(parts)
            for number, parts in self.positions.items()
            if number >= 0
        }

    def inlined(self, plan: ScanPlan) -> dict[str, list[int]]:
        """Row ids by inlined-data table."""
        return {
            plan.inlined[-1 - number].table_name: np.concatenate(parts).tolist()
            for number, parts in self.positions.items()
            if number < 0
        }


def locate(rows: DataFrame, *, once: bool = True) -> Located:
    """Where the rows of a scan with `FILE` and `POSITION` are; with `once` a row found twice is an error."""
    one_based = F.col(f"`{POSITION}`") + F.lit(1)
    grouped = rows.groupBy(
        F.col(f"`{FILE}`").alias("file"), F.bitmap_bucket_number(one_based).alias("bucket")
    ).agg(F.bitmap_construct_agg(F.bitmap_bit_position(one_based)).alias("bits"), F.count("*").alias("n"))
    found = Located()
    for row in grouped.toArrow().to_pylist():
        bits = np.unpackbits(np.frombuffer(row["bits"], np.uint8), bitorder="little")
        places = np.flatnonzero(bits).astype(np.int64) + (row["bucket"] - 1) * _PER_BITMAP
        if once and len(places) != row["n"]:
            raise matched_twice()
        found.positions.setdefault(row["file"], []).append(places)
        found.count += len(places)
    return found


def located(rows: pa.Table) -> Located:
    """The same of rows that are in the driver already."""
    files = rows.column(FILE).to_numpy()
    places = rows.column(POSITION).to_numpy().astype(np.int64)
    order = np.lexsort((places, files))
    files, places = files[order], places[order]
    other = files[1:] != files[:-1]
    if (~other & (places[1:] == places[:-1])).any():
        raise matched_twice()
    found = Located(count=len(places))
    if len(files):
        begins = np.flatnonzero(np.append(True, other))
        for begin, part in zip(begins, np.split(places, begins[1:]), strict=True):
            found.positions[int(files[begin])] = [part]
    return found


def matched_twice() -> InvalidInputError:
    """The error of a change that several rows of the source ask for."""
    return InvalidInputError(
        "A row of the table matches several rows of the source.",
        detail="Which of them should change it is not decided.",
        hint="Make the source unique by the columns of the condition, for example with dropDuplicates.",
    )
