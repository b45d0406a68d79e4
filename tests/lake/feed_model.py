"""What a table's changes must be, from full reads at each snapshot: the judge of the change feed."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from headwater.lake.format.changes import read_changes
from headwater.lake.lake import Lake
from headwater.lake.model import Table
from headwater.lake.reading.read import read_plan
from headwater.lake.reading.scan import plan_scan
from tests.lake.lakes import Pair

Values = tuple[str | None, ...]
FILES = {"data_inlining_row_limit": 0}
REWRITE = "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.0)"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"
FLUSH = "CALL ducklake_flush_inlined_data('lake')"
CREATE = "CREATE TABLE t (k INTEGER, v VARCHAR)"

OWN = ("_change_type", "_rowid", "_commit_version", "_commit_timestamp")


class Change(NamedTuple):
    version: int
    row_id: int
    type: str
    values: Values


class FeedModel:
    """A table in the columns it has at snapshot `end`, at every snapshot up to it."""

    def __init__(self, lake: Lake, table: Table, end: int):
        self.lake, self.table, self.end = lake, table, end
        self._known: dict[int, dict[int, Values]] = {}
        self.bags: dict[int, Counter[Values]] = {}
        """The rows of each snapshot without their ids."""
        self.ids_twice = False
        """DuckDB gave several rows the same id, so that only bags can be compared (see `MERGE_RENUMBERS`)."""

    def rows(self, snapshot: int) -> dict[int, Values]:
        """The rows by their ids; none where the table was not there yet."""
        if snapshot not in self._known:
            self._known[snapshot] = self._read(snapshot)
        return self._known[snapshot]

    def _read(self, snapshot: int) -> dict[int, Values]:
        if snapshot < 0:
            return {}
        state = self.lake.state(snapshot)
        if state.table_by_id(self.table.id) is None:
            return {}
        plan = plan_scan(self.lake.db, state, self.table)
        rows = read_plan(plan, self.lake.store, self.lake.db, hidden=["rowid"])
        listed = texts(rows)
        found = {int(values[-1] or 0): values[:-1] for values in listed}
        self.ids_twice |= len(found) < len(listed)
        self.bags[snapshot] = Counter(values[:-1] for values in listed)
        return found

    def changes(self, start: int, end: int) -> list[Change]:
        """What differs from each snapshot to the next."""
        found: list[Change] = []
        for version in range(start, end + 1):
            found += difference(self.rows(version - 1), self.rows(version), version)
        return found

    def net(self, start: int, end: int) -> list[Change]:
        """What differs between the state before and the last one, at the version of the last difference."""
        last = {change.row_id: change.version for change in self.changes(start, end)}
        whole = difference(self.rows(start - 1), self.rows(end), 0)
        return sorted(change._replace(version=last[change.row_id]) for change in whole)


def difference(before: dict[int, Values], after: dict[int, Values], version: int) -> list[Change]:
    found = []
    for row_id in sorted(before.keys() | after.keys()):
        old, new = before.get(row_id), after.get(row_id)
        if old is None and new is not None:
            found.append(Change(version, row_id, "insert", new))
        elif old is not None and new is None:
            found.append(Change(version, row_id, "delete", old))
        elif old is not None and new is not None and old != new:
            found.append(Change(version, row_id, "update_preimage", old))
            found.append(Change(version, row_id, "update_postimage", new))
    return found


def texts(rows: pa.Table) -> list[Values]:
    """Rows as DuckDB would print them, in their order, so that infinity, BC and NaN compare too."""
    if not rows.num_rows:
        return []
    names = [f"c{place}" for place in range(rows.num_columns)]
    numbers = pa.array(range(rows.num_rows), pa.int64())
    connection = _session()
    connection.register("found", rows.rename_columns(names).append_column("n", numbers))
    query = "SELECT COLUMNS(* EXCLUDE (n))::VARCHAR FROM found ORDER BY n"
    found = connection.execute(query).fetchall()
    connection.unregister("found")
    return found


@cache
def _session() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def as_changes(feed: pa.Table) -> list[Change]:
    """A feed in the model's terms; its order must be the promised one."""
    assert tuple(feed.column_names[-4:]) == OWN
    own: list[Any] = [feed.column(name).to_pylist() for name in OWN]
    data = feed.drop_columns(list(OWN))
    values = texts(data) if data.num_columns else [()] * feed.num_rows
    found = [
        Change(version, row_id, type_, row)
        for type_, row_id, version, row in zip(*own[:3], values, strict=True)
    ]
    assert found == sorted(found, key=in_order)
    return found


def in_order(change: Change) -> tuple[int, int, bool]:
    return change.version, change.row_id, change.type != "update_preimage"


def without_idle_updates(changes: list[Change]) -> tuple[list[Change], set[int]]:
    """The changes but for updates that changed nothing, which full reads do not show; and their snapshots."""
    kept: list[Change] = []
    idle = set()
    place = 0
    while place < len(changes):
        change = changes[place]
        if change.type == "update_preimage":
            after = changes[place + 1]
            assert after[:3] == (change.version, change.row_id, "update_postimage")
            if after.values == change.values:
                idle.add(change.version)
                place += 2
                continue
            kept += [change, after]
            place += 2
            continue
        kept.append(change)
        place += 1
    return kept, idle


def check_feed(lake: Lake, model: FeedModel, start: int, end: int) -> pa.Table:
    """The feed of a range is what the model says; returns it."""
    name = lake.state(end).table_by_id(model.table.id)
    assert name is not None
    expected_changes = model.changes(start, end)
    if model.ids_twice:
        return check_bags(lake, model, start, end)
    plan = lake.plan_changes(name.name, start, end)
    feed = lake.changes(name.name, start, end)
    found, idle = without_idle_updates(as_changes(feed))
    assert found == expected_changes, f"changes of {name.name} from {start} to {end}"
    compacted = {
        s.id
        for s in lake.snapshots()
        for change in read_changes(s.changes)
        if change.token in ("merge_adjacent", "rewrite_delete") and change.is_about(model.table.id)
    }
    assert not idle & compacted, "what compaction moved is not changed"
    assert feed.num_rows <= plan.rows_at_most
    times = {s.id: s.time for s in lake.snapshots()}
    stated = zip(
        feed.column("_commit_version").to_pylist(), feed.column("_commit_timestamp").to_pylist(), strict=True
    )
    assert all(times[version] == time for version, time in stated)

    net = sorted(as_changes(lake.changes(name.name, start, end, net=True)), key=_by_row)
    expected = sorted(model.net(start, end), key=_by_row)
    assert [change[1:] for change in net] == [change[1:] for change in expected]
    # An update that changes nothing counts as a change, though full reads do not show it.
    assert all(ours.version >= theirs.version for ours, theirs in zip(net, expected, strict=True))
    assert idle or net == expected
    return feed


def check_bags(lake: Lake, model: FeedModel, start: int, end: int) -> pa.Table:
    """Before and after, and the changes between, all of them without row ids."""
    assert model.rows(start - 1) is not None
    before, after = model.bags.get(start - 1, Counter()), model.bags[end]
    for net in (False, True):
        feed = lake.changes(lake.state(end).table_by_id(model.table.id).name, start, end, net=net)
        found = before.copy()
        for change in as_changes(feed):
            found[change.values] += 1 if change.type in ("insert", "update_postimage") else -1
        assert {row: n for row, n in found.items() if n} == after
    return feed


def _by_row(change: Change) -> tuple[int, bool]:
    return change.row_id, change.type != "update_preimage"


def rows(first: int, end: int) -> str:
    return f"INSERT INTO t SELECT i, 'v' || i FROM range({first}, {end}) r(i)"


def delete(where: str) -> str:
    return f"DELETE FROM t WHERE {where}"


def update(value: str, where: str) -> str:
    return f"UPDATE t SET v = {value} WHERE {where}"


def short(pair: Pair, start: int, end: int | None = None, **options: Any) -> list[tuple[Any, ...]]:
    """Version, row id, type and values of each change."""
    return [tuple(change) for change in as_changes(pair.lake.changes("t", start, end, **options))]
