"""An open Headwater: the lake and everything that works on it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from headwater.lake.lake import Lake

if TYPE_CHECKING:
    import duckdb

    from headwater.lake.embedded import EmbeddedServer
    from headwater.settings import Settings


class Headwater:
    """What `headwater.connect()` returns. Close it, or use it in a `with` block.

    >>> with headwater.connect() as hw:  # doctest: +SKIP
    ...     hw.lake.snapshots()
    """

    def __init__(self, lake: Lake, settings: Settings, server: EmbeddedServer | None = None):
        self.lake = lake
        """The DuckLake catalog: transactions, snapshots, scans, reads."""
        self.settings = settings
        """What the settings file and the environment say."""
        self._server = server

    @property
    def embedded(self) -> bool:
        """Whether the catalog is in an embedded PostgreSQL that this process shares with others."""
        return self._server is not None

    def duckdb(self, alias: str = "lake") -> duckdb.DuckDBPyConnection:
        """A DuckDB session with this lake attached as `alias` and in use."""
        return self.lake.duckdb(alias)

    def close(self) -> None:
        """Close this process's connections; the last one to leave stops the embedded server.

        DuckDB sessions that were handed out are yours to close; until then the server keeps running.
        """
        self.lake.close()
        server, self._server = self._server, None
        if server is not None:
            server.stop_if_unused()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Headwater({self.lake.uri!r}, data_path={self.lake.data_path!r})"
