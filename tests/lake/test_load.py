"""Writers at once on one lake, ours and DuckDB's: nothing lost, nothing doubled, nothing half."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from headwater.errors import ConflictError
from headwater.lake.format.changes import read_changes
from headwater.lake.lake import Lake
from headwater.lake.writing.transaction import Transaction
from tests.lake.load_worker import SHARED, WRITERS
from tests.support import catalog_rows, duck

ROOT = Path(__file__).parent.parent.parent
KINDS = ["ours"] * 4 + ["duckdb"] * 4


def test_eight_writers_lose_and_double_nothing(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64"})
        tx.append("t", pa.table({"id": range(SHARED)}))
    with lake.transaction() as tx:  # a delete file, which is where DuckDB goes wrong
        tx.delete("t", "id < 100")

    results = run_writers(lake, commits=40)

    commits = sum(result["commits"] for result in results)
    assert commits >= 300
    gone = {i for result in results for i in result["deleted"]}
    expected = Counter(
        [
            *(i for i in range(100, SHARED) if i not in gone),
            *(i for result in results for i in result["kept"]),
        ]
    )
    session = duck(lake.dsn)
    assert Counter(lake.read("t").column("id").to_pylist()) == expected
    assert Counter(row[0] for row in session.execute("SELECT id FROM t").fetchall()) == expected
    assert session.execute("SELECT count(*) FROM t").fetchone() == (expected.total(),)
    assert session.execute("SELECT count(DISTINCT rowid) FROM t").fetchone() == (expected.total(),)
    columns = {c.name for c in lake.table("t").columns}
    assert columns == {"id", *(name for result in results for name in result["columns"])}
    check_side_tables(lake, session, {name for result in results for name in result["side"]})
    check_catalog(lake, snapshots=3 + commits)
    check_history(lake, session)


def run_writers(lake: Lake, commits: int) -> list[dict[str, Any]]:
    """Start all writers, let them go at once, and give what each says it committed."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.lake.load_worker", kind, str(number), lake.dsn, str(commits)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, kind in enumerate(KINDS)
    ]
    results = []
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n", writer.communicate()[1]
        started = time.monotonic()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            output, errors = writer.communicate(timeout=240)
            assert writer.returncode == 0, errors
            results.append(json.loads(output))
        seconds = time.monotonic() - started
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    total = sum(result["commits"] for result in results)
    print(f"\n{total} commits of {WRITERS} writers in {seconds:.1f} s ({total / seconds:.0f} a second)")
    for kind in ("ours", "duckdb"):
        mine = [result for result, of in zip(results, KINDS, strict=True) if of == kind]
        waits = sorted(s for result in mine for s in result["seconds"])
        print(
            f"  {kind:6} {len(waits)} commits, median {waits[len(waits) // 2] * 1000:.0f} ms, "
            f"p99 {waits[int(len(waits) * 0.99)] * 1000:.0f} ms, "
            f"{sum(result['conflicts'] for result in mine)} transactions run again"
        )
    return results


def check_side_tables(lake: Lake, session: Any, names: set[str]) -> None:
    """Tables that were not dropped, with the column of those that were altered."""
    altered = {name.removesuffix("_altered"): name.endswith("_altered") for name in names}
    assert {t.name.name for t in lake.state().tables.values()} == {"t", *altered}
    for name, has_column in altered.items():
        expected = [(i, "x") if has_column else (i,) for i in range(20)]
        rows = lake.read(name).to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == expected
        assert sorted(session.execute(f"FROM {name}").fetchall()) == expected


def check_catalog(lake: Lake, snapshots: int) -> None:
    """One snapshot for each commit, without a gap, with changes that can be read; one delete file a file."""
    found = lake.snapshots()
    assert [s.id for s in found] == list(range(snapshots - 1, -1, -1))
    assert all(read_changes(snapshot.changes) for snapshot in found)
    live = Counter(
        row["data_file_id"]
        for row in catalog_rows(lake.dsn, "ducklake_delete_file")
        if row["end_snapshot"] is None
    )
    assert max(live.values(), default=1) == 1, "one live delete file for each data file"
    ids = [row["data_file_id"] for row in catalog_rows(lake.dsn, "ducklake_data_file")]
    assert len(set(ids)) == len(ids)


def check_history(lake: Lake, session: Any) -> None:
    """Both readers see the same at snapshots along the way, and ids only ever come once."""
    for snapshot in [s.id for s in lake.snapshots()][::40]:
        if snapshot:
            ours = lake.read("t", snapshot, columns=["id"], hidden=["rowid"])
            theirs = session.execute(f"SELECT id, rowid FROM t AT (VERSION => {snapshot})").fetchall()
            rows = list(zip(ours.column("id").to_pylist(), ours.column("rowid").to_pylist(), strict=True))
            assert sorted(rows) == sorted(theirs)
            assert len(set(ours.column("id").to_pylist())) == len(rows)


# -- two transactions at once on one file --------------------------------------------------------------------

WHERE = {"few": "id BETWEEN 220 AND 224", "many": "id BETWEEN 200 AND 260", "all": "true"}
CHANGES = [("delete", "few"), ("delete", "many"), ("delete", "all"), ("update", "few"), ("update", "many")]
#: DuckDB keeps rows of an open flush locked, so that it can only be the one that commits in between.
THEIRS = [*CHANGES, ("flush", "")]
OURS = [*CHANGES, ("flush", ""), ("truncate", "")]


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("a delete file", marks=pytest.mark.slow),
        "both",
        pytest.param("nothing", marks=pytest.mark.slow),
        pytest.param("inlined deletes", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("first", ["ours", "duckdb"])
def test_changes_that_meet_on_one_file_happen_one_after_the_other(
    lake: Lake, before: str, first: str
) -> None:
    session = duck(lake.dsn)
    judge = duck(lake.dsn)
    wrong = []
    number = 0
    for ours in OURS:
        for theirs in THEIRS if first == "ours" else CHANGES:
            number += 1
            meeting = Meeting(lake, session, f"t{number}", before)
            happened = meeting.run(ours, theirs, first)
            found = meeting.differences(judge)
            if found:
                wrong.append(f"ours {ours}, theirs {theirs}: {happened}, {found}")
    assert not wrong, "\n".join(wrong)


class Meeting:
    """A table with one large file and a few inlined rows, and two transactions that change it at once."""

    def __init__(self, lake: Lake, session: Any, table: str, before: str):
        self.lake = lake
        self.session = session
        self.table = table
        self.model = dict.fromkeys(range(300), 0) | {1000: 0, 1001: 0}
        with lake.transaction() as tx:
            tx.create_table(table, {"id": "int64", "v": "int64"})
            tx.append(table, pa.table({"id": range(300), "v": [0] * 300}))
        with lake.transaction() as tx:
            tx.append(table, pa.table({"id": [1000, 1001], "v": [0, 0]}))
        if before in ("a delete file", "both"):
            self._before("id < 50")
        if before in ("inlined deletes", "both"):
            self._before("id BETWEEN 60 AND 64")

    def _before(self, where: str) -> None:
        self.session.execute(f"DELETE FROM {self.table} WHERE {where}")
        self._model(("delete", where), 0)

    def run(self, ours: tuple[str, str], theirs: tuple[str, str], first: str) -> str:
        """`first` begins first and commits last; if it meets a conflict, it is run again."""
        if first == "ours":
            tx = self.lake.transaction()
            self._ours(tx, ours)
            self.session.execute(self._sql(theirs)).fetchall()
            self._model(theirs, 2)
            try:
                tx.commit()
                outcome = "both committed"
            except ConflictError:
                outcome = "conflict"
                with self.lake.transaction() as tx:
                    self._ours(tx, ours)
            self._model(ours, 1)
            return outcome
        self.session.execute("BEGIN")
        self.session.execute(self._sql(theirs)).fetchall()
        with self.lake.transaction() as tx:
            self._ours(tx, ours)
        self._model(ours, 1)
        try:
            self.session.execute("COMMIT")
            outcome = "both committed"
        except duckdb.TransactionException:
            outcome = "conflict"
            self.session.execute(self._sql(theirs)).fetchall()
        self._model(theirs, 2)
        return outcome

    def _ours(self, tx: Transaction, change: tuple[str, str]) -> None:
        what, which = change
        if what == "delete":
            tx.delete(self.table, WHERE[which])
        elif what == "update":
            tx.update(self.table, {"v": "v * 10 + 1"}, WHERE[which])
        elif what == "flush":
            tx.flush_inlined(self.table)
        else:
            tx.truncate(self.table)

    def _sql(self, change: tuple[str, str]) -> str:
        what, which = change
        if what == "delete":
            return f"DELETE FROM {self.table} WHERE {WHERE[which]}"
        if what == "update":
            return f"UPDATE {self.table} SET v = v * 10 + 2 WHERE {WHERE[which]}"
        return f"CALL ducklake_flush_inlined_data('lake', table_name => '{self.table}')"

    def _model(self, change: tuple[str, str], digit: int) -> None:
        what, which = change
        if what == "flush":
            return
        where = "true" if what == "truncate" else WHERE.get(which, which)
        low, high = -1, 10**6
        if " < " in where:
            high = int(where.split(" < ")[1]) - 1
        elif "BETWEEN" in where:
            low, high = (int(word) for word in where.split("BETWEEN")[1].split(" AND "))
        for i in [i for i in self.model if low <= i <= high]:
            if what == "update":
                self.model[i] = self.model[i] * 10 + digit
            else:
                del self.model[i]

    def differences(self, session: Any) -> str | None:
        """What the readers see that they should not, or do not see."""
        wanted = sorted(self.model.items())
        rows = self.lake.read(self.table)
        ours = sorted(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))
        theirs = sorted(session.execute(f"SELECT id, v FROM {self.table}").fetchall())
        count = session.execute(f"SELECT count(*) FROM {self.table}").fetchall()[0][0]
        if ours == theirs == wanted and count == len(wanted):
            return None
        return f"wanted {len(wanted)}, we read {len(ours)}, DuckDB reads {len(theirs)} and counts {count}"
