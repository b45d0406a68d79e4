"""Rows that are here, without those that others here rule out.

A link (see `algebra.narrowing`) says which values a scan's rows need to have for being of any consequence.
What is looked up by it has no other rows; but changes, and what was looked up by other values, have. Where
one side of a join is few rows after all, rows of the other that lead to none of them need nothing looked up
for them, nor computed with: of a hundred thousand changed lines, those stay whose part a query asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.algebra.narrowing import Link
from headwater.lake.reading.members import Members, distinct
from headwater.refresh.local_rows import Found

#: What is kept is at most this part of the rows: each part of a table is given to Spark by itself.
_WORTH = 0.5
#: Types whose values Arrow calls equal exactly when Spark does.
_COMPARED = (
    pa.types.is_signed_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_date32,
    pa.types.is_decimal,
)

#: Some columns of tables that are here.
_Columns = frozenset[tuple[int, str]]


class Cutting:
    """Values of links, and what they leave of rows; equal questions are answered once."""

    def __init__(self, links: Mapping[str, Sequence[Link]], least: int):
        self.links = links
        #: Fewer rows than these are left alone.
        self.least = least
        self._values: dict[_Columns, Any] = {}
        self._left: dict[tuple[int, str, bool, _Columns], Found] = {}
        #: Tables are known by their `id` here, so they have to stay.
        self._held: list[Found] = []

    def run(self, known: dict[str, Found]) -> None:
        """Leave out rows of what is known that lead to nothing, until all lead to something."""
        again = True
        while again:
            again = False
            for leaf in known:
                for link in self.links.get(leaf, ()):
                    left = self._cut(leaf, link, known)
                    if left is not known[leaf]:
                        known[leaf] = left
                        again = True

    def values(self, link: Link, known: Mapping[str, Found]) -> Any:
        """The values that a link allows, NULL among them; None if they are of several types, or nested."""
        place = frozenset((id(known[leaf]), name) for leaf, name in link.places)
        if place not in self._values:
            self._held += (known[leaf] for leaf in link.leaves)
            columns = [known[leaf].rows.column(name) for leaf, name in sorted(link.places)]
            kind = columns[0].type
            plain = all(column.type == kind for column in columns) and not pa.types.is_nested(kind)
            pieces = [chunk for column in columns for chunk in column.chunks]
            self._values[place] = distinct(pa.chunked_array(pieces, kind)) if plain else None
        return self._values[place]

    def _cut(self, leaf: str, link: Link, known: Mapping[str, Found]) -> Found:
        found = known[leaf]
        if (
            not found.rows.num_rows
            or found.rows.num_rows < self.least
            or leaf in link.leaves
            or not known.keys() >= link.leaves
        ):
            return found
        others = {id(known[other]): known[other].rows.num_rows for other in link.leaves}
        kind = found.rows.schema.field(link.column).type
        # A table as large as this one hardly has fewer values.
        if sum(others.values()) > _WORTH * found.rows.num_rows or not any(same(kind) for same in _COMPARED):
            return found
        values = self.values(link, known)
        if values is None or values.type != kind:
            return found
        place = frozenset((id(known[other]), name) for other, name in link.places)
        question = (id(found), link.column, link.nulls, place)
        if question not in self._left:
            self._held.append(found)
            self._left[question] = _left(found, link, values)
        return self._left[question]


def _left(found: Found, link: Link, values: Any) -> Found:
    column = found.rows.column(link.column)
    mask = Members(values.drop_null()).among(column)
    if link.nulls and values.null_count:
        mask |= column.is_null().to_numpy()
    if np.count_nonzero(mask) > _WORTH * len(mask):
        return found
    return Found(found.rows.filter(pa.array(mask)), found.schema)


__all__ = ["Cutting"]
