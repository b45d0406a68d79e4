"""`headwater status`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Grid, Line, moment
from headwater.cli.refreshes import opened

if TYPE_CHECKING:
    from headwater.refresh.status import StreamStatus


@dataclass(frozen=True)
class StatusList:
    """How all stream tables are."""

    streams: tuple[StreamStatus, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"stream_tables": [stream.as_dict() for stream in self.streams]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.streams:
            yield Line.of("no stream tables")
            return
        yield Grid(
            (
                "name",
                "status",
                "mode",
                "schedule",
                "last",
                "refreshed (UTC)",
                "of snapshot",
                "pending",
                "lag",
            ),
            tuple(
                (
                    one.name,
                    str(one.status),
                    str(one.mode),
                    one.schedule or "",
                    one.last_action or "",
                    "" if one.refreshed_at is None else moment(one.refreshed_at),
                    "" if one.data_snapshot_id is None else str(one.data_snapshot_id),
                    f"{one.pending_rows:,}",
                    duration(one.lag_seconds),
                )
                for one in self.streams
            ),
            right=frozenset({6, 7, 8}),
        )
        for one in self.streams:
            for sink in one.sinks:
                if sink.failures:
                    since = "" if sink.failing_since is None else f" since {moment(sink.failing_since)}"
                    text = f" {sink.sink} failed {sink.failures} times{since}: {sink.last_error}"
                    yield Line((("sink ", "fail"), (one.name, "bold"), (text, "")))
            if one.catch_up_due:
                text = " computed only its result of late: the next change that is followed catches up first"
                yield Line((("note ", ""), (one.name, "bold"), (text, "")))
            if one.failures:
                times = "once" if one.failures == 1 else f"{one.failures} times in a row"
                yield Line(
                    (("fail ", "fail"), (one.name, "bold"), (f" failed {times}: {one.last_error}", ""))
                )


def duration(seconds: float) -> str:
    """A length of time for people.

    >>> duration(0), duration(75), duration(7322), duration(200_000)
    ('', '1m 15s', '2h 2m', '2d 7h')
    """
    whole = int(seconds)
    if seconds <= 0:
        return ""
    for size, unit, smaller, smaller_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size}{unit} {whole % size // smaller}{smaller_unit}"
    return f"{seconds:.1f}s"


@click.command("status")
@common_options
def command() -> StatusList:
    """Show which stream tables are fresh, behind or suspended."""
    with opened("looking") as (hw, _):
        return StatusList(tuple(hw.status()))
