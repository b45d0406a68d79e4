"""The credentials that playbooks may name: from files, from the environment, and kept in the lake's database.

Looked for in that order; the first that has the name gives the credential. Those in the database are
encrypted (`headwater.lake.secrets`), with the fields that are no secrets beside them, so that a list needs no
key.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from headwater.errors import CredentialError
from headwater.lake.connection import Connection
from headwater.lake.lake import Lake
from headwater.lake.own import ComponentStore, write
from headwater.lake.secrets import Secrets
from headwater.playbook.credentials.types import REFERENCE, Credential, credential_from, parse_credential

ENVIRONMENT_PREFIX: Final = "HEADWATER_CREDENTIAL_"
#: Files and folders of credentials, separated as in PATH.
PATHS_VARIABLE: Final = "HEADWATER_CREDENTIALS"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
_COMPONENT = "credentials"
_VERSIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE headwater.credential (
            lake_id uuid NOT NULL, name text NOT NULL, type text NOT NULL, shown text NOT NULL,
            secret text NOT NULL, changed_at timestamptz NOT NULL DEFAULT now(),
            PRIMARY KEY (lake_id, name))""",
    ),
)
_GET = "SELECT secret FROM headwater.credential WHERE lake_id = %(lake)s AND name = %(name)s"
_LIST = (
    "SELECT name, type, shown, changed_at FROM headwater.credential WHERE lake_id = %(lake)s ORDER BY name"
)
_PUT = """
    INSERT INTO headwater.credential (lake_id, name, type, shown, secret)
    VALUES (%(lake)s, %(name)s, %(type)s, %(shown)s, %(secret)s)
    ON CONFLICT (lake_id, name) DO UPDATE SET type = excluded.type, shown = excluded.shown,
        secret = excluded.secret, changed_at = now()"""
_DELETE = (
    "DELETE FROM headwater.credential WHERE lake_id = %(lake)s AND name = %(name)s RETURNING name, secret"
)


@dataclass(frozen=True)
class Listed:
    """A credential as a list shows it."""

    name: str
    type: str
    where: str
    """`lake`, `environment`, or the file it is in."""
    shown: str
    """Its fields, secret ones as stars."""
    changed_at: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain data."""
        return {
            "name": self.name,
            "type": self.type,
            "where": self.where,
            "fields": self.shown,
            "changed_at": self.changed_at,
        }


class Credentials:
    """All credentials that a run can use. It travels to worker processes as it is."""

    def __init__(self, lake: Lake | None, paths: Sequence[str | Path] = ()):
        self._lake = lake
        named = os.environ.get(PATHS_VARIABLE, "")
        self._paths = [Path(path).expanduser() for path in (*paths, *filter(None, named.split(os.pathsep)))]
        self._store = None if lake is None else ComponentStore(lake.db, _COMPONENT, _VERSIONS)
        self._files: dict[str, tuple[Credential, str]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"lake": self._lake, "paths": self._paths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._lake = state["lake"]
        self._paths = state["paths"]
        self._store = None if self._lake is None else ComponentStore(self._lake.db, _COMPONENT, _VERSIONS)
        self._files = None

    # -- finding ------------------------------------------------------------------------------------

    def get(self, name: str) -> Credential:
        """The credential of that name, wherever it is."""
        if found := self._from_files().get(name):
            return found[0]
        if variable := self._variables().get(_variable(name)):
            return parse_credential(name, os.environ[variable])
        if self._store is not None and self._lake is not None:
            rows = self._store.rows(_GET, name=name)
            if rows:
                return parse_credential(name, Secrets(self._lake).get(rows[0][0]))
        raise self.missing(name)

    def names(self) -> list[str]:
        """Every name that `get` knows. Those of the environment are in lower case."""
        return sorted({each.name for each in self.listed()})

    def listed(self) -> list[Listed]:
        """All credentials, without their secret parts."""
        found = [
            Listed(name, each.type, place, _shown(each)) for name, (each, place) in self._from_files().items()
        ]
        for variable in self._variables().values():
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            each = parse_credential(name, os.environ[variable])
            found.append(Listed(name, each.type, "environment", _shown(each)))
        if self._store is not None:
            found += [
                Listed(name, kind, "lake", shown, at) for name, kind, shown, at in self._store.rows(_LIST)
            ]
        return sorted(found, key=lambda each: each.name)

    def secret(self, reference: str) -> str:
        """The text behind a reference: `credential:NAME` as JSON, `secret:…`, `env:NAME`."""
        if reference.startswith(REFERENCE):
            return self.get(reference.removeprefix(REFERENCE)).text()
        if self._lake is None:
            raise CredentialError("There is no lake whose stored passwords could be asked.")
        return Secrets(self._lake).get(reference)

    def missing(self, name: str) -> CredentialError:
        """The error about a name that nothing knows."""
        known = self.names()
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        add = f"`headwater credential add {name}`, {_variable(name)}, or a file of credentials."
        return CredentialError(
            f"There is no credential {name!r}.",
            detail=_known(known, near),
            hint=f"Did you mean '{near[0]}'?" if near else f"Add it: {add}",
            credential=name,
        )

    # -- keeping ------------------------------------------------------------------------------------

    def add(self, credential: Credential) -> bool:
        """Keep a credential in the lake's database, encrypted; True if one of that name was replaced."""
        check_name(credential.name)
        lake, store = self._kept()
        identity = store.ensure()
        given = {
            "lake": identity,
            "name": credential.name,
            "type": credential.type,
            "shown": _shown(credential),
            "secret": Secrets(lake).put(credential.text()),
        }

        def work(connection: Connection) -> str | None:
            row = connection.execute(f"{_GET} FOR UPDATE", given).fetchone()
            connection.execute(_PUT, given)
            return None if row is None else str(row[0])

        before = write(lake.db, work)
        if before is not None and before != given["secret"]:
            Secrets(lake).delete(before)
        return before is not None

    def remove(self, name: str) -> None:
        """Forget a credential of the lake."""
        lake, store = self._kept()
        identity = store.ensure()

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(_DELETE, {"lake": identity, "name": name}).fetchall()

        gone = write(lake.db, work)
        if not gone:
            raise self.missing(name)
        Secrets(lake).delete(gone[0][1])

    def _kept(self) -> tuple[Lake, ComponentStore]:
        if self._lake is None or self._store is None:
            raise CredentialError("There is no lake to keep credentials in.", hint="Run `headwater init`.")
        return self._lake, self._store

    # -- files and environment ----------------------------------------------------------------------

    def _variables(self) -> dict[str, str]:
        return {name.upper(): name for name in os.environ if name.upper().startswith(ENVIRONMENT_PREFIX)}

    def _from_files(self) -> Mapping[str, tuple[Credential, str]]:
        if self._files is None:
            found: dict[str, tuple[Credential, str]] = {}
            for path in reversed(self._paths):  # what is named first wins
                found.update({each.name: (each, str(path)) for each in read_credentials(path)})
            self._files = found
        return self._files


def check_name(name: str) -> None:
    """Refuse what could not be named in a template, a variable or a file."""
    if not _NAME.fullmatch(name):
        raise CredentialError(
            f"{name!r} cannot be the name of a credential.",
            hint="A name begins with a letter and has letters, digits, '_', '-' and '.'.",
        )


def read_credentials(path: Path) -> list[Credential]:
    """The credentials of a file (a mapping by name), or of a folder (a file for each)."""
    try:
        if path.is_dir():
            files = sorted(each for each in path.iterdir() if each.is_file() and each.name[0] != ".")
            return [credential_from(file.stem, _content(file)) for file in files]
        content = _content(path)
    except OSError as error:
        raise CredentialError(
            f"The credentials in {path} cannot be read: {error.strerror}.", file=str(path)
        ) from None
    if not isinstance(content, Mapping):
        raise CredentialError(
            f"{path} is no file of credentials.", hint="It maps names to credentials.", file=str(path)
        )
    return [credential_from(str(name), value) for name, value in content.items()]


def _content(path: Path) -> Any:
    """What is in a file that only its owner may read."""
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CredentialError(
            f"Others than its owner may open {path}, which holds credentials.",
            detail=f"Its mode is {stat.filemode(mode)}.",
            hint=f"chmod 600 {path}",
            file=str(path),
        )
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".yaml", ".yml", ".json"):
            return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, UnicodeDecodeError):
        # Neither the text nor the parser's message, which repeats it.
        raise CredentialError(f"{path} cannot be read as YAML.", file=str(path)) from None
    return text


def _known(names: Sequence[str], near: Sequence[str]) -> str:
    if near:
        return f"The nearest is '{near[0]}'."
    return f"Known: {', '.join(names)}." if names else "No credentials are known."


def _variable(name: str) -> str:
    # No double underscore: settings are named by variables with one.
    return ENVIRONMENT_PREFIX + re.sub(r"[^A-Za-z0-9]+", "_", name).upper()


def _shown(credential: Credential) -> str:
    return " ".join(f"{name}={value}" for name, value in credential.shown().items())
