"""Passwords and keys among the options of stream tables: stored encrypted, compared, and never shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from headwater.errors import NotFoundError, SettingsError
from headwater.lake.secrets import Secrets, without_password
from headwater.refresh.model import Definition
from headwater.sinks.addresses import REFERENCES, has_password
from headwater.sinks.model import SECRET_OPTIONS

#: (option, value) -> the value to be put in its place.
Change = Callable[[str, str], str]
_STORED = "secret:"


@dataclass(frozen=True)
class Sealing:
    """Puts references in the places of secrets."""

    secrets: Secrets

    def known(self, definition: Definition, existing: Definition | None) -> Definition:
        """The definition with the references that an existing one has for the same texts."""
        if existing is None:
            return definition
        references = {(option, self._text(value)): value for option, value in _sealed(existing)}
        return _changed(definition, lambda option, value: references.get((option, value), value))

    def seal(self, definition: Definition) -> tuple[Definition, list[str]]:
        """The definition with references only, and those that are new."""
        new: list[str] = []

        def put(option: str, value: str) -> str:
            if not _is_secret(option, value):
                return value
            new.append(self.secrets.put(value))
            return new[-1]

        return _changed(definition, put), new

    def forget(self, before: Definition, after: Definition | None) -> None:
        """Delete secrets that are in use no more."""
        kept = {value for _, value in _sealed(after)} if after is not None else set()
        for _, reference in _sealed(before):
            if reference not in kept:
                self.secrets.delete(reference)

    def _text(self, reference: str) -> str:
        try:
            return self.secrets.get(reference)
        except (NotFoundError, SettingsError):
            return reference  # of another machine: whatever is given is another text


def shown_option(option: str, value: str | None) -> str | None:
    """The value of an option as people may see it."""
    if value is None or option not in SECRET_OPTIONS:
        return value
    if value.startswith(REFERENCES):
        return "(kept encrypted)" if value.startswith(_STORED) else value
    return "(secret)" if option.endswith("_key") else without_password(value)


def _is_secret(option: str, value: str) -> bool:
    if option not in SECRET_OPTIONS or value.startswith(REFERENCES):
        return False
    return option.endswith("_key") or has_password(value)


def _sealed(definition: Definition) -> Iterator[tuple[str, str]]:
    for options in (definition.options, *definition.sinks.values()):
        for option, value in options.items():
            if option in SECRET_OPTIONS and value.startswith(_STORED):
                yield option, value


def _changed(definition: Definition, change: Change) -> Definition:
    def each(options: Mapping[str, str]) -> dict[str, str]:
        return {
            option: change(option, value) if option in SECRET_OPTIONS else value
            for option, value in options.items()
        }

    return replace(
        definition,
        options=each(definition.options),
        sinks={name: each(options) for name, options in definition.sinks.items()},
    )
