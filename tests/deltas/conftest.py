"""Datasets for tests: in a lake of their own, with Spark where a test asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.deltas.dataset import DeltaDataset
from headwater.lake.catalog import table_name
from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
from tests.spark.conftest import con, session, spark

__all__ = ["con", "session", "spark"]

Opened = Callable[..., DeltaDataset]


def no_spark() -> LakeSpark:
    """For datasets whose test must not need it."""
    raise AssertionError("Spark was asked for")


@pytest.fixture
def dataset(lake: Lake) -> Opened:
    """Opens datasets that do not use Spark."""

    def opened(name: str = "crm.people", key: list[str] | None = None, **options: object) -> DeltaDataset:
        found = DeltaDataset(lake, no_spark, table_name(name), tuple(key) if key else None)
        return found.open(**options)  # type: ignore[arg-type]

    return opened


@pytest.fixture
def on_spark(lake: Lake, session: LakeSpark) -> Opened:
    """Opens datasets in Spark's hands."""

    def opened(name: str = "crm.people", key: list[str] | None = None, **options: object) -> DeltaDataset:
        found = DeltaDataset(lake, lambda: session, table_name(name), tuple(key) if key else None)
        return found.open(**options)  # type: ignore[arg-type]

    return opened
