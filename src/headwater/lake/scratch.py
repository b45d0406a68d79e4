"""Databases that are made anew each time: for demos, never for data."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import conninfo, sql

from headwater.lake.embedded import EmbeddedServer, open_server


def open_emptied(folder: Path) -> EmbeddedServer:
    """The server of `folder`, its database emptied; whoever is connected to it is sent away."""
    server = open_server(folder)
    try:
        database = str(conninfo.conninfo_to_dict(server.dsn)["dbname"])
        name = sql.Identifier(database)
        with psycopg.connect(conninfo.make_conninfo(server.dsn, dbname="postgres"), autocommit=True) as c:
            c.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
            c.execute(sql.SQL("CREATE DATABASE {}").format(name))
    except BaseException:
        server.stop_if_unused()
        raise
    return server


def fresh_database(server_dsn: str, name: str) -> str:
    """A database beside the one of an address, empty even if it was there; returns its address."""
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        identifier = sql.Identifier(name)
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
    return conninfo.make_conninfo(server_dsn, dbname=name)
