"""What can run before what: the graph that the steps' `next` draw, and mistakes in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.playbook.language.document import Place, Text
from headwater.playbook.language.findings import Findings, nearest
from headwater.playbook.language.model import Playbook, Step


class Order:
    """Answers which steps can be reached, and whether one can have run before another.

    >>> from headwater.playbook.language.model import Next
    >>> steps = (Step("a", None, next=(Next(then=("b",)),)), Step("b", None))
    >>> order = Order(Playbook(steps, "f.yaml"))
    >>> order.may_precede("a", "b"), order.may_precede("b", "a")
    (True, False)
    """

    def __init__(self, playbook: Playbook):
        self._first = playbook.first.name
        names = {step.name for step in playbook.steps}
        self._follow: dict[str, set[str]] = {name: set() for name in names}
        for step in playbook.steps:
            self._follow[step.name] |= {to for arm in step.next for to in arm.steps if to in names}
        self.reached = self._from(self._first)

    def may_precede(self, earlier: str, later: str) -> bool:
        """Whether `earlier` can have run when `later` begins.

        It cannot where every way to it leads through `later`, and no way leads back. (Two steps that follow
        the same one both run, so neither has to lead to the other.)
        """
        if earlier not in self.reached:
            return False
        if later in _after(self._follow, earlier):
            return True
        return earlier != later and earlier in self._from(self._first, without=later)

    def _from(self, start: str, without: str | None = None) -> set[str]:
        if start == without:
            return set()
        return {start} | _after(self._follow, start, without)


def check_order(playbook: Playbook, findings: Findings) -> None:
    """Find steps that are there twice, not there, never reached, or that never end."""
    known: dict[str, Step] = {}
    for step in playbook.steps:
        if step.name in known:
            first = known[step.name].place
            where = f" in line {first.line}" if first is not None else ""
            findings.error(
                _place(playbook, step), "duplicate_step", f"there is a step `{step.name}` already{where}."
            )
        known.setdefault(step.name, step)
    for step in playbook.steps:
        for arm in step.next:
            for name in arm.steps:
                if name not in known:
                    place = name.place if isinstance(name, Text) else arm.place
                    findings.error(
                        place or _place(playbook, step),
                        "unknown_step",
                        f"there is no step `{name}`.",
                        nearest(name, known),
                    )
    order = Order(playbook)
    for step in known.values():
        if step.name not in order.reached:
            findings.error(
                _place(playbook, step),
                "unreachable",
                f"no way leads to step `{step.name}`.",
                f"Name it in the `next` of a step; a run begins at `{playbook.first.name}`.",
            )
    if len(known) < len(playbook.steps):  # which of two steps leads where cannot be told
        return
    for name in _circle(known):
        findings.error(
            _place(playbook, known[name]),
            "endless",
            f"step `{name}` always leads back to itself, and the run never ends.",
            "Give the way back a `when`.",
        )


def _circle(steps: Mapping[str, Step]) -> Iterable[str]:
    """The first step of each circle of arms that are always taken."""
    always = {
        name: {to for arm in step.next if arm.always for to in arm.then if to in steps}
        for name, step in steps.items()
    }
    done: set[str] = set()
    for name in steps:
        if name in done:
            continue
        after = _after(always, name)
        if name in after:
            yield name
            done |= {to for to in after if name in _after(always, to)}


def _after(follow: Mapping[str, set[str]], start: str, without: str | None = None) -> set[str]:
    """Every step that can follow one, sooner or later."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in follow[waiting.pop()]:
            if name not in found and name != without:
                found.add(name)
                waiting.append(name)
    return found


def _place(playbook: Playbook, step: Step) -> Place:
    return step.place or Place(playbook.file, 1, 1)
