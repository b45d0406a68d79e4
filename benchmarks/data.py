"""The rows that the larger benchmarks move."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ROWS = 1_000_000
#: The table's columns, in names that both sides know.
COLUMNS = {
    "id": "bigint",
    "customer": "integer",
    "name": "varchar",
    "city": "varchar",
    "day": "date",
    "amount": "decimal(12,2)",
    "price": "double",
    "updated": "timestamp",
}


def orders(rows: int = ROWS) -> pa.Table:
    """Orders as they look in practice: keys, few cities, many names, dates, money, some NULL."""
    numbers = np.random.default_rng(20)
    cities = pa.array([f"city {n}" for n in range(200)])
    names = pa.array([f"customer number {n}" for n in range(50_000)])
    cents = pa.array(numbers.integers(0, 10_000_000, rows))
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "customer": pa.array(numbers.integers(0, 100_000, rows).astype(np.int32)),
            "name": names.take(numbers.integers(0, len(names), rows)),
            "city": cities.take(numbers.integers(0, len(cities), rows)),
            "day": pa.array(numbers.integers(18_000, 20_000, rows).astype(np.int32)).cast(pa.date32()),
            "amount": pa.Array.from_buffers(
                pa.decimal128(12, 2), rows, [None, cents.cast(pa.decimal128(38, 0)).buffers()[1]]
            ),
            "price": pa.array(numbers.normal(100, 25, rows), mask=numbers.random(rows) < 0.02),
            "updated": pa.array(1_700_000_000_000_000 + numbers.integers(0, 10**13, rows)).cast(
                pa.timestamp("us")
            ),
        }
    )
