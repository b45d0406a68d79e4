"""SQL expressions that the catalog stores, taken apart and put together by DuckDB's own parser.

An expression that DuckDB cannot parse makes a whole catalog unreadable to it, so nothing else may get in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from headwater.errors import InvalidInputError
from headwater.storage.duckdb_engine import sandbox


@dataclass(frozen=True)
class Expression:
    """One expression: its text as DuckDB writes it, and DuckDB's syntax tree."""

    text: str
    tree: Any

    @property
    def columns(self) -> list[list[str]]:
        """The columns it names, each as a path (`s.x` is two names)."""
        return [list(node["column_names"]) for node in _references(self.tree)]

    def renamed(self, path: Sequence[str], new_name: str) -> Expression:
        """The same expression after the column or field at `path` got another name."""
        tree = json.loads(json.dumps(self.tree))
        wanted = [name.lower() for name in path]
        for node in _references(tree):
            names = node["column_names"]
            if [name.lower() for name in names[: len(wanted)]] == wanted:
                names[len(wanted) - 1] = new_name
        return Expression(_text(tree), tree)


def parse_expression(text: str) -> Expression:
    """Parse exactly one SQL expression.

    >>> parse_expression("LOWER( name )").text
    'lower("name")'
    """
    found = _serialized(f"SELECT ({text}\n)")
    if found["error"]:
        raise InvalidInputError(
            f"{text!r} is not an SQL expression.", detail=str(found["error_message"]), expression=text
        )
    chosen = [node["node"].get("select_list", []) for node in found["statements"]]
    if len(chosen) != 1 or len(chosen[0]) != 1 or _deserialized(found) != f"SELECT {_text(chosen[0][0])}":
        raise InvalidInputError(f"{text!r} is more than one SQL expression.", expression=text)
    return Expression(_text(chosen[0][0]), chosen[0][0])


def bind(expression: Expression, columns: Mapping[str, str]) -> None:
    """Check that the expression means something over columns of these types (in SQL)."""
    listed = ", ".join(f"CAST(NULL AS {kind}) AS {_quoted(name)}" for name, kind in columns.items())
    _try(f"SELECT ({expression.text}\n) FROM (SELECT {listed}) LIMIT 0", f"{expression.text!r} does not fit.")


def compute(expression: Expression, type_sql: str) -> None:
    """Compute the expression once, as a value of a type; raises where that fails."""
    query = f"SELECT CAST(({expression.text}\n) AS {type_sql})"
    _try(query, f"{expression.text!r} cannot be computed as {type_sql}.")


def _try(query: str, problem: str) -> None:
    try:
        with sandbox() as session:
            session.execute(query).fetchall()
    except duckdb.Error as error:
        raise InvalidInputError(problem, detail=str(error).split("\n")[0]) from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _references(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        if tree.get("class") == "COLUMN_REF":
            yield tree
        for part in tree.values():
            yield from _references(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _references(part)


def _text(tree: Any) -> str:
    query = _serialized("SELECT 1")
    query["statements"][0]["node"]["select_list"] = [tree]
    return _deserialized(query).removeprefix("SELECT ")


def _serialized(query: str) -> Any:
    with sandbox() as session:
        return json.loads(session.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])


def _deserialized(tree: Any) -> str:
    with sandbox() as session:
        found = session.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
    return str(found[0][0])
