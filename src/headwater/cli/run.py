"""`headwater run`."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Grid, Line, open_output
from headwater.cli.refreshes import error_lines, opened

if TYPE_CHECKING:
    from types import FrameType

    from headwater.engine.service import Service
    from headwater.scheduler.state import RunSummary


@dataclass(frozen=True)
class Ran:
    """What the service did."""

    summary: RunSummary
    #: A single round fails when something in it did; a service that was stopped did what it should.
    once: bool

    @property
    def exit_code(self) -> int:
        """1 when something failed in a single round."""
        return 1 if self.once and self.summary.failed else 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return self.summary.as_dict()

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        actions = sorted(self.summary.actions.items())
        if actions:
            yield Grid(
                ("what", "action", "times"),
                tuple((kind, action, f"{count:,}") for (kind, action), count in actions),
                right=frozenset({2}),
            )
        else:
            yield Line.of("nothing was due")
        for name, error in self.summary.failed.items():
            yield from error_lines(name, error)
        for name in self.summary.elsewhere:
            yield Line((("skip ", "skip"), (name, "bold"), (": another process works on it", "")))
        for name in self.summary.abandoned:
            yield Line((("warn ", "warn"), (name, "bold"), (" had not ended; nothing of it was applied", "")))
        yield Line.of(f"ran for {self.summary.seconds:.1f} seconds")


@click.command("run")
@click.option(
    "--once", is_flag=True, help="Do everything that is due, and end; exits with 1 if something failed."
)
@click.option("--for", "time", metavar="TIME", help="End by itself after this time: 60s, 5m, 1h.")
@click.option("--only", metavar="NAME", multiple=True, help="Only this stream table, source, sink or outbox.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of /health and /metrics; 0 is a free one.")
@click.option("--log-format", type=click.Choice(("text", "json")), help="Form of the log on standard error.")
@common_options
def command(
    once: bool, time: str | None, only: tuple[str, ...], port: int | None, log_format: str | None
) -> Ran:
    """Capture, refresh and publish on schedule, until stopped.

    Several processes may run on one lake: each item is worked on by one of them, and taken over by another
    when that one dies. SIGINT or SIGTERM ends it cleanly, a second one at once.
    """
    from dataclasses import replace

    seconds = None if time is None else _seconds(time)
    with opened("starting") as (hw, _):
        from headwater.engine.service import Service
        from headwater.scheduler.logs import logging_to

        settings = hw.settings.service
        settings = replace(
            settings,
            port=settings.port if port is None else port,
            log_format=log_format or settings.log_format,
        )
        with logging_to(sys.stderr, settings.log_format, debug=current().debug):
            service = Service(hw, settings, only=only, once=once)
            with stopped_by_signals(service):
                _greet(service)
                ran = Ran(service.run(seconds), once)
    leave_if_abandoned(ran)
    return ran


def leave_if_abandoned(ran: Ran) -> None:
    """End the process if threads of it are still busy: they would keep it, and nothing of theirs commits."""
    if ran.summary.abandoned:
        open_output(current().output).show(ran)
        sys.stdout.flush()
        os._exit(ran.exit_code)


def _seconds(text: str) -> int:
    from headwater.errors import SettingsError
    from headwater.refresh.options import parse_schedule

    try:
        found = parse_schedule(text).seconds
    except SettingsError:
        found = None
    if found is None:
        raise click.BadParameter(f"{text!r} is no time; write 60s, 5m or 1h.", param_hint="--for")
    return found


def _greet(service: Service) -> None:
    """Say what will be run, and where its health is."""
    items = service.items()
    counts: dict[str, Any] = {}
    for kind, shown in (
        ("source", "sources"),
        ("streams", "stream_tables"),
        ("sink", "sinks"),
        ("outbox", "outboxes"),
    ):
        counts[shown] = sum(len(item.names) for item in items if item.kind == kind)
    fields = {"process": service.id, **counts}
    if service.health_url is not None:
        fields["health"] = f"{service.health_url}/health"
    logging.getLogger("headwater.service").info("running", extra={"fields": fields})


@contextmanager
def stopped_by_signals(service: Service) -> Iterator[None]:
    """The first signal ends the service cleanly, the second one at once."""
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        service.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
