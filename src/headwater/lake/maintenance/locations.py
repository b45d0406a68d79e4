"""Where a lake's files are, and which of the files there are its own."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from psycopg import sql

from headwater.lake.connection import Connection, Database
from headwater.storage.locations import parse_location

#: How DuckDB and Headwater call the files they write, and the folders of Spark's writer.
_OUR_NAME = re.compile(
    r"(^|/)ducklake-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"(\.parquet|-delete\.parquet|-delete\.puffin|\.puffin|/(?:.*/)?[^/]+)$"
)
#: Local files of ours that are still being written, or were when their writer was killed.
_OUR_TEMPORARY = re.compile(r"(^|/)\.headwater-[^/]*\.tmp$")
_FULL_PATH = (
    "CASE WHEN NOT f.path_is_relative THEN f.path WHEN NOT t.path_is_relative THEN t.path || f.path "
    "WHEN NOT s.path_is_relative THEN s.path || t.path || f.path "
    "ELSE {data} || s.path || t.path || f.path END"
)


def is_ours(location: str, data_path: str) -> bool:
    """Whether a file that a catalog named is the lake's to remove: below its folder, or called as ours are.

    Files that somebody registered where they were belong to somebody else.

    >>> is_ours("s3://b/lake/main/t/x.parquet", "s3://b/lake/"), is_ours("s3://b/other/x.parquet", "s3://b/lake/")
    (True, False)
    """
    return location.startswith(data_path) or has_our_name(location)


def has_our_name(location: str) -> bool:
    """Whether a file is called as those that DuckDB and Headwater write.

    >>> has_our_name("t/ducklake-0199c0de-0000-7000-8000-000000000000-delete.parquet")
    True
    >>> has_our_name("t/x.parquet")
    False
    """
    return bool(_OUR_NAME.search(location) or _OUR_TEMPORARY.search(location))


def catalogs(connection: Connection) -> list[str]:
    """The schemas of the database that hold a lake: several may share a folder."""
    rows = connection.execute(
        "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relname = 'ducklake_metadata' AND c.relkind = 'r' ORDER BY 1"
    ).fetchall()
    return [row[0] for row in rows]


def named_files(
    db: Database, connection: Connection, data_path: str, among: Sequence[str] | None = None
) -> set[str]:
    """The locations that some snapshot of this lake names, of those given or all."""
    return _named(connection, db.schema, data_path, among, scheduled=False)


def known_files(db: Database, connection: Connection, data_path: str) -> set[str]:
    """The locations that any lake of the database names or has scheduled for removal."""
    known: set[str] = set()
    for schema in catalogs(connection):
        stated = data_path
        if schema != db.schema:
            row = connection.execute(
                sql.SQL("SELECT value FROM {} WHERE key = 'data_path' AND scope IS NULL").format(
                    sql.Identifier(schema, "ducklake_metadata")
                )
            ).fetchone()
            stated = "" if row is None else str(row[0])
        known |= _named(connection, schema, stated, None, scheduled=True)
    return known


def names_in_use(connection: Connection, names: Sequence[str]) -> set[str]:
    """Which of these file names (without folders) any lake of the database uses, wherever the file is."""
    used: set[str] = set()
    for schema in catalogs(connection):
        for table in ("ducklake_data_file", "ducklake_delete_file"):
            query = sql.SQL(
                "SELECT name FROM (SELECT regexp_replace(path, '^.*/', '') AS name FROM {}) f "
                "WHERE name = ANY(%s)"
            ).format(sql.Identifier(schema, table))
            used |= {row[0] for row in connection.execute(query, (list(names),)).fetchall()}
    return used


def one_spelling(location: str) -> tuple[str, str | None, str]:
    """A location however it is spelled: catalogs hold `/x`, `file:///x` and `s3a://` side by side."""
    place = parse_location(location)
    return place.kind, place.account, posixpath.normpath(place.path)


def _named(
    connection: Connection, schema: str, data_path: str, among: Sequence[str] | None, *, scheduled: bool
) -> set[str]:
    path = _FULL_PATH.format(data="%(data)s::text")
    parts = []
    for table in ("ducklake_data_file", "ducklake_delete_file"):
        parts.append(
            sql.SQL(
                f"SELECT {path} AS location FROM {{}} f JOIN (SELECT DISTINCT ON (table_id) table_id, path, "
                "path_is_relative, schema_id FROM {} ORDER BY table_id, begin_snapshot DESC) t "
                "ON t.table_id = f.table_id JOIN {} s ON s.schema_id = t.schema_id"
            ).format(
                sql.Identifier(schema, table),
                sql.Identifier(schema, "ducklake_table"),
                sql.Identifier(schema, "ducklake_schema"),
            )
        )
    if scheduled:
        parts.append(
            sql.SQL(
                "SELECT CASE WHEN path_is_relative THEN %(data)s::text || path ELSE path END FROM {}"
            ).format(sql.Identifier(schema, "ducklake_files_scheduled_for_deletion"))
        )
    query = sql.SQL("SELECT location FROM ({}) x").format(sql.SQL(" UNION ALL ").join(parts))
    if among is not None:
        query += sql.SQL(" WHERE location = ANY(%(among)s)")
    given = {"data": data_path, "among": None if among is None else list(among)}
    return {row[0] for row in connection.execute(query, given).fetchall()}
