"""A step's fields with their templates evaluated, each as the tool's table of fields says."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from jinja2 import nodes

from headwater.errors import PlaybookError
from headwater.playbook.language.document import Text
from headwater.playbook.language.fields import TOOLS, Field, FieldType, with_defaults
from headwater.playbook.language.findings import nearest
from headwater.playbook.templates.engine import compile_template, is_template, place_of, render
from headwater.playbook.templates.sql_scanner import Dialect
from headwater.playbook.templates.sql_templates import render_sql

#: What a value of each type is called in messages.
TYPE_NAMES: Mapping[FieldType, str] = {
    "text": "a text",
    "sql": "a text of SQL",
    "sql list": "a list of texts of SQL",
    "code": "a text of Python",
    "boolean": "true or false",
    "integer": "a whole number above 0",
    "number": "a number",
    "list": "a list",
    "mapping": "a mapping",
    "credential": "the name of a credential",
}


def render_fields(
    kind: str, fields: Mapping[str, Any], names: Mapping[str, Any], credentials: Container[str] = ()
) -> dict[str, Any]:
    """The fields of a step as its tool gets them: rendered, of the right type, with defaults.

    `credentials` are the names of those that are known: `auth: "{{ warehouse }}"` means the credential of
    that name where no value is called so.
    """
    tool = TOOLS[kind]
    rendered = {}
    for name, value in fields.items():
        field = tool.field(name)
        if field is not None:
            rendered[name] = _rendered(field, value, names, credentials, tool.dialect)
    return with_defaults(kind, rendered)


def _rendered(
    field: Field, value: Any, names: Mapping[str, Any], credentials: Container[str], dialect: Dialect
) -> Any:
    if value is None:
        return None
    if field.type == "code":
        return str(value)
    if field.type == "sql":
        return render_sql(_sql(field, value), names, dialect)
    if field.type == "sql list":
        if not isinstance(value, list | tuple):
            raise wrong_type(field, value)
        return [render_sql(_sql(field, one), names, dialect) for one in value]
    if field.type == "credential" and isinstance(value, str):
        bare = bare_name(value)
        if bare is not None and bare not in names:
            if bare in credentials:
                return bare
            known = [
                *names,
                *(credentials if isinstance(credentials, list | tuple | set | frozenset) else ()),
            ]
            raise PlaybookError(
                f"{place_of(value)}: `{bare}` is neither a value nor a credential.",
                hint=nearest(bare, known) or f"Register it: headwater credential add {bare} --type postgres",
                credential=bare,
            )
    given = render(value, names)
    fitting = coerced(field, given)
    if fitting is None and given is not None:
        raise wrong_type(field, value, given)
    return fitting


def bare_name(value: str) -> str | None:
    """The name in `{{ name }}`, if the text is that and nothing else.

    >>> bare_name("{{ warehouse }}"), bare_name("{{ workload.warehouse }}"), bare_name("warehouse")
    ('warehouse', None, None)
    """
    if not is_template(value):
        return None
    compiled = compile_template(value)
    names = list(compiled.tree.find_all(nodes.Name))
    if not compiled.single or len(names) != 1:
        return None
    output = next(compiled.tree.find_all(nodes.Output))
    return names[0].name if any(node is names[0] for node in output.nodes) else None


def coerced(field: Field, value: Any) -> Any:
    """A value as the field's type, None where it is not of it."""
    type_ = field.type
    if type_ in ("text", "sql", "code"):
        value = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        if field.choices and value is not None:
            return value.upper() if value.upper() in field.choices else None
        return value
    if type_ == "boolean":
        if isinstance(value, str):
            return {"true": True, "false": False}.get(value.strip().lower())
        return value if isinstance(value, bool) else None
    if type_ in ("integer", "number"):
        return _number(value, type_ == "integer")
    if type_ == "list":
        return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else None
    if type_ == "mapping":
        return value if isinstance(value, Mapping) else None
    if type_ == "credential":
        return value if isinstance(value, str | Mapping) and value else None
    if type_ == "sql list":
        fits = isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value)
        return value if fits else None
    return value


def _number(value: Any, whole: bool) -> int | float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if whole:
        return int(number) if number.is_integer() and number >= 1 else None
    return number


def _sql(field: Field, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(field, value)
    return value


def wrong_type(field: Field, written: Any, given: Any = None) -> PlaybookError:
    """That a field has a value of another type."""
    place = f"{written.place}: " if isinstance(written, Text) else ""
    expected = " or ".join(field.choices) if field.choices else TYPE_NAMES[field.type]
    shown = type(written if given is None else given).__name__
    return PlaybookError(f"{place}`{field.name}` must be {expected}, not a {shown}.", field=field.name)
