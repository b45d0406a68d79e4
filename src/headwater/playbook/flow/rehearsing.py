"""What a playbook would do, in order, without doing it. Values that only a run knows stay templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.errors import HeadwaterError
from headwater.playbook.credentials.types import dsn_secrets
from headwater.playbook.flow.looping import elements_of
from headwater.playbook.language.model import Playbook, Step
from headwater.playbook.records.masking import Masking
from headwater.playbook.templates.engine import is_template, render
from headwater.playbook.templates.rendering import bare_name, render_fields
from headwater.playbook.templates.scopes import loop_names


@dataclass(frozen=True)
class Rehearsed:
    """A step that would run."""

    step: str
    tool: str | None
    after: tuple[str, ...]
    """The steps that lead to it, with the condition if there is one."""
    fields: Mapping[str, Any]
    """Rendered as far as that is possible now, without secrets; of a loop, for its first element."""
    loop: Mapping[str, Any] | None = None
    desc: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The step as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def rehearse(
    playbook: Playbook, workload: Mapping[str, Any], from_step: str | None = None
) -> tuple[Rehearsed, ...]:
    """The steps in the order in which a run comes to them, whichever conditions hold."""
    masking = Masking()
    masking.learn_from(workload)
    names = {**workload, "workload": workload}
    first = from_step or playbook.first.name
    after: dict[str, list[str]] = {first: []}
    order = [first]
    for name in order:  # grows while it is walked
        for arm in playbook.step(name).next:
            for target in arm.steps:
                if target not in after:
                    after[target] = []
                    order.append(target)
                kept = " else" if target in arm.otherwise else ""
                condition = "" if arm.when is None else f" when {arm.when}"
                after[target].append(f"{name}{kept}{condition}")
    return tuple(_rehearsed(playbook.step(name), names, tuple(after[name]), masking) for name in order)


def _rehearsed(step: Step, names: Mapping[str, Any], after: tuple[str, ...], masking: Masking) -> Rehearsed:
    loop: dict[str, Any] | None = None
    if step.loop is not None:
        loop = {"collection": step.loop.collection, "element": step.loop.element, "mode": step.loop.mode}
        try:
            elements = elements_of(render(step.loop.collection, names))
        except HeadwaterError:
            elements = ()
        else:
            loop = {"count": len(elements), "element": step.loop.element, "mode": step.loop.mode}
        if elements:
            names = {**names, **loop_names(step.loop.element, elements[0], 0, len(elements))}
    fields = {name: _field(step.tool, name, value, names, masking) for name, value in step.fields.items()}
    return Rehearsed(step.name, step.tool, after, fields, loop, step.desc)


def _field(kind: str | None, name: str, value: Any, names: Mapping[str, Any], masking: Masking) -> Any:
    if name == "auth":
        return _credential(value, names)
    try:
        found = render_fields(kind or "", {name: value}, names).get(name, value)
    except HeadwaterError:
        found = value  # it needs what an earlier step finds
    if isinstance(found, str):
        masking.learn(dsn_secrets(found))
    shown = masking.value({name: found})
    return shown[name]


def _credential(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return dict.fromkeys(value, "***")
    name = bare_name(str(value))
    if name is not None and name not in names:
        return name
    try:
        found = str(render(value, names))
    except HeadwaterError:
        return str(value)
    return "***" if "://" in found and not is_template(found) else found
