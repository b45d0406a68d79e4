"""Structured logs: one line per refresh, capture and delivery, as text or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any

from headwater.scheduler.work import Report

log = logging.getLogger("headwater.service")

_VERBS = {
    "streams": "refresh",
    "source": "capture",
    "sink": "delivery",
    "outbox": "relay",
    "maintenance": "maintenance",
}


def log_report(report: Report) -> None:
    """Write the line about something that was done. What found nothing to do is for debugging only."""
    fields: dict[str, Any] = {
        "kind": _VERBS[report.kind],
        "name": report.name,
        "action": report.action,
        "seconds": round(report.seconds, 3),
        **{name: value for name, value in report.fields.items() if value not in (None, "")},
    }
    if report.error is not None:
        fields["error"] = dict(report.error)
    level = logging.WARNING if not report.ok else logging.INFO
    if report.action == "NO_DATA":
        level = logging.DEBUG
    said = f"{report.message}" if report.error is not None else ""
    log.log(level, "%s", said, extra={"fields": fields})


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {"time": _moment(record), "level": record.levelname.lower()}
        if message := record.getMessage():
            line["message"] = message
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """A record as one line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        shown = " ".join(_pair(name, value) for name, value in fields.items() if name != "error")
        message = " ".join(record.getMessage().split())
        parts = [_moment(record), f"{record.levelname.lower():<7}", message, shown]
        line = " ".join(part for part in parts if part)
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


@contextmanager
def logging_to(stream: IO[str], form: str, *, debug: bool = False) -> Iterator[None]:
    """Write what Headwater logs to a stream.

    Only Headwater's own loggers: those of libraries may show addresses and what they hold.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    own = logging.getLogger("headwater")
    level, own.level = own.level, logging.NOTSET
    own.setLevel(logging.DEBUG if debug else logging.INFO)
    own.addHandler(handler)
    try:
        yield
    finally:
        own.removeHandler(handler)
        own.setLevel(level)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _pair(name: str, value: Any) -> str:
    text = str(value)
    return f"{name}={json.dumps(text, ensure_ascii=False) if ' ' in text or not text else text}"
