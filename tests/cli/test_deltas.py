"""`headwater deltas`: what waits, what is erased, and the proof of it. Spark is not needed for any of it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.deltas.dataset import DeltaDataset
from headwater.lake.catalog import table_name
from headwater.lake.lake import Lake
from tests.cli.running import run
from tests.deltas.conftest import no_spark


@pytest.fixture
def people(project: Lake) -> DeltaDataset:
    dataset = DeltaDataset(project, no_spark, table_name("crm.people"), ("region", "id"))
    rows = {"region": ["eu"] * 30, "id": list(range(30)), "name": ["x"] * 30}
    dataset.write_delta(pa.table(rows), actor="etl")
    return dataset


def test_a_key_is_erased_from_the_command_line(people: DeltaDataset, project: Lake) -> None:
    assert "crm.people" in run("deltas", "list").out
    key = '{"region": "eu", "id": 7}'
    wrong = run("deltas", "tombstone", "crm.people", "7", "--actor", "dpo", "--reason", "asked")
    assert wrong.code == 1
    assert "The key of dataset" in wrong.err
    done = run("deltas", "tombstone", "crm.people", key, "--actor", "dpo", "--reason", "asked")
    assert done.out.startswith("1 key is hidden in crm.people")
    left = run("deltas", "erasure-report", "crm.people", key)
    assert left.code == 1
    assert "not erased" in left.out
    compacted = run("deltas", "compact", "crm.people", "--output", "json").json["compactions"][0]
    assert (compacted["final_rows"], compacted["rows_dropped_by_tombstones"]) == (29, 1)
    assert "nothing to do" in run("deltas", "compact").out
    project.expire(keep_last=1)
    project.cleanup(older_than=None)
    report = run("deltas", "erasure-report", "crm.people", key, "-o", "json")
    assert (report.code, report.json["erased"]) == (0, True)
    assert report.json["audit"][0]["actor"] == "dpo"
    shown = run("deltas", "show", "crm.people", "--all").out
    assert "tombstone" in shown
    assert "asked" in shown


def test_what_is_due_and_what_is_unknown(people: DeltaDataset) -> None:
    assert run("deltas", "compact", "--due").out == "nothing is due\n"
    listed = run("deltas", "list", "-o", "json").json["datasets"][0]
    assert (listed["name"], listed["key"], listed["due"]) == ("crm.people", "region, id", None)
    assert listed["rows"] == 30
    missing = run("deltas", "show", "crm.nobody")
    assert missing.code == 1
    assert "There is no dataset" in missing.err
    assert run("deltas", "erasure-report", "crm.people", "{oops").code == 2
