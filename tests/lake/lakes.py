"""Lakes that DuckDB made, and the comparison of what DuckDB and Headwater read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from headwater.lake.lake import Lake
from tests.support import duck

HIDDEN = ["rowid", "snapshot_id", "filename", "file_row_number"]


class Pair:
    """One lake, open in DuckDB and in Headwater."""

    def __init__(self, dsn: str, folder: Path, **options: Any):
        self.dsn, self.folder = dsn, folder
        self.duck = duck(dsn, folder, **options)
        self.lake = Lake.open(dsn)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.duck.execute(statement)

    def snapshots(self) -> list[int]:
        rows = self.duck.execute("SELECT snapshot_id FROM lake.snapshots() ORDER BY 1").fetchall()
        return [row[0] for row in rows]

    def expected(self, table: str, snapshot: int | None = None, where: str = "true") -> list[tuple[Any, ...]]:
        at = "" if snapshot is None else f"AT (VERSION => {snapshot})"
        return self.duck.execute(
            f"SELECT {', '.join(HIDDEN)}, COLUMNS(*)::VARCHAR FROM {table} {at} WHERE {where} ORDER BY ALL"
        ).fetchall()

    def found(
        self, table: str, snapshot: int | None = None, where: str | None = None
    ) -> list[tuple[Any, ...]]:
        return as_texts(self.lake.read(table, snapshot, where=where, hidden=HIDDEN))

    def assert_same_everywhere(self, table: str) -> int:
        """Both readers give the same rows at every snapshot; returns how many had the table."""
        seen = 0
        for snapshot in self.snapshots():
            try:
                expected = self.expected(table, snapshot)
            except duckdb.CatalogException:
                continue
            assert self.found(table, snapshot) == expected, f"{table} at snapshot {snapshot}"
            seen += 1
        return seen

    def close(self) -> None:
        self.duck.close()
        self.lake.close()


def as_texts(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as DuckDB would print them, so that infinity, BC and NaN compare too."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("found", rows)
        hidden = ", ".join(HIDDEN)
        return connection.execute(
            f"SELECT {hidden}, COLUMNS(* EXCLUDE ({hidden}))::VARCHAR FROM found ORDER BY ALL"
        ).fetchall()
