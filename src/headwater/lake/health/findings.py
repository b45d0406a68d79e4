"""What can be wrong with a lake: every problem with what it means and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from psycopg import sql

from headwater.lake.connection import Connection, Cursor, Database
from headwater.lake.options import LakeOptions
from headwater.lake.writing.prepared import inlining_limit
from headwater.typedefs import TableId

Severity = Literal["fail", "warn"]
#: Takes the news of a long check: what it does, how far it is, and of how much if that is known.
Progress = Callable[[str, int, int | None], None]

#: How many files, snapshots … a finding names.
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of fault: how bad, what it means, what to do."""

    severity: Severity
    meaning: str
    hint: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault that was found, in one table or in the catalog as a whole."""

    code: str
    severity: Severity
    table: str | None
    message: str
    meaning: str
    hint: str
    count: int
    """How many files, columns, snapshots … are concerned."""
    examples: tuple[str, ...]


_RESTORE = "Restore the file from a backup, or drop what cannot be read: delete the rows of that file."
_REWRITE = (
    "Write the table anew with Headwater: rows = lake.read(t); "
    "with lake.transaction() as tx: tx.truncate(t); tx.append(t, rows)."
)
_CATALOG_BACKUP = "Restore the catalog from a backup, or correct the row by hand."

PROBLEMS: dict[str, Problem] = {
    # -- the catalog's own rows --
    "delete_files_doubled": Problem(
        "fail",
        "Several live delete files for one data file: DuckDB returns its rows more than once. "
        "Two DuckDB sessions deleted from it at the same time.",
        f"Do not compact it with DuckDB. {_REWRITE}",
    ),
    "delete_files_doubled_history": Problem(
        "warn",
        "Several live delete files for one data file of older snapshots: reading those with DuckDB returns "
        "rows more than once.",
        "Read those snapshots with Headwater, or expire them.",
    ),
    "snapshot_changes": Problem(
        "fail",
        "DuckDB cannot read what the snapshot changed: snapshots() and concurrent commits fail.",
        "Expire the snapshot, or correct its changes_made in ducklake_snapshot_changes (NULL is allowed).",
    ),
    "snapshot_counters": Problem(
        "fail",
        "The newest snapshot hands out ids that are in use: the next commit fails or mixes up objects.",
        _CATALOG_BACKUP,
    ),
    "table_without_columns": Problem(
        "fail", "DuckDB cannot open a catalog with such a table at all.", "Drop the table with Headwater."
    ),
    "column_nullability": Problem(
        "fail",
        "A column that says neither NULL nor NOT NULL: DuckDB cannot open the catalog at all.",
        "UPDATE ducklake_column SET nulls_allowed = true WHERE nulls_allowed IS NULL.",
    ),
    "view_aliases": Problem(
        "fail",
        "A view without column_aliases: DuckDB cannot open the catalog at all.",
        "Replace the view with Headwater, or set its column_aliases to ''.",
    ),
    "schema_version_missing": Problem(
        "fail",
        "No row in ducklake_schema_versions: DuckDB's merge_adjacent_files fails on this table.",
        "Change the table once with Headwater (a rename and back), which writes the row.",
    ),
    "table_stats_missing": Problem(
        "fail",
        "The table has data but no ducklake_table_stats: DuckDB numbers new rows from 0 and hides old ones.",
        _REWRITE,
    ),
    "row_ids_reused": Problem(
        "fail",
        "next_row_id is lower than a row id in use: new rows get ids that others have.",
        "Set next_row_id of ducklake_table_stats above the largest row id in use.",
    ),
    "column_bounds": Problem(
        "fail",
        "The table's statistics do not cover those of its files: DuckDB's filters miss rows.",
        "Delete the column's row from ducklake_table_column_stats; without it nothing is skipped.",
    ),
    "column_bounds_history": Problem(
        "warn",
        "The table's statistics do not cover files of older snapshots (DuckDB's rewrite_data_files narrows "
        "them): reading those snapshots with DuckDB can miss rows.",
        "Delete the column's row from ducklake_table_column_stats, or expire the older snapshots.",
    ),
    "partition_values_missing": Problem(
        "fail",
        "Files of a partitioned table without partition values: readers skip or refuse them.",
        _REWRITE,
    ),
    "encryption_key_missing": Problem(
        "fail", "A file without a key in an encrypted lake: DuckDB refuses to read it.", _CATALOG_BACKUP
    ),
    "table_unknown": Problem(
        "warn",
        "Rows about files of a table that the catalog does not know: nobody reads them.",
        "Leave them, or delete the rows; the files then count as orphaned.",
    ),
    "inlined_table_missing": Problem(
        "fail",
        "A registered table of inlined rows does not exist: reading the table fails.",
        "Restore it from a backup, or delete its row from ducklake_inlined_data_tables if it was empty.",
    ),
    "inlined_table_columns": Problem(
        "fail",
        "A table of inlined rows has other columns than the lake's table: "
        "DuckDB's next small insert fails, or lands in the wrong column.",
        "Change the table once with Headwater (a rename and back), which makes a new one.",
    ),
    "inlined_table_columns_unused": Problem(
        "warn",
        "A table of inlined rows has other columns than the lake's table (DuckDB changed it while inlining "
        "was off). Once inlining is on, DuckDB's next small insert fails, or lands in the wrong column.",
        "Before switching inlining on, change the table once with Headwater (a rename and back).",
    ),
    # -- the files --
    "file_missing": Problem(
        "fail", "A snapshot names files that are not in the store: reading it fails.", _RESTORE
    ),
    "file_size": Problem(
        "fail", "What is stored is not what was committed: the file was replaced or cut off.", _RESTORE
    ),
    "file_unreadable": Problem("fail", "The file's end is not that of a Parquet file.", _RESTORE),
    "record_count": Problem(
        "fail",
        "The catalog states another number of rows than the file holds: COUNT(*) is wrong.",
        "Correct record_count in ducklake_data_file.",
    ),
    "footer_size": Problem(
        "fail",
        "The catalog states another footer size than the file has: DuckDB cannot read it.",
        "Set footer_size to NULL, which is always right.",
    ),
    "delete_count": Problem(
        "fail",
        "The catalog states another number of deleted rows than the delete file holds: COUNT(*) is wrong.",
        "Correct delete_count in ducklake_delete_file.",
    ),
    "delete_positions": Problem(
        "fail",
        "A delete file whose positions are not ascending, or beyond the end of its data file: "
        "DuckDB refuses it.",
        _REWRITE,
    ),
    "file_orphaned": Problem(
        "warn",
        "Files that no snapshot names: left by a writer that was interrupted. They only take up space.",
        "`headwater cleanup --orphans` lists them, and with --remove-orphans removes those older than a day.",
    ),
}


def finding(
    code: str, table: str | None, message: str, examples: Iterable[object] = (), count: int = 0
) -> Finding:
    """A finding of a known kind; `count` defaults to the number of examples, of which only some are kept."""
    problem = PROBLEMS[code]
    listed = [str(example) for example in examples]
    return Finding(
        code,
        problem.severity,
        table,
        message,
        problem.meaning,
        problem.hint,
        count or len(listed) or 1,
        tuple(listed[:EXAMPLES]),
    )


@dataclass
class CatalogView:
    """The catalog inside one read-only transaction, for checks that ask it questions."""

    db: Database
    connection: Connection
    names: Mapping[TableId, str]
    """The newest name of every table that has ever been."""
    live: frozenset[TableId]
    """Tables of the newest snapshot."""
    schemas: Mapping[TableId, int]
    data_path: str
    options: LakeOptions

    @property
    def encrypted(self) -> bool:
        """Whether every file must have a key."""
        return self.options.encrypted

    def inlines(self, table_id: TableId) -> bool:
        """Whether small inserts into a table are kept in the catalog."""
        return inlining_limit(self.options, self.schemas.get(table_id), table_id) > 0

    def rows(self, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """The result of a query; `{ducklake_…}` in it are the catalog's tables."""
        return self.connection.execute(self._composed(text), parameters).fetchall()

    def stream(self, text: str, **parameters: Any) -> Cursor:
        """The same piece by piece, for results that may be large."""
        cursor = self.connection.cursor("headwater_health")
        cursor.itersize = 10_000
        return cursor.execute(self._composed(text), parameters)

    def exists(self, table: str) -> bool:
        """Whether there is such a table beside the catalog's own."""
        found = self.rows(
            "SELECT to_regclass(format('%%I.%%I', %(s)s::text, %(t)s::text)) IS NOT NULL",
            s=self.db.schema,
            t=table,
        )
        return bool(found[0][0])

    def name(self, table_id: TableId) -> str:
        """What to call a table."""
        return self.names.get(table_id, f"table id {table_id}")

    def _composed(self, text: str) -> sql.Composed:
        names = {part.split("}")[0] for part in text.split("{")[1:]}
        return sql.SQL(text).format(**{name: self.db.name(name) for name in names})
