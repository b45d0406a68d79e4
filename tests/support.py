"""What many tests need: databases, DuckDB sessions on a lake, and ways to look at a catalog."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from psycopg import sql

_numbers = itertools.count(1)


def extension(name: str) -> str:
    """The file of a DuckDB extension wheel; nothing is downloaded."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    assert spec.origin is not None
    return str(next(Path(spec.origin).parent.glob("extensions/*/*.duckdb_extension")))


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def duck(dsn: str, data_path: str | Path | None = None, *, alias: str = "lake", **options: Any) -> Any:
    """A DuckDB session with the lake attached by DuckDB's own extension and in use."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("ducklake", "postgres_scanner"):
        connection.execute(f"LOAD {literal(extension(name))}")
    connection.execute("SET TimeZone = 'UTC'")
    if data_path is not None:
        options["DATA_PATH"] = str(data_path)
    given = ", ".join(
        f"{key.upper()} {value if isinstance(value, (bool, int)) else literal(str(value))}"
        for key, value in options.items()
    )
    connection.execute(
        f"ATTACH {literal('ducklake:postgres:' + dsn)} AS {alias}" + (f" ({given})" if given else "")
    )
    connection.execute(f"USE {alias}")
    return connection


def create_database(server_dsn: str, name: str | None = None) -> str:
    """A fresh database on the test server; returns its libpq dsn."""
    name = name or f"lake_{next(_numbers)}"
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return psycopg.conninfo.make_conninfo(server_dsn, dbname=name)


def catalog_rows(dsn: str, table: str, schema: str = "public") -> list[dict[str, Any]]:
    """All rows of one catalog table, as dictionaries."""
    with psycopg.connect(dsn) as connection:
        cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
        return cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))).fetchall()


def catalog_tables(dsn: str, schema: str = "public") -> list[str]:
    """Names of all tables in the catalog's schema."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1", (schema,)
        ).fetchall()
        return [row[0] for row in rows]
