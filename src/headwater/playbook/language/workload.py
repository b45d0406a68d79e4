"""The workload of a run: what the document says, and what is given for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import PlaybookRunError
from headwater.lake.lake import Lake
from headwater.lake.secrets import Secrets
from headwater.playbook.records.masking import Masking
from headwater.playbook.records.store import Run, as_json
from headwater.playbook.templates.sandbox import plain


@dataclass(frozen=True)
class Workload:
    """The values that a run begins with."""

    values: Mapping[str, Any] = field(repr=False)
    given: Mapping[str, Any] = field(repr=False)
    """What was given, on the command line or by a caller."""

    @classmethod
    def of(cls, document: Mapping[str, Any], given: Mapping[str, Any] | None) -> Workload:
        """The document's values with the given ones in their place."""
        return cls(merged(plain(document), plain(given or {})), plain(given or {}))

    def sealed(self, lake: Lake, masking: Masking) -> tuple[Mapping[str, Any] | None, str | None]:
        """What was given, to be stored: as it is, or encrypted where it holds secrets."""
        if masking.value(self.given) == self.given:
            return self.given, None
        return None, Secrets(lake).put(as_json(self.given))


def given_before(run: Run, lake: Lake) -> Mapping[str, Any]:
    """What was given when a run began."""
    if run.sealed is not None:
        found: Mapping[str, Any] = json.loads(Secrets(lake).get(run.sealed))
        return found
    if run.given is None:
        raise PlaybookRunError(f"Run {run.id} is done; what it began with is forgotten.", run=run.id)
    return run.given


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two mappings in one: mappings inside are merged, anything else is replaced.

    >>> merged({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2]})
    {'a': {'x': 1, 'y': 3}, 'b': [2]}
    """
    found = dict(base)
    for key, value in over.items():
        known = found.get(key)
        found[key] = (
            merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
        )
    return found
