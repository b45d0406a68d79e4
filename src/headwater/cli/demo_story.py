"""The story that `headwater demo` tells, step by step, with a real lake."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

    from headwater.engine import Headwater
    from headwater.lake.lake import Lake
    from headwater.lake.writing.transaction import Transaction

TABLE = "shop.orders"
REGIONS = ("north", "south", "east", "west")
ORDERS = 1_000
AUTHOR = "demo"


@dataclass(frozen=True)
class Step:
    """One commit."""

    did: str
    snapshot_id: int


@dataclass(frozen=True)
class Totals:
    """One line of the comparison: what each reader sees of one region at one snapshot."""

    region: str
    headwater: tuple[int, Decimal]
    duckdb: tuple[int, Decimal]


@dataclass(frozen=True)
class Comparison:
    """The table at one snapshot, read by both."""

    snapshot_id: int
    when: str
    columns: tuple[str, ...]
    rows: int
    totals: tuple[Totals, ...]
    equal: bool
    """Whether both read exactly the same rows, all columns compared."""


@dataclass(frozen=True)
class Story:
    """Everything that happened."""

    steps: tuple[Step, ...]
    comparisons: tuple[Comparison, ...]
    files: tuple[str, ...]
    """Data and delete files, by full location."""


def tell(hw: Headwater) -> Story:
    """Run all steps and compare both readers at two snapshots."""
    steps: list[Step] = []

    def commit(did: str, work: Callable[[Transaction], object]) -> None:
        with hw.lake.transaction(author=AUTHOR, message=did) as tx:
            work(tx)
        steps.append(Step(did, tx.snapshot_id or 0))

    def create(tx: Transaction) -> None:
        tx.create_schema("shop")
        tx.create_table(
            TABLE,
            {"id": "int64", "region": "varchar", "amount": "decimal(10,2)", "ordered_at": "timestamp"},
            not_null=["id"],
            comment="Orders of a small shop",
        )

    def evolve(tx: Transaction) -> None:
        tx.rename_column(TABLE, "amount", "revenue")
        tx.add_column(TABLE, "channel", "varchar", default="web")

    commit("create the table", create)
    commit(f"append {ORDERS:,} orders from Arrow", lambda tx: tx.append(TABLE, orders()))
    commit(
        "raise prices in the north by 10 %",
        lambda tx: tx.update(TABLE, {"amount": "amount * 1.1"}, where="region = 'north'"),
    )
    commit("delete orders below 5.00", lambda tx: tx.delete(TABLE, "amount < 5"))
    commit("rename a column, add another", evolve)
    commit(
        "append two more",
        lambda tx: tx.append(
            TABLE,
            [
                {"id": ORDERS + 1, "region": "east", "revenue": Decimal("12.50"), "channel": "shop"},
                {"id": ORDERS + 2, "region": "west", "revenue": Decimal("80.00")},
            ],
        ),
    )
    with hw.duckdb() as session:
        comparisons = (
            compare(hw.lake, session, steps[1].snapshot_id, "after the first append"),
            compare(hw.lake, session, steps[-1].snapshot_id, "now"),
        )
    plan = hw.lake.scan(TABLE)
    files = [scan.file.path for scan in plan.files] + [d.path for scan in plan.files for d in scan.deletes]
    return Story(tuple(steps), comparisons, tuple(files))


def orders() -> pa.Table:
    """A thousand orders, the same every time."""
    dice = random.Random(42)  # noqa: S311
    start = datetime(2026, 1, 1)  # noqa: DTZ001  (the column has no time zone)
    return pa.table(
        {
            "id": pa.array(range(1, ORDERS + 1), pa.int64()),
            "region": [dice.choice(REGIONS) for _ in range(ORDERS)],
            "amount": pa.array(
                [Decimal(dice.randrange(100, 20_000)) / 100 for _ in range(ORDERS)], pa.decimal128(10, 2)
            ),
            "ordered_at": pa.array(
                [start + timedelta(minutes=7 * n) for n in range(ORDERS)], pa.timestamp("us")
            ),
        }
    )


def compare(lake: Lake, session: duckdb.DuckDBPyConnection, snapshot_id: int, when: str) -> Comparison:
    """Read the table at a snapshot through Headwater and through DuckDB's own extension."""
    ours = lake.read(TABLE, snapshot_id)
    theirs = session.execute(f"SELECT * FROM {TABLE} AT (VERSION => {int(snapshot_id)})").to_arrow_table()
    amount = ours.column_names[2]  # its name changes on the way
    mine, others = _totals(ours, amount), _totals(theirs, amount)
    return Comparison(
        snapshot_id=snapshot_id,
        when=when,
        columns=tuple(ours.column_names),
        rows=ours.num_rows,
        totals=tuple(Totals(r, mine[r], others.get(r, (0, Decimal(0)))) for r in sorted(mine)),
        equal=_rows(ours) == _rows(theirs),
    )


def _totals(table: pa.Table, amount: str) -> dict[str, tuple[int, Decimal]]:
    grouped = table.group_by("region").aggregate([("id", "count"), (amount, "sum")]).to_pylist()
    return {row["region"]: (row["id_count"], row[f"{amount}_sum"]) for row in grouped}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by("id").to_pylist()


def folder_of(base: Path) -> Path:
    """Where the demo keeps its lake: beside the user's own, never in it."""
    return base / "demo"
