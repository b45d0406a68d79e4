"""Calls about stream tables, their sinks, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwater.engine.facade.services import Services

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.refresh.explaining import Explanation
    from headwater.refresh.lineage import Lineage
    from headwater.refresh.model import RefreshResult, VerifyResult
    from headwater.refresh.provenance import Provenance
    from headwater.refresh.sink_status import SinkStatus
    from headwater.refresh.status import StreamStatus
    from headwater.refresh.tracing import Trace
    from headwater.sinks.model import Delivered


class StreamTableCalls(Services):
    """Stream tables: define, refresh, explain, verify, publish."""

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
