"""Rows that are in this process, for Spark to compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from headwater.spark.connector import LakeSpark


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
