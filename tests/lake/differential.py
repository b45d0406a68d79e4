"""The same operations through DuckDB's extension and through Headwater, and whole catalogs compared.

A `Case` is a list of steps. Each step is what a user would write in DuckDB's SQL beside what a user would
write in Python, and both run on a lake of their own, from the very first snapshot. After every step all
catalog tables are compared, table by table and column by column; `differential_allowed` names
every difference that is allowed, with the reason. At the end DuckDB reads both lakes at every snapshot, and
we read DuckDB's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import dict_row

from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from headwater.typedefs import TableName
from tests.lake.differential_allowed import IGNORED, IGNORED_METADATA, ON_PURPOSE, RANDOM_TEXT, Catalog
from tests.support import extension, literal

_TIME_IN_UTC = re.compile(r"^(\d\d:\d\d:\d\d(?:\.\d+)?)\+00$")

# --- cases ------------------------------------------------------------------------------------------------

Work = Callable[[Transaction], object]


@dataclass(frozen=True)
class Step:
    """One transaction: statements for DuckDB, and the same for Headwater."""

    statements: tuple[str, ...]
    work: Work
    info: dict[str, str | None] = field(default_factory=dict)
    """Author, message and extra_info."""


@dataclass(frozen=True)
class Case:
    """A small script, and the differences it is expected to show."""

    name: str
    steps: Sequence[Step]
    differs: Sequence[str] = ()
    renumbered: str = ""
    """Why ids are drawn in another order, where they are: then only numbers of rows are compared."""
    only_rows: str = ""
    """Why rows are stored in another way, where they are: then only what DuckDB reads is compared."""


def step(statement: str | Sequence[str], work: Work) -> Step:
    """A transaction given twice."""
    return Step((statement,) if isinstance(statement, str) else tuple(statement), work)


def together(*steps: Step) -> Step:
    """Several steps as one transaction."""

    def work(tx: Transaction) -> None:
        for one in steps:
            one.work(tx)

    return Step(tuple(text for one in steps for text in one.statements), work)


def insert(table: str, select: str) -> Step:
    """The rows of a SELECT, which names the columns."""
    return Step((f"INSERT INTO {table} BY NAME {select}",), lambda tx: tx.append(table, evaluate(select)))


def delete(table: str, where: str = "") -> Step:
    condition = f" WHERE {where}" if where else ""
    return Step((f"DELETE FROM {table}{condition}",), lambda tx: tx.delete(table, where or None))


def update(table: str, column: str, expression: str, where: str = "") -> Step:
    condition = f" WHERE {where}" if where else ""
    return Step(
        (f"UPDATE {table} SET {column} = {expression}{condition}",),
        lambda tx: tx.update(table, {column: expression}, where or None),
    )


def create(table: str, columns: dict[str, str], **options: Any) -> Step:
    """A table by DuckDB's names of types."""
    listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    return Step((f"CREATE TABLE {table} ({listed})",), lambda tx: tx.create_table(table, columns, **options))


def signed(one: Step, *, author: str, message: str, extra_info: str | None) -> Step:
    """A step that says who did it and why."""
    values = [literal(author), literal(message)]
    if extra_info is not None:
        values.append(f"extra_info => {literal(extra_info)}")
    call = f"CALL lake.set_commit_message({', '.join(values)})"
    info = {"author": author, "message": message, "extra_info": extra_info}
    return replace(one, statements=(call, *one.statements), info=info)


def option(name: str, value: Any, *, schema: str | None = None, table: str | None = None) -> Step:
    shown = f"'{value}'" if isinstance(value, str) else str(value).lower()
    where = (f", schema => '{schema}'" if schema else "") + (f", table_name => '{table}'" if table else "")
    return Step(
        (f"CALL lake.set_option('{name}', {shown}{where})",),
        lambda tx: tx.set_option(name, value, schema=None if table else schema, table=table),
    )


def evaluate(select: str) -> pa.Table:
    """The rows of a SELECT as Arrow."""
    return _calculator().execute(select).to_arrow_table()


@cache
def _calculator() -> Any:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


# --- running and comparing ----------------------------------------------------------------------------------


def catalog(connection: psycopg.Connection[Any], schema: str = "public") -> Catalog:
    """Every table of a catalog, inlined rows included."""
    names = connection.execute(
        "SELECT c.relname, array_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) "
        "ORDER BY a.attnum) AS columns FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r' AND a.attnum > 0 GROUP BY 1",
        (schema,),
    ).fetchall()
    with connection.pipeline():
        cursors = {
            row["relname"]: connection.execute(
                sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, row["relname"]))
            )
            for row in names
        }
    found: Catalog = {name: cursor.fetchall() for name, cursor in cursors.items()}
    # DuckDB leaves quotes out where it can, so that PostgreSQL folds some names of inlined columns.
    found["columns of the tables themselves"] = [
        {"table": row["relname"], "columns": [text.lower() for text in row["columns"]]} for row in names
    ]
    return found


def differences(theirs: Catalog, ours: Catalog) -> list[str]:
    """What differs, in words; nothing if the catalogs say the same."""
    found = []
    for table in sorted(theirs.keys() | ours.keys()):
        if table not in ours:
            found.append(f"{table}: DuckDB has it, we do not")
        elif table not in theirs:
            found.append(f"{table}: we have it, DuckDB does not")
        else:
            here = Counter(_comparable(table, row) for row in theirs[table])
            there = Counter(_comparable(table, row) for row in ours[table])
            found += [f"{table}: only DuckDB: {dict(row)}" for row in (here - there).elements()]
            found += [f"{table}: only we:     {dict(row)}" for row in (there - here).elements()]
    return found


def _comparable(table: str, row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    kept = []
    for name, value in row.items():
        if (table, name) in IGNORED:
            continue
        if table == "ducklake_metadata" and name == "value" and row["key"] in IGNORED_METADATA:
            continue
        if isinstance(value, str):
            for pattern, shown in RANDOM_TEXT.items():
                value = re.sub(pattern, shown, value)
        kept.append((name, tuple(value) if isinstance(value, list) else repr(value)))
    return tuple(kept)


class Pair:
    """Two lakes that go through the same steps: one DuckDB's, one ours. Both begin empty."""

    def __init__(self, session: Any, theirs: str, ours: str, folder: Path):
        self.session, self.theirs, self.ours = session, theirs, ours
        self.catalogs = [
            psycopg.connect(dsn, autocommit=True, row_factory=dict_row) for dsn in (theirs, ours)
        ]
        for connection in self.catalogs:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        self.lake = Lake.open(ours, data_path=folder / "ours")
        attach(session, "lake", theirs, folder / "theirs")
        session.execute("USE lake")

    def close(self) -> None:
        self.lake.close()
        for connection in self.catalogs:
            connection.close()
        self.session.execute("USE memory")
        for alias in ("lake", "ours"):
            self.session.execute(f"DETACH DATABASE IF EXISTS {alias}")

    def run(self, one: Step) -> None:
        """The step on both lakes, each as one transaction."""
        several = len(one.statements) > 1
        for text in ("BEGIN", *one.statements, "COMMIT") if several else one.statements:
            self.session.execute(text)
        with self.lake.transaction(**one.info) as tx:
            one.work(tx)

    def compare(self, case: Case) -> tuple[list[str], set[str]]:
        """What differs beyond what is allowed, and which allowed differences there were."""
        if case.only_rows:
            return [], set()
        theirs, ours = map(catalog, self.catalogs)
        if case.renumbered:
            theirs, ours = _sizes(theirs), _sizes(ours)
        seen = set()
        for name in case.differs:
            before = len(differences(theirs, ours))
            ON_PURPOSE[name].apply(theirs, ours)
            if len(differences(theirs, ours)) < before:
                seen.add(name)
        return differences(theirs, ours), seen

    def rows(self) -> list[dict[Any, Any]]:
        """All rows of all tables at all snapshots: both lakes as DuckDB reads them, and its as we read it."""
        attach(self.session, "ours", self.ours, self.lake.data_path)
        places = [
            (snapshot.id, table.name)
            for snapshot in self.lake.snapshots()
            for table in self.lake.state(snapshot.id).tables.values()
        ]
        found = [
            {
                (at, *name): self._read(
                    f"COLUMNS(*)::VARCHAR FROM {alias}.{_quoted(name)} AT (VERSION => {at})"
                )
                for at, name in places
            }
            for alias in ("lake", "ours")
        ]
        found.append({})
        theirs = Lake.open(self.theirs)
        for at, name in places:
            self.session.register("rows_read", theirs.read(name, at, hidden=["rowid"]))
            found[-1][at, *name] = self._read("COLUMNS(* EXCLUDE (rowid))::VARCHAR FROM rows_read")
        theirs.close()
        return found

    def _read(self, rest: str) -> Any:
        rows = self.session.execute(f"SELECT rowid, {rest} ORDER BY ALL").fetchall()
        # Arrow has no time with a zone; ours is in UTC.
        return [tuple(_TIME_IN_UTC.sub(r"\1", v) if isinstance(v, str) else v for v in row) for row in rows]


def _quoted(name: TableName) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name)


def attach(session: Any, alias: str, dsn: str, data_path: str | Path) -> None:
    """Attach a lake to a DuckDB session, or create it."""
    path = str(data_path).rstrip("/") + "/"
    session.execute(f"ATTACH {literal('ducklake:postgres:' + dsn)} AS {alias} (DATA_PATH {literal(path)})")


def duckdb_session() -> Any:
    """A DuckDB session that can attach lakes."""
    session = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 1})
    for name in ("ducklake", "postgres_scanner"):
        session.execute(f"LOAD {literal(extension(name))}")
    session.execute("SET TimeZone = 'UTC'")
    return session


def _sizes(found: Catalog) -> Catalog:
    names = {table: re.sub(r"_\d+(_\d+)?$", "_N", table) for table in found}
    return {"rows in each table": [{"table": names[t], "rows": len(rows)} for t, rows in found.items()]}
