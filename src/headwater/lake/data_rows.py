"""The catalog rows of changed data: files, delete files, inlined rows, statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg import sql

from headwater.lake.changes import Change
from headwater.lake.connection import Database
from headwater.lake.draft import Draft, FileDeletes
from headwater.lake.facts import TableFacts
from headwater.lake.model import ColumnStats, StagedDeletes, StagedFile, Table
from headwater.lake.prepared import PreparedTable
from headwater.lake.schema_rows import Numbers
from headwater.lake.statements import Statement, end, insert, statement
from headwater.lake.statistics import TableColumnStats, merge_table_stats
from headwater.lake.values import can_have_inlined_table, inlined_pg_type, to_inlined_rows

_DATA_FILE_FIELDS = (
    "data_file_id",
    "table_id",
    "begin_snapshot",
    "path",
    "path_is_relative",
    "file_format",
    "record_count",
    "file_size_bytes",
    "footer_size",
    "row_id_start",
    "partition_id",
    "encryption_key",
    "partial_max",
)
_DELETE_FILE_FIELDS = (
    "delete_file_id",
    "table_id",
    "begin_snapshot",
    "data_file_id",
    "path",
    "path_is_relative",
    "format",
    "delete_count",
    "file_size_bytes",
    "footer_size",
    "encryption_key",
    "partial_max",
)
_FILE_STATS_FIELDS = (
    "data_file_id",
    "table_id",
    "column_id",
    "column_size_bytes",
    "value_count",
    "null_count",
    "min_value",
    "max_value",
    "contains_nan",
    "extra_stats",
)
_TABLE_STATS_FIELDS = (
    "table_id",
    "column_id",
    "contains_null",
    "contains_nan",
    "min_value",
    "max_value",
    "extra_stats",
)


@dataclass
class DataRows:
    """What the data part of a commit writes."""

    statements: list[Statement] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


def data_rows(
    db: Database,
    draft: Draft,
    prepared: Iterable[PreparedTable],
    facts: Mapping[int, TableFacts],
    layout_changed: set[int],
    inlining_limits: Mapping[int, int],
    numbers: Numbers,
) -> DataRows:
    """Everything the row changes of a draft need, and inlined tables for new column layouts."""
    rows = DataRows()
    by_table = {p.table.id: p for p in prepared}
    tables = {t.id: t for t in draft.tables.values()}
    bumped = numbers.schema_version
    fresh_inlined: dict[int, str] = {}
    for table_id in sorted(layout_changed, reverse=True):
        table = tables[table_id]
        known = facts.get(table_id)
        wanted = inlining_limits.get(table_id, 0) > 0 if table_id < 0 else bool(known and known.inlined)
        if wanted and can_have_inlined_table(table.columns) and not _fits(known, table):
            fresh_inlined[table_id] = _create_inlined(db, rows, numbers, table)
    for item in by_table.values():
        table = item.table
        fact = facts.get(table.id) or TableFacts()
        if item.inlined is not None and table.id not in fresh_inlined and not _fits(fact, table):
            # Inlining was switched on after the table was made, or DuckDB altered it while off.
            if numbers.schema_version == bumped and not layout_changed:
                numbers.schema_version += 1
            fresh_inlined[table.id] = _create_inlined(db, rows, numbers, table)
        target = fresh_inlined.get(table.id) or (fact.inlined[-1].name if fact.inlined else None)
        _TableWriter(db, rows, numbers, item, fact, target).write()
    return rows


def _fits(fact: TableFacts | None, table: Table) -> bool:
    """Does the newest inlined table have the table's columns?"""
    if fact is None or not fact.inlined:
        return False
    wanted = [(c.name, inlined_pg_type(c).replace("varchar", "character varying")) for c in table.columns]
    return list(fact.inlined[-1].columns) == wanted


def _create_inlined(db: Database, rows: DataRows, numbers: Numbers, table: Table) -> str:
    table_id = numbers.real(table.id)
    name = f"ducklake_inlined_data_{table_id}_{numbers.schema_version}"
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(c.name), sql.SQL(inlined_pg_type(c))) for c in table.columns
    ]
    head = sql.SQL("row_id bigint, begin_snapshot bigint, end_snapshot bigint")
    rows.statements += statement(
        sql.SQL("CREATE TABLE {} ({})").format(db.name(name), sql.SQL(", ").join([head, *columns]))
    )
    rows.statements += insert(
        db,
        "ducklake_inlined_data_tables",
        ("table_id", "table_name", "schema_version"),
        [(table_id, name, numbers.schema_version)],
    )
    return name


class _TableWriter:
    """Rows for one table's data."""

    def __init__(
        self,
        db: Database,
        rows: DataRows,
        numbers: Numbers,
        prepared: PreparedTable,
        fact: TableFacts,
        inlined_table: str | None,
    ):
        self.db = db
        self.rows = rows
        self.numbers = numbers
        self.prepared = prepared
        self.fact = fact
        self.inlined_table = inlined_table
        self.at = numbers.snapshot_id
        self.table_id = numbers.real(prepared.table.id)
        self.next_row_id = fact.next_row_id
        self.record_count = fact.record_count
        self.file_size = fact.file_size_bytes
        self.new_stats: list[ColumnStats] = []

    def write(self) -> None:
        # Ends come first: a row that is replaced has the same row id as its successor.
        self._end_inlined_rows()
        self._new_files()
        self._changed_files()
        self._inlined_rows()
        self._table_stats()

    def _change(self, token: str) -> None:
        self.rows.changes.append(Change(token, self.table_id))

    def _end_inlined_rows(self) -> None:
        data = self.prepared.data
        if data.truncated:
            for inlined in self.fact.inlined:
                self.rows.statements += statement(
                    sql.SQL("UPDATE {} SET end_snapshot = %s WHERE end_snapshot IS NULL").format(
                        self.db.name(inlined.name)
                    ),
                    (self.at,),
                )
            if self.fact.inlined:
                self._change("inlined_delete")
        for name, row_ids in data.inlined_deletes.items():
            if row_ids:
                self.rows.statements += statement(
                    sql.SQL(
                        "UPDATE {} SET end_snapshot = %s WHERE row_id = ANY(%s) AND end_snapshot IS NULL"
                    ).format(self.db.name(name)),
                    (self.at, sorted(row_ids)),
                    expected=len(row_ids),
                )
                self._change("inlined_delete")

    def _new_files(self) -> None:
        for new, deletes in self.prepared.new_files:
            staged = new.staged
            file_id = self.numbers.file_id()
            self._add_file(file_id, staged)
            if deletes is not None:
                self._add_delete_file(file_id, deletes)
            self._change("inserted_into_table")

    def _add_file(self, file_id: int, staged: StagedFile) -> None:
        partition = self.numbers.real(staged.partition_id) if staged.partition_id is not None else None
        # Rows that replace others carry their ids in the file. DuckDB drops those ids when it merges
        # files whose ranges look contiguous, unless there is no range.
        start = None if staged.has_row_ids else self.next_row_id
        self.rows.statements += insert(
            self.db,
            "ducklake_data_file",
            _DATA_FILE_FIELDS,
            [
                (
                    file_id,
                    self.table_id,
                    self.at,
                    staged.path,
                    staged.path_is_relative,
                    "parquet",
                    staged.record_count,
                    staged.file_size_bytes,
                    staged.footer_size,
                    start,
                    partition,
                    staged.encryption_key,
                    None,
                )
            ],
        )
        self.rows.statements += insert(
            self.db,
            "ducklake_file_column_stats",
            _FILE_STATS_FIELDS,
            file_stats(file_id, self.table_id, staged),
        )
        if partition is not None:
            self.rows.statements += insert(
                self.db,
                "ducklake_file_partition_value",
                ("data_file_id", "table_id", "partition_key_index", "partition_value"),
                [(file_id, self.table_id, i, v) for i, v in enumerate(staged.partition_values)],
            )
        self.next_row_id += staged.record_count
        self.record_count += staged.record_count
        self.file_size += staged.file_size_bytes
        self.new_stats += staged.column_stats

    def _add_delete_file(self, data_file_id: int, staged: StagedDeletes) -> None:
        first = self.at if staged.first_snapshot is None else staged.first_snapshot
        self.rows.statements += insert(
            self.db,
            "ducklake_delete_file",
            _DELETE_FILE_FIELDS,
            [
                (
                    self.numbers.file_id(),
                    self.table_id,
                    first,
                    data_file_id,
                    staged.path,
                    True,
                    "parquet",
                    staged.count,
                    staged.file_size_bytes,
                    staged.footer_size,
                    staged.encryption_key,
                    staged.last_snapshot,
                )
            ],
        )

    def _changed_files(self) -> None:
        ended = [(self.table_id, file_id) for file_id in sorted(self.prepared.data.ended_files)]
        inline: list[tuple[int, int, int]] = []
        for item in self.prepared.files:
            file_id = item.deletes.file.id
            if item.inline is not None:
                inline += [(file_id, int(position), self.at) for position in item.inline]
            elif item.delete_file is not None:
                self._replace_deletes(item.deletes)
                self._add_delete_file(file_id, item.delete_file)
                self._change("deleted_from_table")
            else:
                ended.append((self.table_id, file_id))
        if ended:
            self.rows.statements += end(
                self.db,
                "ducklake_data_file",
                ["table_id", "data_file_id"],
                self.at,
                ended,
                expected=len(ended),
            )
            self._change("deleted_from_table")
        if inline:
            name = f"ducklake_inlined_delete_{self.table_id}"
            if not self.fact.has_inlined_deletes:
                self.rows.statements += statement(
                    sql.SQL(
                        "CREATE TABLE IF NOT EXISTS {} (file_id bigint, row_id bigint, begin_snapshot bigint)"
                    ).format(self.db.name(name))
                )
            self.rows.statements += insert(self.db, name, ("file_id", "row_id", "begin_snapshot"), inline)
            self._change("inlined_delete")

    def _replace_deletes(self, deletes: FileDeletes) -> None:
        """Retire the delete files that a cumulative one replaces: rows gone, files scheduled."""
        if not deletes.delete_files:
            return
        self.rows.statements += retire_delete_files(self.db, deletes)
        # DuckDB does not notice two deletes on one file that already had a delete file, but it does
        # notice a delete beside an insert.
        self._change("inserted_into_table")

    def _inlined_rows(self) -> None:
        inlined = self.prepared.inlined
        if inlined is None or self.inlined_table is None:
            return
        columns = self.prepared.table.columns
        values = to_inlined_rows(inlined.table, columns)
        rows = []
        for row_id, row in zip(inlined.row_ids, values, strict=True):
            if row_id is None:
                row_id = self.next_row_id
                self.next_row_id += 1
            rows.append((row_id, self.at, *row))
        self.rows.statements += insert(
            self.db, self.inlined_table, ("row_id", "begin_snapshot", *(c.name for c in columns)), rows
        )
        self.record_count += len(rows)
        self.new_stats += self.prepared.inlined_stats
        self._change("inlined_insert")

    def _table_stats(self) -> None:
        if not self.new_stats and self.record_count == self.fact.record_count:
            return
        values = (self.record_count, self.next_row_id, self.file_size)
        if not self.fact.has_stats:
            self.rows.statements += insert(
                self.db,
                "ducklake_table_stats",
                ("table_id", "record_count", "next_row_id", "file_size_bytes"),
                [(self.table_id, *values)],
            )
        else:
            self.rows.statements += statement(
                sql.SQL(
                    "UPDATE {} SET record_count = %s, next_row_id = %s, file_size_bytes = %s "
                    "WHERE table_id = %s"
                ).format(self.db.name("ducklake_table_stats")),
                (*values, self.table_id),
            )
        self._column_stats()

    def _column_stats(self) -> None:
        """Widen the table's statistics, or take a row away where a bound is no longer known."""
        before = self.fact.column_stats
        after: dict[int, TableColumnStats | None] = dict(before)
        columns = self.prepared.table.by_id()
        pieces: dict[int, int] = {}
        for new in self.new_stats:
            pieces[new.column_id] = pieces.get(new.column_id, 0) + 1
        for new in self.new_stats:
            column = columns.get(new.column_id)
            if column is None or (self.fact.has_stats and new.column_id not in before):
                continue
            if not self.fact.has_stats and pieces[new.column_id] < max(pieces.values()):
                continue  # added halfway through the first data: rows before it are unknown to these
            if new.column_id in after and after[new.column_id] is None:
                continue
            after[new.column_id] = merge_table_stats(after.get(new.column_id), new, column.type)
        self._write_column_stats(before, after)

    def _write_column_stats(
        self, before: Mapping[int, TableColumnStats], after: Mapping[int, TableColumnStats | None]
    ) -> None:
        table = self.db.name("ducklake_table_column_stats")
        changed = [s for i, s in after.items() if s is not None and i in before and s != before[i]]
        if changed:
            self.rows.statements += statement(
                sql.SQL(
                    "UPDATE {} SET contains_null = %s, contains_nan = %s, min_value = %s, max_value = %s, "
                    "extra_stats = %s WHERE table_id = %s AND column_id = %s"
                ).format(table),
                *[
                    (
                        s.contains_null,
                        s.contains_nan,
                        s.min_value,
                        s.max_value,
                        s.extra_stats,
                        self.table_id,
                        s.column_id,
                    )
                    for s in changed
                ],
            )
        self.rows.statements += insert(
            self.db,
            "ducklake_table_column_stats",
            _TABLE_STATS_FIELDS,
            [
                (
                    self.table_id,
                    s.column_id,
                    s.contains_null,
                    s.contains_nan,
                    s.min_value,
                    s.max_value,
                    s.extra_stats,
                )
                for i, s in after.items()
                if s is not None and i not in before
            ],
        )
        removed = sorted(i for i, s in after.items() if s is None and i in before)
        if removed:
            self.rows.statements += statement(
                sql.SQL("DELETE FROM {} WHERE table_id = %s AND column_id = ANY(%s)").format(table),
                (self.table_id, removed),
            )


def file_stats(file_id: int, table_id: int, staged: StagedFile) -> list[tuple[Any, ...]]:
    """Statistics rows of one file."""
    return [
        (
            file_id,
            table_id,
            s.column_id,
            s.size_bytes,
            s.value_count,
            s.null_count,
            s.min_value,
            s.max_value,
            s.contains_nan,
            s.extra_stats,
        )
        for s in staged.column_stats
    ]


def retire_delete_files(db: Database, deletes: FileDeletes) -> list[Statement]:
    """Take replaced delete files out of the catalog and schedule them for deletion."""
    ids = [d.id for d in deletes.delete_files]
    return [
        *statement(
            sql.SQL(
                "INSERT INTO {} (data_file_id, path, path_is_relative, schedule_start) "
                "SELECT d.delete_file_id, CASE WHEN NOT d.path_is_relative THEN d.path "
                "WHEN NOT t.path_is_relative THEN t.path || d.path ELSE s.path || t.path || d.path END, "
                "d.path_is_relative AND t.path_is_relative AND s.path_is_relative, now() "
                "FROM {} d JOIN LATERAL (SELECT path, path_is_relative, schema_id FROM {} t "
                "WHERE t.table_id = d.table_id ORDER BY begin_snapshot DESC LIMIT 1) t ON true "
                "JOIN {} s ON s.schema_id = t.schema_id WHERE d.delete_file_id = ANY(%s)"
            ).format(
                db.name("ducklake_files_scheduled_for_deletion"),
                db.name("ducklake_delete_file"),
                db.name("ducklake_table"),
                db.name("ducklake_schema"),
            ),
            (ids,),
        ),
        *statement(
            sql.SQL("DELETE FROM {} WHERE delete_file_id = ANY(%s)").format(db.name("ducklake_delete_file")),
            (ids,),
            expected=len(ids),
        ),
    ]
