"""The options that every command has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

FORMATS = ("text", "json")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Invocation:
    """What the common options say; they may stand before or after the command's name."""

    output: str = "text"
    config: Path | None = None
    debug: bool = False

    @classmethod
    def guess(cls, arguments: Sequence[str]) -> Invocation:
        """What the arguments seem to say, for errors in the arguments themselves."""
        pairs = zip(arguments, [*arguments, ""][1:], strict=True)
        json = any(a == "--output=json" or (a in ("--output", "-o") and b == "json") for a, b in pairs)
        return cls(output="json" if json else "text", debug="--debug" in arguments)


def _store(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    invocation = context.ensure_object(Invocation)
    source = context.get_parameter_source(parameter.name or "")
    if source is not click.core.ParameterSource.DEFAULT:
        setattr(invocation, parameter.name or "", value)
    return value


def common_options(function: Function) -> Function:
    """Add `--output`, `--config` and `--debug`; the command reads them with `current()`."""
    for option in (
        click.option(
            "--debug", is_flag=True, expose_value=False, callback=_store, help="Show tracebacks of errors."
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            expose_value=False,
            callback=_store,
            help="Settings file (default: HEADWATER_CONFIG, else ./headwater.yaml).",
        ),
        click.option(
            "-o",
            "--output",
            type=click.Choice(FORMATS),
            default="text",
            expose_value=False,
            callback=_store,
            help="Print text for people or JSON for programs.",
        ),
    ):
        function = option(function)
    return function


def current() -> Invocation:
    """The common options of the running command."""
    return click.get_current_context().ensure_object(Invocation)
