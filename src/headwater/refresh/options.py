"""Options of stream tables: their names, the values they take, and schedules."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from headwater.errors import SettingsError
from headwater.lake.catalog import table_name
from headwater.refresh.model import Mode
from headwater.sinks.addresses import check_address
from headwater.sinks.model import SINK_OPTIONS, SinkKind, SinkMode
from headwater.storage.locations import parse_location
from headwater.typedefs import STORAGE_SCHEMA, TableName

log = logging.getLogger("headwater.refresh")

#: Under this name a stream table remembers the project folder it came from.
PROJECT = "project"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_EVERY = re.compile(r"(\d+)\s*([smhd])", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: (what, lowest, highest, names) of the fields of a cron expression.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_SCHEDULE_HINT = (
    "Write '5s', '10m', '1h', '2d', a cron expression such as '0 6 * * mon-fri', 'on change' or 'downstream'."
)
CODECS = ("snappy", "zstd", "gzip", "lz4", "none")


@dataclass(frozen=True)
class Schedule:
    """When a stream table is to be refreshed."""

    kind: Literal["every", "cron", "change", "downstream"]
    text: str
    #: Of `every`.
    seconds: int | None = None


def parse_schedule(text: str) -> Schedule:
    """Read a schedule.

    >>> parse_schedule("10m").seconds, parse_schedule("*/5 8-18 * * mon-fri").kind
    (600, 'cron')
    """
    given = text.strip()
    if given.lower() == "downstream":
        return Schedule("downstream", "downstream")
    if given.lower().split() == ["on", "change"]:
        return Schedule("change", "on change")
    every = _EVERY.fullmatch(given)
    if every is not None:
        number, unit = int(every[1]), every[2].lower()
        if number == 0:
            raise _bad(
                "schedule", text, "the time between refreshes must be more than nothing", _SCHEDULE_HINT
            )
        return Schedule("every", f"{number}{unit}", number * _SECONDS[unit])
    fields = given.split()
    if len(fields) != len(_FIELDS):
        why = f"a cron expression has 5 fields, this has {len(fields)}" if len(fields) > 1 else None
        raise _bad("schedule", text, why, _SCHEDULE_HINT)
    for field, (what, low, high, names) in zip(fields, _FIELDS, strict=True):
        wrong = _wrong_field(field, low, high, names)
        if wrong is not None:
            raise _bad("schedule", text, f"{wrong} is no {what} ({low} to {high})", _SCHEDULE_HINT)
    return Schedule("cron", " ".join(fields))


def _wrong_field(field: str, low: int, high: int, names: tuple[str, ...]) -> str | None:
    """The part of a field that cannot be read: `*`, `5`, `1-5`, `*/10`, `mon,fri` and lists of them can."""
    for part in field.lower().split(","):
        span, slash, step = part.partition("/")
        if slash and not (step.isdecimal() and int(step) > 0):
            return repr(part)
        ends = [] if span == "*" else span.split("-")
        values = [
            names.index(end) + (low if names is _MONTHS else 0) if end in names else end for end in ends
        ]
        numbers = [int(value) for value in values if str(value).isdecimal()]
        if len(numbers) != len(values) or len(values) > 2 or numbers != sorted(numbers):
            return repr(part)
        if any(not low <= number <= high for number in numbers):
            return repr(part)
    return None


# -- the options --------------------------------------------------------------------------------------


def _schedule(text: str) -> str:
    return parse_schedule(text).text


def _mode(text: str) -> str:
    return _one_of("refresh_mode", text, [mode.value for mode in Mode])


def _sink(text: str) -> str:
    valid = [kind.value for kind in SinkKind]
    kinds = list(dict.fromkeys(part.strip().lower() for part in text.split(",")))
    return ", ".join(_one_of("sink", kind, valid) for kind in kinds)


def _sink_mode(text: str) -> str:
    return _one_of("ducklake_sink_mode", text, [mode.value for mode in SinkMode])


def _sink_path(text: str) -> str:
    place = parse_location(text)
    path = str(Path(place.path).absolute()) if place.is_local else text
    return path if path.endswith("/") else path + "/"


def _sink_table_id(text: str) -> str:
    return str(_number("ducklake_sink_table_id", text, 0))


def _lake_table(text: str) -> str:
    name = table_name(text)
    if name.schema.lower() == STORAGE_SCHEMA:
        raise _bad(
            "ducklake_sink_table", text, f"schema {STORAGE_SCHEMA} is Headwater's own", "Take another schema."
        )
    return str(name)


def _postgres_table(text: str) -> str:
    return str(table_name(text) if "." in text else TableName("public", table_name(text).name))


def _compression(text: str) -> str:
    given = "none" if text.lower() == "uncompressed" else text.lower()
    if given not in CODECS:
        # A codec changes no result, so a wrong one is no reason to stop a pipeline.
        log.warning("There is no codec %r (there are %s): snappy is used.", text, ", ".join(CODECS))
        return "snappy"
    return given


def _plain(name: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not text.strip():
            raise _bad(name, text, "it is empty", "Leave it out, or give it a value.")
        return text.strip()

    return check


def _key(text: str) -> str:
    if not text:
        raise SettingsError("The secret S3 key is empty.", option="ducklake_sink_s3_secret_access_key")
    return text


def _nondeterministic(text: str) -> str:
    return _one_of("nondeterministic", text, ["refuse", "full"])


def _max_failures(text: str) -> str:
    return str(_number("max_failures", text, 1))


def _project(text: str) -> str:
    if not text.strip():
        raise _bad(PROJECT, text, "it is empty", "Give the project a name.")
    return text.strip()


#: Every option with what checks its value and brings it to its usual form.
OPTIONS: Mapping[str, Callable[[str], str]] = {
    "schedule": _schedule,
    "refresh_mode": _mode,
    "sink": _sink,
    "ducklake_sink_mode": _sink_mode,
    "ducklake_sink_path": _sink_path,
    "ducklake_sink_table_id": _sink_table_id,
    "ducklake_sink_table": _lake_table,
    "ducklake_sink_compression": _compression,
    "ducklake_sink_catalog": partial(check_address, "ducklake_sink_catalog"),
    "ducklake_sink_s3_region": _plain("ducklake_sink_s3_region"),
    "ducklake_sink_s3_endpoint": _plain("ducklake_sink_s3_endpoint"),
    "ducklake_sink_s3_access_key_id": _plain("ducklake_sink_s3_access_key_id"),
    "ducklake_sink_s3_secret_access_key": _key,
    "postgres_sink_dsn": partial(check_address, "postgres_sink_dsn"),
    "postgres_sink_table": _postgres_table,
    "nondeterministic": _nondeterministic,
    "max_failures": _max_failures,
    PROJECT: _project,
}
#: What NULL sets an option back to.
DEFAULTS: Mapping[str, str] = {
    "refresh_mode": Mode.AUTO.value,
    "sink": "ducklake",
    "ducklake_sink_mode": "merge",
    "ducklake_sink_compression": "snappy",
    "nondeterministic": "refuse",
    "max_failures": "5",
}
#: Those that people set; a project sets the other.
NAMES = tuple(name for name in OPTIONS if name != PROJECT)


def check_option(name: str, value: str) -> str:
    """The value of an option in its usual form; an error for an unknown name or a value it cannot have."""
    check = OPTIONS.get(name.lower())
    if check is None:
        raise SettingsError(
            f"There is no option {name!r} of stream tables.", hint=nearest_name(name, NAMES), option=name
        )
    return check(value)


@dataclass(frozen=True)
class Settled:
    """Options that were given, checked."""

    mode: Mode | None
    #: The schedule if one was given, and None for none.
    schedule: str | None
    schedule_given: bool
    options: Mapping[str, str]
    #: Options that are to have no value any more.
    removed: frozenset[str] = frozenset()


def settle(given: Mapping[str, str | None]) -> Settled:
    """Check options; None stands for the default."""
    checked: dict[str, str] = {}
    removed: set[str] = set()
    for name, value in given.items():
        known = name.lower()
        if value is None and known in OPTIONS:
            value = DEFAULTS.get(known)
        if value is not None or known not in OPTIONS:
            checked[known] = check_option(name, value or "")
        else:
            removed.add(known)
    mode = checked.pop("refresh_mode", None)
    schedule = checked.pop("schedule", None)
    schedule_given = any(name.lower() == "schedule" for name in given)
    chosen = None if mode is None else Mode(mode)
    return Settled(chosen, schedule, schedule_given, checked, frozenset(removed - {"schedule"}))


def settle_sink(given: Mapping[str, str | None]) -> dict[str, str]:
    """Check the options of a sink that has a name of its own."""
    for name in given:
        if name.lower() not in SINK_OPTIONS:
            raise SettingsError(
                f"There is no option {name!r} of sinks.", hint=nearest_name(name, SINK_OPTIONS), option=name
            )
    return dict(settle(given).options)


def nearest_name(name: str, names: Iterable[str]) -> str:
    """The name that was meant, or all there are."""
    listed = list(names)
    near = difflib.get_close_matches(name.lower(), listed, n=1)
    return f"Did you mean '{near[0]}'?" if near else "There are: " + ", ".join(listed) + "."


def _one_of(name: str, text: str, values: list[str]) -> str:
    if text.lower() in values:
        return text.lower()
    near = difflib.get_close_matches(text.lower(), values, n=1)
    meant = f"Did you mean '{near[0]}'? " if near else ""
    raise _bad(name, text, None, f"{meant}It is one of: {', '.join(values)}.")


def _number(name: str, text: str, low: int) -> int:
    if text.isdecimal() and int(text) >= low:
        return int(text)
    raise _bad(name, text, None, f"It is a whole number, {low} or more.")


def _bad(name: str, text: str, why: str | None, hint: str) -> SettingsError:
    return SettingsError(f"{text!r} is no value of {name}.", detail=why, hint=hint, option=name, value=text)
