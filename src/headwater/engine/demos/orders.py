"""Orders arrive in PostgreSQL; revenue by region is kept up to date in the lake; DuckDB reads it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headwater.engine.demos.latency import Latencies, Seen, Writer
from headwater.engine.demos.running import running_service
from headwater.errors import HeadwaterError
from headwater.lake.connection import Connection, Database
from headwater.lake.scratch import fresh_database

if TYPE_CHECKING:
    import duckdb

    from headwater.engine.headwater import Headwater

SOURCE, TABLE, STREAM = "shop", "shop.orders", "revenue_by_region"
REGIONS = ("east", "north", "south", "west")
QUERY = """SELECT region, count(*) AS orders, sum(amount) AS revenue, max(id) AS newest
FROM shop.orders GROUP BY region"""
#: Orders that are there before anything is measured.
BEFORE = 1_000
#: Orders of the first seconds are not measured: Java still compiles what it runs.
WARM_UP = 5.0
#: How long the last orders are waited for, and how often the reader looks.
_PATIENCE = 30.0
_LOOK = 0.05

_CREATE = """CREATE TABLE orders (
    id bigint PRIMARY KEY, region text NOT NULL, amount numeric(10, 2) NOT NULL,
    status text NOT NULL DEFAULT 'new', ordered_at timestamptz NOT NULL DEFAULT now())"""
_FILL = """INSERT INTO orders (id, region, amount)
    SELECT n, (%s::text[])[1 + n %% 4], (100 + n * 37 %% 9900) / 100.0 FROM generate_series(1, %s) AS n"""


@dataclass(frozen=True)
class Sight:
    """What DuckDB saw at one moment."""

    #: (region, orders, revenue)
    regions: tuple[tuple[str, int, Decimal], ...]
    written: int
    visible: int
    latencies: Latencies
    seconds_left: float


@dataclass(frozen=True)
class Point:
    """The total revenue at one snapshot."""

    snapshot_id: int
    time: str
    orders: int
    revenue: Decimal


@dataclass(frozen=True)
class OrdersStory:
    """What happened."""

    orders_written: int
    seconds: float
    per_second: float
    latencies: Latencies
    warm_up_seconds: float
    #: How often each action was the outcome of a refresh.
    refreshes: Mapping[str, int]
    capture: str
    regions: tuple[tuple[str, int, Decimal], ...]
    #: Whether PostgreSQL's own GROUP BY, the lake's mirror and DuckDB's recomputation say the same.
    agrees: bool
    verified: bool
    trend: tuple[Point, ...]
    problems: tuple[str, ...] = ()


def tell(
    hw: Headwater,
    *,
    seconds: float = 25.0,
    per_second: float = 10.0,
    news: Callable[[str], None] = lambda text: None,
    show: Callable[[Sight], None] = lambda sight: None,
) -> OrdersStory:
    """Run the whole story."""
    warm_up = min(WARM_UP, seconds / 3)
    news("creating a shop in PostgreSQL")
    shop = fresh_database(hw.lake.dsn, "shop")
    database = Database(shop)
    try:
        with database.connection() as connection:
            connection.execute(_CREATE)
            connection.execute(_FILL, (list(REGIONS), BEFORE))
        news("copying its orders into the lake, and starting Spark")
        source = hw.add_postgres_source(shop, ["orders"], name=SOURCE, schema=SOURCE)
        hw.create_stream_table(STREAM, QUERY, schedule="on change")
        writer = Writer(shop, _Orders().write, per_second, first=BEFORE + 1)
        seen = Seen(writer)
        began = time.monotonic()
        with hw.duckdb() as session, running_service(hw) as reports:
            news("orders are arriving")
            writer.start()
            _watch(session, seen, began + seconds, show)
            writer.stop()
            _watch(session, seen, time.monotonic() + _PATIENCE, show, enough=lambda: seen.last >= writer.last)
            regions = _regions(session)
        with database.connection() as connection:
            truth = _truth(connection)
        failed = [f"{r.name}: {r.message}" for r in reports if not r.ok]
        return OrdersStory(
            orders_written=len(writer.committed),
            seconds=writer.committed[-1] - began if writer.committed else 0.0,
            per_second=per_second,
            latencies=seen.latencies(warm_up),
            warm_up_seconds=warm_up,
            refreshes=dict(Counter(r.action for r in reports if r.kind == "streams")),
            capture=f"{source.capture}: {source.reason}",
            regions=regions,
            agrees=truth == regions,
            verified=hw.verify(STREAM).ok,
            trend=_trend(hw),
            problems=tuple(dict.fromkeys(failed)),
        )
    finally:
        database.close()


class _Orders:
    """One new order at a time; now and then an old one is changed or cancelled."""

    def __init__(self) -> None:
        self.dice = random.Random(7)  # noqa: S311

    def write(self, connection: Connection, number: int) -> None:
        """Write an order, and perhaps touch another."""
        dice = self.dice
        amount = Decimal(dice.randrange(100, 20_000)) / 100
        connection.execute(
            "INSERT INTO orders (id, region, amount) VALUES (%s, %s, %s)",
            (number, dice.choice(REGIONS), amount),
        )
        old = dice.randrange(1, BEFORE)
        if number % 7 == 0:
            connection.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (old,))
        if number % 11 == 0:
            connection.execute("DELETE FROM orders WHERE id = %s", (old,))


def _watch(
    session: duckdb.DuckDBPyConnection,
    seen: Seen,
    until: float,
    show: Callable[[Sight], None],
    enough: Callable[[], bool] | None = None,
) -> None:
    """Look again and again until a time, or until it is enough, which it must be by then."""
    while enough is None or not enough():
        left = until - time.monotonic()
        if left < 0:
            break
        rows = session.execute(
            f"SELECT region, orders, revenue, newest FROM {STREAM} ORDER BY region"
        ).fetchall()
        seen.look(max((row[3] for row in rows), default=None))
        regions = tuple((row[0], row[1], row[2]) for row in rows)
        left = 0.0 if enough is not None else left
        show(Sight(regions, len(seen.writer.committed), len(seen.times), seen.latencies(), left))
        time.sleep(_LOOK)
    if enough is not None and not enough():
        raise HeadwaterError(
            f"The last orders were not seen within {_PATIENCE:.0f} seconds.",
            hint="`headwater history` and `headwater source list` say what went wrong.",
        )


def _regions(session: duckdb.DuckDBPyConnection) -> tuple[tuple[str, int, Decimal], ...]:
    rows = session.execute(f"SELECT region, orders, revenue FROM {STREAM} ORDER BY region").fetchall()
    return tuple((row[0], row[1], row[2]) for row in rows)


def _truth(connection: Connection) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        connection.execute(
            "SELECT region, count(*), sum(amount) FROM orders GROUP BY region ORDER BY region"
        ).fetchall()
    )


def _trend(hw: Headwater, points: int = 5) -> tuple[Point, ...]:
    """DuckDB reads the result as it was at some of its snapshots."""
    written = sorted(row.snapshot_id for row in hw.provenance(STREAM, limit=10_000))
    step = max(1, (len(written) - 1) // (points - 1))
    chosen = sorted({*written[::step][: points - 1], written[-1]})
    times = {snapshot.id: snapshot.time for snapshot in hw.lake.snapshots()}
    storage = hw.stream_tables.streams.get(STREAM).storage.table
    found = []
    with hw.duckdb() as session:
        for snapshot_id in chosen:
            row = session.execute(
                f"SELECT sum(orders), sum(revenue) FROM {storage} AT (VERSION => {int(snapshot_id)})"
            ).fetchone()
            if row is not None:
                found.append(Point(snapshot_id, f"{times[snapshot_id]:%H:%M:%S}", int(row[0]), row[1]))
    return tuple(found)
