"""Where the columns of a stream table come from, through all stream tables in between."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.algebra.lineage import Origin, column_lineage
from headwater.algebra.lineage import lineage as trace
from headwater.algebra.relations import Query
from headwater.errors import NotFoundError
from headwater.lake.catalog import CatalogState, key
from headwater.refresh.compiling import read_query
from headwater.refresh.model import StreamTable
from headwater.refresh.sources import Sources


@dataclass(frozen=True)
class ColumnLineage:
    """A column of a stream table and what it is computed from."""

    table: str
    column: str
    #: The columns its query reads for it, of tables and of other stream tables.
    direct: tuple[Origin, ...]
    #: The columns of the tables at the beginning.
    origins: tuple[Origin, ...]
    #: Columns its query reads that only decide which values appear: conditions, join keys, groups, orders.
    deciding: tuple[Origin, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "table": self.table,
            "column": self.column,
            "direct": [origin._asdict() for origin in self.direct],
            "origins": [origin._asdict() for origin in self.origins],
            "deciding": [origin._asdict() for origin in self.deciding],
        }


@dataclass(frozen=True)
class Lineage:
    """The columns of a stream table, then those of the stream tables that they come from."""

    name: str
    column: str | None
    columns: tuple[ColumnLineage, ...]
    #: (read, reader): tables and stream tables, from the beginning to this one.
    tables: tuple[tuple[str, str], ...]
    #: (from, to): what mirrored tables come from, and the sinks and outboxes that results go to.
    outside: tuple[tuple[str, str], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The lineage as plain data."""
        return {
            "name": self.name,
            "column": self.column,
            "columns": [column.as_dict() for column in self.columns],
            "tables": [{"read": read, "reader": reader} for read, reader in self.tables],
            "outside": [{"from": start, "to": end} for start, end in self.outside],
            "mermaid": self.mermaid(),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for column in self.columns:
            if column.table != self.name:
                continue
            shown = ", ".join(".".join(origin) for origin in column.origins) or "(no column)"
            through = sorted({origin.table for origin in column.direct} - {o.table for o in column.origins})
            yield f"{column.column} ← {shown}" + (f"  (through {', '.join(through)})" if through else "")
            if self.column is not None and column.deciding:
                yield f"  decided by {', '.join('.'.join(origin) for origin in column.deciding)}"
        for start, end in self.outside if self.column is None else ():
            yield f"{start} → {end}"

    def mermaid(self) -> str:
        """A graph in Mermaid's language: of columns if one was asked for, otherwise of tables."""
        if self.column is None:
            edges = _in_order(self.tables, self.outside)
        else:
            edges = [
                (".".join(origin), f"{column.table}.{column.column}")
                for column in reversed(self.columns)
                for origin in column.direct
            ]
        ids: dict[str, str] = {}
        lines = ["graph LR"]
        for read, reader in edges:
            for name in (read, reader):
                if name not in ids:
                    ids[name] = f"n{len(ids)}"
                    lines.append(f'  {ids[name]}["{_escaped(name)}"]')
        lines += [f"  {ids[read]} --> {ids[reader]}" for read, reader in edges]
        return "\n".join(lines)


def _escaped(text: str) -> str:
    """Quotes and markup have names in Mermaid's texts."""
    for character, name in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(character, name)
    return text


def _in_order(tables: Sequence[tuple[str, str]], outside: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Sources first, sinks last."""
    readers = {reader for _, reader in tables}
    before = [edge for edge in outside if edge[0] not in readers]
    return [*before, *tables, *(edge for edge in outside if edge not in before)]


def lineage(
    stream: StreamTable,
    streams: Sequence[StreamTable],
    state: CatalogState,
    column: str | None = None,
    outside: Sequence[tuple[str, str]] = (),
) -> Lineage:
    """Follow the columns of a stream table, or one of them, back to the tables of the lake.

    `outside` are edges of the whole lake that lead there, and on from its stream tables.
    """
    finder = _Finder(state, streams)
    names = [name for name, _ in stream.columns]
    if column is not None:
        names = [name for name in names if name.lower() == column.lower()]
        if not names:
            raise _no_column(stream, column)
    found: dict[tuple[str, str], ColumnLineage] = {}
    waiting = [(stream, name) for name in names]
    while waiting:
        table, name = waiting.pop(0)
        if (str(table.name), name) in found:
            continue
        one = finder.column(table, name)
        found[one.table, one.column] = one
        waiting += [(finder.by_name[o.table], o.column) for o in one.direct if o.table in finder.by_name]
    tables = tuple(finder.edges(stream))
    met = {str(stream.name), *(name for edge in tables for name in edge)}
    near = tuple(edge for edge in outside if edge[1] in met or edge[0] in met)
    return Lineage(str(stream.name), column and names[0], tuple(found.values()), tables, near)


def _no_column(stream: StreamTable, column: str) -> NotFoundError:
    names = {name.lower(): name for name, _ in stream.columns}
    near = difflib.get_close_matches(column.lower(), names, n=1)
    return NotFoundError(
        f"Stream table {stream.name} has no column {column!r}.",
        hint=f"Did you mean '{names[near[0]]}'?" if near else f"It has: {', '.join(names.values())}.",
        stream_table=str(stream.name),
        column=column,
    )


class _Finder:
    """Knows what the columns of each stream table are made of, once it was asked."""

    def __init__(self, state: CatalogState, streams: Sequence[StreamTable]):
        self._state = state
        self._streams = streams
        self.by_name = {str(stream.name): stream for stream in streams}
        self._direct: dict[str, Mapping[str, tuple[Origin, ...]]] = {}
        self._read: dict[str, tuple[str, ...]] = {}
        self._queries: dict[str, Query] = {}

    def column(self, stream: StreamTable, name: str) -> ColumnLineage:
        """One column, with the columns at the beginning."""
        direct = self.direct(stream).get(name, ())
        origins: set[Origin] = set()
        for origin in direct:
            above = self.by_name.get(origin.table)
            origins.update((origin,) if above is None else self.column(above, origin.column).origins)
        query = self._queries.get(str(stream.name))
        deciding = () if query is None else tuple(sorted(trace(query, name, deciding=True)))
        return ColumnLineage(str(stream.name), name, direct, tuple(sorted(origins)), deciding)

    def direct(self, stream: StreamTable) -> Mapping[str, tuple[Origin, ...]]:
        """What each column is computed from by the stream table's own query."""
        name = str(stream.name)
        if name not in self._direct:
            self._look(stream)
        return self._direct[name]

    def edges(self, stream: StreamTable) -> Iterator[tuple[str, str]]:
        """Who reads whom, from the beginning to a stream table."""
        seen: dict[tuple[str, str], None] = {}

        def visit(one: StreamTable) -> None:
            self.direct(one)
            for read in self._read[str(one.name)]:
                if read in self.by_name:
                    visit(self.by_name[read])
                seen[read, str(one.name)] = None

        visit(stream)
        yield from seen

    def _look(self, stream: StreamTable) -> None:
        name, definition = str(stream.name), stream.definition
        if definition.query is None:
            # What a Python function does with its inputs is not known column by column.
            self._direct[name] = {}
            self._read[name] = tuple(definition.inputs.values())
            return
        others = [other for other in self._streams if key(other.name) != key(stream.name)]
        sources = Sources(self._state, others)
        self._queries[name] = read_query(definition, sources)
        self._direct[name] = column_lineage(self._queries[name])
        self._read[name] = tuple(sources.found)
