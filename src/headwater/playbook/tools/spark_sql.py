"""`tool: spark`: SQL of Spark over the lake's tables, or a function that gets the session or Headwater."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Literal

from headwater.errors import HeadwaterError
from headwater.playbook.flow.driver import Services, services_of
from headwater.playbook.results.envelope import MAX_ROWS, count_entry, ok_envelope, rows_entry
from headwater.playbook.results.json_values import json_value
from headwater.playbook.results.values import unique_names
from headwater.playbook.task import Task, TaskError, TaskFailed, Worker
from headwater.playbook.templates.sql_scanner import Scanner
from headwater.playbook.tools.callables import failed_call, find_callable

if TYPE_CHECKING:
    from headwater.spark.sql.fetching import QueryResult

#: The first column of what a statement that writes answers with.
_AFFECTED = "num_affected_rows"


class SparkTool:
    """Runs statements of Spark's SQL, or a function."""

    kind = "spark"
    where: Literal["worker", "driver"] = "driver"

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """The envelope has an entry for each command, or the function's result."""
        services = services_of(worker)
        with services.limited(task.timeout):
            if task.fields.get("callable"):
                return {"status": "ok", "result": _called(task, services)}
            return ok_envelope(list(_entries(task, services)))


def _entries(task: Task, services: Services) -> Iterator[dict[str, Any]]:
    listed = task.fields.get("commands")
    if listed is None:
        text = str(task.fields.get("sql") or task.fields.get("command") or "")
        for index, statement in enumerate(split(text)):
            yield _entry(index, statement, services)
        return
    for index, text in enumerate(listed):
        entry = count_entry(index, 0)
        for statement in split(str(text)):
            entry = _entry(index, statement, services)
        yield entry


def _entry(index: int, statement: str, services: Services) -> dict[str, Any]:
    try:
        found: QueryResult = services.fetch(statement, MAX_ROWS)
    except HeadwaterError as error:
        message = f"{error.message} {error.detail}" if error.detail else error.message
        code = error.facts.get("condition") or error.code
        kind = "conflict" if error.code == "conflict" else "sql"
        raise TaskFailed(
            TaskError(kind, str(code), message, error.retryable, command_index=index), hint=error.hint
        ) from None
    columns = unique_names(list(found.columns))
    if columns[:1] == [_AFFECTED] and "snapshot_id" in columns:
        return count_entry(index, int(found.rows[0][0] or 0))
    if not columns:
        return count_entry(index, 0)
    rows = [dict(zip(columns, map(_shown, row), strict=True)) for row in found.rows]
    return rows_entry(index, columns, rows, len(rows) + (1 if found.more else 0))


def _called(task: Task, services: Services) -> Any:
    function = find_callable(str(task.fields["callable"]))
    arguments = {str(name): value for name, value in (task.fields.get("args") or {}).items()}
    with redirect_stdout(sys.stderr), failed_call():
        value = function(_first(function, services), **arguments)
        if hasattr(value, "toArrow"):  # a DataFrame: its first rows
            value = value.limit(MAX_ROWS).toArrow().to_pylist()
    try:
        return json_value(value)
    except TypeError as error:
        raise TaskFailed(
            TaskError("python", "result", f"The result cannot be kept: {error}"),
            hint="Return texts, numbers, lists and mappings, or a small DataFrame.",
        ) from None


def _first(function: Any, services: Services) -> Any:
    """What the function wants first: Headwater if it calls it so, else the session."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return services.headwater if names and names[0] in ("hw", "headwater") else services.spark


def split(text: str) -> list[str]:
    """The statements of a text: what stands between semicolons outside of quotes and comments.

    >>> split("SELECT ';' AS a; -- one; two\\nSELECT 2;")
    ["SELECT ';' AS a", '-- one; two\\nSELECT 2']
    """
    scanner = Scanner("spark")
    found, piece = [], ""
    for part in text.split(";"):
        if piece:
            scanner.feed(";")
            piece += ";"
        piece += part
        scanner.feed(part)
        if scanner.state == "sql":
            found.append(piece.strip())
            piece, scanner = "", Scanner("spark")
    return [each for each in [*found, piece.strip()] if each]


def _shown(value: Any) -> Any:
    try:
        return json_value(value)
    except TypeError:
        return str(value)


TOOL = SparkTool()
