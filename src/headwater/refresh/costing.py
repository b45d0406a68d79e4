"""How long a refresh will take either way, learnt from those before."""

from __future__ import annotations

from headwater.refresh.model import Action, Prediction, RefreshResult, StreamTable
from headwater.refresh.store import StreamStore

#: How many refreshes are looked at, and how much each older one counts less than the next.
_REMEMBERED, _DECAY = 50, 0.8


def predict(store: StreamStore, stream: StreamTable, rows_in: int) -> Prediction:
    """Seconds that an incremental and a full refresh are expected to take."""
    history = store.history(stream.name, _REMEMBERED)
    full = _average([each.seconds for each in history if each.action in (Action.FULL, Action.REINITIALIZE)])
    return Prediction(
        _incremental([each for each in history if each.action is Action.INCREMENTAL], rows_in), full
    )


def _average(values: list[float]) -> float | None:
    """The mean of what is newest first, the newest counting most."""
    weights = [_DECAY**number for number in range(len(values))]
    if not values:
        return None
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def _incremental(history: list[RefreshResult], rows_in: int) -> float | None:
    """A line through seconds by changed rows, by least squares in which the newest counts most."""
    if not history:
        return None
    points = [(float(each.rows_in), each.seconds, _DECAY**number) for number, each in enumerate(history)]
    total = sum(weight for *_, weight in points)
    mean_x = sum(x * weight for x, _, weight in points) / total
    mean_y = sum(y * weight for _, y, weight in points) / total
    spread = sum(weight * (x - mean_x) ** 2 for x, _, weight in points)
    if spread == 0:
        # One size seen: more rows take more time, in proportion at worst.
        return mean_y * max(1.0, rows_in / mean_x) if mean_x else mean_y
    slope = sum(weight * (x - mean_x) * (y - mean_y) for x, y, weight in points) / spread
    fastest = min(each.seconds for each in history)
    return max(fastest / 2, mean_y + max(0.0, slope) * (rows_in - mean_x))
