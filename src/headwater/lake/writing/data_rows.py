"""The catalog rows of changed data: files, delete files, inlined rows, statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field

from psycopg import sql

from headwater.lake.connection import Database
from headwater.lake.format.changes import Change
from headwater.lake.format.statistics import merge_table_stats
from headwater.lake.format.values import can_have_inlined_table, inlined_pg_type, to_inlined_rows
from headwater.lake.model import ColumnStats, NameMapping, StagedFile, Table
from headwater.lake.writing.compaction_rows import compaction_statements
from headwater.lake.writing.draft import Draft
from headwater.lake.writing.facts import InlinedTable, TableFacts
from headwater.lake.writing.file_rows import column_mapping, data_file, delete_file, retire_delete_files
from headwater.lake.writing.flush_rows import flush_statements
from headwater.lake.writing.prepared import PreparedTable
from headwater.lake.writing.schema_rows import Numbers
from headwater.lake.writing.statements import Statement, end, insert, statement

_TABLE_STATS_FIELDS = (
    "table_id",
    "column_id",
    "contains_null",
    "contains_nan",
    "min_value",
    "max_value",
    "extra_stats",
)

#: How PostgreSQL names the types that we (and DuckDB) give it by a shorter name.
_LONG_NAMES = {
    "varchar": "character varying",
    "time": "time without time zone",
    "timetz": "time with time zone",
}


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
    reshaped: set[int],
    inlining_limits: Mapping[int, int],
    numbers: Numbers,
) -> DataRows:
    """Everything the row changes of a draft need, and inlined tables for new column layouts."""
    rows = DataRows()
    by_table = {p.table.id: p for p in prepared}
    tables = {t.id: t for t in draft.tables.values()}
    bumped = numbers.schema_version
    fresh_inlined: dict[int, InlinedTable] = {}
    for table_id in sorted(reshaped, reverse=True):
        table = tables[table_id]
        known = facts.get(table_id)
        # Where inlining is off now, DuckDB forgets this and its next small insert fails.
        wanted = inlining_limits.get(table_id, 0) > 0 or bool(known and known.inlined)
        if wanted and can_have_inlined_table(table.columns):
            fresh_inlined[table_id] = _create_inlined(db, rows, numbers, table)
    for item in by_table.values():
        table = item.table
        fact = facts.get(table.id) or TableFacts()
        if item.inlined is not None and table.id not in fresh_inlined and not _fits(fact, table):
            # Inlining was switched on after the table was made, or DuckDB altered it while off.
            if numbers.schema_version == bumped and not reshaped:
                numbers.schema_version += 1
            fresh_inlined[table.id] = _create_inlined(db, rows, numbers, table)
        target = fact.inlined[-1] if fact.inlined else None
        _TableWriter(db, rows, numbers, item, fact, fresh_inlined.get(table.id, target)).write()
    return rows


def _fits(fact: TableFacts | None, table: Table) -> bool:
    """Does the newest inlined table have the table's columns? (DuckDB's may have names in lower case.)"""
    if fact is None or not fact.inlined:
        return False
    kinds = ((c.name.lower(), inlined_pg_type(c)) for c in table.columns)
    wanted = [(name, _LONG_NAMES.get(kind, kind)) for name, kind in kinds]
    return [(name.lower(), kind) for name, kind in fact.inlined[-1].columns] == wanted


def _create_inlined(db: Database, rows: DataRows, numbers: Numbers, table: Table) -> InlinedTable:
    table_id = numbers.real(table.id)
    name = f"ducklake_inlined_data_{table_id}_{numbers.schema_version}"
    typed = tuple((c.name, inlined_pg_type(c)) for c in table.columns)
    columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in typed]
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
    return InlinedTable(name, numbers.schema_version, typed)


class _TableWriter:
    """Rows for one table's data."""

    def __init__(
        self,
        db: Database,
        rows: DataRows,
        numbers: Numbers,
        prepared: PreparedTable,
        fact: TableFacts,
        inlined_table: InlinedTable | None,
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
        if self.prepared.data.flush is not None:
            statements, changes, size = flush_statements(
                self.db, self.table_id, self.prepared.data.flush, self.numbers
            )
            self.rows.statements += statements
            self.rows.changes += changes
            self.file_size += size
        if self.prepared.data.replaced:
            statements, changes, size = compaction_statements(
                self.db,
                self.table_id,
                self.prepared.data.replaced,
                self.numbers,
                has_inlined_deletes=self.fact.has_inlined_deletes,
            )
            self.rows.statements += statements
            self.rows.changes += changes
            self.file_size = max(0, self.file_size + size)
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
            mapping_id = None if staged.mapping is None else self._mapping_id(staged.mapping)
            file_id = self.numbers.file_id()
            self._add_file(file_id, staged, mapping_id)
            if deletes is not None:
                self.rows.statements += delete_file(self.db, self.numbers, self.table_id, file_id, deletes)
            self._change("inserted_into_table")

    def _mapping_id(self, mapping: tuple[NameMapping, ...]) -> int:
        """The table's mapping of these names; files that name their columns alike share one."""
        known = self.fact.mappings.get(mapping)
        if known is None:
            known = self.fact.mappings[mapping] = self.numbers.file_id()
            self.rows.statements += column_mapping(self.db, known, self.table_id, mapping)
        return known

    def _add_file(self, file_id: int, staged: StagedFile, mapping_id: int | None) -> None:
        # Rows that replace others carry their ids in the file. DuckDB drops those ids when it merges
        # files whose ranges look contiguous, unless there is no range.
        start = None if staged.has_row_ids else self.next_row_id
        self.rows.statements += data_file(
            self.db, self.numbers, file_id, self.table_id, staged, self.at, None, start, mapping_id
        )
        self.next_row_id += staged.record_count
        self.record_count += staged.record_count
        self.file_size += staged.file_size_bytes
        self.new_stats += staged.column_stats

    def _changed_files(self) -> None:
        ended = [(self.table_id, file_id) for file_id in sorted(self.prepared.data.ended_files)]
        inline: list[tuple[int, int, int]] = []
        for item in self.prepared.files:
            file_id = item.deletes.file.id
            if item.inline is not None:
                inline += [(file_id, int(position), self.at) for position in item.inline]
            elif item.delete_file is not None:
                # A cumulative file replaces those before it: their rows go, the files are scheduled.
                self.rows.statements += retire_delete_files(self.db, item.deletes)
                self.rows.statements += delete_file(
                    self.db, self.numbers, self.table_id, file_id, item.delete_file
                )
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
        if any(item.inline is not None or item.delete_file is not None for item in self.prepared.files):
            # A DuckDB transaction that deletes from the same file and commits later does not notice all
            # of these (not a cumulative delete file that replaces one, not deletes through the catalog
            # beside a delete file), and counts rows wrong forever after. It does notice an insert.
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
        names = (name for name, _ in self.inlined_table.columns)
        self.rows.statements += insert(
            self.db, self.inlined_table.name, ("row_id", "begin_snapshot", *names), rows
        )
        self.record_count += len(rows)
        self.new_stats += self.prepared.inlined_stats
        self._change("inlined_insert")

    def _table_stats(self) -> None:
        before = (self.fact.record_count, self.fact.next_row_id, self.fact.file_size_bytes)
        if before == (self.record_count, self.next_row_id, self.file_size):
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
        merged = merge_table_stats(
            self.fact.column_stats if self.fact.has_stats else None,
            self._complete_stats(),
            self.prepared.table.columns,
        )
        table = self.db.name("ducklake_table_column_stats")
        if merged.changed:
            self.rows.statements += statement(
                sql.SQL(
                    "UPDATE {} SET contains_null = %s, contains_nan = %s, min_value = %s, max_value = %s, "
                    "extra_stats = %s WHERE table_id = %s AND column_id = %s"
                ).format(table),
                *[(*astuple(s)[1:], self.table_id, s.column_id) for s in merged.changed],
            )
        self.rows.statements += insert(
            self.db,
            "ducklake_table_column_stats",
            _TABLE_STATS_FIELDS,
            [(self.table_id, *astuple(s)) for s in merged.added],
        )
        if merged.removed:
            self.rows.statements += statement(
                sql.SQL("DELETE FROM {} WHERE table_id = %s AND column_id = ANY(%s)").format(table),
                (self.table_id, sorted(merged.removed)),
            )

    def _complete_stats(self) -> list[ColumnStats]:
        """Statistics of the columns that every piece of the new data has.

        A column that was added halfway through a table's first data says nothing about the rows before it.
        """
        pieces = Counter(stats.column_id for stats in self.new_stats)
        most = max(pieces.values(), default=0)
        return [stats for stats in self.new_stats if pieces[stats.column_id] == most]
