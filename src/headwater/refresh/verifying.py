"""Verify: DuckDB computes a stream table's query at its frontier, and the two results are compared."""

from __future__ import annotations

import time
from dataclasses import replace

import duckdb

from headwater.algebra.oracle import collects, has_limit, to_duckdb, view_to_duckdb
from headwater.algebra.stages import SHOWN
from headwater.errors import NotFoundError, StreamTableError, UnsupportedError
from headwater.lake.catalog import CatalogState, key
from headwater.lake.lake import Lake
from headwater.lake.model import Table, View
from headwater.refresh.comparing import Column, Comparison, compare, how
from headwater.refresh.model import Frontier, StreamTable, VerifyResult
from headwater.refresh.store import StreamStore
from headwater.typedefs import SnapshotId, TableName

#: The name of the lake in the session that computes.
_ALIAS = "lake"


def verify(lake: Lake, store: StreamStore, stream: StreamTable, *, limit: int = 10) -> VerifyResult:
    """Whether a stream table holds what its query gives for the inputs of its frontier.

    The differences are the first `limit` of them. Nothing is changed, and Spark is not asked.
    """
    started = time.perf_counter()
    query, frontier = _checked(stream)
    inputs = _Inputs(lake, store, frontier)
    text = to_duckdb(query, inputs.text, moment=frontier.moment)
    # As it is now: whoever changed the stored rows since the refresh is to be found out.
    stored = inputs.stored(stream, max(lake.snapshot().id, frontier.snapshot_id))
    with lake.duckdb(_ALIAS) as session:
        expected_types = _computed(session, text, stream)
        session.execute(f"CREATE TEMP TABLE _hw_stored AS {stored}")
        stored_types = _types(session, "_hw_stored")
        _check_columns(stream, expected_types, stored_types)
        columns = [
            how(name, expected_types[place][1], kind) for place, (name, kind) in enumerate(stored_types)
        ]
        if collects(query):
            columns = [replace(column, unordered=column.type.endswith("[]")) for column in columns]
        found = _compared(session, stream, columns, limit)
    differ = bool(found.missing or found.unexpected)
    if differ:
        newer = store.get(stream.name)
        if newer is not None and newer.frontier != frontier:
            return verify(lake, store, newer, limit=limit)  # it was refreshed meanwhile
    detail = ""
    if differ and has_limit(query):
        detail = "Where rows tie in ORDER BY … LIMIT, DuckDB may have chosen others."
    return VerifyResult(
        name=str(stream.name),
        ok=not differ,
        rows=found.rows,
        missing=found.missing,
        unexpected=found.unexpected,
        data_snapshot_id=frontier.data_snapshot_id,
        differences=found.differences,
        detail=detail,
        seconds=time.perf_counter() - started,
    )


def _checked(stream: StreamTable) -> tuple[str, Frontier]:
    if stream.definition.query is None:
        raise UnsupportedError(
            f"Stream table {stream.name} cannot be verified: a Python function makes its rows.",
            hint="Only queries can be computed by DuckDB as well.",
            stream_table=str(stream.name),
        )
    if stream.frontier is None:
        raise StreamTableError(
            f"Stream table {stream.name} holds no result yet.",
            hint=f"Refresh it first: headwater refresh {stream.name}",
            stream_table=str(stream.name),
        )
    return stream.definition.query, stream.frontier


class _Inputs:
    """What the names in a query stood for when it was refreshed."""

    def __init__(self, lake: Lake, store: StreamStore, frontier: Frontier):
        self._lake = lake
        self._frontier = frontier
        self._streams = {key(stream.name): stream for stream in store.all()}
        self._positions = {source.table_id: source.snapshot_id for source in frontier.sources}
        self._states: dict[SnapshotId, CatalogState] = {}

    def text(self, parts: tuple[str, ...]) -> str | None:
        """The rows of a table, view or stream table, as they were read."""
        name = _lake_name(parts)
        if name is None:
            return None
        upstream = self._streams.get(key(name))
        if upstream is not None:
            return f"({self.stored(upstream, self._position(upstream.storage.table_id))})"
        state = self._state(self._frontier.data_snapshot_id)
        view = state.find_view(name)
        if view is not None:
            return self._view(view)
        table = state.table(name)
        return f"({self._rows(table, self._position(table.id))})"

    def stored(self, stream: StreamTable, snapshot: SnapshotId) -> str:
        """What users saw of a stream table at a snapshot."""
        table = self._table(stream.storage.table_id, snapshot, stream.name)
        shown = f" WHERE {_quoted(SHOWN)}" if table.column(SHOWN) is not None else ""
        return _select([name for name, _ in stream.columns], table, snapshot) + shown

    def _rows(self, table: Table, snapshot: SnapshotId) -> str:
        then = self._table(table.id, snapshot, table.name)
        return _select([column.name for column in then.columns], then, snapshot)

    def _view(self, view: View) -> str:
        dialect = view.dialect.lower()
        if dialect == "spark":
            text = to_duckdb(view.sql, self.text, moment=self._frontier.moment)
        else:
            text = view_to_duckdb(view.sql, self.text, moment=self._frontier.moment)
        names = f"({view.column_aliases})" if view.column_aliases else ""
        return f"(SELECT * FROM ({text}) AS _v{names})"

    def _table(self, table_id: int, snapshot: SnapshotId, name: TableName) -> Table:
        found = self._state(snapshot).table_by_id(table_id)
        if found is None:
            raise NotFoundError(
                f"Table {name} (id {table_id}) is not there at snapshot {snapshot}.",
                table=str(name),
                snapshot_id=snapshot,
            )
        return found

    def _position(self, table_id: int) -> SnapshotId:
        return self._positions.get(table_id, self._frontier.data_snapshot_id)

    def _state(self, snapshot: SnapshotId) -> CatalogState:
        if snapshot not in self._states:
            self._states[snapshot] = self._lake.state(snapshot)
        return self._states[snapshot]


def _lake_name(parts: tuple[str, ...]) -> TableName | None:
    match parts:
        case (name,):
            return TableName("main", name)
        case (schema, name):
            return TableName(schema, name)
        case (catalog, schema, name) if catalog.lower() == _ALIAS:
            return TableName(schema, name)
        case _:
            return None


def _select(names: list[str], table: Table, snapshot: SnapshotId) -> str:
    listed = ", ".join(map(_quoted, names))
    full = ".".join(map(_quoted, (_ALIAS, *table.name)))
    return f"SELECT {listed} FROM {full} AT (VERSION => {int(snapshot)})"


def _computed(session: duckdb.DuckDBPyConnection, text: str, stream: StreamTable) -> list[tuple[str, str]]:
    """Run the query, and give its columns the stream table's names, and their order where it has the names.

    (A name may be there twice; of NATURAL JOIN the columns come in another order in DuckDB.)
    """
    try:
        session.execute(f"CREATE TEMP VIEW _hw_query AS {text}")
        found = _types(session, "_hw_query")
        if len(found) == len(stream.columns):
            names = ", ".join(_quoted(name) for name, _ in stream.columns)
            same = {name.lower() for name, _ in found} == {name.lower() for name, _ in stream.columns}
            source = f"SELECT {names} FROM _hw_query" if same else f"SELECT * FROM _hw_query AS _q({names})"
            session.execute(f"CREATE TEMP TABLE _hw_expected AS {source}")
            found = _types(session, "_hw_expected")
        return found
    except duckdb.Error as error:
        raise UnsupportedError(
            f"Stream table {stream.name} cannot be verified: DuckDB cannot run its query.",
            detail=str(error).split("\n\nLINE")[0],
            hint="Its refreshes are not affected.",
            stream_table=str(stream.name),
        ) from None


def _compared(
    session: duckdb.DuckDBPyConnection, stream: StreamTable, columns: list[Column], limit: int
) -> Comparison:
    try:
        return compare(session, "_hw_expected", "_hw_stored", columns, limit)
    except duckdb.Error as error:
        raise UnsupportedError(
            f"Stream table {stream.name} cannot be verified: DuckDB's result cannot be compared.",
            detail=str(error).split("\n\nLINE")[0],
            stream_table=str(stream.name),
        ) from None


def _types(session: duckdb.DuckDBPyConnection, name: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in session.execute(f"DESCRIBE {_quoted(name)}").fetchall()]


def _check_columns(
    stream: StreamTable, expected: list[tuple[str, str]], stored: list[tuple[str, str]]
) -> None:
    if len(expected) != len(stored):
        raise UnsupportedError(
            f"Stream table {stream.name} cannot be verified: its columns are not those of its query.",
            detail=f"DuckDB sees {len(expected)} columns in the query, and {len(stored)} are stored.",
            stream_table=str(stream.name),
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
