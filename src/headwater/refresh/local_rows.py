"""Rows that are in this process, for Spark to compute with."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
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


@dataclass
class WholeTables:
    """Small tables that were read whole, by the files they are made of: they are read once."""

    most: int = 64
    _found: OrderedDict[Any, Found] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def get(self, place: Any) -> Found | None:
        """What was read of these files before."""
        with self._lock:
            if place in self._found:
                self._found.move_to_end(place)
            return self._found.get(place)

    def put(self, place: Any, found: Found) -> None:
        """Remember; the least used one is forgotten."""
        with self._lock:
            self._found[place] = found
            while len(self._found) > self.most:
                self._found.popitem(last=False)
