"""Documents as playbooks. Every mistake in the form of a document is found, not only the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

from headwater.errors import PlaybookError
from headwater.playbook.language.document import Document, ValuePath, read_document
from headwater.playbook.language.findings import Finding, Findings, nearest, refuse
from headwater.playbook.language.model import Next, Playbook, Step
from headwater.playbook.language.step_reading import StepReader

ROOT_FIELDS = ("apiVersion", "kind", "metadata", "workload", "workflow", "runner", "workers")


def load_playbook(path: Path | str) -> Playbook:
    """The playbook in a file; raises PlaybookError with everything that is wrong with its form."""
    document = read_document(path)
    playbook, findings = read_playbook(document)
    refuse(findings)
    if playbook is None:  # nothing was found because nothing was there to be wrong
        raise PlaybookError(f"{path}:1:1: the file has no steps.", file=str(path))
    return playbook


def read_playbook(document: Document) -> tuple[Playbook | None, tuple[Finding, ...]]:
    """A document as a playbook, as far as it can be understood, and what is wrong with it."""
    findings = Findings()
    for place, code, message, hint in document.problems:
        findings.error(place, code, message, hint)
    playbook = _Reader(document, findings).read()
    return playbook, findings.sorted()


def is_playbook(document: Document) -> bool:
    """Whether a document means to be a playbook: it has a workflow, or is a list of steps."""
    content = document.content
    if isinstance(content, Mapping):
        return "workflow" in content or str(content.get("kind", "")).lower() == "playbook"
    return isinstance(content, list) and any(isinstance(one, Mapping) and "step" in one for one in content)


class _Reader:
    def __init__(self, document: Document, findings: Findings):
        self._document = document
        self._findings = findings

    def read(self) -> Playbook | None:
        content = self._document.content
        if isinstance(content, list):  # steps and nothing else
            return self._playbook({}, content, ())
        if not isinstance(content, Mapping):
            self._findings.error(
                self._document.place(),
                "form",
                "a playbook is a list of steps, or a mapping with `workflow`.",
                "Begin with `- step: name`.",
            )
            return None
        for key in content:
            if key not in ROOT_FIELDS:
                self._findings.error(
                    self._document.key_place((key,)),
                    "unknown_field",
                    f"a playbook has no `{key}`.",
                    nearest(key, ROOT_FIELDS),
                )
        if "workflow" not in content:
            self._findings.error(
                self._document.place(),
                "missing_field",
                "the playbook has no `workflow`, the list of its steps.",
            )
            return None
        return self._playbook(content, content["workflow"], ("workflow",))

    def _playbook(self, root: Mapping[str, Any], listed: Any, path: ValuePath) -> Playbook | None:
        if not isinstance(listed, list) or not listed:
            self._findings.error(
                self._document.place(path),
                "wrong_type",
                "`workflow` must be a list of steps with at least one.",
            )
            return None
        reader = StepReader(self._document, self._findings)
        steps = [reader.read(value, (*path, index)) for index, value in enumerate(listed)]
        known = in_order([step for step in steps if step is not None])
        self._kind(root)
        if not known:
            return None
        return Playbook(
            steps=tuple(known),
            file=self._document.file,
            api_version=self._api_version(root),
            metadata=self._mapping(root, "metadata"),
            workload=self._mapping(root, "workload"),
            runner=self._runner(root),
            workers=self._workers(root),
            digest=self._document.digest,
        )

    def _kind(self, root: Mapping[str, Any]) -> None:
        kind = root.get("kind")
        if kind is not None and str(kind).lower() != "playbook":
            self._wrong("kind", f"`kind` must be Playbook, not {kind!r}.")

    def _api_version(self, root: Mapping[str, Any]) -> str | None:
        version = root.get("apiVersion")
        if version is None:
            return None
        if not isinstance(version, str) or version.rsplit("/", 1)[-1] not in ("v1", "v2"):
            self._wrong("apiVersion", f"`apiVersion` {version!r} is not known.", "Write headwater/v1.")
            return None
        return str(version)

    def _mapping(self, root: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = root.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._wrong(name, f"`{name}` must be a mapping of names to values.")
            return {}
        return value

    def _runner(self, root: Mapping[str, Any]) -> Literal["local", "spark"] | None:
        runner = root.get("runner")
        if runner is not None and runner not in ("local", "spark"):
            self._wrong("runner", f"`runner` must be local or spark, not {runner!r}.")
            return None
        return cast("Literal['local', 'spark'] | None", runner and str(runner))

    def _workers(self, root: Mapping[str, Any]) -> int | None:
        workers = root.get("workers")
        if workers is None:
            return None
        if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
            self._wrong("workers", "`workers` must be a whole number above 0.")
            return None
        return int(workers)

    def _wrong(self, name: str, message: str, hint: str | None = None) -> None:
        self._findings.error(self._document.place((name,)), "wrong_type", message, hint)


def in_order(steps: Iterable[Step]) -> list[Step]:
    """The steps with what follows each: where no step says it, the next one in the list.

    As soon as one step has `next`, every step says for itself what follows, and one without `next` ends
    its branch.
    """
    listed = list(steps)
    if any(step.next for step in listed):
        return listed
    for place, after in enumerate(listed[1:]):
        step = listed[place]
        listed[place] = replace(step, next=(Next(then=(after.name,), place=step.place),))
    return listed
