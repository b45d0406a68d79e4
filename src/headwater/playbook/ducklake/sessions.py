"""DuckDB sessions on lakes, opened once by a worker and kept attached.

`catalog_name` is the PostgreSQL schema that holds the catalog, so two names in one database are two lakes,
and `public` is the one that Headwater itself (or DuckDB, left to its defaults) has made there. The files of a
lake that is created here lie in a folder of that name below `data_path`: what cleans up one lake never meets
the files of another. A lake that exists may have its files in `data_path` itself.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from headwater.errors import NotFoundError, SettingsError
from headwater.lake import duckdb_session
from headwater.lake.duckdb_session import literal
from headwater.lake.lake import Lake, normal_data_path
from headwater.playbook.credentials.types import dsn_for, dsn_secrets
from headwater.playbook.ducklake.guarding import CommitLock
from headwater.playbook.results.failures import field_error
from headwater.playbook.task import Worker
from headwater.typedefs import quote_name

#: Names that PostgreSQL, DuckDB or Headwater use for something else.
_TAKEN = frozenset(("headwater", "information_schema", "memory", "temp", "system"))
_SETTINGS: Mapping[str, str] = {
    # The extension's own retries look at rows that are old by then, and have doubled and lost some.
    "ducklake_max_retry_count": "0",
    "errors_as_json": "true",
    "arrow_lossless_conversion": "true",
    "TimeZone": "'UTC'",
    # What is needed is loaded from installed packages.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # A table that is not there is an error, not a variable of this program.
    "python_enable_replacements": "false",
}


@dataclass(frozen=True, slots=True)
class LakePlace:
    """Which lake a task is about, and with what DuckDB works on it."""

    dsn: str = field(repr=False)
    catalog: str
    data_path: str
    create: bool = True
    memory_limit: str | None = None
    threads: int | None = None

    @property
    def secrets(self) -> list[str]:
        """What no message may contain."""
        return dsn_secrets(self.dsn)


def lake_place(fields: Mapping[str, Any], worker: Worker) -> LakePlace:
    """The lake that a task's fields name."""
    catalog, data_path = fields.get("catalog_name"), fields.get("data_path")
    for name, value in (("catalog_name", catalog), ("data_path", data_path)):
        if not isinstance(value, str) or not value.strip():
            raise field_error(f"`{name}` must be a text, and not an empty one.")
    catalog = str(catalog)
    if catalog.lower() in _TAKEN or catalog.lower().startswith("pg_") or set(catalog) & set("/\\\0%"):
        raise field_error(f"{catalog!r} cannot be a catalog_name.", "Choose letters, digits and _.")
    threads, memory = fields.get("threads"), fields.get("memory_limit")
    return LakePlace(
        dsn_for(fields, worker),
        catalog,
        str(data_path),
        fields.get("create_catalog") is not False,
        None if memory is None else str(memory),
        None if threads is None else int(threads),
    )


def open_lake(place: LakePlace) -> Lake:
    """The lake itself; created if it is not there and may be."""
    try:
        lake = Lake.open(place.dsn, metadata_schema=place.catalog, create=False)
    except NotFoundError:
        if not place.create:
            raise NotFoundError(
                f"There is no catalog {place.catalog!r}, and `create_catalog` is false.",
                hint="Check catalog_name and the database, or let the step create it.",
                catalog=place.catalog,
            ) from None
        below = normal_data_path(place.data_path) + place.catalog
        lake = Lake.open(place.dsn, data_path=below, metadata_schema=place.catalog)
    stated = normal_data_path(lake.data_path)
    wanted = normal_data_path(place.data_path)
    if stated not in (wanted, wanted + place.catalog + "/"):
        lake.close()
        raise SettingsError(
            f"The files of catalog {place.catalog!r} are in {stated}, not in {wanted}.",
            hint="Write that data_path, or choose another catalog_name.",
            data_path=stated,
        )
    return lake


class LakeSession:
    """A DuckDB in memory with one lake attached, and the connection by which commits wait for each other."""

    def __init__(self, place: LakePlace, worker_id: str):
        self.place = place
        self.worker_id = worker_id
        self.lake = open_lake(place)
        self.lock = CommitLock(self.lake.db)
        self._duckdb: duckdb.DuckDBPyConnection | None = None
        self._cursor: tuple[bool, duckdb.DuckDBPyConnection] | None = None
        self._side: duckdb.DuckDBPyConnection | None = None
        self.staged: set[str] = set()
        """Tables of the side cursor, see `appending`."""
        self.appends = True
        """Whether INSERTs of given rows may be committed by Headwater itself."""

    def cursor(self, *, use: bool = True) -> duckdb.DuckDBPyConnection:
        """The cursor for a task's statements: what one task leaves behind there, `discard` removes."""
        if self._cursor is not None and self._cursor[0] == use:
            return self._cursor[1]
        self.discard()
        self._cursor = use, self._new_cursor(use=use)
        return self._cursor[1]

    def side_cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for work of our own, which no task sees."""
        if self._side is None:
            self._side = self._new_cursor(use=True)
        return self._side

    def discard(self) -> None:
        """Forget the task's cursor with its variables, temporary tables and transaction."""
        if self._cursor is not None:
            self._cursor[1].close()
            self._cursor = None

    def reset(self) -> None:
        """Forget DuckDB and all connections; they are opened anew when they are needed."""
        self.discard()
        for one in (self._side, self._duckdb):
            if one is not None:
                with contextlib.suppress(duckdb.Error):
                    one.close()
        self._side = self._duckdb = None
        self.staged.clear()
        self.lock.close()

    def close(self) -> None:
        """Close everything."""
        self.reset()
        self.lake.close()

    def _new_cursor(self, *, use: bool) -> duckdb.DuckDBPyConnection:
        if self._duckdb is None:
            self._duckdb = self._attach()
        cursor = self._duckdb.cursor()
        cursor.execute("SET VARIABLE worker_id = ?", [self.worker_id])
        if use:
            cursor.execute(f"USE {quote_name(self.place.catalog)}")
        return cursor

    def _attach(self) -> duckdb.DuckDBPyConnection:
        lake = self.lake
        elsewhere = {table.path for table in lake.state().tables.values() if not table.path_is_relative}
        # The extensions are files of installed packages; to verify their signatures takes half a second.
        session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        duckdb_session.attach(
            lake.db,
            lake.store.options,
            lake.data_path,
            alias=self.place.catalog,
            encrypted=lake.options().encrypted,
            folders=sorted(elsewhere),
            session=session,
        )
        spill = Path(tempfile.gettempdir()) / f"headwater-duckdb-{os.getuid()}"
        settings = {**_SETTINGS, "temp_directory": literal(str(spill))}
        if self.place.memory_limit is not None:
            settings["memory_limit"] = literal(self.place.memory_limit)
        if self.place.threads is not None:
            settings["threads"] = str(self.place.threads)
        for name, value in settings.items():
            try:
                session.execute(f"SET GLOBAL {name} = {value}")
            except duckdb.Error as error:
                session.close()
                raise field_error(f"`{name}` cannot be {value}: {str(error).splitlines()[0]}") from None
        return session


class SessionPool:
    """The sessions of a worker: those used last, up to `most`."""

    def __init__(self, most: int = 8):
        self._most = most
        self._sessions: OrderedDict[LakePlace, LakeSession] = OrderedDict()

    def session(self, place: LakePlace, worker_id: str) -> LakeSession:
        """The session on a lake, opened if there is none."""
        found = self._sessions.pop(place, None) or LakeSession(place, worker_id)
        found.worker_id = worker_id
        self._sessions[place] = found
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)[1].close()
        return found

    def close(self) -> None:
        """Close them all."""
        while self._sessions:
            self._sessions.popitem()[1].close()


def session_for(place: LakePlace, worker: Worker) -> LakeSession:
    """The worker's session on a lake."""
    pool: SessionPool = worker.kept(("ducklake sessions",), SessionPool)
    return pool.session(place, worker.id)
