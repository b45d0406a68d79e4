"""Maintenance on the command line."""

from __future__ import annotations

from headwater.lake.lake import Lake
from tests.cli.running import run


def test_compact_says_what_was_gained(project: Lake) -> None:
    for _ in range(3):
        with project.transaction() as tx:
            tx.append("sales.orders", [{"id": i} for i in range(20)])
    told = run("compact", "--dry-run", "-o", "json").json["compaction"]
    assert told["dry_run"] is True
    assert told["tables"][0]["merged_files"] == 3
    assert len(project.scan("sales.orders").files) == 4
    done = run("compact", "sales.orders", "--flush")
    assert done.code == 0
    assert "sales.orders" in done.out
    # The first file has deletes of a third of its rows, the inlined row became a file.
    assert len(project.scan("sales.orders").files) == 1
    assert run("compact").out == "nothing to compact\n"
    missing = run("compact", "sales.order", "-o", "json")
    assert (missing.code, missing.error["code"]) == (1, "not_found")
    wrong = run("compact", "--target-size", "big", "-o", "json")
    assert (wrong.code, wrong.error["code"]) == (1, "invalid_input")


def test_expire_and_cleanup(project: Lake) -> None:
    assert run("expire").code == 2
    with project.lease(1, holder="report"):
        kept = run("expire", "--keep-last", "1")
    assert "kept 1 snapshot: reader report is at 1" in kept.out
    assert [s.id for s in project.snapshots()] == [2, 1]
    assert run("expire", "--older-than", "7d", "-o", "json").json["expired"]["expired"] == []
    assert run("expire", "--version", "1").out.startswith("1 snapshot expired; 1 remain")
    assert run("expire", "--older-than", "soon", "-o", "json").error["code"] == "invalid_input"
    with project.transaction() as tx:
        tx.truncate("sales.orders")
    assert run("expire", "--keep-last", "1", "-o", "json").json["expired"]["files"] == 2
    waiting = run("cleanup", "-o", "json").json["removed"]
    assert (waiting["files"], waiting["waiting"]) == (0, 2)
    assert run("cleanup", "--older-than", "0s", "--dry-run").out.startswith("2 files")
    assert run("cleanup", "--older-than", "0s", "--orphans").code == 0
    assert list(project.store.list(project.data_path)) == []


def test_optimize_does_it_all(project: Lake) -> None:
    done = run("optimize", "--keep-last", "1", "--cleanup-older-than", "0s", "-o", "json").json
    assert set(done) == {"compaction", "expired", "removed"}
    assert len(project.snapshots()) == 3  # the flush and the compaction are new
    assert project.read("sales.orders").num_rows == 71
    assert len(project.scan("sales.orders").files) == 1
