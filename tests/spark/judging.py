"""Rows of Spark beside rows of DuckDB, the judge."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from headwater.spark.connector import LakeSpark
from headwater.spark.writing import merging, row_level
from headwater.spark.writing import rows as row_writing
from headwater.typedefs import TableName, quote_name


def plain(value: Any) -> Any:
    """A value in a form in which both sides agree, and that sorts."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, float):
        return "nan" if value != value else value + 0.0
    if isinstance(value, Decimal):
        return value.normalize() + 0
    if isinstance(value, dict):
        return tuple((key, plain(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    found = [tuple(map(plain, row)) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]
    return sorted(found, key=repr)


def spark_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return rows(frame.toArrow())


def duck_rows(con: Any, query: str) -> list[tuple[Any, ...]]:
    return rows(con.execute(query).to_arrow_table())


def assert_same(
    session: LakeSpark,
    con: Any,
    name: TableName | str,
    version: int | None = None,
    hidden: Collection[str] = ("rowid",),
) -> None:
    """Spark and DuckDB see the same rows of a table at a snapshot."""
    at = "" if version is None else f" AT (VERSION => {version})"
    table = session.lake.table(name, version)
    columns = ", ".join([*(quote_name(c.name) for c in table.columns), *hidden])
    expected = duck_rows(con, f"SELECT {columns} FROM {table.name}{at}")
    assert spark_rows(session.table(name).df(version=version, hidden=hidden)) == expected


def versions(session: LakeSpark, name: TableName | str) -> list[int]:
    """The snapshots at which a table exists, oldest first."""
    found = []
    for snapshot in reversed(session.lake.snapshots()):
        if session.lake.state(snapshot.id).find_table(name) is not None:
            found.append(snapshot.id)
    return found


def by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let even small tables take the ways that large ones take: Spark jobs that write files."""
    for module in (row_writing, row_level, merging):
        monkeypatch.setattr(module, "FOR_THE_DRIVER", 0)
