"""Rows that are in this process, for Spark to compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.spark.connector import LakeSpark

#: So many rows are held by this process at least and at most, and not more than one for so many bytes of the
#: JVM's memory: there they are computed with.
_LEAST, _MOST, _BYTES_EACH = 500_000, 3_000_000, 2_048


def most_here(session: LakeSpark) -> int:
    """How many rows of a table are held by this process at most, rather than left to Spark."""
    return min(_MOST, max(_LEAST, session.jvm.memory // _BYTES_EACH))


@dataclass
class Found:
    """Rows of a scan under their stored names, in Spark's types."""

    rows: pa.Table
    schema: st.StructType
    _frame: DataFrame | None = None
    _held: Any = None

    def held(self, session: LakeSpark) -> Any:
        """The rows as the places of a program take them."""
        if self._held is None:
            self._held = session.jvm.held(self.rows, self.schema)
        return self._held

    def data(self, session: LakeSpark) -> DataFrame:
        """The rows as a DataFrame."""
        if self._frame is None:
            self._frame = session.jvm.local(session.spark, self.rows, self.schema)
        return self._frame
