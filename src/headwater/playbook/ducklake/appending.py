"""INSERTs of given rows, evaluated by DuckDB and committed by Headwater.

An INSERT whose rows depend on no table of the lake need not wait for other INSERTs: whatever they commit, the
rows are the same, and adding rows never conflicts. DuckDB puts them into a temporary table of the same
columns, so that values mean what they mean in any INSERT; Headwater's own commit takes them from there, in
fewer round trips than the extension needs.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from headwater.algebra.duckdb_keys import Insert
from headwater.algebra.duckdb_text import Word, sees
from headwater.lake.catalog import CatalogState
from headwater.lake.model import Table
from headwater.playbook.ducklake.sessions import LakeSession
from headwater.playbook.ducklake.statements import Statement, lake_name
from headwater.playbook.results.failures import described
from headwater.typedefs import quote_name

#: Columns whose values pass through Arrow without a second thought.
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_SIMPLE = _INTEGERS | {
    "boolean", "float32", "float64", "varchar", "date", "timestamp", "timestamptz", "uuid", "blob"
}  # fmt: skip
#: Words after which a statement may read anything.
_READING = frozenset(("WITH", "TABLE", "JOIN", "DEFAULT", "QUERY", "QUERY_TABLE", "PIVOT", "UNPIVOT"))
#: Functions that give rows and read no table.
_GENERATING = frozenset(("range", "generate_series", "unnest", "repeat_row", "read_csv", "read_parquet"))


def reads_no_table(statement: Statement) -> bool:
    """Whether a statement is an INSERT whose rows depend on nothing in the lake."""
    insert = statement.insert
    if insert is None or insert.on_conflict or insert.by_name or insert.before.strip() or insert.returning:
        return False
    return _self_contained(insert.words)


def _self_contained(found: Sequence[Word]) -> bool:
    if not found[0].reads("VALUES", "SELECT"):
        return False
    for place, word in enumerate(found):
        if word.kind != "word":
            continue
        if word.text.upper() in _READING or word.text.lower().startswith("ducklake_"):
            return False
        if word.reads("FROM") and not (
            place + 2 < len(found)
            and found[place + 1].text.lower() in _GENERATING
            and sees(found, place + 2, "(")
            and not _listed_further(found, place + 2)
        ):
            return False
    return True


def _listed_further(found: Sequence[Word], place: int) -> bool:
    """Whether a comma follows the function at the same depth: FROM range(3), other_table."""
    depth = found[place].depth
    for word in found[place:]:
        if word.depth < depth:
            return False
        if word.depth == depth and word.text == ",":
            return True
    return False


def target_of(insert: Insert, state: CatalogState, catalog: str) -> Table | None:
    """The table that an INSERT means, if it is one of the lake and its columns are simple."""
    name = lake_name(insert.table, catalog)
    found = None if name is None else state.tables.get(name)
    if found is None:
        return None
    given = [found.column(name) for name in insert.columns]
    if None in given or len({column.id for column in given if column}) != len(given):
        return None  # DuckDB says it better
    named = {column.id for column in given if column is not None} or {one.id for one in found.columns}
    for column in found.columns:
        simple = column.type in _SIMPLE or column.type.startswith("decimal")
        if not simple or (column.id not in named and column.default_type != "literal"):
            return None
    return found


class NotEvaluated(Exception):  # noqa: N818  (carries DuckDB's error to whoever explains it)
    """DuckDB refused an INSERT; `byte` is the place in the statement's text."""

    def __init__(self, error: duckdb.Error, byte: int | None):
        self.error = error
        self.byte = byte


def evaluated(
    session: LakeSession, cursor: duckdb.DuckDBPyConnection, statement: Statement, table: Table
) -> pa.Table:
    """The rows that an INSERT adds, in the columns that it gives; nothing is changed."""
    insert = statement.insert
    assert insert is not None  # noqa: S101  (who calls has seen it)
    stage = _stage(session, cursor, table)
    columns = f" ({', '.join(map(quote_name, insert.columns))})" if insert.columns else ""
    given = insert.columns or tuple(column.name for column in table.columns)
    begin = f"INSERT INTO {stage}{columns} "
    cursor.execute("BEGIN")
    try:
        cursor.execute(f"{begin}{insert.source} RETURNING {', '.join(map(quote_name, given))}")
        return cursor.to_arrow_table()
    except duckdb.Error as error:
        _, byte = described(error)
        if byte is not None:
            byte += len(statement.text[: insert.source_start].encode()) - len(begin.encode())
        raise NotEvaluated(error, None if byte is None or byte < 0 else byte) from None
    finally:
        cursor.execute("ROLLBACK")


def _stage(session: LakeSession, cursor: duckdb.DuckDBPyConnection, table: Table) -> str:
    """A temporary table with the columns of a table as they are now."""
    shape = ",".join(f"{column.name} {column.type}" for column in table.columns)
    name = f"headwater_stage_{table.id}_{zlib.crc32(shape.encode()):08x}"
    if name not in session.staged:
        whole = ".".join(map(quote_name, (session.place.catalog, table.name.schema, table.name.name)))
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {whole} LIMIT 0")
        session.staged.add(name)
    return name
