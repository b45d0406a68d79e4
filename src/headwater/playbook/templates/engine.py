"""Templates: `{{ … }}` in the values of a playbook.

A text that is one single `{{ expression }}` gives the value itself (a list stays a list); any other text
with templates gives text. What is rendered is never rendered again, so data cannot become a template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import GeneratorType
from typing import Any

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateRuntimeError, TemplateSyntaxError, UndefinedError
from jinja2.utils import missing

from headwater.errors import TemplateError
from headwater.playbook.language.document import Place, Text
from headwater.playbook.language.findings import nearest
from headwater.playbook.templates.sandbox import (
    MAX_TEXT,
    SANDBOX,
    MissingNameError,
    Value,
    as_text,
    budget,
)

#: Names that every playbook's templates have, where they mean something; nothing else may be called so.
RESERVED = ("workload", "vars", "result", "event", "loop", "run", "error")

_MARKS = ("{{", "{%", "{#")


def is_template(value: Any) -> bool:
    """Whether a value is a text with templates in it."""
    return isinstance(value, str) and any(mark in value for mark in _MARKS)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A template that can be rendered."""

    template: Template
    tree: nodes.Template
    single: bool
    """Whether it is one expression and nothing else."""


def compile_template(text: str) -> Compiled:
    """Understand a template; raises TemplateError where that is impossible."""
    try:
        return _compiled(str(text))
    except TemplateSyntaxError as error:
        raise template_error(text, error.message or "not a template", error.lineno) from None
    except RecursionError:
        raise template_error(text, "the template is nested too deep.", 1) from None


@lru_cache(maxsize=512)
def _compiled(source: str) -> Compiled:
    template = SANDBOX.from_string(source)
    tree = SANDBOX.parse(source)
    outputs = [node for part in tree.body if isinstance(part, nodes.Output) for node in part.nodes]
    bare = [n for n in outputs if not (isinstance(n, nodes.TemplateData) and not n.data.strip())]
    statements = any(not isinstance(part, nodes.Output) for part in tree.body)
    single = len(bare) == 1 and not statements and not isinstance(bare[0], nodes.TemplateData)
    return Compiled(template, tree, single)


def render(value: Any, names: Mapping[str, Any]) -> Any:
    """A value with every template in it evaluated, through lists and mappings; the rest stays as it is.

    >>> render({"n": "{{ ids }}", "text": "{{ ids[0] }} of {{ ids | length }}"}, {"ids": [7, 8]})
    {'n': [7, 8], 'text': '7 of 2'}
    """
    if isinstance(value, str):
        return render_text(value, names) if is_template(value) else str(value)
    if isinstance(value, Mapping):
        return {key: render(inner, names) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [render(inner, names) for inner in value]
    return value


def render_text(text: str, names: Mapping[str, Any]) -> Any:
    """What one template gives."""
    compiled = compile_template(text)
    run = Rendering(text, compiled, names)
    if compiled.single:
        return next(part.value for part in run if isinstance(part, Value))
    pieces, length = [], 0
    for part in run:
        if isinstance(part, Value):
            if part.value is None:
                raise run.error(
                    "the value is null, in the middle of a text.", "Give one with `| default('…', true)`."
                )
            part = as_text(part.value)
        pieces.append(part)
        length += len(part)
        if length > MAX_TEXT:
            raise run.error(f"the template gives more than {MAX_TEXT >> 20} MiB of text.")
    return "".join(pieces)


def holds(condition: str, names: Mapping[str, Any]) -> bool:
    """Whether a condition is true; its braces may be left out.

    >>> holds("{{ event.name == 'loop.done' }}", {"event": {"name": "loop.done"}})
    True
    """
    text = condition if is_template(condition) else Text("{{ " + condition + " }}", place_of(condition))
    value = render_text(text, names)
    if isinstance(value, str):
        word = value.strip().lower()
        if word not in ("true", "false", ""):
            raise template_error(
                condition, f"the condition gives the text {value[:60]!r}, not true or false.", 1
            )
        return word == "true"
    return bool(value)


def place_of(text: str) -> Place:
    """Where a text stands; of one that is not from a document, nowhere in particular."""
    return text.place if isinstance(text, Text) else Place("template", 1, 1)


class Rendering:
    """One evaluation of a template: its pieces, and errors that know their place."""

    def __init__(self, text: str, compiled: Compiled, names: Mapping[str, Any]):
        self._text = text
        self._names = names
        self._template = compiled.template
        self._pieces: Any = None

    def __iter__(self) -> Iterator[str]:
        """Pieces of the text as they are, and `Value`s."""
        with budget():
            context = self._template.new_context(dict(self._names))
            self._pieces = self._template.root_render_func(context)
            try:
                yield from self._pieces
            except MissingNameError as error:
                raise self._missing(error) from None
            except (SecurityError, UndefinedError, TemplateRuntimeError) as error:
                raise self.error(error.message or "not allowed.", trace=error) from None
            except RecursionError as error:
                raise self.error("the values are nested too deep.", trace=error) from None
            except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
                # What the operators and filters of a template say of values that do not fit them.
                raise self.error(f"{type(error).__name__}: {error}.", trace=error) from None

    def error(
        self, message: str, hint: str | None = None, *, trace: Exception | None = None, needle: str = ""
    ) -> TemplateError:
        """An error at the expression that is being evaluated."""
        return template_error(self._text, message, self._line(trace), hint, needle)

    def _missing(self, error: MissingNameError) -> TemplateError:
        name = str(error.name)
        if error.owner is missing:
            hint = _hint_for_name(name, self._names)
            return self.error(f"`{name}` is not defined.", hint, trace=error, needle=name)
        known = [str(key) for key in error.owner] if isinstance(error.owner, Mapping) else []
        what = "a " + type(error.owner).__name__ if not known else "the value"
        message = f"`{name}` is not defined: {what} has no such part."
        if isinstance(error.owner, list | tuple) and isinstance(error.name, int):
            message = f"there is no element {name}: the list has {len(error.owner)}."
        return self.error(message, nearest(name, known) if known else None, trace=error, needle=name)

    def _line(self, trace: Exception | None) -> int:
        """The line of the template that Python's line in the compiled one stands for."""
        found = 1
        if trace is None:
            if isinstance(self._pieces, GeneratorType) and self._pieces.gi_frame is not None:
                found = self._template.get_corresponding_lineno(self._pieces.gi_frame.f_lineno)
            return found
        frame = trace.__traceback__
        while frame is not None:
            if frame.tb_frame.f_globals.get("__jinja_template__") is self._template:
                found = self._template.get_corresponding_lineno(frame.tb_lineno)
            frame = frame.tb_next
        return found


def _hint_for_name(name: str, names: Mapping[str, Any]) -> str | None:
    if name == "env":
        return "Templates do not see the environment. Pass values with --set, secrets as credentials."
    return nearest(name, [known for known in names if not known.startswith("_")])


def template_error(
    text: str, message: str, line: int, hint: str | None = None, needle: str = ""
) -> TemplateError:
    """An error at a line of a template, at the name it is about."""
    place = find_place(text, line, needle)
    where = f"{place}: " if isinstance(text, Text) else ""
    return TemplateError(
        f"{where}{message}", hint=hint, file=place.file, line=place.line, column=place.column, problem=message
    )


def find_place(text: str, line: int, needle: str = "") -> Place:
    """Where, in a line of a template, a name stands; without one, where the first template does."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    if not isinstance(text, Text):
        return Place("template", line, 1)
    end = text.find("\n", start)
    piece = text[start : end if end >= 0 else len(text)]
    braces = next((i for i in (piece.find("{{"), piece.find("{%")) if i >= 0), 0)
    found = re.search(rf"(?<!\w){re.escape(needle)}(?!\w)", piece[braces:]) if needle else None
    return text.at(start + braces + (found.start() if found else 0))
