"""Leases of readers: for as long as one lasts, its snapshot does not expire and its files are not removed.

with lake.lease(version, holder="monthly report"):
    ...

A lease is a row that is renewed while the block runs. A reader that is killed stops renewing, and its lease
ends by itself. DuckDB's own expiry knows nothing of them.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import uuid4

from headwater.errors import HeadwaterError, InvalidInputError, SnapshotError
from headwater.lake.connection import Connection, Database
from headwater.lake.maintenance.locking import in_turn
from headwater.lake.maintenance.model import Hold
from headwater.lake.own import ComponentStore, component_version, lake_id, write
from headwater.typedefs import SnapshotId

log = logging.getLogger("headwater.maintenance")

COMPONENT = "reader_lease"
_VERSIONS = (
    (
        """CREATE TABLE headwater.reader_lease (
            lake_id uuid NOT NULL, lease_id uuid NOT NULL, snapshot_id bigint NOT NULL, holder text NOT NULL,
            started_at timestamptz NOT NULL DEFAULT clock_timestamp(), expires_at timestamptz NOT NULL,
            PRIMARY KEY (lake_id, lease_id))""",
    ),
)
_LIVE = "lake_id = %s AND expires_at > clock_timestamp()"


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease that somebody holds."""

    snapshot_id: SnapshotId
    holder: str
    started_at: datetime
    expires_at: datetime

    @property
    def hold(self) -> Hold:
        """The same for whoever expires snapshots."""
        return Hold(self.snapshot_id, f"reader {self.holder}", onwards=False)


class ReaderLease:
    """A lease on one snapshot, renewed in the background while its block runs."""

    def __init__(self, db: Database, snapshot_id: SnapshotId, seconds: float, holder: str):
        if not seconds > 0:
            raise InvalidInputError("A lease lasts for more than 0 seconds.")
        self._db = db
        self._seconds = seconds
        self._id = str(uuid4())
        self._store = ComponentStore(db, COMPONENT, _VERSIONS)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.snapshot_id = snapshot_id
        self.holder = holder

    def __enter__(self) -> Self:
        self._take()
        self._thread = threading.Thread(target=self._renew_until_end, name="headwater-lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        lake = self._store.ensure()
        write(
            self._db,
            lambda connection: connection.execute(
                "DELETE FROM headwater.reader_lease WHERE lake_id = %s AND lease_id = %s", (lake, self._id)
            ),
        )

    def _take(self) -> None:
        lake = self._store.ensure()

        def work(connection: Connection) -> bool:
            found = connection.execute(
                self._db.text("SELECT FROM {ducklake_snapshot} WHERE snapshot_id = %s"), (self.snapshot_id,)
            ).fetchone()
            connection.execute(
                "DELETE FROM headwater.reader_lease WHERE lake_id = %s AND expires_at < clock_timestamp()",
                (lake,),
            )
            if found is not None:
                connection.execute(
                    "INSERT INTO headwater.reader_lease (lake_id, lease_id, snapshot_id, holder, expires_at) "
                    "VALUES (%s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s)) "
                    "ON CONFLICT DO NOTHING",
                    (lake, self._id, self.snapshot_id, self.holder, self._seconds),
                )
            return found is not None

        # Not while snapshots expire: either the lease is seen by that, or the snapshot is gone already.
        if not in_turn(self._db, work, alone=False):
            raise SnapshotError(
                f"There is no snapshot {self.snapshot_id} to lease.",
                hint="It may have expired; take a newer one.",
                snapshot_id=self.snapshot_id,
            )

    def _renew_until_end(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            try:
                self.renew()
            except HeadwaterError as error:
                log.warning("the lease of %s could not be renewed: %s", self.holder, error.message)

    def renew(self) -> None:
        """Let it last for its whole time from now; called by itself while the block runs."""
        lake = self._store.ensure()
        write(
            self._db,
            lambda connection: connection.execute(
                "UPDATE headwater.reader_lease SET expires_at = clock_timestamp() "
                "+ make_interval(secs => %s) WHERE lake_id = %s AND lease_id = %s",
                (self._seconds, lake, self._id),
            ),
        )


def live_leases(db: Database, connection: Connection) -> list[LeaseInfo]:
    """The leases that last, oldest first."""
    lake = lake_id(db, connection)
    if lake is None or not component_version(connection, COMPONENT):
        return []
    rows = connection.execute(
        "SELECT snapshot_id, holder, started_at, expires_at FROM headwater.reader_lease "
        f"WHERE {_LIVE} ORDER BY started_at",
        (lake,),
    ).fetchall()
    return [LeaseInfo(*row) for row in rows]
