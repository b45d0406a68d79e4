"""Which names a template uses, and whether they can mean something where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jinja2 import meta, nodes

from headwater.errors import TemplateError
from headwater.playbook.language.document import Place, Text
from headwater.playbook.language.findings import Findings, nearest
from headwater.playbook.templates.engine import compile_template, find_place, is_template, place_of

LOOP_PARTS = ("element", "index", "first", "last", "length", "done")
LOOP_END_PARTS = ("length", "done", "failed")
EVENT_PARTS = ("name", "step", "visit")
EVENTS = ("step.done", "loop.done", "step.failed")
ERROR_PARTS = ("kind", "code", "message", "retryable", "command_index", "position")

#: In the place of a value that only a run knows.
UNKNOWN = object()


@dataclass(frozen=True)
class Scope:
    """The names at one place: values that are known now, mappings whose parts are, or UNKNOWN."""

    names: Mapping[str, Any]
    later: Mapping[str, str] = field(default_factory=dict)
    """Names that exist but mean nothing here, with the reason."""


@dataclass(frozen=True)
class Used:
    """A name in a template, with the parts that follow it: `workload.batch.ids`."""

    parts: tuple[Any, ...]
    line: int
    optional: bool
    """It may be missing: `is defined`, `default`."""


def check_template(text: str, scope: Scope, findings: Findings) -> None:
    """Find what is wrong with one template."""
    try:
        compiled = compile_template(text)
    except TemplateError as error:
        place = Place(error.file, error.line, error.column)
        findings.error(place, "template", error.problem, error.hint)
        return
    for used in names_used(compiled.tree):
        _check_name(text, used, scope, findings)
    _check_events(text, compiled.tree, scope, findings)


def check_templates(value: Any, scope: Scope, findings: Findings) -> None:
    """Find what is wrong with the templates in a value."""
    if isinstance(value, str):
        if is_template(value):
            check_template(value, scope, findings)
    elif isinstance(value, Mapping):
        for inner in value.values():
            check_templates(inner, scope, findings)
    elif isinstance(value, list | tuple):
        for inner in value:
            check_templates(inner, scope, findings)


def names_used(tree: nodes.Template) -> Iterator[Used]:
    """Every name that a template takes from outside."""
    outside = meta.find_undeclared_variables(tree)
    inner: set[int] = set()
    optional: set[int] = set()
    for applied in tree.find_all((nodes.Test, nodes.Filter)):
        if applied.name in ("defined", "undefined", "default", "d"):
            optional.add(id(applied.node))
    for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Name)):
        if id(node) in inner:
            continue
        chain: nodes.Node = node
        parts: list[Any] = []
        while isinstance(chain, nodes.Getattr | nodes.Getitem):
            if isinstance(chain, nodes.Getattr):
                parts.append(chain.attr)
            else:
                parts.append(chain.arg.value if isinstance(chain.arg, nodes.Const) else UNKNOWN)
            chain = chain.node
            inner.add(id(chain))
        if isinstance(chain, nodes.Name) and chain.name in outside:
            yield Used((chain.name, *reversed(parts)), chain.lineno, id(node) in optional)


def known_value(text: Any, scope: Scope) -> Any:
    """What a template that is one plain name gives, if that is known before a run; else UNKNOWN."""
    if not isinstance(text, str) or not is_template(text):
        return text
    try:
        compiled = compile_template(text)
    except TemplateError:
        return UNKNOWN
    output = next(compiled.tree.find_all(nodes.Output), None)
    whole = compiled.single and output is not None and isinstance(output.nodes[0], nodes.Name | nodes.Getattr)
    used = list(names_used(compiled.tree))
    if not whole or len(used) != 1:
        return UNKNOWN
    value: Any = scope.names
    for part in used[0].parts:
        if not isinstance(value, Mapping) or part not in value:
            return UNKNOWN
        value = value[part]
    return value


def _check_name(text: str, used: Used, scope: Scope, findings: Findings) -> None:
    name = str(used.parts[0])
    if name not in scope.names:
        if used.optional and len(used.parts) == 1:
            return
        hint = scope.later.get(name)
        if name == "env":
            hint = "Templates do not see the environment. Pass values with --set, secrets as credentials."
        message = f"`{name}` is not defined" + (" here." if name in scope.later else ".")
        findings.error(
            find_place(text, used.line, name), "undefined", message, hint or nearest(name, scope.names)
        )
        return
    value = scope.names[name]
    for place, part in enumerate(used.parts[1:], 1):
        if not isinstance(value, Mapping) or part is UNKNOWN:
            return
        if part not in value:
            if part in ("get", "items", "keys", "values"):
                return
            if not (used.optional and place == len(used.parts) - 1):
                owner = ".".join(str(one) for one in used.parts[:place])
                findings.error(
                    find_place(text, used.line, str(part)),
                    "undefined",
                    f"`{owner}` has no `{part}`.",
                    scope.later.get(f"{owner}.{part}") or nearest(str(part), [str(key) for key in value]),
                )
            return
        value = value[part]


def _check_events(text: str, tree: nodes.Template, scope: Scope, findings: Findings) -> None:
    """`event.name == 'loop.doen'` would never be true, and nobody would know why."""
    if "event" not in scope.names:
        return
    for compare in tree.find_all(nodes.Compare):
        sides = [compare.expr, *(operand.expr for operand in compare.ops)]
        if not any(_is_event_name(side) for side in sides):
            continue
        for side in sides:
            for constant in [side, *side.find_all(nodes.Const)]:
                if isinstance(constant, nodes.Const) and constant.value not in EVENTS:
                    findings.error(
                        find_place(text, compare.lineno, str(constant.value)),
                        "unknown_event",
                        f"there is no event {constant.value!r}.",
                        nearest(str(constant.value), EVENTS),
                    )


def _is_event_name(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.Getattr)
        and node.attr == "name"
        and isinstance(node.node, nodes.Name)
        and node.node.name == "event"
    )


def as_condition(text: str) -> str:
    """A condition as the template that it stands for; its place stays."""
    return text if is_template(text) else Text("{{ " + text + " }}", place_of(text))
