"""Finding every mistake of a playbook without running anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headwater.errors import PlaybookError
from headwater.playbook.checking.names import (
    ERROR_PARTS,
    EVENT_PARTS,
    LOOP_END_PARTS,
    LOOP_PARTS,
    UNKNOWN,
    Scope,
    as_condition,
    check_template,
    check_templates,
    known_value,
)
from headwater.playbook.checking.order import Order, check_order
from headwater.playbook.checking.sql import check_sql
from headwater.playbook.language.document import Document, Place, Text, read_document
from headwater.playbook.language.fields import TOOLS, Field
from headwater.playbook.language.findings import Finding, Findings, nearest
from headwater.playbook.language.model import Playbook, Step
from headwater.playbook.language.reading import read_playbook
from headwater.playbook.templates.engine import RESERVED, is_template
from headwater.playbook.templates.rendering import bare_name

_CALLABLE = re.compile(r"[\w.]+:\w+")
_PASSWORD = re.compile(r"://[^/@:]*:[^/]+@|\bpassword\s*=", re.IGNORECASE)
_MEMORY = re.compile(r"\d+(\.\d+)?\s*([KMGT]i?B|%)", re.IGNORECASE)


def check_file(
    path: Path | str,
    *,
    credentials: Collection[str] | None = None,
    workload: Mapping[str, Any] | None = None,
) -> tuple[Finding, ...]:
    """Everything that is wrong with the playbook in a file, in the order in which it stands there.

    `credentials` are the names of those that are known; None: they are not judged. `workload` are values that
    a run is given in addition to the file's own.
    """
    try:
        document = read_document(path)
    except PlaybookError as error:
        line, column = error.facts.get("line", 1), error.facts.get("column", 1)
        message = error.message.removeprefix(f"{path}:{line}:{column}: ")
        detail = f" {error.detail}." if error.detail else ""
        return (
            Finding(
                str(path), line, column, error.facts.get("finding", "file"), message + detail, error.hint
            ),
        )
    return check_document(document, credentials=credentials, workload=workload)


def check_document(
    document: Document,
    *,
    credentials: Collection[str] | None = None,
    workload: Mapping[str, Any] | None = None,
) -> tuple[Finding, ...]:
    """Everything that is wrong with the playbook that a document is."""
    playbook, form = read_playbook(document)
    findings = Findings()
    for finding in form:
        findings.add(finding)
    if playbook is not None and playbook.steps:
        check_order(playbook, findings)
        _Checker(document, playbook, findings, credentials, workload or {}).check()
    return findings.sorted()


class _Checker:
    """Checks the templates, the SQL and the credentials of a playbook's steps."""

    def __init__(
        self,
        document: Document,
        playbook: Playbook,
        findings: Findings,
        credentials: Collection[str] | None,
        workload: Mapping[str, Any],
    ):
        self._document = document
        self._playbook = playbook
        self._findings = findings
        self._credentials = credentials
        self._order = Order(playbook)
        self._steps = {step.name: step for step in reversed(playbook.steps)}
        self._workload = _merged(playbook.workload, workload)

    def check(self) -> None:
        """Look at everything."""
        self._check_workload()
        for step in self._playbook.steps:
            fields = self._scope(step, self._loop_names(step))
            if step.loop is not None:
                outside = self._scope(step, {}, {"loop": "The collection is what the loop goes through."})
                check_templates(step.loop.collection, outside, self._findings)
                self._check_collection(step, step.loop.collection, outside)
            for name, value in step.fields.items():
                field = TOOLS[step.tool].field(name) if step.tool else None
                if field is not None:
                    self._check_field(step, field, value, fields)
            ended = self._end_names(step)
            check_templates(step.vars, self._scope(step, ended), self._findings)
            ended["error"] = dict.fromkeys(ERROR_PARTS, UNKNOWN)
            after = self._scope(step, ended, own=True)
            for arm in step.next:
                if arm.when is not None:
                    check_template(as_condition(arm.when), after, self._findings)
                    self._check_event(step, arm.when)
            if step.retry is not None and step.retry.when is not None:
                names = {**self._loop_names(step), "error": dict.fromkeys(ERROR_PARTS, UNKNOWN)}
                check_template(as_condition(step.retry.when), self._scope(step, names), self._findings)

    # --- scopes ---------------------------------------------------------------------------------

    def _scope(
        self,
        step: Step,
        more: Mapping[str, Any],
        later: Mapping[str, str] | None = None,
        *,
        own: bool = False,
    ) -> Scope:
        """The names at a step. `own`: with the variables that the step itself sets."""
        before = [one for one in self._steps if self._order.may_precede(one, step.name)]
        variables = {name for one in before for name in self._steps[one].vars}
        if own:
            variables |= set(step.vars)
        reasons = {
            "result": "`result` is there when the step is done: in its `vars` and its `next`.",
            "event": "`event` is there when the step is done: in its `next`.",
            "error": "`error` is there in `retry` and in `next`.",
            "loop": "The step has no `loop`.",
        }
        for one in self._steps:
            if one not in before:
                reasons[one] = f"Step `{one}` cannot have run before step `{step.name}`."
            for name in self._steps[one].vars:
                if name not in variables:
                    reasons[f"vars.{name}"] = f"Step `{one}` sets it, and cannot have run before."
        names = {
            **self._workload,
            **dict.fromkeys(before, UNKNOWN),
            **more,
            "workload": self._workload,
            "vars": dict.fromkeys(variables, UNKNOWN),
            "run": {"id": UNKNOWN},
        }
        return Scope(names, {**reasons, **(later or {})})

    def _loop_names(self, step: Step) -> dict[str, Any]:
        if step.loop is None:
            return {}
        return {step.loop.element: UNKNOWN, "loop": dict.fromkeys(LOOP_PARTS, UNKNOWN)}

    def _end_names(self, step: Step) -> dict[str, Any]:
        names: dict[str, Any] = {
            "result": UNKNOWN,
            "event": dict.fromkeys(EVENT_PARTS, UNKNOWN),
            step.name: UNKNOWN,
        }
        if step.loop is not None:
            names["loop"] = dict.fromkeys(LOOP_END_PARTS, UNKNOWN)
        return names

    # --- what stands in fields ------------------------------------------------------------------

    def _check_workload(self) -> None:
        for name, value in self._playbook.workload.items():
            place = self._document.key_place(("workload", name))
            if name in RESERVED:
                self._findings.error(
                    place, "reserved_name", f"`{name}` means something else in templates; choose another."
                )
            if name in self._steps:
                self._findings.warning(
                    place,
                    "hidden_name",
                    f"step `{name}` hides this value, once it has run.",
                    f"Write `workload.{name}`, or choose another name.",
                )
            if is_template(value):
                self._findings.warning(
                    place, "not_rendered", f"the templates in the workload's `{name}` are not evaluated."
                )

    def _check_collection(self, step: Step, collection: Any, scope: Scope) -> None:
        value = known_value(collection, scope)
        if value is UNKNOWN or value is None or isinstance(value, list):
            return
        self._findings.error(
            self._place_of(collection, step),
            "wrong_type",
            f"the loop's collection must be a list, and is {value!r}."[:200],
        )

    def _check_field(self, step: Step, field: Field, value: Any, scope: Scope) -> None:
        if field.type == "code":
            self._check_code(step, value)
            return
        if field.type == "credential" and isinstance(value, str):
            self._check_credential(step, value, scope)
            return
        check_templates(value, scope, self._findings)
        if field.type in ("sql", "sql list"):
            dialect = TOOLS[step.tool or ""].dialect
            for sql in value if isinstance(value, list) else [value]:
                if isinstance(sql, str):
                    check_sql(sql, self._place_of(sql, step), dialect, self._findings)
        elif isinstance(value, str) and not is_template(value):
            self._check_form(step, field.name, value)

    def _check_form(self, step: Step, name: str, value: str) -> None:
        """Texts that have a form of their own."""
        if name in ("connection", "catalog_connection") and _PASSWORD.search(value):
            self._findings.warning(
                self._place_of(value, step),
                "password",
                f"`{name}` holds a password, which everybody can read who can read the file.",
                "Keep it as a credential (headwater credential add NAME), and write `auth: NAME`.",
            )
        problem = None
        if name == "callable" and not _CALLABLE.fullmatch(value):
            problem = "`callable` is written `module:function`."
        elif name == "url" and not value.startswith(("http://", "https://")):
            problem = "`url` must begin with http:// or https://."
        elif name == "memory_limit" and not _MEMORY.fullmatch(value.strip()):
            problem = '`memory_limit` is written like "4GB".'
        elif step.tool == "playbook" and name == "path":
            file = Path(self._playbook.file).parent / value
            if not file.is_file():
                problem = f"there is no playbook {value}."
        if problem is not None:
            self._findings.error(self._place_of(value, step), "form", problem)

    def _check_code(self, step: Step, code: Any) -> None:
        if not isinstance(code, str):
            return
        try:
            ast.parse(code)
        except SyntaxError as error:
            line, column = error.lineno or 1, error.offset or 1
            start = sum(len(piece) + 1 for piece in code.split("\n")[: line - 1])
            place = code.at(start + column - 1) if isinstance(code, Text) else self._place_of(code, step)
            hint = "Templates are not evaluated in code: pass values in `args`." if "{{" in code else None
            self._findings.error(place, "python", f"the code is not valid Python: {error.msg}.", hint)

    def _check_credential(self, step: Step, value: str, scope: Scope) -> None:
        """`auth` may name a credential, or hold a template that does."""
        place = self._place_of(value, step)
        try:
            bare = bare_name(value)
        except PlaybookError:
            check_template(value, scope, self._findings)
            return
        if bare is not None and bare not in scope.names:
            name: Any = bare
            if self._credentials is None and bare in scope.later:
                check_template(value, scope, self._findings)
                return
        else:
            check_templates(value, scope, self._findings)
            name = known_value(value, scope)
        if self._credentials is None or not isinstance(name, str):
            return
        if "://" in name or name.startswith(("secret:", "env:")):
            return
        name = name.removeprefix("credential:")
        if _spelled(name) not in {_spelled(known) for known in self._credentials}:
            self._findings.error(
                place,
                "unknown_credential",
                f"there is no credential `{name}`.",
                _near_only(name, self._credentials) or f"Add it: headwater credential add {name}",
            )

    def _check_event(self, step: Step, condition: str) -> None:
        """Conditions that are about something that does not happen, or not always."""
        if re.search(r"\berror\b", condition) and not re.search(r"\bevent\b", condition):
            self._findings.warning(
                self._place_of(condition, step),
                "unguarded",
                "there is no `error` when the step succeeds, and the condition would fail then.",
                "Begin it with `event.name == 'step.failed' and …`.",
            )
        if step.loop is None and "loop.done" in condition:
            self._findings.warning(
                self._place_of(condition, step),
                "never",
                f"step `{step.name}` has no `loop`, so there is no `loop.done`.",
                "Without a loop the event is `step.done`.",
            )

    def _place_of(self, value: Any, step: Step) -> Place:
        if isinstance(value, Text):
            return value.place
        return step.place or self._document.place()


def _merged(workload: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    if not given:
        return workload
    from headwater.playbook.language.workload import (
        merged,  # brings the lake with it, which `check` needs not
    )

    return merged(workload, given)


def _spelled(name: str) -> str:
    """A credential's name as an environment variable could have it."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def _near_only(name: str, known: Collection[str]) -> str | None:
    hint = nearest(name, known)
    return hint if hint is not None and hint.startswith("Did") else None
