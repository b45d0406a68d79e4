"""Stream tables on the command line, from a project folder to what is told of them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.lake.lake import Lake
from tests.cli.running import run, start
from tests.spark.conftest import spark  # noqa: F401  (one session for all tests of the process)

TOTALS = """-- name: sales.totals
-- schedule: 1m
SELECT id % 2 AS half, count(*) AS n, sum(id) AS total FROM sales.orders GROUP BY id % 2
"""
LARGE = "-- mode: strict\nSELECT half, total + n AS sum FROM sales.totals WHERE n > 1"


@pytest.fixture
def streams(project: Lake, spark: SparkSession) -> Path:  # noqa: F811
    """A project folder over the lake's orders."""
    folder = Path("streams")
    (folder / "sales").mkdir(parents=True)
    (folder / "totals.sql").write_text(TOTALS)
    (folder / "sales" / "large.sql").write_text(LARGE)
    return folder


def test_the_catalog_is_looked_at_without_spark(project: Lake) -> None:
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('pyspark' in sys.modules, file=sys.stderr))\n"
        "from headwater.cli import main; main(sys.argv[1:])"
    )
    for arguments in (["status"], ["history"], ["apply", "--help"]):
        ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, "False\n")
    assert run("status").out == "no stream tables\n"
    assert run("history", "-o", "json").json == {"refreshes": [], "more": False}
    assert run("provenance").out == "nothing was written yet\n"


def test_a_project_from_plan_to_prune(project: Lake, streams: Path) -> None:
    planned = run("plan")
    assert planned.code == 0
    assert planned.out.splitlines() == [
        "project project (streams)",
        "create  sales.totals  streams/totals.sql",
        "        It is not there yet.",
        "create  sales.large  streams/sales/large.sql",
        "        It reads sales.totals, which this plan makes first.",
    ]
    applied = run("apply")
    assert (applied.code, applied.err) == (0, "")
    assert [line.split()[:2] for line in applied.out.splitlines()[1:]] == [
        ["sales.totals", "FULL"],
        ["sales.large", "FULL"],
    ]
    assert [step["kind"] for step in run("plan", "-o", "json").json["steps"]] == ["nothing", "nothing"]
    assert "nothing to do" in run("apply").out

    project.run(lambda tx: tx.append("sales.orders", [{"id": 1}, {"id": 7}]))
    (totals,) = [
        one for one in run("status", "-ojson").json["stream_tables"] if one["name"] == "sales.totals"
    ]
    assert (totals["schedule"], totals["pending_rows"], totals["status"]) == ("1m", 2, "active")
    refreshed = run("refresh", "--output", "json").json["refreshes"]
    assert [(one["name"], one["action"]) for one in refreshed] == [
        ("sales.totals", "INCREMENTAL"),
        ("sales.large", "INCREMENTAL"),
    ]
    assert len({one["snapshot_id"] for one in refreshed}) == 1
    again = run("refresh", "sales.large").out.splitlines()
    assert [line.split()[:2] for line in again[1:]] == [
        ["sales.totals", "NO_DATA"],
        ["sales.large", "NO_DATA"],
    ]

    history = run("history", "sales.large", "--limit", "1")
    assert "NO_DATA" in history.out
    assert "--limit shows more" in history.out
    assert (
        run("provenance", "sales.large", "-ojson").json["provenance"][0]["sources"][0]["name"]
        == "sales.totals"
    )
    assert run("explain", "sales.large").out.startswith(
        "stream table sales.large (mode strict): follows changes"
    )
    assert run("lineage", "sales.large").out.splitlines()[1] == (
        "sum ← sales.orders.id  (through sales.totals)"
    )
    assert run("lineage", "sales.large", "sum", "--graph").out.splitlines()[0] == "graph LR"
    verified = run("verify")
    assert verified.code == 0
    assert [line[:5] for line in verified.out.splitlines()] == ["ok   ", "ok   "]

    (streams / "totals.sql").write_text(TOTALS.replace("1m", "2m").replace("count(*)", "count(1)"))
    (streams / "sales" / "large.sql").write_text("SELECT half FROM sales.totals")
    assert [step["kind"] for step in run("plan", "-o", "json").json["steps"]] == ["rebuild", "rebuild"]
    refused = run("apply")
    assert refused.code == 2
    assert "add --yes" in refused.err
    assert run("apply", "--yes").code == 0

    (streams / "sales" / "large.sql").unlink()
    assert "left as they are: sales.large" in run("plan").out
    assert [step["kind"] for step in run("plan", "--prune", "-ojson").json["steps"]] == ["nothing", "drop"]
    assert "dropped sales.large" in run("apply", "--prune", "--yes").out
    assert [one["name"] for one in run("status", "-ojson").json["stream_tables"]] == ["sales.totals"]


def test_what_cannot_be_made_stops_only_what_reads_it(streams: Path) -> None:
    (streams / "totals.sql").write_text(TOTALS.replace("sum(id)", "sum(idd)"))
    (streams / "other.sql").write_text("SELECT id FROM sales.orders")
    planned = run("plan")
    assert planned.code == 1
    assert "sales.totals: streams/totals.sql:3:" in planned.out
    applied = run("apply", "--output", "json")
    assert applied.code == 1
    outcome = {
        step["name"]: (step["outcome"], (step["error"] or {}).get("code")) for step in applied.json["steps"]
    }
    assert outcome == {
        "main.other": ("done", None),
        "sales.totals": ("failed", "query"),
        "sales.large": ("skipped", "skipped"),
    }


def test_a_result_that_is_wrong_is_shown(project: Lake, streams: Path) -> None:
    (streams / "sales" / "large.sql").unlink()
    (streams / "totals.sql").write_text(TOTALS.replace("schedule: 1m", "mode: strict"))
    assert run("apply").code == 0
    storage = run("tables", "--all", "-ojson").json["tables"]
    (name,) = [f"{one['schema']}.{one['name']}" for one in storage if one["schema"] == "_headwater"]
    project.run(lambda tx: tx.update(name, {"total": "total + 1"}, where="half = 1"))
    project.run(lambda tx: tx.append("sales.orders", [{"id": 2}]))
    assert run("refresh").code == 0  # which leaves the other half as it is
    ran = run("verify", "sales.totals")
    assert ran.code == 1
    assert ran.out.startswith("fail sales.totals: 1 rows are missing, 1 should not be there")
    assert [line.split()[0] for line in ran.out.splitlines()[2:4]] == ["missing", "unexpected"]
    found = run("verify", "sales.totals", "-ojson").json
    assert (found["ok"], len(found["stream_tables"][0]["differences"])) == (False, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["explain", "sales.nothing"], 1, "There is no stream table sales.nothing."),
        (["history", "sales.nothing"], 1, "There is no stream table sales.nothing."),
        (["refresh", "sales.nothing"], 1, "There is no stream table sales.nothing."),
        (["plan", "nowhere"], 1, "There is no folder nowhere."),
        (["explain"], 2, "Missing argument"),
        (["history", "--limit", "0"], 2, "0"),
    ],
)
def test_mistakes_are_errors(project: Lake, arguments: list[str], code: int, message: str) -> None:
    ran = run(*arguments, "-o", "json")
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.error["message"]


def test_a_terminal_is_asked_before_anything_is_dropped(project: Lake, streams: Path) -> None:
    (streams / "sales" / "large.sql").unlink()
    assert run("apply").code == 0
    (streams / "totals.sql").unlink()
    for answer, code, left in (("n", 130, 1), ("y", 0, 0)):
        reader, writer = pty.openpty()
        process = start("apply", "--prune", stdin=writer)
        os.write(reader, f"{answer}\n".encode())
        out, err = process.communicate(timeout=120)
        os.close(reader)
        os.close(writer)
        assert (process.returncode, "Go on?" in err) == (code, True)
        assert "drop    sales.totals" in out
        assert len(run("status", "-ojson").json["stream_tables"]) == left
