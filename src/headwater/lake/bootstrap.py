"""Creating a DuckLake 1.0 catalog, and refusing one of another version."""

from __future__ import annotations

import zlib
from uuid import uuid4

import psycopg
from psycopg import sql

from headwater._version import __version__
from headwater.errors import CatalogError
from headwater.lake.connection import Connection, Database
from headwater.lake.reading.indexes import create_indexes

FORMAT_VERSION = "1.0"

_ID = "bigint"
_TEXT = "varchar"
_FLAG = "boolean"

#: The 28 tables of DuckLake 1.0 with their columns in physical order.
CATALOG_TABLES: dict[str, dict[str, str]] = {
    "ducklake_metadata": {
        "key": "varchar NOT NULL",
        "value": "varchar NOT NULL",
        "scope": _TEXT,
        "scope_id": _ID,
    },
    "ducklake_snapshot": {
        "snapshot_id": "bigint PRIMARY KEY",
        "snapshot_time": "timestamptz",
        "schema_version": _ID,
        "next_catalog_id": _ID,
        "next_file_id": _ID,
    },
    "ducklake_snapshot_changes": {
        "snapshot_id": "bigint PRIMARY KEY",
        "changes_made": _TEXT,
        "author": _TEXT,
        "commit_message": _TEXT,
        "commit_extra_info": _TEXT,
    },
    "ducklake_schema": {
        "schema_id": "bigint PRIMARY KEY",
        "schema_uuid": "uuid",
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
        "schema_name": _TEXT,
        "path": _TEXT,
        "path_is_relative": _FLAG,
    },
    "ducklake_table": {
        "table_id": _ID,
        "table_uuid": "uuid",
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
        "schema_id": _ID,
        "table_name": _TEXT,
        "path": _TEXT,
        "path_is_relative": _FLAG,
    },
    "ducklake_column": {
        "column_id": _ID,
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
        "table_id": _ID,
        "column_order": _ID,
        "column_name": _TEXT,
        "column_type": _TEXT,
        "initial_default": _TEXT,
        "default_value": _TEXT,
        "nulls_allowed": _FLAG,
        "parent_column": _ID,
        "default_value_type": _TEXT,
        "default_value_dialect": _TEXT,
    },
    "ducklake_view": {
        "view_id": _ID,
        "view_uuid": "uuid",
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
        "schema_id": _ID,
        "view_name": _TEXT,
        "dialect": _TEXT,
        "sql": _TEXT,
        "column_aliases": _TEXT,
    },
    "ducklake_tag": {
        "object_id": _ID,
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
        "key": _TEXT,
        "value": _TEXT,
    },
    "ducklake_column_tag": {
        "table_id": _ID,
        "column_id": _ID,
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
        "key": _TEXT,
        "value": _TEXT,
    },
    "ducklake_data_file": {
        "data_file_id": "bigint PRIMARY KEY",
        "table_id": _ID,
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
        "file_order": _ID,
        "path": _TEXT,
        "path_is_relative": _FLAG,
        "file_format": _TEXT,
        "record_count": _ID,
        "file_size_bytes": _ID,
        "footer_size": _ID,
        "row_id_start": _ID,
        "partition_id": _ID,
        "encryption_key": _TEXT,
        "mapping_id": _ID,
        "partial_max": _ID,
    },
    "ducklake_delete_file": {
        "delete_file_id": "bigint PRIMARY KEY",
        "table_id": _ID,
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
        "data_file_id": _ID,
        "path": _TEXT,
        "path_is_relative": _FLAG,
        "format": _TEXT,
        "delete_count": _ID,
        "file_size_bytes": _ID,
        "footer_size": _ID,
        "encryption_key": _TEXT,
        "partial_max": _ID,
    },
    "ducklake_file_column_stats": {
        "data_file_id": _ID,
        "table_id": _ID,
        "column_id": _ID,
        "column_size_bytes": _ID,
        "value_count": _ID,
        "null_count": _ID,
        "min_value": _TEXT,
        "max_value": _TEXT,
        "contains_nan": _FLAG,
        "extra_stats": _TEXT,
    },
    "ducklake_file_variant_stats": {
        "data_file_id": _ID,
        "table_id": _ID,
        "column_id": _ID,
        "variant_path": _TEXT,
        "shredded_type": _TEXT,
        "column_size_bytes": _ID,
        "value_count": _ID,
        "null_count": _ID,
        "min_value": _TEXT,
        "max_value": _TEXT,
        "contains_nan": _FLAG,
        "extra_stats": _TEXT,
    },
    "ducklake_table_stats": {
        "table_id": _ID,
        "record_count": _ID,
        "next_row_id": _ID,
        "file_size_bytes": _ID,
    },
    "ducklake_table_column_stats": {
        "table_id": _ID,
        "column_id": _ID,
        "contains_null": _FLAG,
        "contains_nan": _FLAG,
        "min_value": _TEXT,
        "max_value": _TEXT,
        "extra_stats": _TEXT,
    },
    "ducklake_partition_info": {
        "partition_id": _ID,
        "table_id": _ID,
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
    },
    "ducklake_partition_column": {
        "partition_id": _ID,
        "table_id": _ID,
        "partition_key_index": _ID,
        "column_id": _ID,
        "transform": _TEXT,
    },
    "ducklake_file_partition_value": {
        "data_file_id": _ID,
        "table_id": _ID,
        "partition_key_index": _ID,
        "partition_value": _TEXT,
    },
    "ducklake_sort_info": {
        "sort_id": _ID,
        "table_id": _ID,
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
    },
    "ducklake_sort_expression": {
        "sort_id": _ID,
        "table_id": _ID,
        "sort_key_index": _ID,
        "expression": _TEXT,
        "dialect": _TEXT,
        "sort_direction": _TEXT,
        "null_order": _TEXT,
    },
    "ducklake_files_scheduled_for_deletion": {
        "data_file_id": _ID,
        "path": _TEXT,
        "path_is_relative": _FLAG,
        "schedule_start": "timestamptz",
    },
    "ducklake_inlined_data_tables": {"table_id": _ID, "table_name": _TEXT, "schema_version": _ID},
    "ducklake_column_mapping": {"mapping_id": _ID, "table_id": _ID, "type": _TEXT},
    "ducklake_name_mapping": {
        "mapping_id": _ID,
        "column_id": _ID,
        "source_name": _TEXT,
        "target_field_id": _ID,
        "parent_column": _ID,
        "is_partition": _FLAG,
    },
    "ducklake_schema_versions": {"begin_snapshot": _ID, "schema_version": _ID, "table_id": _ID},
    "ducklake_macro": {
        "schema_id": _ID,
        "macro_id": _ID,
        "macro_name": _TEXT,
        "begin_snapshot": _ID,
        "end_snapshot": _ID,
    },
    "ducklake_macro_impl": {"macro_id": _ID, "impl_id": _ID, "dialect": _TEXT, "sql": _TEXT, "type": _TEXT},
    "ducklake_macro_parameters": {
        "macro_id": _ID,
        "impl_id": _ID,
        "column_id": _ID,
        "parameter_name": _TEXT,
        "parameter_type": _TEXT,
        "default_value": _TEXT,
        "default_value_type": _TEXT,
    },
}


def catalog_exists(db: Database, connection: Connection) -> bool:
    """Is there a DuckLake catalog in the database's schema?"""
    # Not to_regclass: in a session that looked before, and has waited for the lock since, it still remembers
    # that there is no such table.
    found = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = 'ducklake_metadata')",
        (db.schema,),
    ).fetchall()
    return bool(found[0][0])


def create_catalog(db: Database, data_path: str, *, encrypted: bool = False) -> bool:
    """Create an empty lake; returns False where another process was first."""
    with db.connection() as connection, connection.transaction():
        # One creator at a time: CREATE SCHEMA IF NOT EXISTS alone races with itself.
        number = zlib.crc32(f"headwater create {db.schema}".encode())
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
        if catalog_exists(db, connection):
            return False
        if db.schema != "public":
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(db.schema)))
        try:
            _create_tables(db, connection)
            create_indexes(db, connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise CatalogError(
                f"This user may not create tables in schema {db.schema!r} ({db.shown}).",
                detail=str(error).splitlines()[0],
                hint=f"GRANT CREATE ON SCHEMA {db.schema} TO the user, or choose another metadata_schema.",
            ) from None
        _insert_first_rows(db, connection, data_path, encrypted)
        return True


def _create_tables(db: Database, connection: Connection) -> None:
    for table, columns in CATALOG_TABLES.items():
        definition = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.items()
        )
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(db.name(table), definition))


def _insert_first_rows(db: Database, connection: Connection, data_path: str, encrypted: bool) -> None:
    facts = {
        "version": FORMAT_VERSION,
        "created_by": f"Headwater {__version__}",
        "data_path": data_path,
        "encrypted": "true" if encrypted else "false",
    }
    for fact, value in facts.items():
        connection.execute(
            sql.SQL("INSERT INTO {} (key, value) VALUES (%s, %s)").format(db.name("ducklake_metadata")),
            (fact, value),
        )
    connection.execute(
        sql.SQL(
            "INSERT INTO {} (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) "
            "VALUES (0, now(), 0, 1, 0)"
        ).format(db.name("ducklake_snapshot"))
    )
    connection.execute(
        sql.SQL("INSERT INTO {} (snapshot_id, changes_made) VALUES (0, %s)").format(
            db.name("ducklake_snapshot_changes")
        ),
        ('created_schema:"main"',),
    )
    connection.execute(
        sql.SQL(
            "INSERT INTO {} (schema_id, schema_uuid, begin_snapshot, schema_name, path, path_is_relative) "
            "VALUES (0, %s, 0, 'main', 'main/', true)"
        ).format(db.name("ducklake_schema")),
        (uuid4(),),
    )


def check_version(version: str | None, where: str) -> None:
    """Refuse a catalog of another format version, with what to do."""
    if version == FORMAT_VERSION:
        return
    if version is None:
        raise CatalogError(
            f"The DuckLake catalog in {where} states no format version.",
            hint="It was not created by DuckLake, or its creation was interrupted; restore it from a backup.",
        )
    older = version.split("-")[0] in ("0.1", "0.2", "0.3", "0.4")
    raise CatalogError(
        f"The DuckLake catalog in {where} has format version {version}; "
        f"Headwater reads and writes version {FORMAT_VERSION}.",
        hint=(
            "Back the catalog up, then attach it once with DuckDB 1.5 and the option AUTOMATIC_MIGRATION."
            if older
            else "Use a Headwater release made for that version; nothing was changed."
        ),
        version=version,
        supported=FORMAT_VERSION,
    )
