"""`headwater.yaml` as plain values that remember where they stand.

`${NAME}` in a value is the environment variable of that name; `$${` is a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from headwater.errors import SettingsError

_VARIABLE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|(?P<broken>\$\{)")


@dataclass
class SettingsFile:
    """The content of a file; `places` has line and column of every key, by its path."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file as messages call it."""
        return str(self.path)


def read_file(path: Path, environ: Mapping[str, str]) -> SettingsFile:
    """Read a file and put the environment's values into it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(
            f"There is no settings file {path}.",
            hint="Check --config or HEADWATER_CONFIG, or create one with `headwater init`.",
            file=str(path),
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"The settings file {path} cannot be read.",
            detail=error.strerror if isinstance(error, OSError) else "It is not UTF-8 text.",
            file=str(path),
        ) from None
    try:
        content = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        raise _bad_yaml(path, error) from None
    except YAMLError as error:  # a character that YAML does not allow
        raise SettingsError(
            f"{path} is not valid YAML.", detail=str(error).splitlines()[0], file=str(path)
        ) from None
    found = SettingsFile(path)
    if content is None:
        return found
    if not isinstance(content, CommentedMap):
        raise SettingsError(
            f"{path}:1:1: the file must hold sections such as `lake:`, not a {_kind(content)}.",
            file=str(path),
        )
    found.values = _plain(content, "", found, environ)
    # An empty section (`storage:` with everything below commented out) says nothing.
    found.values = {name: value for name, value in found.values.items() if value is not None}
    return found


def _bad_yaml(path: Path, error: MarkedYAMLError) -> SettingsError:
    mark = error.problem_mark or error.context_mark
    place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
    problem = (error.problem or error.context or "not valid YAML").strip().splitlines()[0]
    if isinstance(error, DuplicateKeyError):
        problem = "the same key is there twice"  # the parser's own words show both values
    return SettingsError(f"{place}: {problem}.", hint="Correct the file.", file=str(path), place=place)


def _plain(node: Any, path: str, file: SettingsFile, environ: Mapping[str, str]) -> Any:
    """The node without ruamel's classes."""
    if isinstance(node, CommentedMap):
        values = {}
        for key, value in node.items():
            # A key that came in through a merge (`<<`) stands elsewhere.
            line, column = (node.lc.data or {}).get(key, (node.lc.line, node.lc.col))[:2]
            inner = f"{path}.{key}" if path else str(key)
            file.places[inner] = f"{file.name}:{line + 1}:{column + 1}"
            values[str(key)] = _plain(value, inner, file, environ)
        return values
    if isinstance(node, CommentedSeq):
        return [_plain(value, path, file, environ) for value in node]
    if isinstance(node, str):
        return interpolated(str(node), path, file.places.get(path, file.name), environ)
    # Numbers and booleans come as subclasses that remember how they were written.
    for kind in (bool, int, float):
        if isinstance(node, kind):
            return kind(node)
    return node


def interpolated(text: str, path: str, place: str, environ: Mapping[str, str]) -> str:
    """The text with `${NAME}` replaced.

    In a PostgreSQL address the value is written as the address needs it: a password may hold any character.
    """

    def replace(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "${"
        if match["broken"]:
            raise SettingsError(
                f"{place}: `{path}` has a `${{` that no `}}` closes, or a name that cannot be a variable's.",
                hint="Write ${NAME}, or $${ for a plain ${.",
                setting=path,
                place=place,
            )
        value = environ.get(match["name"])
        if value is None:
            raise SettingsError(
                f"{place}: `{path}` needs the environment variable {match['name']}, which is not set.",
                hint=f"Set it: export {match['name']}=…",
                setting=path,
                variable=match["name"],
                place=place,
            )
        return _fitting(value, text, match.start()) if path == "lake.catalog" else value

    return _VARIABLE.sub(replace, text)


def _fitting(value: str, address: str, position: int) -> str:
    scheme, found, rest = address.partition("://")
    if found and scheme in ("postgresql", "postgres"):
        in_login = position < len(scheme) + 3 + rest.rfind("@")
        return quote(value, safe="") if in_login else value
    if "=" in address[:position]:  # host=… password=…
        return re.sub(r"([\\'\s])", r"\\\1", value)
    return value


def _kind(node: Any) -> str:
    return "list" if isinstance(node, CommentedSeq) else "single value"
