"""An outbox: the changes of a stream table's result, delivered in order to a consumer, at least once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import urlsplit

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.catalog import table_name

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
#: Header names by RFC 9110; values are checked for what would end a line.
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Headers that the relay itself sets.
_OWN_HEADERS = frozenset({"content-type", "content-length", "idempotency-key", "host", "transfer-encoding"})


class TargetKind(StrEnum):
    """Where an outbox delivers to."""

    TABLE = "table"
    WEBHOOK = "webhook"
    STDOUT = "stdout"


@dataclass(frozen=True)
class TargetText:
    """What `to=` says, understood."""

    kind: TargetKind
    #: The table's name, the address, or nothing.
    place: str
    #: The same for people's eyes: addresses of webhooks often hold a secret in their path.
    shown: str


def parse_target(text: str) -> TargetText:
    """Read `table:schema.name`, `https://…` or `stdout`.

    >>> parse_target("https://example.org/hooks/s3cret?key=1").shown
    'https://example.org/…'
    """
    given = text.strip()
    if given.lower() in ("stdout", "-"):
        return TargetText(TargetKind.STDOUT, "", "stdout")
    if given.lower().startswith("table:"):
        name = str(table_name(given[len("table:") :].strip()))
        return TargetText(TargetKind.TABLE, name, f"table:{name}")
    if given.lower().startswith(("https://", "http://")):
        return _webhook(given)
    kind = given.partition(":")[0] if ":" in given else given
    raise UnsupportedError(
        f"An outbox cannot deliver to {kind!r}.",
        hint="It delivers to 'table:schema.name', 'https://…' or 'stdout'.",
        option="to",
    )


def _webhook(text: str) -> TargetText:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or any(letter.isspace() for letter in text):
        raise InvalidInputError(
            "The address of the webhook cannot be understood.", hint="Use https://host/path."
        )
    if parts.username or parts.password:
        raise InvalidInputError(
            "The address of the webhook holds a user or a password.",
            hint="Pass it as a header instead: headers={'Authorization': …}.",
        )
    authority = f"[{host}]" if ":" in host else host
    where = f"{parts.scheme}://{authority}" + (f":{port}" if port else "")
    more = (parts.path not in ("", "/")) or parts.query
    return TargetText(TargetKind.WEBHOOK, text, where + ("/…" if more else "/"))


def check_name(name: str) -> str:
    """The name of an outbox, which is part of logs and metrics."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} is no name for an outbox.", hint="Use letters, digits, `_`, `-` and `.`, at most 100."
        )
    return name


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers as they may be sent."""
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise InvalidInputError(
                f"{name!r} is no header that can be set.",
                hint=f"The relay sets these itself: {', '.join(sorted(_OWN_HEADERS))}.",
            )
        if not isinstance(value, str) or any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
            raise InvalidInputError(f"The value of header {name!r} has letters that no header may have.")
    return dict(headers)


@dataclass(frozen=True)
class Position:
    """Up to where an outbox has delivered."""

    #: The table whose changes are relayed; another one once the stream table is built anew.
    table_id: int
    #: Everything up to this snapshot is delivered.
    snapshot_id: int
    #: And so many events of the next snapshot that has any.
    number: int = 0


@dataclass(frozen=True)
class Outbox:
    """An outbox as the catalog has it."""

    name: str
    stream_id: str
    stream_table: str
    kind: TargetKind
    #: Where it delivers to, for people.
    target: str
    #: The table's name, or a reference to the webhook's address, which is kept encrypted.
    place: str = field(repr=False)
    position: Position
    #: References to the values of headers, by their names.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Events in a batch, and the seconds that a webhook is given to answer.
    batch: int = 500
    timeout: float = 10.0
    #: Grows with each batch: who read another one is too late to write.
    sequence: int = 0
    delivered: int = 0
    delivered_at: datetime | None = None
    failures: int = 0
    last_error: str | None = None
    created_at: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """The outbox as plain data, without anything secret."""
        found = asdict(self)
        del found["place"], found["sequence"]
        found["headers"] = sorted(self.headers)
        return found


@dataclass(frozen=True)
class Event:
    """One change of one row of a result."""

    stream_id: str
    stream_table: str
    snapshot_id: int
    #: From 1 in each snapshot.
    number: int
    type: Literal["insert", "update", "delete"]
    committed_at: datetime
    refresh_id: str | None
    #: The row before and after, as JSON has it.
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    @property
    def id(self) -> str:
        """The same each time the event is delivered."""
        return f"{self.stream_id}-{self.snapshot_id}-{self.number}"

    def as_dict(self) -> dict[str, Any]:
        """The event as it is delivered."""
        return {
            "id": self.id,
            "type": self.type,
            "stream_table": self.stream_table,
            "snapshot_id": self.snapshot_id,
            "number": self.number,
            "committed_at": moment_text(self.committed_at),
            "refresh_id": self.refresh_id,
            "before": self.before,
            "after": self.after,
        }


@dataclass(frozen=True)
class RelayResult:
    """What one relay of an outbox did."""

    name: str
    stream_table: str
    target: str
    events: int = 0
    batches: int = 0
    #: The snapshot up to which everything is delivered.
    snapshot_id: int | None = None
    seconds: float = 0.0
    #: From the commit of the last event's snapshot to its delivery.
    lag_seconds: float | None = None
    error: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return asdict(self)


def moment_text(moment: datetime) -> str:
    """A time in UTC, as values of timestamps are written."""
    text = moment.astimezone(UTC).replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def json_line(value: Any) -> str:
    """JSON without spaces; the same value is always the same text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
