"""Four writers of ours and four of DuckDB on one lake: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

from headwater.lake.format.changes import read_changes
from headwater.lake.lake import Lake
from tests.support import catalog_rows

ROOT = Path(__file__).parent.parent.parent


def test_eight_writers_lose_and_double_nothing(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64"})
        tx.append("t", pa.table({"id": range(-1000, 0)}))
    with lake.transaction() as tx:  # a delete file, which is where DuckDB goes wrong
        tx.delete("t", "id < -980")
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.lake.load_worker", kind, str(number), lake.dsn, "40"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, kind in enumerate(["ours"] * 4 + ["duckdb"] * 4)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n", writer.communicate()[1]
        started = time.monotonic()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        results = []
        for writer in writers:
            output, errors = writer.communicate(timeout=240)
            assert writer.returncode == 0, errors
            results.append(json.loads(output))
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    commits = sum(result["commits"] for result in results)
    print(f"{commits} commits of eight writers in {time.monotonic() - started:.1f} s")
    assert commits >= 300

    expected = Counter([*range(-980, 0), *(i for result in results for i in result["kept"])])
    session = lake.duckdb()
    assert Counter(lake.read("t").column("id").to_pylist()) == expected
    assert Counter(row[0] for row in session.execute("SELECT id FROM t").fetchall()) == expected
    assert session.execute("SELECT count(*), count(DISTINCT rowid) FROM t").fetchone() == (
        expected.total(),
        expected.total(),
    )
    snapshots = lake.snapshots()
    assert [s.id for s in snapshots] == list(range(len(snapshots) - 1, -1, -1))
    assert len(snapshots) == 3 + commits
    assert all(read_changes(snapshot.changes) for snapshot in snapshots)
    live = Counter(
        row["data_file_id"]
        for row in catalog_rows(lake.dsn, "ducklake_delete_file")
        if row["end_snapshot"] is None
    )
    assert max(live.values(), default=1) == 1, "one live delete file for each data file"
