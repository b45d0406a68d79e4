"""What a refresh is expected to cost, from what others took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.refresh.costing import Expected, expect
from headwater.refresh.deciding import _cheaper, _untried
from headwater.refresh.model import Action


@dataclass(frozen=True)
class Past:
    action: Action
    rows_in: int
    seconds: float
    reason_code: str = ""
    stages: tuple[Any, ...] = ()


class Store:
    """Only what the model reads of a store: past refreshes, newest first."""

    def __init__(self, past: Sequence[Past]):
        self.past = past

    def history(self, name: object, limit: int) -> Sequence[Past]:
        return self.past[:limit]


def expected(past: Sequence[Past], rows_in: int) -> Expected:
    store: Any = Store(past)
    stream: Any = SimpleNamespace(name="t")
    return expect(store, stream, rows_in)


def followed(rows: int, seconds: float) -> Past:
    return Past(Action.INCREMENTAL, rows, seconds)


def full(seconds: float, code: str = "cheaper") -> Past:
    return Past(Action.FULL, 0, seconds, code)


def test_without_history_nothing_is_expected() -> None:
    assert expected([], 5).prediction.incremental is None
    assert expected([], 5).prediction.full is None


def test_a_few_rows_more_than_ever_seen_take_hardly_longer() -> None:
    assert expected([followed(3, 0.5)], 100).prediction.incremental == pytest.approx(0.5, abs=0.01)


def test_time_grows_with_rows_as_it_did() -> None:
    past = [followed(1_000, 1.0), followed(2_000, 2.0), followed(4_000, 4.0)]
    assert expected(past, 8_000).prediction.incremental == pytest.approx(8.0, rel=0.01)


def test_a_cold_start_is_forgotten_once_there_is_something_warm() -> None:
    past = [followed(3, 0.4), followed(3, 9.0), full(2.0), full(15.0)]
    prediction = expected(past, 3).prediction
    assert prediction.incremental == pytest.approx(0.4)
    assert prediction.full == pytest.approx(2.0)


def test_a_cold_start_is_forgotten_although_its_rows_were_a_few_more() -> None:
    past = [followed(15_010, 0.5), followed(15_060, 2.4)]
    assert expected(past, 15_108).prediction.incremental == pytest.approx(0.5, abs=0.01)


def test_changes_of_one_size_say_nothing_of_larger_ones() -> None:
    past = [followed(1_000, 0.5), followed(1_001, 1.2), followed(1_000, 0.9)]
    assert expected(past, 1_010).prediction.incremental == pytest.approx(0.8, abs=0.1)
    assert expected([followed(15_000, 0.3), followed(15_200, 0.5)], 150_000).prediction.incremental < 1.5


def test_a_first_load_tells_only_as_long_as_nothing_was_computed_in_full_since() -> None:
    loaded = Past(Action.REINITIALIZE, 0, 1.0)
    assert expected([followed(3, 0.4), loaded], 3).prediction.full == pytest.approx(0.8)
    assert expected([full(2.5), loaded], 3).prediction.full == pytest.approx(2.5)


def test_what_was_followed_once_only_may_have_been_cold() -> None:
    assert expected([followed(3, 4.0)], 3).cold > expected([followed(3, 4.0)] * 2, 3).cold == 1.0


def test_the_first_change_of_a_size_may_have_been_cold_and_counts_no_more_after_a_second() -> None:
    small = [followed(15_000, 0.25)] * 3
    assert expected(small, 1_500_000).cold > 1
    once = [followed(1_500_000, 1.9), *small]
    assert expected(once, 1_500_000).seen
    assert expected(once, 1_500_000).cold > 1
    twice = [followed(1_500_000, 1.0), *once]
    assert expected(twice, 1_500_000).cold == 1.0
    assert expected(twice, 1_500_000).prediction.incremental == pytest.approx(1.0, abs=0.1)
    slower = [followed(1_500_000, 2.5), *once]
    assert expected(slower, 1_500_000).prediction.incremental == pytest.approx(2.2, abs=0.2)


def test_changes_of_a_new_size_are_given_up_only_where_they_would_take_many_times_as_long() -> None:
    past = [followed(150_000, 0.5), followed(15_000, 0.25), followed(15_000, 0.25), full(1.2)]
    assert _cheaper(expected(past, 1_500_000), 1_500_000, False) is None
    assert _cheaper(expected(past, 15_000_000), 15_000_000, False) is not None


def test_what_followed_changes_beside_a_trial_is_not_part_of_what_the_result_took() -> None:
    stages = (SimpleNamespace(seconds=1.5), SimpleNamespace(seconds=0.4))
    trial = Past(Action.FULL, 9, 2.0, "untried", stages)
    assert expected([trial], 9).prediction.full == pytest.approx(0.5)
    assert expected([replace(trial, reason_code="cheaper")], 9).prediction.full == pytest.approx(2.0)


def test_what_was_given_up_is_tried_again_ever_more_rarely() -> None:
    assert not expected([full(1.0), followed(3, 9.0)], 3).stale(behind=False)
    assert expected([full(1.0), full(1.0), followed(3, 9.0)], 3).stale(behind=False)
    twice = [followed(3, 9.0), full(1.0), full(1.0), followed(3, 9.0)]
    assert not expected([full(1.0)] * 3 + twice, 3).stale(behind=False)
    assert expected([full(1.0)] * 4 + twice, 3).stale(behind=False)


def test_what_was_never_given_up_is_not_stale() -> None:
    assert not expected([followed(3, 0.4), full(1.0)], 3).stale(behind=False)
    assert not expected([full(1.0)], 3).stale(behind=False)


def test_what_brought_everything_up_to_date_is_not_what_a_full_refresh_takes() -> None:
    past = [full(9.0, "caught_up"), full(2.0), full(8.0, "requested"), full(7.0, "created")]
    assert expected(past, 3).prediction.full == pytest.approx(2.0)
    assert expected([full(9.0, "caught_up")], 3).prediction.full == pytest.approx(7.2)


def test_what_a_much_larger_change_took_is_no_cold_start() -> None:
    past = [followed(1_200_000, 5.7), followed(120_000, 0.1), followed(120_000, 0.1), followed(12_000, 0.06)]
    assert expected(past, 1_200_000).prediction.incremental == pytest.approx(5.0, abs=1.5)
    assert expected(past, 12_000).prediction.incremental < 0.5
    assert expected(past, 1_300_000).seen
    assert not expected(past[1:], 1_200_000).seen


@pytest.mark.parametrize(
    ("past", "tried"),
    [
        ([followed(9, 0.9)] * 2, True),  # computing anew may be quicker
        ([full(0.9, "untried"), *[followed(9, 0.9)] * 2], True),  # that may have been cold
        ([full(0.9, "untried")] * 2 + [followed(9, 0.9)] * 2, False),  # now it is known
        ([followed(9, 0.9)], False),  # may have been cold itself
        ([followed(9, 0.65)] * 2 + [Past(Action.REINITIALIZE, 0, 1.1)], True),  # much of what a load took
        ([followed(9, 0.65)] * 2, False),
        ([followed(9, 0.5)] * 2, False),  # not much, and less than that
        ([followed(9, 0.2)] * 2 + [Past(Action.REINITIALIZE, 0, 0.3)], False),  # nobody minds
        ([full(9.0), *[followed(9, 0.9)] * 2], False),  # hardly ever quicker
        ([followed(9, 0.9)] * 2 + [Past(Action.REINITIALIZE, 0, 2.5)], True),  # a load says little
        ([followed(9, 0.9)] * 2 + [Past(Action.REINITIALIZE, 0, 4.0)], False),
    ],
)
def test_computing_anew_is_tried_where_following_changes_takes_long(past: list[Past], tried: bool) -> None:
    loaded = (
        []
        if any(each.action is Action.REINITIALIZE for each in past)
        else [Past(Action.REINITIALIZE, 0, 1.5)]
    )
    assert _untried(expected([*past, *loaded], 9), 9, behind=True) is None
    decision = _untried(expected([*past, *loaded], 9), 9, behind=False)
    assert (decision is not None) is tried
    code = "tried_once" if any(each.action is Action.FULL for each in past) else "untried"
    assert decision is None or (decision.action, decision.code) == (Action.FULL, code)


@pytest.mark.parametrize(("took", "back"), [(0.5, True), (0.7, True), (0.9, False), (1.2, False)])
def test_what_was_left_behind_is_caught_up_with_only_where_that_pays(took: float, back: bool) -> None:
    past = expected([full(1.0), full(1.0), *[followed(9, took)] * 2], 9)
    assert (_cheaper(past, 9, True) is None) is back
    assert (_cheaper(past, 9, False) is None) is (took < 1)


@pytest.mark.parametrize(("load", "back"), [(1.0, True), (9.0, True), (14.0, False), (99.0, False)])
def test_what_was_left_behind_is_not_caught_up_with_for_little(load: float, back: bool) -> None:
    created = Past(Action.REINITIALIZE, 0, load)
    past = expected([full(1.0), full(1.0), *[followed(9, 0.5)] * 2, created], 9)
    assert (_cheaper(past, 9, True) is None) is back
    assert _cheaper(past, 9, False) is None


def test_following_changes_is_tried_again_later_where_much_has_to_be_caught_up_with() -> None:
    created = Past(Action.REINITIALIZE, 0, 2.0)
    slow = [followed(9, 3.0)] * 2
    assert expected([full(1.0)] * 4 + [*slow, created], 9).stale(behind=False)
    assert not expected([full(1.0)] * 40 + [*slow, created], 9).stale(behind=True)
    assert expected([full(1.0)] * 30 + [*slow, replace(created, seconds=1.0)], 9).stale(behind=True)
