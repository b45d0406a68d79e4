"""Incremental or full: what a refresh does, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from headwater.errors import SnapshotError
from headwater.refresh.compiling import Compiled
from headwater.refresh.costing import TRIED_ONCE, UNTRIED, Expected, expect
from headwater.refresh.model import Action, Mode, Prediction, StreamTable

if TYPE_CHECKING:
    from headwater.refresh.computing import Computation
    from headwater.refresh.store import StreamStore


#: Everything is computed anew if following changes is expected to take so many times as long; where what is
#: stored in between was left behind, already from this part on: it would have to be brought up to date first.
GAIN, BACK = 1.05, 0.75
#: And, before changes as large were seen, if more than this share of a source of some size changed, and rows
#: went: rows that only come mean little more than themselves. A larger share, if this process reads them.
MUCH, MUCH_HERE, MANY = 0.05, 0.4, 200_000


#: Before it was computed anew so often, it is where following changes took so many seconds at least, and this
#: part of what computing anew took, or is taken to need …
TRIES, SOME, PART = 2, 0.3, 0.7
#: … for the second time, this part: the first was hardly slower then …
HARDLY = 0.9
#: … or, before it was at all, where it took longer, and already a smaller part: the first load, which that is
#: guessed from, stored more, in a process still cold.
LONG, SMALL_PART = 0.7, 0.4


#: Reasons of a refresh that others go by: nothing changed; what was left behind is brought up to date; rows
#: of a source no longer have the ids that are stored.
NO_CHANGES, CAUGHT_UP, ROW_IDS_LOST = "no_changes", "caught_up", "row_ids_lost"


class Extent(Enum):
    """Which stages of a stream table are computed anew, rather than follow changes."""

    NOTHING = auto()
    #: Those that cannot follow changes.
    AS_NEEDED = auto()
    #: The result, from the sources; what is stored in between is left behind.
    RESULT = auto()
    #: The same, but what is stored in between follows changes: it is only to be seen how long that takes.
    RESULT_BESIDE = auto()
    EVERYTHING = auto()


#: By the reason for a refresh in full; for all others nothing that is stored is relied on.
_EXTENTS = {
    "not_incremental": Extent.AS_NEEDED,
    "mode_full": Extent.RESULT,
    "cheaper": Extent.RESULT,
    "much_changed": Extent.RESULT,
    UNTRIED: Extent.RESULT_BESIDE,
    TRIED_ONCE: Extent.RESULT_BESIDE,
}


@dataclass(frozen=True)
class Decision:
    """What to do and why."""

    action: Action
    code: str
    reason: str
    prediction: Prediction = field(default_factory=Prediction)

    @property
    def extent(self) -> Extent:
        """What is computed anew and compared with what is stored."""
        if self.action is Action.INCREMENTAL:
            return Extent.NOTHING
        return _EXTENTS.get(self.code, Extent.EVERYTHING)

    @property
    def relies_on_stages(self) -> bool:
        """Whether what is stored in between is taken to be of the last refresh."""
        follows = (Extent.NOTHING, Extent.AS_NEEDED, Extent.RESULT_BESIDE)
        return self.extent in follows and self.code != NO_CHANGES


def decide(
    stream: StreamTable, compiled: Compiled, computation: Computation, store: StreamStore, *, full: bool
) -> Decision:
    """Choose how a stream table is refreshed."""
    decision = _decide(stream, compiled, computation, store, full=full)
    if stream.frontier is None or not stream.frontier.behind or not decision.relies_on_stages:
        return decision
    return Decision(
        Action.FULL,
        CAUGHT_UP,
        "Large changes, or an older version, had left what is stored in between behind: it is brought up to "
        "date once, so that changes can be followed again.",
        decision.prediction,
    )


def behind(stream: StreamTable, compiled: Compiled, decision: Decision) -> bool:
    """Whether what is stored in between is older than the result after a refresh."""
    if decision.code == NO_CHANGES:
        return stream.frontier is not None and stream.frontier.behind
    return decision.extent is Extent.RESULT and len(compiled.program.stages) > 1


def _decide(
    stream: StreamTable, compiled: Compiled, computation: Computation, store: StreamStore, *, full: bool
) -> Decision:
    if stream.frontier is None:
        return Decision(Action.REINITIALIZE, "first_load", "It has no result yet.")
    if full:
        return Decision(Action.FULL, "requested", "A full refresh was asked for.")
    known = {position.name: position for position in stream.frontier.sources}
    for name, source in compiled.sources.items():
        if name not in known or known[name].table_id != source.table.id:
            return Decision(
                Action.REINITIALIZE, "source_replaced", f"{name} is another table than at the last refresh."
            )
    mode = stream.definition.mode
    if mode is Mode.FULL:
        return Decision(Action.FULL, "mode_full", "Its mode is full.")
    try:
        computation.inputs.find_changes()
    except SnapshotError as error:
        return Decision(
            Action.REINITIALIZE,
            "snapshot_expired",
            f"The changes since the last refresh are gone: {error.message}",
        )
    lost = computation.inputs.row_ids_lost()
    if lost is not None:
        name, at = lost
        return Decision(
            Action.REINITIALIZE,
            ROW_IDS_LOST,
            f"Row ids of {name} were lost when its files were merged at snapshot {at}.",
        )
    if compiled.program.reasons:
        return Decision(
            Action.FULL,
            "not_incremental",
            "It cannot follow changes: " + "; ".join(compiled.program.reasons) + ".",
        )
    if not computation.inputs.deltas and not computation.time_moved:
        return Decision(Action.INCREMENTAL, NO_CHANGES, "Nothing it reads has changed.")
    rows = computation.inputs.changed_rows
    expected = expect(store, stream, rows)
    prediction = expected.prediction
    if mode is Mode.AUTO:
        chosen = _cheaper(expected, rows, stream.frontier.behind) or (
            _untried(expected, rows, stream.frontier.behind)
            if expected.seen
            else _much_changed(prediction, computation)
        )
        if chosen is not None:
            return chosen
    return Decision(
        Action.INCREMENTAL, "incremental", "Its inputs' changes are all that was computed.", prediction
    )


def _cheaper(expected: Expected, rows: int, behind: bool) -> Decision | None:
    """Everything anew, where that is expected to be clearly faster; now and then the other is tried again."""
    prediction = expected.prediction
    slow, full = prediction.incremental, prediction.full
    if slow is None or full is None:
        return None
    catch_up = expected.catch_up if behind else 0.0
    if slow <= (BACK if behind else GAIN) * expected.cold * full and slow + catch_up <= expected.cold * full:
        return None
    words = f"Following {rows} changed rows is expected to take {slow:.2f} s, computing it anew {full:.2f} s"
    if catch_up:
        words += f", and bringing up to date what was left behind {expected.everything:.2f} s first"
    if expected.stale(behind):
        reason = f"{words}; that was last tried {expected.since} refreshes ago, and is tried again."
        return Decision(Action.INCREMENTAL, "tried_again", reason, prediction)
    return Decision(Action.FULL, "cheaper", f"{words}.", prediction)


def _untried(expected: Expected, rows: int, behind: bool) -> Decision | None:
    """Everything anew, where it is hardly known what that takes and following changes takes long."""
    prediction = expected.prediction
    slow, full = prediction.incremental, prediction.full
    if behind or slow is None or full is None or expected.computed >= TRIES or expected.alike < TRIES:
        return None
    close = slow >= max(SOME, (HARDLY if expected.computed else PART) * full)
    guessed = not expected.computed and slow >= max(LONG, SMALL_PART * full)
    if not close and not guessed:
        return None
    return Decision(
        Action.FULL,
        TRIED_ONCE if expected.computed else UNTRIED,
        f"Following {rows} changed rows is expected to take {slow:.2f} s; it is tried whether computing it "
        "anew is quicker.",
        prediction,
    )


def _much_changed(prediction: Prediction, computation: Computation) -> Decision | None:
    """Everything anew, where much of an input changed: for what was not seen before."""
    for name, delta in computation.inputs.deltas.items():
        rows = computation.inputs.rows_of(name)
        share = MUCH if delta.with_spark_alone else MUCH_HERE
        if not delta.only_came and delta.expected > share * max(rows, MANY):
            return Decision(
                Action.FULL,
                "much_changed",
                f"{delta.expected} of the {rows} rows of {name} changed.",
                prediction,
            )
    return None
