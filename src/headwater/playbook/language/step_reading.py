"""One step of a document as the model has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headwater.playbook.language.document import Document, ValuePath
from headwater.playbook.language.fields import STEP_FIELDS, TOOLS, Field, ToolFields
from headwater.playbook.language.findings import Findings, nearest
from headwater.playbook.language.model import Loop, Next, Retry, Step
from headwater.playbook.templates.engine import RESERVED, is_template
from headwater.playbook.templates.rendering import TYPE_NAMES, coerced

LOOP_FIELDS = ("collection", "in", "element", "iterator", "mode", "max_in_flight", "on_error", "spec")
RETRY_FIELDS = ("attempts", "backoff", "delay", "max_delay", "when")
NEXT_FIELDS = ("when", "then", "else", "step")

#: `parallel` is what other dialects of this language call `async`.
_MODES = {"async": "async", "parallel": "async", "sequential": "sequential"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_NAME = re.compile(r"[^\W\d]\w*")


class StepReader:
    """Reads steps, and notes what is wrong with them."""

    def __init__(self, document: Document, findings: Findings):
        self._document = document
        self._findings = findings

    def read(self, value: Any, path: ValuePath) -> Step | None:
        """The step at a path; None where not even its name can be told."""
        if not isinstance(value, Mapping):
            self._error(path, "wrong_type", "a step must be a mapping that begins with `step: name`.")
            return None
        name = self._step_name(value, path)
        if name is None:
            return None
        kind, fields, where = self._tool(value, path)
        return Step(
            name=name,
            tool=kind,
            fields=self._fields(name, kind, fields, where, path),
            desc=self._text(value.get("desc"), (*path, "desc")),
            loop=self._loop(value["loop"], (*path, "loop")) if value.get("loop") is not None else None,
            next=tuple(self._next(value.get("next"), (*path, "next"))),
            vars=self._vars(value.get("vars"), (*path, "vars")),
            retry=self._retry(value.get("retry"), (*path, "retry")),
            timeout=self._seconds(value.get("timeout"), (*path, "timeout")),
            place=self._document.place((*path, "step")),
        )

    def _step_name(self, value: Mapping[str, Any], path: ValuePath) -> str | None:
        name = value.get("step")
        if isinstance(name, int | float) and not isinstance(name, bool):
            name = str(name)
        if not isinstance(name, str) or not name.strip():
            near = nearest("step", [key for key in value if key not in STEP_FIELDS]) or ""
            hint = near if near.startswith("Did") else "Begin it with `- step: name`."
            self._error(path, "missing_field", "a step must have a name: `step: name`.", hint)
            return None
        if is_template(name):
            self._error((*path, "step"), "wrong_type", "the name of a step cannot be a template.")
        if name in RESERVED:
            self._error(
                (*path, "step"),
                "reserved_name",
                f"`{name}` means something else in templates; choose another.",
            )
        return str(name)

    # --- the tool and its fields ---------------------------------------------------------------

    def _tool(
        self, value: Mapping[str, Any], path: ValuePath
    ) -> tuple[str | None, dict[str, Any], dict[str, ValuePath]]:
        """The kind, and every field with its path: on the step itself, or in `tool: {kind: …}`."""
        fields = {key: inner for key, inner in value.items() if key not in STEP_FIELDS}
        where: dict[str, ValuePath] = {key: (*path, key) for key in fields}
        tool = value.get("tool")
        kind_path: ValuePath = (*path, "tool")
        if isinstance(tool, Mapping):
            for key, inner in tool.items():
                if key == "kind":
                    continue
                if key in fields:
                    self._error((*path, key), "duplicate_key", f"`{key}` is on the step and in its `tool`.")
                fields[key], where[key] = inner, (*kind_path, key)
            if "kind" not in tool:
                self._error(kind_path, "missing_field", "`tool` must have a `kind`.", _tool_hint())
                return None, {}, {}
            tool, kind_path = tool["kind"], (*kind_path, "kind")
        if tool is None:
            return None, fields, where
        if not isinstance(tool, str) or tool not in TOOLS:
            self._error(kind_path, "unknown_tool", f"there is no tool {tool!r}.", nearest(str(tool), TOOLS))
            return None, {}, {}
        return str(tool), fields, where

    def _fields(
        self,
        step: str,
        kind: str | None,
        fields: dict[str, Any],
        where: dict[str, ValuePath],
        path: ValuePath,
    ) -> dict[str, Any]:
        if kind is None:
            for key in fields:
                tools = [tool.kind for tool in TOOLS.values() if key in tool.names]
                hint = f"It is a field of {', '.join(tools)}: give the step a `tool`." if tools else None
                self._error_at_key(
                    where[key],
                    "unknown_field",
                    f"a step without a tool has no `{key}`.",
                    hint or nearest(key, STEP_FIELDS),
                )
            return {}
        tool = TOOLS[kind]
        for key, value in fields.items():
            field = tool.field(key)
            if field is None:
                self._error_at_key(
                    where[key],
                    "unknown_field",
                    f"a step of {kind} has no `{key}`.",
                    nearest(key, [*tool.names, *STEP_FIELDS]),
                )
            else:
                self._check_type(field, value, where[key])
        self._check_presence(step, tool, fields, path)
        return fields

    def _check_type(self, field: Field, value: Any, path: ValuePath) -> None:
        if value is None or (is_template(value) and field.type not in ("sql list", "code")):
            return
        if field.type == "sql list" and isinstance(value, list) and value:
            for index, one in enumerate(value):
                if not isinstance(one, str):
                    self._error((*path, index), "wrong_type", "a command must be a text of SQL.")
            return
        if coerced(field, value) is None or (field.type in ("sql", "code") and not isinstance(value, str)):
            expected = " or ".join(field.choices) if field.choices else TYPE_NAMES[field.type]
            hint = None
            if field.name == "command" and isinstance(value, list):
                hint = "For several commands the field is `commands`."
            if field.name == "commands" and isinstance(value, str):
                hint = "For one command the field is `command`."
            self._error(path, "wrong_type", f"`{field.name}` must be {expected}.", hint)

    def _check_presence(
        self, step: str, tool: ToolFields, fields: Mapping[str, Any], path: ValuePath
    ) -> None:
        there = {name for name, value in fields.items() if value is not None}
        missing = [field.name for field in tool.fields if field.required and field.name not in there]
        groups = [*tool.exactly_one, *tool.at_least_one]
        missing += [" or ".join(f"`{name}`" for name in one) for one in groups if not there & set(one)]
        for name in missing:
            named = name if name.startswith("`") else f"`{name}`"
            self._error((*path, "step"), "missing_field", f"step `{step}` of {tool.kind} needs {named}.")
        for group in tool.exactly_one:
            both = [name for name in group if name in there]
            if len(both) > 1:
                names = " and ".join(f"`{name}`" for name in both)
                self._error(
                    (*path, "step"), "too_many", f"step `{step}` has {names}; only one of them can be."
                )

    # --- what every step may have -------------------------------------------------------------

    def _loop(self, value: Any, path: ValuePath) -> Loop | None:
        if not isinstance(value, Mapping):
            self._error(path, "wrong_type", "`loop` must be a mapping with `collection` and `element`.")
            return None
        self._only(value, LOOP_FIELDS, path, "`loop`")
        spec = value.get("spec") or {}
        if not isinstance(spec, Mapping):
            self._error((*path, "spec"), "wrong_type", "`spec` must be a mapping.")
            spec = {}
        self._only(spec, ("mode", "max_in_flight", "on_error"), (*path, "spec"), "`spec`")
        given = {**spec, **{key: inner for key, inner in value.items() if inner is not None}}
        collection = given.get("collection", given.get("in"))
        if collection is None:
            self._error(path, "missing_field", "`loop` needs a `collection`.")
        elif not is_template(collection) and not isinstance(collection, list):
            self._error(path, "wrong_type", "`collection` must be a list, or a template that gives one.")
        return Loop(
            collection=collection,
            element=self._element(given.get("element", given.get("iterator")), path),
            mode=self._choice(given, "mode", _MODES, "sequential", path),
            max_in_flight=self._count(given.get("max_in_flight"), (*path, "max_in_flight")),
            on_error=self._choice(given, "on_error", {"stop": "stop", "continue": "continue"}, "stop", path),
        )

    def _element(self, name: Any, path: ValuePath) -> str:
        if name is None:
            self._error(path, "missing_field", "`loop` needs an `element`, the name of one item.")
        elif not isinstance(name, str) or not _NAME.fullmatch(name):
            self._error(path, "wrong_type", "`element` must be a name of letters, digits and underscores.")
        elif name in RESERVED:
            self._error(path, "reserved_name", f"`{name}` means something else in templates; choose another.")
        else:
            return str(name)
        return "element"

    def _next(self, value: Any, path: ValuePath) -> Iterator[Next]:
        """Arms, from a name, a list of names, or conditions."""
        if value is None:
            return
        items = value if isinstance(value, list) else [value]
        plain: list[str] = []
        for index, item in enumerate(items):
            where = (*path, index) if isinstance(value, list) else path
            if isinstance(item, Mapping) and ("when" in item or "then" in item or "else" in item):
                yield self._arm(item, where)
            else:
                plain.extend(self._targets(item, where))
        if plain:
            yield Next(then=tuple(plain), place=self._document.place(path))

    def _arm(self, item: Mapping[str, Any], path: ValuePath) -> Next:
        self._only(item, NEXT_FIELDS, path, "`next`")
        then = item.get("then", item.get("step"))
        if then is None and item.get("else") is None:
            self._error(path, "missing_field", "a condition needs `then`, the steps that follow.")
        return Next(
            when=self._condition(item.get("when"), (*path, "when")),
            then=tuple(self._targets(then, (*path, "then"))),
            otherwise=tuple(self._targets(item.get("else"), (*path, "else"))),
            place=self._document.place(path),
        )

    def _targets(self, value: Any, path: ValuePath) -> Iterator[str]:
        if value is None:
            return
        if isinstance(value, list):
            for index, one in enumerate(value):
                yield from self._targets(one, (*path, index))
        elif isinstance(value, Mapping):
            self._only(value, ("step",), path, "what follows")
            if "step" in value:
                yield from self._targets(value["step"], (*path, "step"))
        elif isinstance(value, str) and not is_template(value):
            yield value  # a text of the document, so whoever judges it knows its place
        else:
            self._error(path, "wrong_type", "what follows is the name of a step, or a list of them.")

    def _vars(self, value: Any, path: ValuePath) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._error(path, "wrong_type", "`vars` must be a mapping of names to values.")
            return {}
        return value

    def _retry(self, value: Any, path: ValuePath) -> Retry | None:
        if value is None or value is False:
            return None
        if isinstance(value, int):
            value = {"attempts": value}
        if not isinstance(value, Mapping):
            self._error(path, "wrong_type", "`retry` must be a number of attempts, or a mapping.")
            return None
        self._only(value, RETRY_FIELDS, path, "`retry`")
        usual = Retry()
        delay = self._seconds(value.get("delay"), (*path, "delay"))
        longest = self._seconds(value.get("max_delay"), (*path, "max_delay"))
        backoffs = {name: name for name in ("none", "linear", "exponential")}
        return Retry(
            attempts=self._count(value.get("attempts"), (*path, "attempts")) or usual.attempts,
            backoff=self._choice(value, "backoff", backoffs, usual.backoff, path),
            delay=usual.delay if delay is None else delay,
            max_delay=usual.max_delay if longest is None else longest,
            when=self._condition(value.get("when"), (*path, "when")),
        )

    # --- plain values -------------------------------------------------------------------------

    def _condition(self, value: Any, path: ValuePath) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        self._error(path, "wrong_type", "`when` must be a template that is true or false.")
        return None

    def _text(self, value: Any, path: ValuePath) -> str | None:
        if value is None or isinstance(value, str):
            return value
        self._error(path, "wrong_type", f"`{path[-1]}` must be a text.")
        return None

    def _count(self, value: Any, path: ValuePath) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._error(path, "wrong_type", f"`{path[-1]}` must be a whole number above 0.")
            return None
        return int(value)

    def _seconds(self, value: Any, path: ValuePath) -> float | None:
        if value is None:
            return None
        found = None if isinstance(value, bool) else _DURATION.fullmatch(str(value).strip())
        if found is None or float(found[1]) <= 0:
            self._error(path, "wrong_type", f"`{path[-1]}` must be a time: 30, 30s, 5m or 1h.")
            return None
        return float(found[1]) * _SECONDS[found[2]]

    def _choice(
        self, given: Mapping[str, Any], name: str, choices: Mapping[str, str], usual: str, path: ValuePath
    ) -> Any:
        value = given.get(name, usual)
        if value not in choices:
            hint = nearest(str(value), choices)
            self._error((*path, name), "wrong_type", f"`{name}` must be {' or '.join(choices)}.", hint)
            return usual
        return choices[value]

    def _only(self, value: Mapping[str, Any], names: tuple[str, ...], path: ValuePath, owner: str) -> None:
        for key in value:
            if key not in names:
                self._error_at_key(
                    (*path, key), "unknown_field", f"{owner} has no `{key}`.", nearest(key, names)
                )

    def _error(self, path: ValuePath, code: str, message: str, hint: str | None = None) -> None:
        self._findings.error(self._document.place(path), code, message, hint)

    def _error_at_key(self, path: ValuePath, code: str, message: str, hint: str | None = None) -> None:
        self._findings.error(self._document.key_place(path), code, message, hint)


def _tool_hint() -> str:
    return f"There are: {', '.join(TOOLS)}."
