"""A DuckDB session with a lake attached, through DuckDB's own extension."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from psycopg import conninfo

from headwater.errors import CatalogError, HeadwaterError
from headwater.lake.connection import Database
from headwater.storage.duckdb_engine import extension_file
from headwater.storage.duckdb_secret import duckdb_secret
from headwater.storage.locations import parse_location
from headwater.storage.options import StorageOptions


def literal(text: str) -> str:
    """An SQL string."""
    return "'" + text.replace("'", "''") + "'"


def attach(
    db: Database,
    storage: StorageOptions,
    data_path: str,
    *,
    alias: str = "lake",
    encrypted: bool = False,
    folders: Sequence[str] = (),
    session: duckdb.DuckDBPyConnection | None = None,
) -> duckdb.DuckDBPyConnection:
    """A DuckDB session, a new one unless it is given, with the lake attached under `alias` and in use.

    `folders` are those of tables whose files lie elsewhere than below the data path. Passwords and keys
    travel as DuckDB secrets, never inside the ATTACH text, which errors repeat.
    """
    session = session or duckdb.connect()
    names = ["ducklake", "postgres_scanner"]
    places = [place for place in (data_path, *folders) if not parse_location(place).is_local]
    if encrypted or places:
        names.append("httpfs")  # for object stores, and for its cryptography
    for name in names:
        session.execute(f"LOAD {literal(str(extension_file(name)))}")
    session.execute("SET TimeZone = 'UTC'")
    secret = f"headwater_{alias}"
    parameters = conninfo.conninfo_to_dict(db.dsn)
    session.execute(
        f"CREATE OR REPLACE SECRET {_quoted(secret)} (TYPE postgres, PASSWORD ?)",
        [str(parameters.pop("password", None) or "")],
    )
    for number, place in enumerate(places):
        if storage_secret := duckdb_secret(storage, place, name=f"{secret}_store_{number}"):
            session.execute(*storage_secret)
    session.execute(
        f"CREATE OR REPLACE SECRET {_quoted(secret + '_lake')} (TYPE ducklake, METADATA_PATH ?, "
        f"METADATA_PARAMETERS MAP {{'TYPE': 'postgres', 'SECRET': {literal(secret)}}})",
        [conninfo.make_conninfo("", **parameters)],
    )
    try:
        session.execute(
            f"ATTACH {literal('ducklake:' + secret + '_lake')} AS {_quoted(alias)} "
            f"(METADATA_SCHEMA {literal(db.schema)}, DATA_PATH {literal(data_path)}, OVERRIDE_DATA_PATH true)"
        )
    except duckdb.Error as error:
        raise _explained(error, db) from None
    session.execute(f"USE {_quoted(alias)}")
    return session


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _explained(error: duckdb.Error, db: Database) -> HeadwaterError:
    text = str(error).split("\n\nLINE")[0]
    password = conninfo.conninfo_to_dict(db.dsn).get("password")
    if password:
        text = text.replace(str(password), "***")
    return CatalogError(f"DuckDB could not attach the lake ({db.shown}).", detail=text)
