"""Outboxes of stream tables: attached, relayed, looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from headwater.errors import HeadwaterError, InvalidInputError, NotFoundError, OutboxError
from headwater.lake.catalog import table_name
from headwater.lake.connection import Database
from headwater.lake.lake import Lake
from headwater.lake.secrets import FROM_ENVIRONMENT, Secrets
from headwater.lake.writing.transaction import Transaction
from headwater.refresh.store import StreamStore
from headwater.scheduler.leases import PATIENCE, Leases
from headwater.sinks.outbox import (
    Outbox,
    Position,
    RelayResult,
    TargetKind,
    TargetText,
    check_headers,
    check_name,
    parse_target,
)
from headwater.sinks.outbox_feed import Feed
from headwater.sinks.outbox_store import OutboxStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headwater.refresh.model import StreamTable
    from headwater.sinks.relay_targets import RelayTarget

#: How long a relay by hand keeps others from the same outbox if its process dies.
_LEASE_SECONDS = 10.0
_MOST_IN_A_BATCH = 10_000


class Outboxes:
    """The outboxes of one lake. Spark is not needed for any of it."""

    def __init__(self, lake: Lake, streams: StreamStore):
        self._lake = lake
        self._streams = streams
        self.store = OutboxStore(lake)
        self._secrets = Secrets(lake)
        self._targets: dict[str, tuple[Outbox, RelayTarget]] = {}
        self._lock = threading.Lock()

    def all(self) -> list[Outbox]:
        """All outboxes, by name."""
        return self.store.all()

    def get(self, name: str) -> Outbox:
        """One outbox."""
        found = self.store.get(name)
        if found is None:
            known = [outbox.name for outbox in self.all()]
            raise NotFoundError(
                f"There is no outbox {name}.",
                hint=f"There are: {', '.join(known)}." if known else "Attach one with attach_outbox.",
                outbox=name,
            )
        return found

    def followed(self) -> list[tuple[Outbox, int]]:
        """All outboxes whose stream table is there, with the id of the table that holds its result."""
        tables = {stream.id: stream.storage.table_id for stream in self._streams.all()}
        return [(each, tables[each.stream_id]) for each in self.all() if each.stream_id in tables]

    # -- attaching ----------------------------------------------------------------------------------

    def attach(
        self,
        stream_table: str,
        name: str,
        to: str,
        *,
        start: str | int = "now",
        headers: Mapping[str, str] | None = None,
        batch: int = 500,
        timeout: float = 10.0,
    ) -> Outbox:
        """Attach an outbox to a stream table."""
        target = parse_target(self._secrets.get(to))
        if to.startswith(FROM_ENVIRONMENT) and target.kind is TargetKind.WEBHOOK:
            target = replace(target, place=to)
        if headers and target.kind is not TargetKind.WEBHOOK:
            raise InvalidInputError("Only webhooks have headers.", hint="Leave them out.")
        checked = check_headers(headers or {})
        if not 1 <= batch <= _MOST_IN_A_BATCH:
            raise InvalidInputError(f"A batch has 1 to {_MOST_IN_A_BATCH:,} events, not {batch}.")
        if not 0 < timeout <= 600:
            raise InvalidInputError(f"A webhook is given up to 600 seconds to answer, not {timeout}.")
        if self.store.get(check_name(name)) is not None:
            raise InvalidInputError(
                f"There is already an outbox {name}.", hint="Choose another name, or detach that one first."
            )
        stream = self._stream(stream_table)
        self.store.ensure()
        outbox = Outbox(
            name,
            stream.id,
            str(stream.name),
            target.kind,
            target.shown,
            target.place,
            self._begin(stream, start),
            batch=batch,
            timeout=timeout,
        )
        if target.kind is TargetKind.TABLE:
            self._attach_table(outbox)
        else:
            self._attach_sealed(outbox, target, checked)
        return self.get(name)

    def _stream(self, name: str) -> StreamTable:
        found = self._streams.get(table_name(name))
        if found is None:
            known = [str(stream.name) for stream in self._streams.all()]
            raise NotFoundError(
                f"There is no stream table {name}.",
                hint=f"There are: {', '.join(known[:10])}." if known else None,
                stream_table=name,
            )
        return found

    def _begin(self, stream: StreamTable, start: str | int) -> Position:
        """Where an outbox begins: now, at the beginning of the result, or after a snapshot."""
        table = self._lake.table(stream.storage.table)
        if start == "now":
            return Position(table.id, self._lake.snapshot().id)
        if start == "beginning":
            return Position(table.id, table.begin_snapshot - 1)
        if isinstance(start, int) and not isinstance(start, bool):
            if start < table.begin_snapshot - 1 or start > self._lake.snapshot().id:
                raise InvalidInputError(
                    f"{stream.name} cannot be relayed from snapshot {start}.",
                    detail=f"Its result begins at snapshot {table.begin_snapshot}.",
                    hint="Use 'now', 'beginning', or the number of a snapshot since then.",
                )
            return Position(table.id, start)
        raise InvalidInputError(
            f"{start!r} is no place to start from.", hint="Use 'now', 'beginning', or a snapshot's number."
        )

    def _attach_table(self, outbox: Outbox) -> None:
        from headwater.sinks.relay_targets import TABLE_COLUMNS

        name = table_name(outbox.place)
        if any(stage.table == name for stream in self._streams.all() for stage in stream.stages) or (
            self._streams.get(name) is not None
        ):
            raise InvalidInputError(f"{name} belongs to a stream table.", hint="Name a table of its own.")

        def work(tx: Transaction) -> None:
            tx.create_schema(name.schema, if_not_exists=True)
            tx.create_table(name, dict(TABLE_COLUMNS), if_not_exists=True)
            found = {column.name: column.type for column in tx.state.table(name).columns}
            missing = [column for column, kind in TABLE_COLUMNS.items() if found.get(column) != kind]
            if missing:
                raise InvalidInputError(
                    f"Table {name} has no column {missing[0]!r} of type {TABLE_COLUMNS[missing[0]]}.",
                    hint="Name a table that does not exist yet: it is made as it has to be.",
                    table=str(name),
                )
            tx.join(self.store.insert_with(outbox))

        self._lake.run(work, message=f"attach outbox {outbox.name}")

    def _attach_sealed(self, outbox: Outbox, target: TargetText, headers: Mapping[str, str]) -> None:
        kept: list[str] = []

        def seal(text: str) -> str:
            if text.startswith(FROM_ENVIRONMENT):
                self._secrets.get(text)  # a variable that is missing is told now
                return text
            kept.append(self._secrets.put(text))
            return kept[-1]

        try:
            place = seal(target.place) if target.kind is TargetKind.WEBHOOK else ""
            sealed = {name: seal(value) for name, value in headers.items()}
            self.store.insert(replace(outbox, place=place, headers=sealed))
        except BaseException:
            for reference in kept:
                self._secrets.delete(reference)
            raise

    def detach(self, name: str) -> None:
        """Remove an outbox; what it delivered stays."""
        outbox = self.get(name)
        self._forget(name)
        if self.store.delete(name):
            for reference in (*outbox.headers.values(), outbox.place):
                self._secrets.delete(reference)

    # -- relaying -----------------------------------------------------------------------------------

    def relay(
        self,
        names: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        stdout: IO[str] | None = None,
    ) -> list[RelayResult]:
        """Deliver what is pending; each outbox by one process at a time.

        One that fails is one of the results, with the error, and does not stop the others.
        """
        chosen = self.all() if names is None else [self.get(name) for name in names]
        results = []
        for outbox in chosen:
            try:
                with self._leased(outbox) as still_mine:
                    results.append(self.relay_one(outbox.name, still_mine, limit=limit, stdout=stdout))
            except HeadwaterError as error:
                failed = RelayResult(outbox.name, outbox.stream_table, outbox.target, error=error.as_dict())
                results.append(failed)
        return results

    def relay_one(
        self,
        name: str,
        still_mine: Callable[[], bool],
        *,
        limit: int | None = None,
        stdout: IO[str] | None = None,
    ) -> RelayResult:
        """Deliver what is pending of an outbox that is this process's own."""
        from headwater.sinks.relay import Relay

        outbox = self.get(name)
        stream = next((each for each in self._streams.all() if each.id == outbox.stream_id), None)
        if stream is None:
            raise OutboxError(
                f"Stream table {outbox.stream_table} of outbox {name} is not there any more.",
                hint=f"Detach it: headwater outbox remove {name}.",
                outbox=name,
            )
        feed = Feed(
            self._lake,
            stream.id,
            str(stream.name),
            stream.storage.table,
            lambda after, count: self.store.refreshes(stream.id, after, count),
        )
        return Relay(self.store, outbox, feed, self._target(outbox, stdout), still_mine).run(limit)

    @contextmanager
    def _leased(self, outbox: Outbox) -> Iterator[Callable[[], bool]]:
        """Keep a service from the same outbox while it is relayed by hand."""
        db = Database(self._lake.dsn, self._lake.metadata_schema, patience=PATIENCE)
        lease = f"outbox:{outbox.name}"
        leases = Leases(
            db, _LEASE_SECONDS, standing=False, working_on=lambda: f"relay of {outbox.name}", attended=False
        )
        leases.want([lease])
        leases.start()
        try:
            if not leases.holds(lease):
                raise OutboxError(
                    f"Outbox {outbox.name} is relayed by another process.",
                    hint="A running service does it; stop that, or let it.",
                    outbox=outbox.name,
                )
            yield lambda: leases.holds(lease)
        finally:
            leases.stop()
            db.close()

    def _target(self, outbox: Outbox, stdout: IO[str] | None) -> RelayTarget:
        """Where an outbox delivers to; connections to webhooks are kept."""
        from headwater.sinks.relay_targets import StdoutTarget, TableTarget, WebhookTarget

        if outbox.kind is TargetKind.TABLE:
            return TableTarget(self._lake, self.store)
        if outbox.kind is TargetKind.STDOUT:
            return StdoutTarget(self.store, stdout)
        with self._lock:
            known = self._targets.get(outbox.name)
            if known is not None and (known[0].place, known[0].headers) == (outbox.place, outbox.headers):
                return known[1]
        headers = {name: self._secrets.get(value) for name, value in outbox.headers.items()}
        target = WebhookTarget(
            self.store,
            self._secrets.get(outbox.place),
            headers,
            batch=outbox.batch,
            timeout=outbox.timeout,
        )
        self._forget(outbox.name)
        with self._lock:
            self._targets[outbox.name] = (outbox, target)
        return target

    def _forget(self, name: str) -> None:
        with self._lock:
            known = self._targets.pop(name, None)
        if known is not None:
            known[1].close()

    def close(self) -> None:
        """Close connections to webhooks."""
        for name in list(self._targets):
            self._forget(name)


__all__ = ["Outboxes"]
