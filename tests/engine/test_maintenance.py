"""Maintenance with everything that has a say: stream tables hold snapshots, the service does passes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from datetime import time as clock_time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.deltas.model import CompactionPolicy
from headwater.engine.headwater import Headwater
from headwater.engine.maintenance import parse_age
from headwater.engine.maintenance_policy import MaintenancePolicy, check_settings
from headwater.engine.service import Service
from headwater.errors import HeadwaterError, InvalidInputError, SettingsError
from headwater.lake.lake import Lake
from headwater.lake.maintenance.needs import table_shapes
from headwater.refresh.moving_on import FAR
from headwater.scheduler.maintenance_part import ITEM, MaintenancePart, QuietHours
from headwater.settings import MaintenanceSettings, Settings
from tests.spark.conftest import spark  # noqa: F401  (one session for all tests of the process)

EAGER = MaintenanceSettings(
    enabled=True, small_file_count=2, inlined_rows=5, keep_last=2, cleanup_after="0s", orphans_after="1d"
)


def write(lake: Lake, name: str = "t", times: int = 4) -> None:
    with lake.transaction() as tx:
        tx.create_table(name, {"a": "int64", "b": "int64"}, if_not_exists=True)
    for start in range(times):
        with lake.transaction() as tx:
            tx.append(name, [{"a": start, "b": i} for i in range(20)])


def test_a_stream_table_and_its_outbox_hold_what_they_need(lake: Lake, spark: SparkSession) -> None:  # noqa: F811
    hw = Headwater(lake, Settings(), spark=spark)
    write(lake)
    hw.create_stream_table("sums", "SELECT a, sum(b) AS total FROM t GROUP BY a")
    hw.attach_outbox("sums", "audit", to="table:audit.sums")
    frontier = lake.snapshot().id
    write(lake, times=3)
    result = hw.expire(keep_last=1)
    assert result.expired
    assert max(result.expired) < frontier
    assert any("stream table" in str(kept) and "sums" in str(kept) for kept in result.kept)
    hw.optimize(cleanup_older_than="0s")
    assert hw.refresh("sums")[0].action == "INCREMENTAL"
    assert hw.verify("sums").ok
    assert hw.relay()[0].error is None
    hw.refresh()
    later = hw.expire(keep_last=1)
    assert later.expired
    assert len(hw.provenance("sums")) >= 2


def test_stream_tables_whose_inputs_are_quiet_hold_nothing(lake: Lake, spark: SparkSession) -> None:  # noqa: F811
    hw = Headwater(lake, Settings(), spark=spark)
    write(lake)
    write(lake, "other")
    hw.create_stream_table("sums", "SELECT a, sum(b) AS total FROM t GROUP BY a")
    hw.create_stream_table("above", "SELECT count(*) AS n FROM sums")
    hw.create_stream_table("others", "SELECT a, count(*) AS n FROM other GROUP BY a")

    def seen() -> dict[str, int]:
        return {status.name: status.data_snapshot_id or 0 for status in hw.status()}

    made = seen()
    write(lake, "other", times=FAR + 1)
    assert [result.action for result in hw.refresh(["above"])] == ["NO_DATA", "NO_DATA"]
    assert seen() == {**made, "main.sums": lake.snapshot().id, "main.above": lake.snapshot().id}
    write(lake, "other", times=2)
    assert hw.refresh("sums")[0].action == "NO_DATA"
    assert seen()["main.sums"] < lake.snapshot().id  # not for so little
    hw.create_stream_table("more", "SELECT a FROM other WHERE a = 1")
    hw.refresh("more")
    result = hw.expire(keep_last=1)
    assert max(result.expired) < made["main.others"]
    assert [str(kept).partition(":")[2].split(" is")[0] for kept in result.kept] == [
        " stream table main.others"
    ]
    assert {each.action for each in hw.refresh(["others", "more"])} >= {"INCREMENTAL"}
    write(lake, "z")
    before = hw.lake.snapshot().id, seen()
    told = hw.expire(keep_last=1, dry_run=True)
    assert (hw.lake.snapshot().id, seen()) == before  # a dry run tells, and moves nothing
    done = hw.expire(keep_last=1)
    assert len(done.expired) > FAR
    assert (told.expired, told.kept) == (done.expired, done.kept)
    assert seen() != before[1]
    hw.optimize(cleanup_older_than="0s")
    write(lake, times=1)
    write(lake, "other", times=1)
    assert {result.action for result in hw.refresh()} == {"INCREMENTAL"}
    write(lake, times=1)  # now none is quiet, and what was read by a wave is of the snapshot before its own
    hw.expire(keep_last=1)
    assert all(hw.verify(name).ok for name in ("sums", "above", "others"))


def test_ages() -> None:
    assert parse_age("36h") == timedelta(hours=36)
    assert parse_age("2026-11-01T00:00:00+00:00") == datetime(2026, 11, 1, tzinfo=UTC)
    with pytest.raises(InvalidInputError, match="neither"):
        parse_age("tomorrow")


class _Maintained:
    """A policy on a lake without Spark: whatever is little is done here."""

    def __init__(self, lake: Lake, settings: MaintenanceSettings):
        hw = Headwater(lake, Settings())
        self.policy = MaintenancePolicy(lake, lambda: hw.maintenance, lambda: hw.datasets, settings)

    def steps(self) -> dict[str, Any]:
        return {report.name: report for report in self.policy.run()}


def test_a_pass_folds_datasets_that_are_due(lake: Lake) -> None:
    hw = Headwater(lake, Settings())
    people = hw.deltas("people", key=["id"], schema={"id": "int64", "name": "varchar"})
    due = 150
    assert due > CompactionPolicy().share * 1000
    people.write_delta([{"id": number % 3, "name": f"name {number}"} for number in range(due)])
    steps = _Maintained(lake, MaintenanceSettings(enabled=True)).steps()
    assert steps["deltas"].fields["rows"] == due
    assert people.read_arrow().num_rows == 3
    assert "deltas" not in _Maintained(lake, MaintenanceSettings(enabled=True)).steps()


def test_a_pass_does_what_is_needed_and_nothing_else(lake: Lake) -> None:
    write(lake, "t")
    write(lake, "quiet", times=1)
    with lake.transaction() as tx:
        tx.create_table("small", {"a": "int64"})
    for i in range(6):
        with lake.transaction() as tx:
            tx.append("small", [{"a": i}])
    steps = _Maintained(lake, EAGER).steps()
    assert set(steps) == {"expire", "compact", "cleanup"}
    assert steps["compact"].fields["tables"] == 2
    assert steps["compact"].fields["flushed"] == 6
    shapes = {shape.name.name: shape for shape in table_shapes(lake)}
    assert (shapes["t"].files, shapes["quiet"].files, shapes["small"].inlined_rows) == (1, 1, 0)
    assert lake.read("t").num_rows == 80
    again = _Maintained(lake, EAGER)
    again.steps()
    assert "compact" not in again.steps()


def test_a_step_that_fails_is_told_and_does_not_stop_the_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake)

    def broken(*_: Any, **__: Any) -> None:
        raise HeadwaterError("no")

    monkeypatch.setattr(Lake, "expire", broken)
    steps = _Maintained(lake, EAGER).steps()
    assert (steps["expire"].ok, steps["expire"].message) == (False, "no")
    assert steps["compact"].ok


def test_a_pass_ends_when_it_is_told_to(lake: Lake) -> None:
    write(lake)
    maintained = _Maintained(lake, EAGER)
    maintained.policy.cancel()
    assert maintained.steps() == {}
    assert _Maintained(lake, replace(EAGER, max_seconds=1e-9)).steps().get("compact") is None


@pytest.mark.parametrize(
    ("hours", "now", "quiet"),
    [
        ("22:00-06:00", (23, 0), True),
        ("22:00-06:00", (5, 59), True),
        ("22:00-06:00", (6, 0), False),
        ("08:00-12:30", (12, 0), True),
        ("08:00-12:30", (13, 0), False),
    ],
)
def test_quiet_hours(hours: str, now: tuple[int, int], quiet: bool) -> None:
    assert QuietHours.of(hours).holds(clock_time(*now)) is quiet


def test_wrong_settings_are_found_at_the_start() -> None:
    for text in ("22-6", "25:99-01:00", "always"):
        with pytest.raises(SettingsError):
            QuietHours.of(text)
    for wrong in ({"expire_after": "soon"}, {"max_bytes": "many"}):
        with pytest.raises(InvalidInputError):
            check_settings(replace(EAGER, **wrong))  # type: ignore[arg-type]


def test_a_pass_is_due_now_and_then_and_only_in_quiet_hours() -> None:
    class Port:
        def run(self) -> list[Any]:
            return []

    part = MaintenancePart(Port(), every_seconds=60, quiet_hours="10:00-12:00")
    noon = datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert part.due(ITEM, noon - timedelta(hours=3)) is None
    task = part.due(ITEM, noon)
    assert task is not None
    task.done(task.run())
    assert part.due(ITEM, noon + timedelta(seconds=30)) is None
    assert part.due(ITEM, noon + timedelta(seconds=61)) is not None
    assert part.due(ITEM, noon + timedelta(hours=2)) is None


def test_the_service_does_it(lake: Lake) -> None:
    write(lake)
    hw = Headwater(lake, Settings(maintenance=EAGER))
    service = Service(hw, once=True)
    summary = service.run()
    assert not summary.failed
    assert len(lake.scan("t").files) == 1
    assert b'headwater_maintenance_total{outcome="ok",step="compact"} 1.0' in service._metrics.text()
