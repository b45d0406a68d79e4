"""`headwater outbox`: the changes of stream tables, delivered to consumers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Grid, Line, moment, open_output
from headwater.cli.refreshes import error_lines, opened

if TYPE_CHECKING:
    from headwater.engine import Headwater
    from headwater.sinks.outbox import Outbox, RelayResult


@dataclass(frozen=True)
class OutboxList:
    """Outboxes, and how far they have come."""

    outboxes: tuple[Outbox, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"outboxes": [outbox.as_dict() for outbox in self.outboxes]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.outboxes:
            yield Line.of("no outboxes")
            return
        yield Grid(
            ("name", "stream table", "to", "delivered", "last (UTC)", "up to snapshot"),
            tuple(
                (
                    one.name,
                    one.stream_table,
                    one.target,
                    f"{one.delivered:,}",
                    "" if one.delivered_at is None else moment(one.delivered_at),
                    str(one.position.snapshot_id),
                )
                for one in self.outboxes
            ),
            right=frozenset({3, 5}),
        )
        for one in self.outboxes:
            if one.failures:
                times = "once" if one.failures == 1 else f"{one.failures} times in a row"
                yield Line(
                    (("fail ", "fail"), (one.name, "bold"), (f" failed {times}: {one.last_error}", ""))
                )


@dataclass(frozen=True)
class Removed:
    """An outbox that is gone."""

    name: str
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"removed": self.name}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        yield Line.of(f"outbox {self.name} is removed; what it delivered stays")


@dataclass(frozen=True)
class Relayed:
    """What relays delivered."""

    results: tuple[RelayResult, ...]

    @property
    def exit_code(self) -> int:
        """1 when one failed."""
        return 1 if any(result.error is not None for result in self.results) else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"relays": [result.as_dict() for result in self.results]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.results:
            yield Line.of("no outboxes")
            return
        yield Grid(
            ("name", "stream table", "to", "events", "batches", "up to snapshot", "seconds"),
            tuple(
                (
                    one.name,
                    one.stream_table,
                    one.target,
                    f"{one.events:,}",
                    f"{one.batches:,}",
                    "" if one.snapshot_id is None else str(one.snapshot_id),
                    f"{one.seconds:.2f}",
                )
                for one in self.results
            ),
            right=frozenset(range(3, 7)),
        )
        for one in self.results:
            if one.error is not None:
                yield from error_lines(one.name, one.error)


@click.group("outbox")
@common_options
def command() -> None:
    """Deliver the changes of stream tables to a table, a webhook or standard output."""


@command.command("add")
@click.argument("stream_table", metavar="STREAM_TABLE")
@click.argument("name", metavar="NAME")
@click.option(
    "--to", required=True, metavar="TARGET", help="table:schema.name, https://…, stdout, or env:VARIABLE."
)
@click.option("--start", default="now", help="now, beginning, or the snapshot after which to begin.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header for a webhook; NAME=env:VARIABLE for a secret.",
)
@click.option("--batch", type=int, default=500, help="Events in a batch, at most.")
@click.option("--timeout", type=float, default=10.0, help="Seconds that a webhook has to answer.")
@common_options
def add(
    stream_table: str, name: str, to: str, start: str, headers: tuple[str, ...], batch: int, timeout: float
) -> OutboxList:
    """Attach an outbox to a stream table.

    Addresses and values of headers are kept encrypted. Those that are secret do not belong on a command
    line, where everybody on the machine can read them: env:VARIABLE takes them from the environment.
    """
    given = dict(_header(text) for text in headers)
    begin: str | int = int(start) if start.isdecimal() else start
    with opened("attaching") as (hw, _):
        made = hw.attach_outbox(
            stream_table, name, to, start=begin, headers=given, batch=batch, timeout=timeout
        )
        return OutboxList((made,))


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter("Write NAME=VALUE.", param_hint="--header")
    return name.strip(), value


@command.command("list")
@common_options
def list_(  # `list` is Python's own
) -> OutboxList:
    """List outboxes and how far they have come."""
    with opened("looking") as (hw, _):
        return OutboxList(tuple(hw.outboxes()))


@command.command("remove")
@click.argument("name", metavar="NAME")
@common_options
def remove(name: str) -> Removed:
    """Remove an outbox; what it delivered stays."""
    with opened("removing") as (hw, _):
        hw.detach_outbox(name)
        return Removed(name)


@command.command("relay")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--limit", type=click.IntRange(1), help="Deliver at most so many events of each.")
@click.option("--follow", is_flag=True, help="Go on until stopped.")
@common_options
def relay(names: tuple[str, ...], limit: int | None, follow: bool) -> Relayed | int | Any:
    """Deliver what is pending, in all outboxes or the named ones.

    `headwater run` does it by itself. Events for standard output are the only output then: one JSON
    document per line.
    """
    if follow and limit is not None:
        raise click.UsageError("--limit ends, and --follow does not.")
    with opened("relaying") as (hw, _):
        chosen = [one for one in hw.outboxes() if not names or one.name in names]
        for name in names:
            hw.outbox_relays.get(name)
        shown = any(one.target == "stdout" for one in chosen)
        if follow:
            return _follow(hw, names, quiet=shown)
        done = Relayed(tuple(hw.relay(list(names) or None, limit=limit)))
    if not shown:
        return done
    for result in done.results:
        if result.error is not None:
            open_output(current().output).fail(result.error)
    return done.exit_code


def _follow(hw: Headwater, names: tuple[str, ...], *, quiet: bool) -> Any:
    from headwater.cli.run import Ran, leave_if_abandoned, stopped_by_signals
    from headwater.engine.service import Service
    from headwater.scheduler.logs import logging_to

    with logging_to(sys.stderr, hw.settings.service.log_format, debug=current().debug):
        service = Service(hw, only=names, kinds=("outbox",))
        with stopped_by_signals(service):
            ran = Ran(service.run(), once=False)
    leave_if_abandoned(ran)
    return ran.exit_code if quiet else ran
