"""What the catalog says of a table at the moment of a commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from headwater.lake.connection import Connection, Database
from headwater.lake.format.conform import name_mapping
from headwater.lake.format.statistics import TableColumnStats
from headwater.lake.model import NameMapping


@dataclass(frozen=True)
class InlinedTable:
    """A table in the catalog's database that holds small inserts."""

    name: str
    schema_version: int
    columns: tuple[tuple[str, str], ...]
    """Names and PostgreSQL types of the user's columns."""


@dataclass
class TableFacts:
    """What the catalog says of one table at the moment of the commit."""

    record_count: int = 0
    next_row_id: int = 0
    file_size_bytes: int = 0
    has_stats: bool = False
    column_stats: dict[int, TableColumnStats] = field(default_factory=dict)
    inlined: list[InlinedTable] = field(default_factory=list)
    live_files: set[int] = field(default_factory=set)
    live_deletes: dict[int, set[int]] = field(default_factory=dict)
    has_inlined_deletes: bool = False
    mappings: dict[tuple[NameMapping, ...], int] = field(default_factory=dict)
    """Names of columns in files and the mapping's id; asked for only where new files have such names."""


class FactsQuery:
    """Asks for the facts of several tables; sent with the commit's first round trip."""

    def __init__(
        self,
        db: Database,
        connection: Connection,
        table_ids: list[int],
        file_ids: list[int],
        mapped: list[int],
    ):
        """`mapped` are the tables that get files with a name mapping."""
        self._table_ids = table_ids

        def run(text: str, *parameters: Any) -> Any:
            return connection.execute(db.text(text), parameters)

        self._stats = run(
            "SELECT table_id, record_count, next_row_id, file_size_bytes FROM {ducklake_table_stats} "
            "WHERE table_id = ANY(%s)",
            table_ids,
        )
        self._column_stats = run(
            "SELECT table_id, column_id, contains_null, contains_nan, min_value, max_value, extra_stats "
            "FROM {ducklake_table_column_stats} WHERE table_id = ANY(%s)",
            table_ids,
        )
        self._inlined = run(
            "SELECT i.table_id, i.table_name, i.schema_version, "
            "ARRAY(SELECT ARRAY[a.attname::text, format_type(a.atttypid, a.atttypmod)] FROM pg_attribute a "
            "WHERE a.attrelid = to_regclass(format('%%I.%%I', %s::text, i.table_name)) "
            "AND a.attnum > 3 AND NOT a.attisdropped ORDER BY a.attnum) "
            "FROM {ducklake_inlined_data_tables} i WHERE i.table_id = ANY(%s) ORDER BY i.schema_version",
            db.schema,
            table_ids,
        )
        self._inlined_deletes = connection.execute(
            "SELECT t FROM unnest(%s::bigint[]) t "
            "WHERE to_regclass(format('%%I.%%I', %s::text, 'ducklake_inlined_delete_' || t)) IS NOT NULL",
            (table_ids, db.schema),
        )
        self._mappings: Any = None
        if mapped:
            self._mappings = run(
                "SELECT m.table_id, m.mapping_id, n.column_id, n.source_name, n.target_field_id, "
                "n.parent_column, n.is_partition FROM {ducklake_column_mapping} m "
                "JOIN {ducklake_name_mapping} n ON n.mapping_id = m.mapping_id "
                "WHERE m.table_id = ANY(%s) AND m.type = 'map_by_name' ORDER BY m.mapping_id, n.column_id",
                mapped,
            )
        self._files: Any = None
        self._deletes: Any = None
        if not file_ids:  # most commits only add rows
            return
        self._files = run(
            "SELECT table_id, data_file_id FROM {ducklake_data_file} "
            "WHERE data_file_id = ANY(%s) AND end_snapshot IS NULL",
            file_ids,
        )
        self._deletes = run(
            "SELECT table_id, data_file_id, delete_file_id FROM {ducklake_delete_file} "
            "WHERE data_file_id = ANY(%s) AND end_snapshot IS NULL",
            file_ids,
        )

    def result(self) -> dict[int, TableFacts]:
        """The facts by table id."""
        facts = {table_id: TableFacts() for table_id in self._table_ids}
        for table_id, record_count, next_row_id, size in self._stats.fetchall():
            fact = facts[table_id]
            fact.record_count, fact.next_row_id, fact.file_size_bytes = record_count, next_row_id, size
            fact.has_stats = True
        for table_id, column_id, *rest in self._column_stats.fetchall():
            facts[table_id].column_stats[column_id] = TableColumnStats(column_id, *rest)
        for table_id, name, version, columns in self._inlined.fetchall():
            facts[table_id].inlined.append(InlinedTable(name, version, tuple((n, t) for n, t in columns)))
        for (table_id,) in self._inlined_deletes.fetchall():
            facts[table_id].has_inlined_deletes = True
        for (table_id, mapping_id), rows in groupby(
            self._mappings.fetchall() if self._mappings else (), itemgetter(0, 1)
        ):
            facts[table_id].mappings[name_mapping(row[2:] for row in rows)] = mapping_id
        for table_id, file_id in self._files.fetchall() if self._files else ():
            facts[table_id].live_files.add(file_id)
        for table_id, file_id, delete_id in self._deletes.fetchall() if self._deletes else ():
            facts[table_id].live_deletes.setdefault(file_id, set()).add(delete_id)
        return facts
