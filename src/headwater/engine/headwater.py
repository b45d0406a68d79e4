"""An open Headwater: the lake and everything that works on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.engine.facade.deltas import DeltaCalls
from headwater.engine.facade.maintenance import MaintenanceCalls
from headwater.engine.facade.outboxes import OutboxCalls
from headwater.engine.facade.sources import SourceCalls
from headwater.engine.facade.stream_tables import StreamTableCalls

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    from pyspark.sql import DataFrame

    from headwater.engine.playbooks import Playbooks
    from headwater.playbook.records.reporting import RunReport
    from headwater.spark.sql.fetching import QueryResult
    from headwater.spark.table import LakeTable


class Headwater(SourceCalls, StreamTableCalls, DeltaCalls, MaintenanceCalls, OutboxCalls):
    """What `headwater.connect()` returns. Close it, or use it in a `with` block.

    >>> with headwater.connect() as hw:  # doctest: +SKIP
    ...     hw.lake.snapshots()
    """

    def table(self, name: str) -> LakeTable:
        """A table for Spark to read and change: `hw.table("sales.orders").df()`."""
        return self._connector.table(name)

    def sql(self, text: str) -> DataFrame:
        """Run a statement of Spark's SQL in which the lake's tables and views are simply there.

        All tables of a query are read at one snapshot. A statement that writes is one snapshot, and returns
        how many rows it inserted, updated and deleted. `CREATE STREAM TABLE` and the other statements about
        stream tables are run too.
        """
        from headwater.algebra.statements import parse_stream_statement
        from headwater.spark.sql import run_sql

        statement = parse_stream_statement(text)
        if statement is None:
            return run_sql(self._connector, text)
        return self.stream_tables.run(statement).frame(self.spark)

    def fetch(self, text: str, limit: int = 1000) -> QueryResult:
        """Run a statement and take its first rows as plain data."""
        from headwater.algebra.statements import parse_stream_statement
        from headwater.spark.sql.fetching import fetch

        statement = parse_stream_statement(text)
        if statement is None:
            return fetch(self._connector, text, limit)
        return self.stream_tables.run(statement).result(limit)

    def run_playbook(
        self,
        path: str | Path,
        workload: Mapping[str, Any] | None = None,
        *,
        runner: str | None = None,
        workers: int | None = None,
        credentials: Sequence[str | Path] = (),
        from_step: str | None = None,
        resume: bool | str = False,
        force: bool = False,
    ) -> RunReport:
        """Run the steps of a playbook to their end; what became of them is the result.

        `workload` goes in the place of the document's values. `runner` is `local` (worker processes) or
        `spark` (its executors). `credentials` are files or folders of them, besides those that are kept.
        `from_step` begins at a step, with the results of the last run. `resume` goes on with the last run,
        or the one of that id: what is done is not repeated. A failing step is part of the result.

        >>> hw.run_playbook("load.yaml", workload={"batch_ids": [1, 2, 3]}).ok  # doctest: +SKIP
        True
        """
        from headwater.engine.playbook_services import RunOptions

        options = RunOptions(runner, workers, credentials, force)
        if resume:
            return self.playbooks.resume(path, None if resume is True else resume, options)
        return self.playbooks.run(path, workload, options, from_step=from_step)

    @cached_property
    def playbooks(self) -> Playbooks:
        """Runs of playbooks, and the credentials that they use, for programs that need more."""
        from headwater.engine.playbooks import Playbooks

        return Playbooks(self)

    @property
    def embedded(self) -> bool:
        """Whether the catalog is in an embedded PostgreSQL that this process shares with others."""
        return self._server is not None

    def duckdb(self, alias: str = "lake") -> duckdb.DuckDBPyConnection:
        """A DuckDB session with this lake attached as `alias` and in use."""
        return self.lake.duckdb(alias)

    def close(self) -> None:
        """Close this process's connections; the last one to leave stops the embedded server.

        DuckDB sessions that were handed out are yours to close; until then the server keeps running. Spark
        is shared by the whole process, and stays.
        """
        if "postgres_sources" in self.__dict__:
            self.postgres_sources.close()
        if "outbox_relays" in self.__dict__:
            self.outbox_relays.close()
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
