"""Prometheus metrics of a service, in a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headwater.scheduler.state import ServiceState
from headwater.scheduler.work import Report

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0, 1800.0)


class Metrics:
    """What was done is counted as it is reported; how things are is told when one asks."""

    def __init__(self, state: Callable[[], ServiceState]):
        self._registry = CollectorRegistry()
        of, many = self._registry, ["stream_table"]
        self._refreshes = Counter(
            "headwater_refreshes", "Refreshes by action.", [*many, "action"], registry=of
        )
        self._seconds = Histogram(
            "headwater_refresh_seconds", "Seconds that refreshes took.", many, buckets=_SECONDS, registry=of
        )
        self._rows = Counter(
            "headwater_refresh_rows",
            "Rows of results that refreshes changed.",
            [*many, "change"],
            registry=of,
        )
        self._skipped = Counter(
            "headwater_skipped_runs",
            "Due times that passed while a refresh was under way.",
            many,
            registry=of,
        )
        self._captures = Counter(
            "headwater_captures", "Captures by outcome.", ["source", "outcome"], registry=of
        )
        self._captured = Counter("headwater_capture_rows", "Changed rows captured.", ["source"], registry=of)
        self._capture_lag = Gauge(
            "headwater_capture_lag_seconds",
            "From the source's commit to the lake's in the last capture, at most.",
            ["source"],
            registry=of,
        )
        self._deliveries = Counter(
            "headwater_sink_deliveries", "Deliveries to sinks by outcome.", ["sink", "outcome"], registry=of
        )
        self._relayed = Counter("headwater_outbox_events", "Events relayed.", ["outbox"], registry=of)
        self._relays = Counter(
            "headwater_outbox_relays", "Relays by outcome.", ["outbox", "outcome"], registry=of
        )
        self._passes = Counter(
            "headwater_maintenance", "Steps of maintenance by outcome.", ["step", "outcome"], registry=of
        )
        self._maintained = Counter(
            "headwater_maintenance_files",
            "Files that maintenance replaced or removed.",
            ["step"],
            registry=of,
        )
        self._registry.register(_StateMetrics(state))

    def observe(self, report: Report) -> None:
        """Count a report."""
        name, outcome = report.name, "ok" if report.ok else "failed"
        if report.kind == "streams":
            self._refreshes.labels(name, report.action).inc()
            if report.action not in ("NO_DATA", "FAILED"):
                self._seconds.labels(name).observe(report.seconds)
                for change in ("inserted", "deleted"):
                    self._rows.labels(name, change).inc(int(report.fields.get(f"rows_{change}") or 0))
        elif report.kind == "source":
            self._captures.labels(name, outcome).inc()
            self._captured.labels(name).inc(int(report.fields.get("rows") or 0))
            if report.fields.get("lag_seconds") is not None:
                self._capture_lag.labels(name).set(float(report.fields["lag_seconds"]))
        elif report.kind == "sink":
            self._deliveries.labels(name, outcome).inc()
        elif report.kind == "maintenance":
            self._passes.labels(name, outcome).inc()
            self._maintained.labels(name).inc(int(report.fields.get("files") or 0))
        else:
            self._relays.labels(name, outcome).inc()
            self._relayed.labels(name).inc(int(report.fields.get("events") or 0))

    def skipped(self, name: str, count: int) -> None:
        """Count due times that were skipped."""
        self._skipped.labels(name).inc(count)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _StateMetrics(Collector):
    """How things are at the moment of a scrape."""

    def __init__(self, state: Callable[[], ServiceState]):
        self._state = state

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        lag = GaugeMetricFamily(
            "headwater_lag_seconds", "Since when a stream table is behind.", labels=["stream_table"]
        )
        for name, seconds in state.lags.items():
            lag.add_metric([name], seconds)
        held = GaugeMetricFamily(
            "headwater_lease_held", "1 for what this process works on.", labels=["kind", "name"]
        )
        failures = GaugeMetricFamily(
            "headwater_failures_in_a_row", "Failures of an item in a row.", labels=["kind", "name"]
        )
        for item in state.items:
            for name in item.names:
                held.add_metric([item.kind, name], float(item.held))
                failures.add_metric([item.kind, name], float(item.failures))
        processes = GaugeMetricFamily("headwater_processes", "Services that run on this lake.")
        processes.add_metric([], float(state.processes))
        return [lag, held, failures, processes]
