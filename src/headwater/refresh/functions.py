"""Stream tables made by a Python function, which must be found again by whoever refreshes them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from headwater.errors import InvalidInputError, NotFoundError
from headwater.lake.catalog import table_name

_INSTEAD = "Put it at the top level of a module, and pass it as imported from there."


def function_path(function: Callable[..., Any]) -> str:
    """`module:function`, by which another process can import it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    shown = name or repr(function)
    if not module or not name or not inspect.isfunction(function):
        raise InvalidInputError(f"{shown} is not a function of a module.", hint=_INSTEAD)
    if name.endswith("<lambda>"):
        raise InvalidInputError("A lambda cannot be found again by a later refresh.", hint=_INSTEAD)
    if "<locals>" in name:
        raise InvalidInputError(
            f"{function.__name__} is made inside another function, so a later refresh cannot find it.",
            hint=_INSTEAD,
            function=name,
        )
    if module == "__main__":
        raise InvalidInputError(
            f"{name} is part of the program that is running, which a later refresh cannot import.",
            hint=_INSTEAD,
            function=name,
        )
    path = f"{module}:{name}"
    if load_function(path) is not function:
        raise InvalidInputError(
            f"{path} is another function than the one that was given.",
            detail="The name was given to something else since, or a decorator replaced it.",
            hint="Pass what can be imported under that name.",
            function=path,
        )
    return path


def load_function(path: str) -> Callable[..., Any]:
    """Import a function by its path."""
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise NotFoundError(
            f"The function {path} cannot be imported.",
            detail=f"{type(error).__name__}: {error}",
            hint="Run this where its module can be imported: from its folder, or with that on PYTHONPATH.",
            function=path,
        ) from error
    if not callable(found):
        raise NotFoundError(f"{path} is not a function.", function=path)
    return found  # type: ignore[no-any-return]


def function_inputs(function: Callable[..., Any], inputs: Mapping[str, str] | None) -> dict[str, str]:
    """The table that each parameter is given.

    A parameter that `inputs` does not name gets the table of its own name, unless it has a default.
    """
    given = dict(inputs or {})
    found: dict[str, str] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidInputError(
                f"Parameter {parameter} of {function.__name__} cannot be given a table by its name.",
                hint="Use plain parameters, one for each table.",
                parameter=parameter.name,
            )
        if parameter.name in given or parameter.default is parameter.empty:
            found[parameter.name] = str(table_name(given.pop(parameter.name, parameter.name)))
    if given:
        raise InvalidInputError(
            f"{function.__name__} has no parameter {', '.join(given)}.",
            hint=f"It has: {', '.join(inspect.signature(function).parameters) or 'none'}.",
        )
    return found
