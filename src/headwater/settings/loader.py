"""Finding the settings file, reading it, and putting file and environment together."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsError as BadVariable

from headwater.errors import SettingsError
from headwater.settings.model import Settings
from headwater.settings.schema import ENV_DELIMITER, ENV_PREFIX, LOCAL_PATHS, SECRETS, Root, names_in
from headwater.settings.yaml_file import SettingsFile, read_file

CONFIG_FILE = "headwater.yaml"
CONFIG_VARIABLE = "HEADWATER_CONFIG"


def find_file(config: str | Path | None = None) -> Path | None:
    """The settings file: the one asked for, the one `HEADWATER_CONFIG` names, or `./headwater.yaml`.

    A file that is asked for must exist; reading it says so if not.
    """
    wanted = config or os.environ.get(CONFIG_VARIABLE)
    if wanted:
        return Path(wanted).expanduser()
    return Path(CONFIG_FILE) if Path(CONFIG_FILE).exists() else None


def load_settings(config: str | Path | None = None) -> Settings:
    """Read the settings; without a file and without variables they are the defaults."""
    path = find_file(config)
    if path is None:
        return environment_settings()
    file = read_file(path, os.environ)
    _relative_to_file(file)
    return _checked(file, path)


def environment_settings() -> Settings:
    """What the environment alone says."""
    return _checked(SettingsFile(Path(CONFIG_FILE)), None)


def _checked(file: SettingsFile, path: Path | None) -> Settings:
    variables = _variables(os.environ)
    places = {**file.places, **{setting: name for name, setting in variables.items()}}
    try:
        root = Root(**file.values)
    except ValidationError as error:
        raise _explained(error.errors(include_url=False, include_context=True)[0], file, places) from None
    except BadVariable as error:
        raise SettingsError(
            f"{ENV_PREFIX}… : {str(error).splitlines()[0]}.",
            hint=f"Set one setting per variable, such as {ENV_PREFIX}LAKE{ENV_DELIMITER}CATALOG.",
        ) from None
    return Settings(
        root.lake.plain(),
        root.storage.plain(),
        root.spark.plain(),
        root.service.plain(),
        root.maintenance.plain(),
        path,
        places,
    )


def _relative_to_file(file: SettingsFile) -> None:
    """Local paths in a file are relative to its folder, wherever the program was started."""
    for setting in LOCAL_PATHS:
        section, name = setting.split(".")
        values = file.values.get(section)
        if not isinstance(values, dict):
            continue
        value = values.get(name)
        if isinstance(value, str) and value and "://" not in value and not value.startswith(("~", "file:")):
            values[name] = str(file.path.absolute().parent / value)


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Which variable makes which setting; one that makes none is a mistake."""
    found = {}
    for name, value in environ.items():
        if not name.upper().startswith(ENV_PREFIX) or ENV_DELIMITER not in name or not value:
            continue
        section, *rest = name.upper()[len(ENV_PREFIX) :].lower().split(ENV_DELIMITER)
        if section not in names_in(""):
            raise _unknown(name, section, "")
        found[name] = ".".join([section, *rest])
    return found


def _explained(error: ErrorDetails, file: SettingsFile, places: Mapping[str, str]) -> SettingsError:
    """What pydantic found, in our words; values of secrets are never shown."""
    parts = [str(part) for part in error["loc"]]
    setting = ".".join(parts)
    place = next((places[path] for path in _upwards(parts) if path in places), file.name)
    if error["type"] == "extra_forbidden":
        return _unknown(place, parts[-1], ".".join(parts[:-1]))
    message = error["msg"].removeprefix("Input ").split(", unable")[0]
    value = _value(file.values, parts)
    shown = "" if setting in SECRETS or value is None else f", not {value!r}"
    hint = None
    if error["type"] == "model_type" or error["type"] == "mapping_type":
        message, shown = "must be a section with keys of its own", ""
        hint = "Keys: " + ", ".join(names_in(setting)) + "." if names_in(setting) else None
    return SettingsError(f"{place}: `{setting}` {message}{shown}.", hint=hint, setting=setting, place=place)


def _unknown(place: str, name: str, section: str) -> SettingsError:
    known = names_in(section)
    near = difflib.get_close_matches(name.lower(), known, n=1)
    setting = f"{section}.{name}" if section else name
    where = f"section `{section}`" if section else "the settings"
    return SettingsError(
        f"{place}: there is no `{name}` in {where}.",
        hint=f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(known)}.",
        setting=setting,
        place=place,
    )


def _upwards(parts: list[str]) -> Iterator[str]:
    for end in range(len(parts), 0, -1):
        yield ".".join(parts[:end])


def _value(values: Any, parts: list[str]) -> Any:
    for part in parts:
        if not isinstance(values, dict):
            return None
        values = values.get(part)
    return values if isinstance(values, str | int | float | bool) else None
