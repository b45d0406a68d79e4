"""The same operations through DuckDB's extension and through Headwater, and whole catalogs compared.

A `Case` is a list of steps. Each step is what a user would write in DuckDB's SQL beside what a user would
write in Python, and both run on a lake of their own, from the very first snapshot. After every step all
catalog tables are compared, table by table and column by column; `IGNORED` and `ON_PURPOSE` name every
difference that is allowed, with the reason. At the end DuckDB reads both lakes at every snapshot.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from tests.support import extension, literal

# --- what may differ --------------------------------------------------------------------------------------

#: Columns that are not compared, and why.
IGNORED: dict[tuple[str, str], str] = {
    ("ducklake_snapshot", "snapshot_time"): "the clock",
    ("ducklake_files_scheduled_for_deletion", "schedule_start"): "the clock",
    ("ducklake_schema", "schema_uuid"): "random",
    ("ducklake_table", "table_uuid"): "random",
    ("ducklake_view", "view_uuid"): "random",
    ("ducklake_data_file", "file_size_bytes"): "another Parquet writer",
    ("ducklake_data_file", "footer_size"): "another Parquet writer",
    ("ducklake_delete_file", "file_size_bytes"): "another Parquet writer",
    ("ducklake_delete_file", "footer_size"): "another Parquet writer",
    ("ducklake_table_stats", "file_size_bytes"): "another Parquet writer",
    ("ducklake_file_column_stats", "column_size_bytes"): "another Parquet writer",
}

#: Rows of ducklake_metadata whose value is not compared, and why.
IGNORED_METADATA = {
    "created_by": "names the program",
    "data_path": "each lake has its own folder",
}

#: Random parts of texts, replaced before they are compared.
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
RANDOM_TEXT: dict[str, str] = {
    rf"ducklake-{_UUID}": "ducklake-*",  # names of files
    rf"^{_UUID}/": "*/",  # folders of tables and schemas whose name is no safe folder name
    rf"(?<=/){_UUID}/": "*/",
}

_TIME_IN_UTC = re.compile(r"^(\d\d:\d\d:\d\d(?:\.\d+)?)\+00$")

Catalog = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Difference:
    """A difference we chose. `apply(theirs, ours)` makes it disappear; it must have been there."""

    reason: str
    apply: Callable[[Catalog, Catalog], None]


def _no_range_for_embedded_row_ids(theirs: Catalog, ours: Catalog) -> None:
    mine = {row["data_file_id"]: row for row in ours["ducklake_data_file"]}
    for row in theirs["ducklake_data_file"]:
        other = mine.get(row["data_file_id"])
        if other is not None and other["row_id_start"] is None:
            row["row_id_start"] = None


def _also_logged(*prefixes: str) -> Callable[[Catalog, Catalog], None]:
    """Tokens of ours that DuckDB does not write."""

    def apply(theirs: Catalog, ours: Catalog) -> None:
        known = {row["snapshot_id"]: row["changes_made"] for row in theirs["ducklake_snapshot_changes"]}
        for row in ours["ducklake_snapshot_changes"]:
            written = (known.get(row["snapshot_id"]) or "").split(",")
            tokens = (row["changes_made"] or "").split(",")
            kept = [t for t in tokens if t in written or not t.startswith(prefixes)]
            row["changes_made"] = ",".join(kept) or None

    return apply


def _nested_columns_stay_as_they_were(theirs: Catalog, ours: Catalog) -> None:
    mine = {(r["table_id"], r["column_id"], r["begin_snapshot"]): r for r in ours["ducklake_column"]}
    for row in theirs["ducklake_column"]:
        other = mine.get((row["table_id"], row["column_id"], row["begin_snapshot"]))
        if other is not None and row["parent_column"] is not None:
            row["nulls_allowed"] = other["nulls_allowed"]
        if other is not None and row["default_value"] == "NULL":
            row["default_value_type"] = other["default_value_type"]


def _floats_become_doubles(theirs: Catalog, ours: Catalog) -> None:
    for row in (*ours["ducklake_file_column_stats"], *ours["ducklake_table_column_stats"]):
        for bound in ("min_value", "max_value"):
            if row[bound] == "1.100000023841858":
                row[bound] = "1.1"


def _minus_zero_is_zero(theirs: Catalog, ours: Catalog) -> None:
    for row in (*theirs["ducklake_file_column_stats"], *theirs["ducklake_table_column_stats"]):
        for bound in ("min_value", "max_value"):
            row[bound] = "0.0" if row[bound] == "-0.0" else row[bound]


def _bounds_are_left_out(theirs: Catalog, ours: Catalog) -> None:
    without = {
        (row["table_id"], row["column_id"])
        for row in ours["ducklake_column"]
        if row["column_type"] in ("timetz", "interval")
    }
    for row in theirs["ducklake_table_column_stats"]:
        if (row["table_id"], row["column_id"]) in without:
            row["min_value"] = row["max_value"] = None


def _bounds_are_kept(theirs: Catalog, ours: Catalog) -> None:
    for table, keys in (
        ("ducklake_file_column_stats", ("data_file_id", "column_id")),
        ("ducklake_table_column_stats", ("table_id", "column_id")),
    ):
        mine = {tuple(row[k] for k in keys): row for row in ours[table]}
        for row in theirs[table]:
            other = mine.get(tuple(row[k] for k in keys))
            if other is not None and row["min_value"] is None and row["max_value"] is None:
                row["min_value"], row["max_value"] = other["min_value"], other["max_value"]


def _rows_without_bounds_are_removed(theirs: Catalog, ours: Catalog) -> None:
    mine = {(row["table_id"], row["column_id"]) for row in ours["ducklake_table_column_stats"]}
    theirs["ducklake_table_column_stats"] = [
        row
        for row in theirs["ducklake_table_column_stats"]
        if (row["table_id"], row["column_id"]) in mine or not row["contains_null"]
    ]


def _counter_moves(theirs: Catalog, ours: Catalog) -> None:
    known = {row["snapshot_id"]: row for row in theirs["ducklake_snapshot"]}
    for row in ours["ducklake_snapshot"]:
        other = known.get(row["snapshot_id"])
        if other is not None and row["next_file_id"] > other["next_file_id"]:
            other["next_file_id"] = row["next_file_id"]
    numbers = [sorted(row["data_file_id"] for row in c["ducklake_data_file"]) for c in (ours, theirs)]
    renumbered = dict(zip(*numbers, strict=False))
    for row in (*ours["ducklake_data_file"], *ours["ducklake_file_column_stats"]):
        row["data_file_id"] = renumbered.get(row["data_file_id"], row["data_file_id"])


def _flushed_deletes_state_their_last_snapshot(theirs: Catalog, ours: Catalog) -> None:
    mine = {row["delete_file_id"]: row for row in ours["ducklake_delete_file"]}
    for row in theirs["ducklake_delete_file"]:
        other = mine.get(row["delete_file_id"])
        if other is not None and row["partial_max"] is None:
            row["partial_max"] = other["partial_max"]


def _only_the_outcome_is_logged(theirs: Catalog, ours: Catalog) -> None:
    mine = {row["snapshot_id"]: row["changes_made"] for row in ours["ducklake_snapshot_changes"]}
    for row in theirs["ducklake_snapshot_changes"]:
        kept = (mine.get(row["snapshot_id"]) or "").split(",")
        tokens = row["changes_made"].split(",")
        passing = [t for t in tokens if t not in kept and t.startswith(("created_", "altered_"))]
        row["changes_made"] = ",".join(t for t in tokens if t not in passing)


ON_PURPOSE: dict[str, Difference] = {
    "outcome": Difference(
        "A transaction that creates something and then renames or alters it logs what it created in the "
        "end; DuckDB also logs the name and the alteration that nobody else ever saw.",
        _only_the_outcome_is_logged,
    ),
    "row_id_start": Difference(
        "Files that hold row ids have no row_id_start: DuckDB's merge drops the ids inside when the ranges "
        "of its inputs look contiguous.",
        _no_range_for_embedded_row_ids,
    ),
    "deletes": Difference(
        "Deletes from files are also logged as inserted_into_table: DuckDB does not notice all deletes that "
        "others committed on the same file, but does notice a delete beside an insert.",
        _also_logged("inserted_into_table:"),
    ),
    "nested columns": Difference(
        "DuckDB marks a struct field that ALTER added or renamed as NOT NULL, yet stores NULL in it; ours is "
        "nullable. And the type of a default that is not there is either '' or 'literal' after ALTER.",
        _nested_columns_stay_as_they_were,
    ),
    "flushed file deletes": Difference(
        "A flush of deletes alone is logged as a flush too: readers of changes need to know, and DuckDB's "
        "inlined deletes conflict with it.",
        _also_logged("inline_flush:"),
    ),
    "values after NULL": Difference(
        "The statistics of a column without bounds are removed when values come: it may have held nothing "
        "but NULL, or DuckDB lost the bounds (of a first insert whose first file is all NULL), and then the "
        "new values' bounds, which DuckDB takes, hide the older values.",
        _rows_without_bounds_are_removed,
    ),
    "retyped": Difference(
        "Changing a column's type also moves next_file_id: DuckDB sessions keep statistics until it moves, in "
        "the type the column had, and die of an internal error when they compare them with another.",
        _counter_moves,
    ),
    "lost bounds": Difference(
        "Where new values have no bounds (nothing but NaN, or 256 bytes without an ASCII character), DuckDB "
        "forgets the bounds of the table's column, and then takes it for all NULL. Ours keeps bounds.",
        _bounds_are_kept,
    ),
    "floats": Difference(
        "A FLOAT of 1.1 that became a DOUBLE is 1.100000023841858. DuckDB leaves the bounds at 1.1, and a "
        "filter by the value it shows finds nothing; ours follow.",
        _floats_become_doubles,
    ),
    "minus zero": Difference(
        "Minus zero equals zero, but as text it does not: ours is written as zero.",
        _minus_zero_is_zero,
    ),
    "unused bounds": Difference(
        "DuckDB states bounds of TIMETZ and INTERVAL where rows are inlined, and forgets them with the first "
        "file. Ours has none for these types, as DuckDB's files have none.",
        _bounds_are_left_out,
    ),
    "flushed deletes": Difference(
        "A delete file of flushed rows states its largest snapshot, as every other one with snapshots does.",
        _flushed_deletes_state_their_last_snapshot,
    ),
}

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
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(select).to_arrow_table()


# --- running and comparing ----------------------------------------------------------------------------------


def catalog(dsn: str, schema: str = "public") -> Catalog:
    """Every table of a catalog, inlined rows included."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
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
        for dsn in (theirs, ours):
            with psycopg.connect(dsn) as connection:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
        self.lake = Lake.open(ours, data_path=folder / "ours")
        attach(session, "lake", theirs, folder / "theirs")
        session.execute("USE lake")

    def close(self) -> None:
        self.lake.close()
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
        theirs, ours = catalog(self.theirs), catalog(self.ours)
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
        """All rows of all tables at all snapshots: each lake as DuckDB reads it, then as we read it."""
        attach(self.session, "ours", self.ours, self.lake.data_path)
        theirs = Lake.open(self.theirs)
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
        for lake in (theirs, self.lake):
            found.append({})
            for at, name in places:
                rows = lake.read(name, at, hidden=["rowid"])
                self.session.register("rows_read", rows)
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
