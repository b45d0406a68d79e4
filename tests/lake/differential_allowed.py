"""Everything in which our catalog may differ from DuckDB's, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
        "Changing a column's type also moves next_file_id: DuckDB sessions keep statistics until it moves, "
        "in the type the column had, and die of an internal error when they compare them with another.",
        _counter_moves,
    ),
    "lost bounds": Difference(
        "Where new values have no bounds (nothing but NaN, or 256 bytes without an ASCII character), DuckDB "
        "forgets the bounds of the table's column, and then takes it for all NULL. Ours keeps bounds.",
        _bounds_are_kept,
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
