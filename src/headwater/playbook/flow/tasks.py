"""Tasks made of steps: fields with their templates rendered, credentials as references."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from headwater.playbook.credentials.registry import Credentials
from headwater.playbook.credentials.types import (
    REFERENCE,
    credential_from,
    dsn_secrets,
    parse_credential,
    urlsplit_scheme,
)
from headwater.playbook.language.model import Step
from headwater.playbook.records.masking import Masking
from headwater.playbook.task import Task
from headwater.playbook.templates.rendering import render_fields

#: Files and folders of this machine; workers may be started in another folder.
_LOCAL_PATHS = {("ducklake", "data_path"), ("duckdb", "database_path")}
#: Seconds that a task has at least, so that it can say why it failed.
_LEAST = 0.1
#: Which field is an address that wins over `auth`.
_ADDRESSES = {"ducklake": "catalog_connection", "postgres": "connection"}


class TaskMaker:
    """Makes the tasks of one run."""

    def __init__(
        self,
        run_id: str,
        folder: Path,
        credentials: Credentials,
        masking: Masking,
        deadline: float | None = None,
    ):
        """`deadline`, by `time.monotonic`, is when the step that called this run has had its time."""
        self._deadline = deadline
        self._run_id = run_id
        self._folder = folder
        self._credentials = credentials
        self._masking = masking

    def make(
        self, step: Step, visit: int, names: Mapping[str, Any], *, item: int | None = None, attempt: int = 1
    ) -> Task:
        """The task of a step, or of an item of its loop."""
        kind = step.tool or ""
        return Task(
            run_id=self._run_id,
            step=step.name,
            tool=kind,
            fields=self.fields(step, names),
            item=item,
            attempt=attempt,
            timeout=self._timeout(step),
            visit=visit,
        )

    def _timeout(self, step: Step) -> float | None:
        if self._deadline is None:
            return step.timeout
        left = max(_LEAST, self._deadline - time.monotonic())
        return left if step.timeout is None else min(left, step.timeout)

    def fields(self, step: Step, names: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a step as its tool gets them."""
        kind = step.tool or ""
        given = dict(step.fields)
        if given.get(_ADDRESSES.get(kind, "")):
            given.pop("auth", None)
        fields = render_fields(kind, given, names, _EVERY_NAME)
        for name, value in fields.items():
            if name == "auth":
                fields[name] = self._reference(value)
            elif isinstance(value, str):
                self._masking.learn(dsn_secrets(value))
                if (kind, name) in _LOCAL_PATHS and not urlsplit_scheme(value):
                    fields[name] = str(Path(value).expanduser().absolute())
                elif (kind, name) == ("playbook", "path"):
                    fields[name] = str((self._folder / value).resolve())
        return fields

    def _reference(self, auth: Any) -> Any:
        """A credential as a reference, after a look whether it is there."""
        if isinstance(auth, Mapping):
            if set(auth) == {"credential"}:
                return self._reference(str(auth["credential"]))
            self._masking.learn(credential_from("auth", auth).secrets())
            return auth
        text = str(auth)
        if urlsplit_scheme(text):
            self._masking.learn(dsn_secrets(text))
            return text
        if text.startswith(("secret:", "env:")):
            found = parse_credential(text, self._credentials.secret(text))
            self._masking.learn(found.secrets())
            return text
        name = text.removeprefix(REFERENCE)
        self._masking.learn(self._credentials.get(name).secrets())
        return f"{REFERENCE}{name}"


class _EveryName(Container[str]):
    """`{{ name }}` that no value has is a credential's name; whether there is one, the registry says."""

    def __contains__(self, name: object) -> bool:
        return True


_EVERY_NAME = _EveryName()
