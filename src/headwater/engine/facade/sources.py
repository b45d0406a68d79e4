"""Calls about PostgreSQL sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.engine.facade.services import Services

if TYPE_CHECKING:
    from headwater.sources.choosing import Columns, Where
    from headwater.sources.model import Captured, Source


class SourceCalls(Services):
    """Sources: add, capture, remove."""

    def add_postgres_source(
        self,
        dsn: str,
        tables: Sequence[str],
        *,
        name: str | None = None,
        schema: str | None = None,
        columns: Columns = None,
        where: Where = None,
        capture: str = "auto",
    ) -> Source:
        """Mirror tables of a PostgreSQL database into the lake; returns when their first copies are there.

        `columns` and `where` choose a part of a table; for several tables they are mappings by table.
        `schema` is the lake's (default: the table's own, `public` being `main`). `capture` is `triggers`,
        `replication` or `auto`. `dsn` may be `env:NAME`; a password in it is stored encrypted.

        >>> hw.add_postgres_source("postgresql://me@db/shop", ["orders"])  # doctest: +SKIP
        """
        return self.postgres_sources.add(
            dsn, tables, name=name, schema=schema, columns=columns, where=where, capture=capture
        )

    def sources(self) -> list[Source]:
        """All PostgreSQL sources, with the state of their tables. Does not start Spark."""
        return self.postgres_sources.all()

    def capture(self, names: str | Sequence[str] | None = None) -> list[Captured]:
        """Bring the mirrors of sources up to date, of all or of the named ones: a snapshot for each source.

        A source that fails is one of the results, with the error, and does not stop the others.
        """
        return self.postgres_sources.capture(names)

    def remove_source(self, name: str, *, drop_tables: bool = False) -> None:
        """Remove a source and all that was installed in its database; the mirrored rows stay, unless told."""
        self.postgres_sources.remove(name, drop_tables=drop_tables)
