"""The result of a statement as plain data, for callers that do not speak Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from headwater.errors import InvalidInputError
from headwater.spark.sql.statement import run_sql

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark


@dataclass(frozen=True)
class QueryResult:
    """Columns, their types, and rows."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False
    """Whether there are more rows than were asked for."""


def fetch(session: LakeSpark, text: str, limit: int) -> QueryResult:
    """Run a statement and take its first rows; what Spark finds wrong is an error of ours."""
    try:
        frame = run_sql(session, text)
        kinds = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
        found = frame.limit(limit + 1).toArrow() if kinds else None
    except PySparkException as error:
        first, *rest = (error.getMessage() or str(error)).strip().splitlines()
        detail = "\n".join(line for line in rest if line.strip()) or None
        raise InvalidInputError(first, detail=detail, condition=error.getCondition()) from error
    rows: list[tuple[Any, ...]] = []
    if found is not None:
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    names, types = zip(*kinds, strict=True) if kinds else ((), ())
    return QueryResult(tuple(names), tuple(types), tuple(rows[:limit]), len(rows) > limit)
