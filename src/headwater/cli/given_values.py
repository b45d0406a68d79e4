"""`--set NAME=VALUE`: values of a playbook's workload from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

given_option = click.option(
    "--set", "given", metavar="NAME=VALUE", multiple=True, help="A value of the workload; a.b=1 too."
)


def read_given(given: Sequence[str]) -> dict[str, Any]:
    """`--set a.b=1`: values as YAML reads them, at dotted paths.

    >>> read_given(["ids=[1, 2]", "db.name=shop", "on=true", "note=x = y"])
    {'ids': [1, 2], 'db': {'name': 'shop'}, 'on': True, 'note': 'x = y'}
    """
    found: dict[str, Any] = {}
    for each in given:
        name, separator, text = each.partition("=")
        parts = name.split(".")
        if not separator or not all(parts):
            raise click.BadParameter(f"{each!r} is not NAME=VALUE.", param_hint="--set")
        place = found
        for part in parts[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise click.BadParameter(f"{name} is below a value that was set.", param_hint="--set")
        place[parts[-1]] = _yaml(text)
    return found


def _yaml(text: str) -> Any:
    from headwater.errors import PlaybookError
    from headwater.playbook.language.document import parse_document
    from headwater.playbook.templates.sandbox import plain

    try:
        found = plain(parse_document(text).content)
    except PlaybookError:
        return text  # no YAML, so it is what it looks like
    return str(found) if isinstance(found, str) else found
