"""The names that templates see: the workload, variables, results of steps, the loop, the event.

A step's envelope is reached under the step's own name, and under `result` from the step's own `vars` and
`next`. Envelopes are read from the store when a template asks for them; none has to stay in memory.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from headwater.playbook.records.store import RunStore

#: Characters of envelopes that are kept at hand; the newest one always is.
_KEPT = 16 << 20
#: Items of a loop that are read at once.
_PAGE = 25

Load = Callable[[], Mapping[str, Any]]


class ResultView(Mapping[str, Any]):
    """The `result` of an envelope. `data.command_2` is another way to say `commands[2]`.

    >>> view = ResultView({"commands": [{"row_count": 1}, {"row_count": 5}]})
    >>> view["data"]["command_1"]["row_count"], view["commands"][0]["row_count"], list(view)
    (5, 1, ['commands'])
    """

    def __init__(self, result: Mapping[str, Any]):
        self._result = result

    def __getitem__(self, key: str) -> Any:
        if key == "data" and "data" not in self._result:
            return _ByCommand(self._result)
        return self._result[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._result)

    def __len__(self) -> int:
        return len(self._result)


class _ByCommand(ResultView):
    """A result whose commands have names: `command_0`, `command_1`, …"""

    def __getitem__(self, key: str) -> Any:
        commands = self._result.get("commands")
        number = str(key).removeprefix("command_")
        if key not in self._result and isinstance(commands, Sequence) and number.isdecimal():
            try:
                return commands[int(number)]
            except IndexError:
                raise KeyError(key) from None
        return self._result[key]


class StepView(Mapping[str, Any]):
    """The envelope of a step; what is not in it is looked for in its result."""

    def __init__(self, load: Load):
        self._load = load

    def __getitem__(self, key: str) -> Any:
        envelope = self._load()
        if key == "result":
            return result_of(envelope)
        if key in envelope:
            return envelope[key]
        result = result_of(envelope)
        if isinstance(result, Mapping):
            return result[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())


def result_of(envelope: Mapping[str, Any]) -> Any:
    """What templates see as `result`."""
    result = envelope.get("result")
    return ResultView(result) if isinstance(result, Mapping) else result


class LoopItems(Sequence[Any]):
    """The envelopes of a loop's items, read from the store page by page."""

    def __init__(self, store: RunStore, run_id: str, step: str, visit: int, count: int):
        self._store = store
        self._place = (run_id, step, visit)
        self._count = count
        self._page: tuple[int, Mapping[int, Any]] = (-1, {})

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._count))]
        place = index + self._count if index < 0 else index
        if not 0 <= place < self._count:
            raise IndexError(index)
        number = place // _PAGE
        if self._page[0] != number:
            first = number * _PAGE
            self._page = (number, self._store.envelopes(*self._place, first, first + _PAGE - 1))
        found = self._page[1].get(place)
        # An item that failed has no envelope, and still its place in the list.
        return None if found is None else StepView(lambda: found)


@dataclass(frozen=True, slots=True)
class Finished:
    """Where the envelope of a step is."""

    run_id: str
    step: str
    visit: int
    items: int | None = None
    """How many items, of a loop."""


class Scopes:
    """The names of one run, as they grow."""

    def __init__(self, store: RunStore, run_id: str, workload: Mapping[str, Any], variables: dict[str, Any]):
        self._store = store
        self._run_id = run_id
        self._workload = workload
        self.vars = variables
        """What steps have set so far."""
        self._finished: dict[str, Finished] = {}
        self._kept: OrderedDict[Finished, tuple[Mapping[str, Any], int]] = OrderedDict()
        self._size = 0

    def finish(self, finished: Finished, envelope: str | None = None) -> None:
        """A step is done: from now on its name means its envelope, which is given as JSON or read later."""
        self._finished[finished.step] = finished
        if envelope is not None:
            self._keep(finished, envelope)

    def names(self, **more: Any) -> dict[str, Any]:
        """What a template sees; `more` are names of the place where it stands.

        Names of steps win over those of the workload, and the language's own names over both.
        """
        return {
            **self._workload,
            **{name: StepView(self._loader(where)) for name, where in self._finished.items()},
            **more,
            "workload": self._workload,
            "vars": self.vars,
            "run": {"id": self._run_id},
        }

    def view(self, finished: Finished) -> StepView:
        """The envelope of a step as templates see it."""
        return StepView(self._loader(finished))

    def _loader(self, finished: Finished) -> Load:
        def load() -> Mapping[str, Any]:
            known = self._kept.get(finished)
            if known is not None:
                return known[0]
            text = self._store.envelope_text(finished.run_id, finished.step, finished.visit)
            return self._keep(finished, text or '{"status": "ok", "result": null}')

        return load

    def _keep(self, finished: Finished, text: str) -> Mapping[str, Any]:
        envelope: Mapping[str, Any] = json.loads(text)
        if finished.items is not None:
            items = LoopItems(self._store, finished.run_id, finished.step, finished.visit, finished.items)
            envelope = {**envelope, "result": {**(envelope.get("result") or {}), "items": items}}
        self._kept[finished] = envelope, len(text)
        self._size += len(text)
        while self._size > _KEPT and len(self._kept) > 1:
            self._size -= self._kept.popitem(last=False)[1][1]
        return envelope


def loop_names(element_name: str, element: Any, index: int, length: int) -> dict[str, Any]:
    """The names that an item of a loop adds."""
    loop = {
        "element": element,
        "index": index,
        "first": index == 0,
        "last": index == length - 1,
        "length": length,
        "done": False,
    }
    return {element_name: element, "loop": loop}
