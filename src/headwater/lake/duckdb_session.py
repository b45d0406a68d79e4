"""A DuckDB session with a lake attached, through DuckDB's own extension."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb
from psycopg import conninfo

from headwater.errors import CatalogError, HeadwaterError, UnsupportedError
from headwater.lake.connection import Database
from headwater.storage.duckdb_secret import duckdb_secret
from headwater.storage.options import StorageOptions


def extension_file(name: str) -> Path:
    """The file of an extension from its installed package; nothing is downloaded."""
    package = f"duckdb_extension_{name}"
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UnsupportedError(
            f"DuckDB's extension {name!r} is not installed.",
            hint=f"pip install duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}",
        )
    found = next(Path(spec.origin).parent.glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension"), None)
    if found is None:
        raise UnsupportedError(
            f"The installed extension {name!r} is not for DuckDB {duckdb.__version__}.",
            hint=f"pip install duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}",
        )
    return found


def literal(text: str) -> str:
    """An SQL string."""
    return "'" + text.replace("'", "''") + "'"


def attach(
    db: Database,
    storage: StorageOptions,
    data_path: str,
    *,
    alias: str = "lake",
    use: bool = True,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> duckdb.DuckDBPyConnection:
    """Attach the lake to a DuckDB session (a new one by default) under `alias`.

    Passwords and keys travel as DuckDB secrets, never inside the ATTACH text, which errors repeat.
    """
    session = connection or duckdb.connect()
    names = ["ducklake", "postgres_scanner"]
    remote = "://" in data_path and not data_path.startswith("file://")
    if remote:
        names.append("httpfs")
    for name in names:
        session.execute(f"LOAD {literal(str(extension_file(name)))}")
    session.execute("SET TimeZone = 'UTC'")
    secret = f"headwater_{alias}"
    parameters = conninfo.conninfo_to_dict(db.dsn)
    session.execute(
        f"CREATE OR REPLACE SECRET {_quoted(secret)} (TYPE postgres, PASSWORD ?)",
        [str(parameters.pop("password", None) or "")],
    )
    if storage_secret := duckdb_secret(storage, data_path, name=f"{secret}_store"):
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
    if use:
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
