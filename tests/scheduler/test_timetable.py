"""When stream tables are due, with a clock that the test turns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SettingsError
from headwater.refresh.options import parse_schedule
from headwater.scheduler.backoff import Backoff, Failures
from headwater.scheduler.timetable import Timetable, next_due, time_zone

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def test_an_interval_is_due_when_it_has_passed() -> None:
    table = Timetable()
    table.enter("a", "5s", NOON, NOON)
    assert table.due(NOON + seconds(4.9)) == set()
    assert table.due(NOON + seconds(5)) == {"a"}


def test_what_never_ran_is_due_at_once_and_what_time_does_not_make_due_never_is() -> None:
    table = Timetable()
    for name, schedule in (("a", "1h"), ("b", "0 6 * * *"), ("c", "on change"), ("d", "downstream")):
        table.enter(name, schedule, None, NOON)
    table.enter("e", None, None, NOON)
    assert table.due(NOON) == {"a", "b"}
    assert table.due(NOON + timedelta(days=400)) == {"a", "b"}
    assert [table.kind(name) for name in "acde"] == ["every", "change", "downstream", None]


@given(
    interval=st.integers(1, 3600),
    runs=st.lists(st.floats(0, 10_000), min_size=1, max_size=8),
)
def test_late_runs_are_skipped_and_the_beat_is_kept(interval: int, runs: list[float]) -> None:
    table, now = Timetable(), NOON
    table.enter("a", f"{interval}s", NOON, NOON)
    for took in runs:
        due = table.due_at("a")
        assert due is not None
        now = max(now, due) + seconds(took)  # begun when due, ended later
        skipped = table.ran("a", now)
        following = table.due_at("a")
        assert following is not None
        assert now < following <= now + seconds(interval)
        assert (following - due) == seconds(interval * (skipped + 1))
        assert (following - NOON) % seconds(interval) == timedelta(0)


def test_cron_runs_that_were_missed_are_made_up_for_by_one() -> None:
    table = Timetable()
    table.enter("a", "*/10 * * * *", NOON - timedelta(hours=5), NOON)
    assert table.due(NOON) == {"a"}
    assert table.ran("a", NOON + seconds(61)) == 1
    assert table.due_at("a") == NOON + timedelta(minutes=10)
    assert table.due(NOON + timedelta(minutes=9)) == set()


def test_a_run_that_was_not_due_leaves_the_beat_alone() -> None:
    table = Timetable()
    table.enter("a", "1h", NOON, NOON)
    assert table.ran("a", NOON + seconds(5)) == 0
    assert table.due_at("a") == NOON + timedelta(hours=1)


def test_another_schedule_counts_from_the_last_run() -> None:
    table = Timetable()
    table.enter("a", "1h", NOON, NOON)
    assert table.knows("a", "1h")
    assert not table.knows("a", "5s")
    table.enter("a", "5s", NOON, NOON + seconds(60))
    assert table.due(NOON + seconds(60)) == {"a"}
    table.keep([])
    assert table.due(NOON + seconds(60)) == set()


def test_cron_is_read_in_the_time_zone_of_the_settings() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    found = next_due(parse_schedule("30 6 * * *"), NOON, berlin)
    assert found == datetime(2026, 3, 3, 5, 30, tzinfo=UTC)
    # The night in which 02:30 does not exist: the first moment after the gap.
    gap = next_due(parse_schedule("30 2 * * *"), datetime(2026, 3, 28, 12, tzinfo=UTC), berlin)
    assert gap == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    with pytest.raises(SettingsError, match="Mars/Crater"):
        time_zone("Mars/Crater")


def test_failures_wait_longer_each_time_up_to_a_limit() -> None:
    failures = Failures(Backoff(1, 60))
    waits = [failures.failed("a", NOON, "no") for _ in range(12)]
    for number, wait in enumerate(waits):
        assert 0.75 * min(60, 2**number) <= wait <= min(60, 2**number)
    assert failures.waits("a", NOON + seconds(40))
    assert not failures.waits("a", NOON + seconds(61))
    failures.succeeded("a")
    assert failures.count("a") == 0
