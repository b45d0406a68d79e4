"""How long a refresh will take either way, learnt from those before."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.refresh.catalog_rows import Recorded
from headwater.refresh.model import Action, Prediction, StreamTable
from headwater.refresh.store import StreamStore

#: How many refreshes are looked at, and how much each older one counts less than the next.
_REMEMBERED, _DECAY = 50, 0.8
#: Seconds that a further row takes, as long as changes of about one size only were seen: none is more than so
#: many times as large as another.
_PER_ROW, _ONE_SIZE = 1e-6, 2.0
#: Changes are of the same size if none is so many times as many as another.
_SAME = 1.2
#: A refresh that took so many times as long as another, row for row, met a process still cold. What is
#: expected of more changes than were ever followed is drawn from fewer, and may be wrong by twice as much.
_COLD, _UNSEEN = 3.0, 6.0
#: Bringing up to date what was left behind has to pay within so many refreshes.
_PAYS = 25
#: The reason of one that is to tell how long computing everything anew takes.
UNTRIED = "untried"
#: … and of the next, where that was hardly slower although it was the first: what Spark plans and compiles
#: for it is there now.
TRIED_ONCE = "tried_once"
#: Reasons of full refreshes that are like one that is chosen for being quicker: the result alone is computed.
_ALIKE = ("cheaper", "much_changed", UNTRIED, TRIED_ONCE, "mode_full", "not_incremental")
#: What part of a first load that would take, before there was one: a load stores all stages, and often is the
#: first thing that a process does. (Seen with TPC-H: 0.3 to 1.2.)
_OF_A_LOAD = 0.8


@dataclass(frozen=True)
class Expected:
    """What is expected either way, and on what ground."""

    prediction: Prediction
    #: Full refreshes since changes were last followed, and how often these were followed in memory.
    since: int = 0
    tried: int = 0
    #: How often about as many changes as now, or more, were followed.
    alike: int = 0
    #: How often the result was computed anew by choice.
    computed: int = 0
    #: Seconds that everything that is stored takes to be computed anew.
    everything: float = 0.0

    @property
    def cold(self) -> float:
        """How many times too long what is expected of following changes may be.

        The first time that so many changes are followed, everything is planned that is kept for the next; and
        many take less, row for row, than fewer did.
        """
        if not self.seen:
            return _UNSEEN
        return _COLD if self.alike < 2 else 1.0

    @property
    def seen(self) -> bool:
        """Whether about as many changes were followed before."""
        return self.alike > 0

    @property
    def catch_up(self) -> float:
        """What each refresh has to save to make up for bringing up to date what was left behind."""
        return self.everything / _PAYS

    def stale(self, behind: bool) -> bool:
        """Whether following changes was given up so long ago that it should be tried again.

        What was slow once (a process that had just started, a busy machine) would be avoided for ever.
        Each time that it was in vain, the next try waits twice as long.
        """
        wait = 1 << min(self.tried, 5)
        full = self.prediction.full
        if behind and full:
            wait = max(wait, round(self.everything * _PAYS / full))
        return self.since >= wait


def expect(store: StreamStore, stream: StreamTable, rows_in: int) -> Expected:
    """Seconds that an incremental and a full refresh are expected to take."""
    history = [_alone(each) for each in store.history(stream.name, _REMEMBERED)]
    anew = [each for each in history if each.action in (Action.FULL, Action.REINITIALIZE)]
    alike = [each for each in anew if each.reason_code in _ALIKE]
    followed = [each for each in history if each.action is Action.INCREMENTAL]
    since = history.index(followed[0]) if followed else 0
    since = sum(each in anew for each in history[:since])
    full = _average(_warm(alike, any_size=True))
    if full is None and (loaded := _average(_warm(anew, any_size=True))) is not None:
        full = loaded * _OF_A_LOAD
    prediction = Prediction(_incremental(_warm(followed), rows_in), full)
    everything = _average(_warm([each for each in anew if each not in alike], any_size=True)) or 0.0
    as_many = sum(rows_in <= _ONE_SIZE * each.rows_in for each in followed)
    return Expected(prediction, since, len(followed), as_many, len(alike), everything)


def _alone(each: Recorded) -> Recorded:
    """A refresh with what its result took, where other stages followed changes beside it."""
    if each.reason_code not in (UNTRIED, TRIED_ONCE):
        return each
    return replace(each, seconds=each.seconds - sum(stage.seconds for stage in each.stages[:-1]))


def _warm(history: list[Recorded], *, any_size: bool = False) -> list[Recorded]:
    """Without refreshes that another of about the same size undercuts by far, and without the first one of a
    size where another undercuts it at all."""

    def as_large(times: float, each: Recorded) -> list[Recorded]:
        return [o for o in history if any_size or each.rows_in <= times * max(1, o.rows_in)]

    def cold(each: Recorded) -> bool:
        if any(other.seconds * _COLD < each.seconds for other in as_large(_ONE_SIZE, each)):
            return True
        same = [o for o in as_large(_SAME, each) if any_size or o.rows_in <= _SAME * max(1, each.rows_in)]
        return same[-1] is each and any(other.seconds < each.seconds for other in same)

    return [each for each in history if not cold(each)]


def _average(history: list[Recorded]) -> float | None:
    """The mean of what is newest first, the newest counting most."""
    weights = [_DECAY**number for number in range(len(history))]
    if not history:
        return None
    return sum(w * each.seconds for w, each in zip(weights, history, strict=True)) / sum(weights)


def _incremental(history: list[Recorded], rows_in: int) -> float | None:
    """A line through seconds by changed rows, by least squares in which the newest counts most."""
    if not history:
        return None
    points = [(float(each.rows_in), each.seconds, _DECAY**number) for number, each in enumerate(history)]
    total = sum(weight for *_, weight in points)
    mean_x = sum(x * weight for x, _, weight in points) / total
    mean_y = sum(y * weight for _, y, weight in points) / total
    sizes = [x for x, *_ in points]
    if max(sizes) <= _ONE_SIZE * min(sizes):
        return mean_y + max(0.0, rows_in - mean_x) * _PER_ROW
    spread = sum(weight * (x - mean_x) ** 2 for x, _, weight in points)
    slope = sum(weight * (x - mean_x) * (y - mean_y) for x, y, weight in points) / spread
    # No row costs less than nothing, and nothing costs less than that either.
    slope = min(max(0.0, slope), mean_y / mean_x)
    fastest = min(each.seconds for each in history)
    return max(fastest / 2, mean_y + slope * (rows_in - mean_x))
