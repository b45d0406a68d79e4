"""Whether what a stream table has stored still fits what it reads, and how its query is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.errors import StreamTableError
from headwater.lake.model import Table
from headwater.refresh.compiling import Compiled
from headwater.refresh.model import SourcePosition, StreamTable
from headwater.spark.types import spark_type


@dataclass(frozen=True)
class Retyped:
    """A column that is read, and has another type than at the refresh before."""

    table: str
    column: str
    now: str
    was: str

    def __str__(self) -> str:
        return f"column {self.column!r} of {self.table} is {self.now} now, and was {self.was}"


def column_types(table: Table) -> dict[str, str]:
    """Spark's types of a table's columns."""
    return {column.name: spark_type(column).simpleString() for column in table.columns}


def retyped_column(stream: StreamTable, table_of: Callable[[SourcePosition], Table | None]) -> Retyped | None:
    """The first column that is not what it was; `table_of` gives a source as it is now."""
    for position in stream.frontier.sources if stream.frontier is not None else ():
        table = table_of(position)
        if table is None or table.id != position.table_id:
            continue
        now = column_types(table)
        for name, kind in position.columns:
            if name in now and now[name] != kind:
                return Retyped(position.name, name, now[name], kind)
    return None


def check_fit(stream: StreamTable, compiled: Compiled, tables: Mapping[str, Table]) -> None:
    """Refuse to follow changes with what does not fit any more."""

    def table_of(position: SourcePosition) -> Table | None:
        source = compiled.sources.get(position.name)
        return None if source is None else source.table

    changed = retyped_column(stream, table_of)
    if changed is not None:
        raise StreamTableError(
            f"Stream table {stream.name} cannot be refreshed: {changed}.",
            hint="CREATE OR REPLACE STREAM TABLE with the same query builds it anew.",
            stream_table=str(stream.name),
            column=changed.column,
            table=changed.table,
        )
    wanted = {stage.source: {name for name, _ in stage.fields} for stage in compiled.program.stages}
    stored = {source: {column.name for column in table.columns} for source, table in tables.items()}
    if wanted != stored:
        raise StreamTableError(
            f"Stream table {stream.name} was stored in another way than it is computed now.",
            detail="Another version of Headwater built it.",
            hint="Drop it and create it again: it is computed from nothing once.",
            stream_table=str(stream.name),
        )
