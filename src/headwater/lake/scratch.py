"""An embedded server whose lake is made anew each time: for demos, never for data."""

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
