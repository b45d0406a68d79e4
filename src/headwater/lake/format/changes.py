"""What a snapshot changed, in the text form of `ducklake_snapshot_changes.changes_made`.

    created_table:"main"."orders",inserted_into_table:7

Names are quoted with doubled quotes, ids are bare. DuckDB refuses to commit beside a token it does not
know, so only tokens of its own grammar are ever written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.errors import CatalogError

#: Every token DuckDB knows, in the order in which it writes them.
TOKENS = (
    "dropped_schema",
    "dropped_table",
    "dropped_view",
    "created_schema",
    "created_table",
    "created_view",
    "created_scalar_macro",
    "created_table_macro",
    "dropped_scalar_macro",
    "dropped_table_macro",
    "inserted_into_table",
    "deleted_from_table",
    "altered_table",
    "altered_view",
    "inlined_insert",
    "inlined_delete",
    "inline_flush",
    "flushed_inlined",
    "compacted_table",
    "merge_adjacent",
    "rewrite_delete",
)
_ORDER = {token: place for place, token in enumerate(TOKENS)}
_NAMED = {
    "created_schema",
    "created_table",
    "created_view",
    "created_scalar_macro",
    "created_table_macro",
}
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_ENTRY = re.compile(r'(?P<token>[a-z_]+):(?P<target>(?:"(?:[^"]|"")*"(?:\."(?:[^"]|"")*")?)|-?\d+)(?:,|$)')


@dataclass(frozen=True, slots=True)
class Change:
    """One entry: what happened, and to which id or which (schema,) name."""

    token: str
    target: int | tuple[str, ...]

    def __str__(self) -> str:
        if isinstance(self.target, int):
            return f"{self.token}:{self.target}"
        return f"{self.token}:" + ".".join('"' + part.replace('"', '""') + '"' for part in self.target)

    def is_about(self, table_id: int) -> bool:
        """Does it concern that table id?"""
        return self.target == table_id


def write_changes(changes: Iterable[Change]) -> str | None:
    """The text for the catalog; None for no change, because an empty string breaks DuckDB's parser."""
    unique = sorted(
        dict.fromkeys(changes),
        key=lambda c: (_ORDER[c.token], c.target if isinstance(c.target, int) else 0),
    )
    return ",".join(map(str, unique)) or None


def read_changes(text: str | None) -> list[Change]:
    """The entries of a `changes_made` text, tokens of later DuckLake versions included."""
    found: list[Change] = []
    position = 0
    while text and position < len(text):
        entry = _ENTRY.match(text, position)
        if entry is None:
            raise CatalogError(
                "A snapshot's list of changes cannot be read.",
                detail=f"At position {position} of {text!r}.",
                hint="Another program wrote it against the format; see `headwater snapshots`.",
            )
        target = entry["target"]
        if target.startswith('"'):
            names = tuple(name.replace('""', '"') for name in _QUOTED.findall(target))
            found.append(Change(entry["token"], names))
        else:
            found.append(Change(entry["token"], int(target)))
        position = entry.end()
    return found
