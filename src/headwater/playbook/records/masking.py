"""Keeping secrets out of what a run shows and stores.

Secrets travel as references, so they should not turn up anywhere. Should one do so all the same (a server
that repeats a password in its error, a step that prints it), it is replaced before anybody sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from headwater.playbook.credentials.types import REFERENCE, dsn_secrets

STARS: Final = "***"
#: Shorter secrets are left alone: taking a letter out of every message would hide nothing.
_SHORTEST = 3
#: In the data of results only secrets of this length count; a shorter text may be there by itself.
_SHORTEST_IN_DATA = 8
_SECRET_NAME = re.compile(
    r"(.*_)?(pass|passwd|password|passphrase|secret|token|api_?key|secret_?(access_?)?key|private_?key)"
    r"|authorization",
    re.IGNORECASE,
)


class Masking:
    """The secrets that a run has met so far."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()
        self._messages: re.Pattern[str] | None = None
        self._data: re.Pattern[str] | None = None

    def learn(self, secrets: Iterable[str]) -> None:
        """Remember texts that nobody may see."""
        new = {text for text in secrets if len(text) >= _SHORTEST} - self._secrets
        if new:
            self._secrets |= new
            self._messages = _pattern(self._secrets)
            self._data = _pattern(text for text in self._secrets if len(text) >= _SHORTEST_IN_DATA)

    def learn_from(self, value: Any, name: str = "") -> None:
        """Remember the secrets in given values: passwords of addresses, and what is named like a secret."""
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self.learn_from(inner, str(key))
        elif isinstance(value, list | tuple):
            for inner in value:
                self.learn_from(inner, name)
        elif isinstance(value, str) and not value.startswith((REFERENCE, "secret:", "env:")):
            self.learn(dsn_secrets(value))
            if secret_name(name) and "{{" not in value:
                self.learn([value])

    def text(self, text: str) -> str:
        """A message without secrets."""
        return text if self._messages is None else self._messages.sub(STARS, text)

    def json(self, text: str) -> str:
        """An envelope, as JSON, without the secrets that can be told from data."""
        return text if self._data is None else self._data.sub(STARS, text)

    def value(self, value: Any) -> Any:
        """A value as it may be shown: texts without secrets, and nothing of what is named like one."""
        if isinstance(value, Mapping):
            return {
                key: STARS if secret_name(str(key)) and isinstance(inner, str) else self.value(inner)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return self.text(value) if isinstance(value, str) else value


def secret_name(name: str) -> bool:
    """Whether a value of that name is a secret, by all one can tell."""
    return bool(
        _SECRET_NAME.fullmatch(name) or re.search(r"(^|_)(password|secret|token|api_?key)$", name, re.I)
    )


def _pattern(secrets: Iterable[str]) -> re.Pattern[str] | None:
    # Longer ones first, since one may begin like another.
    ordered = sorted({form for text in secrets for form in _forms(text)}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _forms(secret: str) -> Iterator[str]:
    """A secret as it may be written: as it is, in an address, in quotes, and all of it in JSON."""
    quoted = secret.replace("\\", "\\\\").replace("'", "\\'")
    for form in (secret, quoted, secret.replace("'", "''"), quote(secret, safe=""), quote(secret)):
        yield form
        yield json.dumps(form)[1:-1]
        yield json.dumps(form, ensure_ascii=False)[1:-1]
