"""What a stream table's query can read: tables, views and other stream tables of the lake."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.algebra.building import Found
from headwater.algebra.views import check_query, spark_from_duckdb
from headwater.lake.catalog import CatalogState, key
from headwater.lake.model import Column, Table, View
from headwater.refresh.model import StreamTable
from headwater.spark.literals import name_sql
from headwater.spark.sql.names import lake_name
from headwater.spark.sql.relations import aliases, column_names
from headwater.spark.types import spark_type
from headwater.typedefs import STORAGE_SCHEMA


@dataclass(frozen=True)
class Source:
    """A table that is read under a name; of a stream table, the one its rows are stored in."""

    name: str
    table: Table
    stream: StreamTable | None = None


def shown(source: Source) -> list[Column]:
    """The columns of a source that queries see."""
    if source.stream is None:
        return list(source.table.columns)
    names = dict(source.stream.columns)
    return [column for column in source.table.columns if column.name in names]


class Sources:
    """Looks the names in a query up, in the lake as it is at one snapshot."""

    def __init__(self, state: CatalogState, streams: Iterable[StreamTable]):
        self.state = state
        self._streams = {key(stream.name): stream for stream in streams}
        self.found: dict[str, Source] = {}

    def table(self, parts: tuple[str, ...]) -> Found | None:
        """What a name means; names of one part are looked up in `main`."""
        name = lake_name(parts)
        if name is None:
            return None
        stream = self._streams.get(key(name))
        if stream is not None:
            source = Source(str(stream.name), self.state.table(stream.storage.table), stream)
        else:
            view = self.state.find_view(name)
            if view is not None:
                return Found(str(view.name), view=_text(view))
            found = self.state.find_table(name)
            if found is None:
                return None
            source = Source(str(found.name), found)
        self.found[source.name] = source
        return Found(
            source.name, columns=tuple((c.name, spark_type(c).simpleString()) for c in shown(source))
        )

    def names(self) -> Sequence[str]:
        """All names there are."""
        tables = [table.name for table in self.state.tables.values() if table.name.schema != STORAGE_SCHEMA]
        views = [view.name for view in self.state.views.values()]
        return [str(name) for name in (*tables, *views)]


def _text(view: View) -> str:
    """A view's query in Spark's SQL."""
    if view.dialect.lower() == "spark":
        text = check_query(view.sql)
    else:
        text = spark_from_duckdb(view.sql, column_names(view.sql))
    names = aliases(view.column_aliases)
    if not names:
        return text
    return f"SELECT * FROM ({text}) AS _v({', '.join(name_sql(name) for name in names)})"
