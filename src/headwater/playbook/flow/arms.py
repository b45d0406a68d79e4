"""What follows what: the steps that are waiting, and the arms of `next` that a step's end takes.

The rule: after a step, every arm whose condition holds is taken, in the order of the list; the steps they
name are run one after another. A step that is waiting already is not entered twice, so two ways that lead to
the same step meet there. A step that ran before and is named again runs again, as its next visit.

After a failure only arms that ask for the event (or the error) are looked at: where none of them holds, the
run fails. Nothing is left to chance, so a run that is resumed takes the same way.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jinja2 import meta

from headwater.errors import PlaybookError
from headwater.playbook.language.model import Next, Step
from headwater.playbook.templates.engine import compile_template, holds, is_template

#: A flow that comes to the same step more often than this goes round in circles.
MOST_VISITS: Final = 10_000


class Flow:
    """The steps that are still to be run."""

    def __init__(self, first: str):
        self._waiting = deque([first])
        self._visits: Counter[str] = Counter()

    def next(self) -> tuple[str, int] | None:
        """The name of the next step, and which visit it is; None at the end."""
        if not self._waiting:
            return None
        name = self._waiting.popleft()
        self._visits[name] += 1
        if self._visits[name] > MOST_VISITS:
            raise PlaybookError(
                f"The run has come to step {name!r} more than {MOST_VISITS:,} times.",
                hint="Give the way back to it a `when` that ends.",
                step=name,
            )
        return name, self._visits[name]

    def enter(self, names: Sequence[str]) -> None:
        """Steps that a step led to."""
        for name in names:
            if name not in self._waiting:
                self._waiting.append(name)


def after_success(step: Step, names: Mapping[str, Any]) -> tuple[str, ...]:
    """The steps that follow a step that is done."""
    found: list[str] = []
    otherwise: list[str] = []
    for arm in step.next:
        if arm.when is None:
            found += arm.then
            otherwise += arm.otherwise
        else:
            found += arm.then if holds(arm.when, names) else arm.otherwise
    # An `else` that stands alone is for when nothing else was taken.
    return tuple(dict.fromkeys(found or otherwise))


def after_failure(step: Step, names: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The steps that take care of a step's failure; None if none does."""
    asked = [arm for arm in step.next if _asks_for_failure(arm)]
    taken = [arm for arm in asked if arm.when is not None and holds(arm.when, names)]
    if not taken:
        return None
    return tuple(dict.fromkeys(name for arm in taken for name in arm.then))


def _asks_for_failure(arm: Next) -> bool:
    if arm.when is None:
        return False
    text = arm.when if is_template(arm.when) else "{{ " + arm.when + " }}"
    return not meta.find_undeclared_variables(compile_template(text).tree).isdisjoint({"event", "error"})
