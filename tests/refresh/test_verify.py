"""Verify: right results are found right, wrong ones are shown, and what cannot be told is said."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headwater.errors import StreamTableError, UnsupportedError
from headwater.lake.lake import Lake
from headwater.refresh.comparing import compare, how
from headwater.refresh.model import (
    Definition,
    Frontier,
    SourcePosition,
    Status,
    StoredStage,
    StreamTable,
    VerifyResult,
)
from headwater.refresh.store import StreamStore, new_stream_id
from headwater.refresh.verifying import verify
from headwater.typedefs import STORAGE_SCHEMA, TableName

MOMENT = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 4], pa.int64()),
        "Region": ["a", "a", None, "b", "b"],
        "price": pa.array([Decimal("1.10"), Decimal("2.25"), None, Decimal("3.00"), Decimal("3.00")]),
        "weight": pa.array([0.1, 0.2, math.nan, None, 0.3]),
        "day": pa.array([date(2026, 3, day) for day in (1, 2, 1, 1, 3)], pa.date32()),
    }
)


@pytest.fixture
def make(lake: Lake) -> Callable[..., StreamTable]:
    """Makes stream tables by hand: a storage table with rows, and a frontier at the newest snapshot."""
    store = StreamStore(lake)
    with lake.transaction() as tx:
        tx.create_schema(STORAGE_SCHEMA)
        tx.create_schema("sales")
        tx.create_table("sales.orders", ORDERS.schema)
        tx.append("sales.orders", ORDERS)

    def made(name: str, query: str | None, rows: pa.Table, sources: tuple[SourcePosition, ...] = ()) -> Any:
        read = lake.snapshot().id
        storage = TableName(STORAGE_SCHEMA, name)
        shown = [field for field in rows.schema.names if not field.startswith("_hw_")]
        stream = StreamTable(
            id=new_stream_id(),
            definition=Definition(TableName("main", name), query, None if query else "jobs:totals"),
            status=Status.ACTIVE,
            stages=(StoredStage("@", -1, storage),),
            columns=tuple((field, "?") for field in shown),
            upstream=(),
            frontier=Frontier(read, -1, MOMENT, sources),
        )
        with lake.transaction() as tx:
            tx.create_table(storage, rows.schema)
            tx.append(storage, rows)
            tx.create_view(f"main.{name}", f'SELECT * FROM {STORAGE_SCHEMA}."{name}"')
            tx.join(store.insert(stream))
        return store.get(stream.name)

    return made


def verified(lake: Lake, stream: StreamTable, **options: Any) -> VerifyResult:
    return verify(lake, StreamStore(lake), stream, **options)


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def test_a_right_result_is_found_right_also_after_its_inputs_moved_on(
    lake: Lake, make: Callable[..., StreamTable]
) -> None:
    stream = make(
        "totals",
        "SELECT Region, count(*) AS n, sum(price) AS total, avg(price) AS mean, sum(o.weight) AS w "
        "FROM sales.orders o GROUP BY Region",
        table(
            Region=["b", "a", None],
            n=pa.array([2, 2, 1], pa.int64()),
            total=pa.array([Decimal("6.00"), Decimal("3.35"), None], pa.decimal128(13, 2)),
            mean=pa.array([Decimal("3.000000"), Decimal("1.675000"), None], pa.decimal128(7, 6)),
            w=pa.array([0.3, 0.2 + 0.1 + 1e-17, math.nan], pa.float64()),
            _hw_rows=pa.array([2, 2, 1], pa.int64()),
        ),
    )
    lake.run(lambda tx: tx.delete("sales.orders", "id = 4"))

    found = verified(lake, stream)

    assert found.ok, found
    assert (found.rows, found.missing, found.unexpected, found.differences) == (3, 0, 0, ())
    assert stream.frontier is not None
    assert found.data_snapshot_id == stream.frontier.data_snapshot_id


def test_differences_are_counted_and_the_first_are_shown(
    lake: Lake, make: Callable[..., StreamTable]
) -> None:
    stream = make(
        "wrong",
        "SELECT id, Region FROM sales.orders",
        table(id=pa.array([1, 2, 2, 2, 4], pa.int64()), Region=["a", "a", "a", "a", None]),
    )

    found = verified(lake, stream)

    assert not found.ok
    assert (found.rows, found.missing, found.unexpected) == (5, 3, 3)
    assert found.differences == (
        ("unexpected", {"id": 2, "Region": "a"}, 2),
        ("missing", {"id": 3, "Region": None}, 1),
        ("unexpected", {"id": 4, "Region": None}, 1),
        ("missing", {"id": 4, "Region": "b"}, 2),
    )
    assert len(verified(lake, stream, limit=1).differences) == 1


def test_rows_that_are_stored_but_not_shown_do_not_count(
    lake: Lake, make: Callable[..., StreamTable]
) -> None:
    stream = make(
        "many",
        "SELECT Region, count(*) AS n FROM sales.orders GROUP BY Region HAVING count(*) > 1",
        table(Region=["b", "a", None], n=pa.array([2, 2, 1], pa.int64()), _hw_shown=[True, True, False]),
    )

    assert verified(lake, stream).ok
    assert verified(lake, stream).rows == 2


def test_inputs_are_read_at_their_own_snapshots_and_stream_tables_from_their_storage(
    lake: Lake, make: Callable[..., StreamTable]
) -> None:
    upstream = make(
        "up",
        "SELECT id, Region FROM sales.orders",
        table(id=pa.array([1, 9], pa.int64()), Region=["x", "y"], _hw_shown=[True, False]),
    )
    assert upstream.frontier is not None
    position = SourcePosition(upstream.storage.table_id, "main.up", upstream.frontier.snapshot_id)
    lake.run(lambda tx: tx.delete(upstream.storage.table, "id = 1"))
    stream = make("down", "SELECT up.Region AS r FROM up WHERE up.id < 100", table(r=["x"]), (position,))

    assert verified(lake, stream).ok


def test_views_are_computed_from_the_tables_below_them(lake: Lake, make: Callable[..., StreamTable]) -> None:
    with lake.transaction() as tx:
        tx.create_view(
            "main.recent", "SELECT id, price * 2 FROM sales.orders WHERE id < 3", column_aliases=["i", "p"]
        )
        tx.create_view(
            "main.again", "WITH recent AS (SELECT i FROM main.recent) SELECT i + 1 AS j FROM recent"
        )
    stream = make("over_views", "SELECT j FROM again", table(j=pa.array([2, 3], pa.int64())))
    lake.run(lambda tx: tx.delete("sales.orders", "id = 1"))

    assert verified(lake, stream).ok


def test_the_current_time_is_that_of_the_refresh(lake: Lake, make: Callable[..., StreamTable]) -> None:
    stream = make(
        "today",
        "SELECT id FROM sales.orders WHERE day = current_date() AND now() >= day",
        table(id=pa.array([1, 3, 4], pa.int64())),
    )

    assert verified(lake, stream).ok


def test_arrays_of_rows_have_no_order(lake: Lake, make: Callable[..., StreamTable]) -> None:
    stream = make(
        "lists",
        "SELECT Region, collect_list(id) AS ids, collect_set(weight) AS ws FROM sales.orders "
        "WHERE Region = 'a' GROUP BY Region",
        table(Region=["a"], ids=pa.array([[2, 1]], pa.list_(pa.int64())), ws=[[0.2, 0.1]]),
    )

    assert verified(lake, stream).ok


def test_what_cannot_be_told_is_said(lake: Lake, make: Callable[..., StreamTable]) -> None:
    one = table(id=pa.array([1], pa.int64()))
    made = make("made", None, one)
    with pytest.raises(UnsupportedError, match="Python function"):
        verified(lake, made)
    with pytest.raises(StreamTableError, match="no result yet"):
        verified(lake, replace(made, definition=Definition(made.name, "SELECT 1"), frontier=None))
    unknown = make("unknown", "SELECT width_bucket(id, 1, 2, 3) AS id FROM sales.orders", one)
    with pytest.raises(UnsupportedError) as error:
        verified(lake, unknown)
    assert "width_bucket" in str(error.value)
    estimated = make("estimated", "SELECT approx_count_distinct(id) AS id FROM sales.orders", one)
    with pytest.raises(UnsupportedError) as error:
        verified(lake, estimated)
    assert "estimates" in str(error.value)


def test_ties_of_a_limit_are_named_as_a_cause(lake: Lake, make: Callable[..., StreamTable]) -> None:
    stream = make(
        "first", "SELECT id FROM sales.orders ORDER BY day LIMIT 1", table(id=pa.array([2], pa.int64()))
    )

    assert "tie" in verified(lake, stream).detail


@pytest.mark.parametrize(
    ("expected", "stored", "missing"),
    [
        ("1.0::DOUBLE", "(1.0 + 1e-12)::DOUBLE", 0),
        ("1.0::DOUBLE", "(1.0 + 1e-7)::DOUBLE", 1),
        ("'NaN'::DOUBLE", "'NaN'::DOUBLE", 0),
        ("'NaN'::DOUBLE", "NULL::DOUBLE", 1),
        ("'Infinity'::DOUBLE", "1e308::DOUBLE", 1),
        ("0.0::DOUBLE", "-0.0::DOUBLE", 0),
        ("(1/3)::DOUBLE", "0.333333::DECIMAL(10,6)", 0),
        ("(1/3)::DOUBLE", "0.333350::DECIMAL(10,6)", 1),
        ("1.5::DECIMAL(4,1)", "1.50::DECIMAL(6,2)", 0),
        ("1::HUGEINT", "1::INTEGER", 0),
        ("'2026-01-01 00:00:00'::TIMESTAMP", "'2026-01-01'::DATE", 0),
        ("1.1::FLOAT", "1.1000001::FLOAT", 0),
    ],
)
def test_values_are_compared_as_what_they_are(expected: str, stored: str, missing: int) -> None:
    with duckdb.connect() as session:
        session.execute(f"CREATE TABLE e AS SELECT {expected} AS v; CREATE TABLE s AS SELECT {stored} AS v")
        kinds = [session.execute(f"DESCRIBE {name}").fetchall()[0][1] for name in ("e", "s")]
        found = compare(session, "e", "s", [how("v", *kinds)], 10)

    assert (found.missing, found.unexpected) == (missing, missing)


def test_many_rows_that_differ_in_their_last_digits_are_matched_in_any_order() -> None:
    with duckdb.connect() as session:
        session.execute(
            "CREATE TABLE e AS SELECT i % 3 AS k, sin(i) AS v, cos(i) * 1e6 AS w FROM range(5000) r(i);"
            "CREATE TABLE s AS SELECT k, v * (1 + 9e-15 * (random() - 0.5)) AS v, w * (1 - 3e-15) AS w FROM e"
            ";UPDATE s SET w = w + 1 WHERE rowid = 77"
        )
        columns = [how("k", "BIGINT", "BIGINT"), how("v", "DOUBLE", "DOUBLE"), how("w", "DOUBLE", "DOUBLE")]
        found = compare(session, "e", "s", columns, 10)

    assert (found.rows, found.missing, found.unexpected) == (5000, 1, 1)
