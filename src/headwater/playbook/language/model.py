"""What a playbook is: steps that run tools, and what follows what.

`reading.py` makes these from YAML. Texts among the values may be templates, and know where they stand
(`document.Text`), so that whoever renders them can say where a mistake is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.playbook.language.document import Place


@dataclass(frozen=True, slots=True)
class Loop:
    """A step that runs once for each element of a collection."""

    collection: Any
    """A list, or a template that gives one."""
    element: str
    """The name under which templates find the element, besides `loop.element`."""
    mode: Literal["async", "sequential"] = "sequential"
    max_in_flight: int | None = None
    """How many items may be under way at once; None: as many as there are workers."""
    on_error: Literal["stop", "continue"] = "stop"
    """Whether a failing item keeps the ones after it from being started."""


@dataclass(frozen=True, slots=True)
class Next:
    """One arm of a step's `next`. Every arm whose condition holds is taken, each step at most once.

    >>> Next(then=("load",)).always
    True
    """

    when: str | None = None
    """A template; None holds whenever the step is done."""
    then: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    """`else`: taken where `when` does not hold; in an arm without `when`, where no other arm was taken."""
    place: Place | None = field(default=None, compare=False)

    @property
    def always(self) -> bool:
        """Whether the arm is taken after every success."""
        return self.when is None and bool(self.then)

    @property
    def steps(self) -> tuple[str, ...]:
        """Every step that the arm can lead to."""
        return self.then + self.otherwise


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failing task is tried, and how long to wait between."""

    attempts: int = 3
    """All of them, the first included."""
    backoff: Literal["none", "linear", "exponential"] = "exponential"
    delay: float = 1.0
    """Seconds before the second attempt."""
    max_delay: float = 60.0
    when: str | None = None
    """A template over `error` that decides; None: errors that are retryable."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a tool, its fields, and what follows."""

    name: str
    tool: str | None
    """The kind of tool; None for a step that only sets variables or branches."""
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The tool's own fields as they are written, templates not rendered. `fields.py` says which there are."""
    desc: str | None = None
    loop: Loop | None = None
    next: tuple[Next, ...] = ()
    vars: Mapping[str, Any] = field(default_factory=dict)
    """Evaluated when the step is done, and kept for the run."""
    retry: Retry | None = None
    timeout: float | None = None
    """Seconds for one run of the tool."""
    place: Place | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Playbook:
    """A playbook as it was read. `next` of every step is filled, also where the order of the list says it."""

    steps: tuple[Step, ...]
    file: str
    api_version: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    runner: Literal["local", "spark"] | None = None
    """Where tools run, unless the command line says otherwise."""
    workers: int | None = None
    digest: str = ""
    """Of the file's content: a run is resumed only with the document that it began with."""

    @property
    def name(self) -> str:
        """`metadata.name`, or the name of the file."""
        given = self.metadata.get("name")
        return str(given) if given else self.file.rsplit("/", 1)[-1].rsplit(".", 1)[0]

    @property
    def first(self) -> Step:
        """Where a run begins: the step called `start`, else the first one."""
        return next((step for step in self.steps if step.name == "start"), self.steps[0])

    def step(self, name: str) -> Step:
        """The step of that name; raises KeyError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)
