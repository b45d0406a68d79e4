"""Indexes on catalog tables that scans are planned by.

DuckDB creates none, and reads the rows of all tables for every plan. PostgreSQL keeps ours up to date whoever
writes, so they serve lakes that DuckDB made just as well; nothing depends on them being there.
"""

from __future__ import annotations

import logging

import psycopg
from psycopg import sql

from headwater.lake.connection import Connection, Database

log = logging.getLogger("headwater.lake")

#: An index entry has at most some 2,700 bytes, and what does not fit could not be stored at all. So longer
#: statistics (DuckDB writes none) and partition values are left out of the index, and of pruning.
SHORT_STATISTICS = (
    "coalesce(octet_length({0}min_value), 0) < 1000 AND coalesce(octet_length({0}max_value), 0) < 1000"
)
SHORT_VALUE = "coalesce(octet_length({0}partition_value), 0) < 1000"

_INDEXES = {
    "headwater_file_column_stats": (
        "ducklake_file_column_stats",
        "(table_id, column_id, data_file_id) "
        "INCLUDE (value_count, null_count, min_value, max_value, contains_nan) "
        f"WHERE {SHORT_STATISTICS.format('')}",
    ),
    "headwater_data_file": (
        "ducklake_data_file",
        "(table_id, data_file_id) INCLUDE (begin_snapshot, end_snapshot, partition_id)",
    ),
    "headwater_delete_file": ("ducklake_delete_file", "(table_id, data_file_id)"),
    "headwater_file_partition_value": (
        "ducklake_file_partition_value",
        "(table_id, partition_key_index, data_file_id) INCLUDE (partition_value) "
        f"WHERE {SHORT_VALUE.format('')}",
    ),
}


def missing_indexes(db: Database, connection: Connection) -> list[str]:
    """Names of the indexes that the catalog does not have."""
    rows = connection.execute(
        "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND indexname = ANY(%s)",
        (db.schema, list(_INDEXES)),
    ).fetchall()
    found = {row[0] for row in rows}
    return [name for name in _INDEXES if name not in found]


def create_indexes(db: Database, connection: Connection) -> list[str]:
    """Create what is missing; returns their names. Writers wait while an index of a large catalog is built.

    A role that may not create indexes goes without: plans are right all the same, and slower.
    """
    created = []
    for name in missing_indexes(db, connection):
        table, definition = _INDEXES[name]
        statement = sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} {}").format(
            sql.Identifier(name), db.name(table), sql.SQL(definition)
        )
        try:
            with connection.transaction():
                connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            log.info("no right to create the index %s on %s; scans are planned without it", name, table)
            continue
        created.append(name)
    return created
