"""A small project to begin with: a table, and a stream table over it as a file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction

#: The folder that `headwater plan` and `headwater apply` look into.
STREAMS_FOLDER = "streams"
TABLE = "example.orders"
_FILE = "revenue_by_region.sql"
_STREAM = """\
-- A stream table: the result of this query, kept up to date. `headwater plan` shows what this folder would
-- change, `headwater apply` does it, `headwater run` keeps all of it fresh.
-- name: example.revenue_by_region
-- schedule: on change
SELECT region, count(*) AS orders, sum(amount) AS revenue
FROM example.orders
GROUP BY region
"""
_COLUMNS = {"id": "int64", "region": "varchar", "amount": "decimal(10,2)", "ordered_at": "timestamptz"}
_ORDERS = (
    (1, "north", "12.50"),
    (2, "south", "80.00"),
    (3, "north", "7.25"),
    (4, "east", "31.00"),
    (5, "west", "5.75"),
    (6, "south", "19.90"),
)


def write_example(lake: Lake, folder: Path) -> Path | None:
    """Put the table into the lake and the file into the project; None if a folder of streams is there."""
    streams = folder / STREAMS_FOLDER
    if streams.exists():
        return None
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def work(tx: Transaction) -> None:
        tx.create_schema("example", if_not_exists=True)
        tx.create_table(TABLE, _COLUMNS, comment="Orders to try stream tables with")
        tx.append(
            TABLE,
            [
                {"id": id_, "region": region, "amount": Decimal(amount), "ordered_at": start + timedelta(id_)}
                for id_, region, amount in _ORDERS
            ],
        )

    lake.run(work, author="headwater init", message="the example of a new project")
    streams.mkdir(parents=True)
    file = streams / _FILE
    file.write_text(_STREAM, encoding="utf-8")
    return file
