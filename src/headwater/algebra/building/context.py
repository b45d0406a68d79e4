"""What one build of a query knows: the catalog, the text, the names given so far."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sqlglot import exp

from headwater.algebra.building.names import Names
from headwater.algebra.building.places import query_error
from headwater.algebra.building.scopes import Around, Built
from headwater.algebra.relations import ROW_ID
from headwater.errors import QueryError

_ROW_ID = re.compile(rf"\b{ROW_ID}\b", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """A table, with its columns as (name, Spark type), or a view, with its SELECT in Spark's dialect."""

    name: str
    columns: tuple[tuple[str, str], ...] = ()
    view: str | None = None


class Catalog(Protocol):
    """Where the names of tables are looked up."""

    def table(self, parts: tuple[str, ...]) -> Found | None:
        """The table or view that a name means, if there is one."""

    def names(self) -> Sequence[str]:
        """All tables and views, to propose the one that was meant."""


@dataclass
class Context:
    """State of one build."""

    catalog: Catalog
    text: str
    nondeterministic: Literal["refuse", "full"] = "refuse"
    names: Names = field(default_factory=Names)
    tables: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    views: tuple[str, ...] = ()

    def build(self, query: exp.Expr, around: Around) -> Built:
        """The relation of a query inside the query."""
        from headwater.algebra.building.query import build  # the parts of a query are queries again

        return build(self, query, around)

    @property
    def names_row_ids(self) -> bool:
        """Whether the text is that of a view that names the row ids of tables, and no `*`, which has none."""
        return bool(self.views) and _ROW_ID.search(self.text) is not None and "*" not in self.text

    def error(
        self, node: exp.Expr | None, message: str, *, why: str | None = None, hint: str | None = None
    ) -> QueryError:
        """An error that points at the node."""
        if self.views:
            message = f"In the view {self.views[-1]}: {message[0].lower()}{message[1:]}"
        return query_error(self.text, node, message, why=why, hint=hint)

    @contextmanager
    def inside_view(self, name: str, text: str) -> Iterator[None]:
        """While the text of a view is built: errors point into it."""
        before = self.text, self.views
        self.text, self.views = text, (*self.views, name)
        try:
            yield
        finally:
            self.text, self.views = before
