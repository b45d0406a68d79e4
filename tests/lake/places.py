"""Places in a lake that many tests share: each test works in a schema of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction

#: What a test does in a transaction, given the name of its schema.
Work = Callable[[Transaction, str], object]


@dataclass(frozen=True)
class Place:
    """A lake, a DuckDB session that stays open all the time, and a schema of the test's own."""

    lake: Lake
    session: Any
    schema: str

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """DuckDB's answer; `{s}` is the schema."""
        return self.session.execute(text.replace("{s}", self.schema)).fetchall()

    def run(self, work: Work) -> int:
        with self.lake.transaction() as tx:
            work(tx, self.schema)
        assert tx.snapshot_id is not None
        return tx.snapshot_id

    def rows(self, table: str = "t", at: int | None = None) -> list[dict[str, Any]]:
        return self.lake.read((self.schema, table), at).to_pylist()


def make(place: Place) -> int:
    """A table with rows in a file and in the catalog, and a view; everything looked at once by DuckDB."""

    def work(tx: Transaction, s: str) -> None:
        tx.create_table(f"{s}.t", {"a": "int32", "b": "varchar", "s": "struct(x int32, y varchar)"})
        tx.append(f"{s}.t", [{"a": i, "b": f"v{i}", "s": {"x": i, "y": "u"}} for i in range(20)])
        tx.create_table(f"{s}.small", {"a": "int32", "b": "varchar"})
        tx.append(f"{s}.small", [{"a": 1, "b": "x"}, {"a": 2, "b": None}])
        tx.create_view(f"{s}.v", f"SELECT a FROM {s}.t")

    snapshot = place.run(work)
    assert place.sql("SELECT count(*) FROM {s}.t") == [(20,)]
    assert place.sql("SELECT count(*) FROM {s}.small") == [(2,)]
    assert place.sql("SELECT count(*) FROM {s}.v") == [(20,)]
    return snapshot
