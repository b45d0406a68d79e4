"""An open Headwater: the lake and everything that works on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.lake.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb
    from pyspark.sql import DataFrame, SparkSession

    from headwater.deltas.accumulated import AccumulatedLog
    from headwater.deltas.dataset import DeltaDataset
    from headwater.deltas.defining import Schema
    from headwater.engine.deltas import Deltas
    from headwater.engine.maintenance import Maintenance, OptimizeResult
    from headwater.engine.outbox import Outboxes
    from headwater.engine.playbooks import Playbooks
    from headwater.engine.streams import StreamTables
    from headwater.lake.embedded import EmbeddedServer
    from headwater.lake.maintenance.model import Age, CompactionResult, ExpireResult, RemovalResult
    from headwater.playbook.records.reporting import RunReport
    from headwater.refresh.explaining import Explanation
    from headwater.refresh.lineage import Lineage
    from headwater.refresh.model import RefreshResult, VerifyResult
    from headwater.refresh.provenance import Provenance
    from headwater.refresh.sink_status import SinkStatus
    from headwater.refresh.status import StreamStatus
    from headwater.refresh.tracing import Trace
    from headwater.settings import Settings
    from headwater.sinks.model import Delivered
    from headwater.sinks.outbox import Outbox, RelayResult
    from headwater.sources.choosing import Columns, Where
    from headwater.sources.model import Captured, Source
    from headwater.sources.postgres import PostgresSources
    from headwater.spark.connector import LakeSpark
    from headwater.spark.sql.fetching import QueryResult
    from headwater.spark.table import LakeTable


class Headwater:
    """What `headwater.connect()` returns. Close it, or use it in a `with` block.

    >>> with headwater.connect() as hw:  # doctest: +SKIP
    ...     hw.lake.snapshots()
    """

    def __init__(
        self,
        lake: Lake,
        settings: Settings,
        server: EmbeddedServer | None = None,
        spark: SparkSession | None = None,
    ):
        self.lake = lake
        """The DuckLake catalog: transactions, snapshots, scans, reads."""
        self.settings = settings
        """What the settings file and the environment say."""
        lake.kept_columns.most_bytes = settings.lake.keep_mb << 20
        self._server = server
        self._given_spark = spark

    @property
    def spark(self) -> SparkSession:
        """The Spark session: the one given to `connect`, else this process's, else a new one."""
        return self._connector.spark

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

    # -- PostgreSQL sources -------------------------------------------------------------------------

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

    @cached_property
    def postgres_sources(self) -> PostgresSources:
        """What the calls above are made of, for programs that need more."""
        from headwater.sources.postgres import PostgresSources

        return PostgresSources(self.lake, lambda: self._connector)

    # -- stream tables ------------------------------------------------------------------------------

    def create_stream_table(
        self,
        name: str,
        query: str | Callable[..., DataFrame],
        *,
        schedule: str | None = None,
        refresh_mode: str = "auto",
        sink: str | None = None,
        ducklake_sink_mode: str | None = None,
        inputs: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
        or_replace: bool = False,
        **options: Any,
    ) -> RefreshResult:
        """Make a stream table: the result of a query that is kept up to date. It is filled at once.

        `query` is a SELECT in Spark's SQL over tables, views and other stream tables of the lake; or a
        function of a module that takes DataFrames and returns one, with `inputs` naming the table of each
        parameter (by default the one of the parameter's own name).

        `schedule` is `5s`, `10m`, `1h`, `2d`, a cron expression, `on change` or `downstream`; without one it
        is refreshed on request. `refresh_mode` is `auto`, `incremental`, `strict` or `full`. `or_replace`
        does nothing if it is defined like that already, and builds it anew only if its rows are others.

        >>> hw.create_stream_table(  # doctest: +SKIP
        ...     "sales.revenue", "SELECT region, sum(amount) AS revenue FROM sales.orders GROUP BY region"
        ... )
        """
        given = {
            "schedule": schedule,
            "refresh_mode": refresh_mode,
            "sink": sink,
            "ducklake_sink_mode": ducklake_sink_mode,
            **options,
        }
        return self.stream_tables.create(
            name, query, inputs=inputs, if_not_exists=if_not_exists, or_replace=or_replace, options=given
        )

    def alter_stream_table(
        self, name: str, *, query: str | None = None, status: str | None = None, **options: Any
    ) -> RefreshResult | None:
        """Change some of a stream table; what is not named stays as it is.

        `options` are those of `create_stream_table`; None sets one back to its default. `status` is
        `suspended` or `active`. Another query builds the result anew, in one snapshot.
        """
        return self.stream_tables.alter(name, query=query, status=status, options=options)

    def drop_stream_table(self, name: str, *, if_exists: bool = False) -> bool:
        """Remove a stream table and all that is stored for it, as one snapshot; False if there is none."""
        return self.stream_tables.streams.drop(name, if_exists=if_exists)

    def add_sink(self, name: str, sink: str, **options: Any) -> None:
        """Publish a stream table to one more place, under a name of its own.

        `options` are those of sinks: `sink` (its kind), `ducklake_sink_mode`, `postgres_sink_dsn`, …

        >>> hw.add_sink("sales.revenue", "shop", sink="postgres", postgres_sink_dsn="…")  # doctest: +SKIP
        """
        given = {option: None if value is None else str(value) for option, value in options.items()}
        self.stream_tables.add_sink(name, sink, given)

    def drop_sink(self, name: str, sink: str, *, if_exists: bool = False) -> bool:
        """No longer publish a stream table to a place that was added; False if there is none."""
        return self.stream_tables.drop_sink(name, sink, if_exists=if_exists)

    def sinks(self, name: str | None = None) -> list[SinkStatus]:
        """Where stream tables are published, and how far each place is. Does not start Spark."""
        return self.stream_tables.sinks(name)

    def deliver(self, names: str | Sequence[str] | None = None, *, force: bool = False) -> list[Delivered]:
        """Serve the sinks outside the lake that are behind; with `force` also those that failed just now.

        Refreshes do so by themselves; this is for sinks that failed then.
        """
        return self.stream_tables.deliver(names, force=force)

    def refresh(self, names: str | Sequence[str] | None = None, *, full: bool = False) -> list[RefreshResult]:
        """Bring stream tables up to date, and all that they read, as one snapshot; all of them by default.

        With `full` the named ones are computed anew, and what differs is stored. A stream table that fails
        is one of the results, with the action `FAILED` and the error, and does not stop the others.
        """
        return self.stream_tables.refresh(names, full=full)

    def explain(self, name: str) -> Explanation:
        """How a stream table follows its inputs, and what its next refresh would do. Nothing is run."""
        return self.stream_tables.streams.explain(name)

    def verify(self, name: str, *, limit: int = 10) -> VerifyResult:
        """Let DuckDB compute a stream table's query at the same snapshot, and compare all rows.

        Of those that differ the first `limit` are part of the result.
        """
        return self.stream_tables.verify(name, limit)

    def status(self) -> list[StreamStatus]:
        """How each stream table is: fresh or behind, active or suspended. Does not start Spark."""
        return self.stream_tables.status()

    def history(self, name: str | None = None, limit: int = 20) -> Sequence[RefreshResult]:
        """Past refreshes of one stream table or of all, newest first. Does not start Spark."""
        return self.stream_tables.history(name, limit)

    def provenance(self, name: str | None = None, limit: int = 20) -> Sequence[Provenance]:
        """Which snapshots hold which refreshes, and what they read, newest first. Does not start Spark."""
        return self.stream_tables.provenance(name, limit)

    def trace(self, name: str, snapshot: int | None = None) -> Trace:
        """What a stream table's result at a snapshot (now, by default) was made of.

        From the refresh and its delta to the snapshots of its sources and, for mirrored tables, to the
        transactions of PostgreSQL. `print` shows it. Does not start Spark.
        """
        return self.stream_tables.trace(name, snapshot)

    def lineage(self, name: str, column: str | None = None) -> Lineage:
        """The columns of tables from which the columns of a stream table are computed. Does not start Spark.

        `print` shows them; `.mermaid()` draws them, as a graph of tables, or of columns if one is named.
        """
        return self.stream_tables.lineage(name, column)

    # -- delta store --------------------------------------------------------------------------------

    def deltas(
        self,
        dataset: str,
        key: Sequence[str] | str | None = None,
        *,
        schema: Schema | None = None,
        adopt: bool = False,
    ) -> DeltaDataset | AccumulatedLog:
        """A dataset of the delta store: small changes beside a large base, folded in by `compact()`.

        It is made with `schema` (Arrow, or names with types), by its first delta, or with `adopt` out of the
        table of its name; it is opened again by its name alone. The name of a stream table with an
        `accumulate` sink opens the log of that.

        >>> people = hw.deltas("crm.people", key=["id"])  # doctest: +SKIP
        >>> people.write_delta([{"id": 7, "name": "Ann"}])  # doctest: +SKIP
        """
        return self.datasets.open(dataset, key, schema=schema, adopt=adopt)

    @cached_property
    def datasets(self) -> Deltas:
        """All datasets of the delta store."""
        from headwater.engine.deltas import Deltas

        return Deltas(self.lake, lambda: self._connector, self.stream_tables.store)

    # -- maintenance --------------------------------------------------------------------------------

    def compact(
        self,
        table: str | Sequence[str] | None = None,
        *,
        target_size: int | str | None = None,
        delete_ratio: float | None = None,
        sort_by: Sequence[str] | None = None,
        dry_run: bool = False,
    ) -> CompactionResult:
        """Merge small files, and write files with many deleted rows again; of all tables by default.

        Rows keep their ids, and every snapshot reads the same as before. `target_size` (`128MB`) is the
        table's own option by default. With `sort_by` rows are sorted within files and across them.
        """
        return self.maintenance.compact(
            table, target_size=target_size, delete_ratio=delete_ratio, sort_by=sort_by, dry_run=dry_run
        )

    def expire(
        self,
        *,
        older_than: Age | str | None = None,
        keep_last: int | None = None,
        versions: Collection[int] | None = None,
        dry_run: bool = False,
    ) -> ExpireResult:
        """Expire snapshots older than a time or an age (`7d`) but the newest `keep_last`, or those named.

        The latest stays, and so does what a stream table, an outbox or a reader's lease needs; the result
        says so. Files that no snapshot names any more are removed by `cleanup`.
        """
        return self.maintenance.expire(
            older_than=older_than, keep_last=keep_last, versions=versions, dry_run=dry_run
        )

    def cleanup(self, *, older_than: Age | str | None = "1d", dry_run: bool = False) -> RemovalResult:
        """Remove files that left the catalog longer ago than an age; None removes all of them."""
        return self.maintenance.cleanup(older_than=older_than, dry_run=dry_run)

    def remove_orphans(self, *, older_than: Age | str | None = "1d", dry_run: bool = True) -> RemovalResult:
        """Remove files of killed writers, which no catalog knows. A dry run unless told otherwise."""
        return self.maintenance.remove_orphans(older_than=older_than, dry_run=dry_run)

    def optimize(
        self,
        table: str | Sequence[str] | None = None,
        *,
        target_size: int | str | None = None,
        delete_ratio: float | None = None,
        sort_by: Sequence[str] | None = None,
        expire_older_than: Age | str | None = None,
        keep_last: int | None = None,
        cleanup_older_than: Age | str | None = None,
        dry_run: bool = False,
    ) -> OptimizeResult:
        """Flush what is kept in the catalog, and compact; if asked, expire before and clean up after."""
        return self.maintenance.optimize(
            table,
            target_size=target_size,
            delete_ratio=delete_ratio,
            sort_by=sort_by,
            expire_older_than=expire_older_than,
            keep_last=keep_last,
            cleanup_older_than=cleanup_older_than,
            dry_run=dry_run,
        )

    @cached_property
    def maintenance(self) -> Maintenance:
        """What the calls above are made of, for programs that need more."""
        from headwater.engine.maintenance import Maintenance

        return Maintenance(
            self.lake, lambda: self._connector, self.stream_tables.store, lambda: self.outbox_relays
        )

    # -- outboxes -----------------------------------------------------------------------------------

    def attach_outbox(
        self,
        stream_table: str,
        name: str,
        to: str,
        *,
        start: str | int = "now",
        headers: Mapping[str, str] | None = None,
        batch: int = 500,
        timeout: float = 10.0,
    ) -> Outbox:
        """Let the changes of a stream table's result be delivered to a consumer, in order, at least once.

        `to` is `table:schema.name` (of this lake: exactly once), `https://…` (batches are posted as JSON) or
        `stdout`. `start` is `now`, `beginning`, or the snapshot after which to begin. Values of `headers` are
        kept encrypted; `env:NAME` takes one from the environment each time.

        >>> hw.attach_outbox("sales.revenue", "audit", to="table:audit.revenue")  # doctest: +SKIP
        """
        return self.outbox_relays.attach(
            stream_table, name, to, start=start, headers=headers, batch=batch, timeout=timeout
        )

    def detach_outbox(self, name: str) -> None:
        """Remove an outbox; what it delivered stays."""
        self.outbox_relays.detach(name)

    def outboxes(self) -> list[Outbox]:
        """All outboxes, with how far they have come. Does not start Spark."""
        return self.outbox_relays.all()

    def relay(
        self, names: str | Sequence[str] | None = None, *, limit: int | None = None
    ) -> list[RelayResult]:
        """Deliver what is pending in some outboxes, or in all; `headwater run` does it by itself.

        What could not be delivered is part of the result, with the error, and is sent again next time.
        """
        return self.outbox_relays.relay([names] if isinstance(names, str) else names, limit=limit)

    @cached_property
    def outbox_relays(self) -> Outboxes:
        """What the calls above are made of, for programs that need more."""
        from headwater.engine.outbox import Outboxes

        return Outboxes(self.lake, self.stream_tables.store)

    # -- playbooks ----------------------------------------------------------------------------------

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

    @cached_property
    def stream_tables(self) -> StreamTables:
        """What the calls above are made of, for programs that need more."""
        from headwater.engine.streams import StreamTables

        return StreamTables(self.lake, lambda: self._connector)

    @cached_property
    def _connector(self) -> LakeSpark:
        # Late: starting Spark takes seconds, and much can be done without it.
        from headwater.engine.procedures import procedures
        from headwater.spark.connector import LakeSpark
        from headwater.spark.session import open_session

        spark = open_session(self.settings.spark) if self._given_spark is None else self._given_spark
        connector = LakeSpark(self.lake, spark)
        connector.procedures = procedures(self.maintenance)
        return connector

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
