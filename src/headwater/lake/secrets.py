"""Passwords that Headwater has to keep: encrypted in the lake's database, the key elsewhere.

The key is `HEADWATER_SECRET_KEY`, or a file in the user's configuration folder that is made when it is first
needed. Who has only the database has no password; who has only the key has none either.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from uuid import UUID, uuid4

from cryptography.fernet import Fernet, InvalidToken
from psycopg import ProgrammingError, conninfo

from headwater.errors import InvalidInputError, NotFoundError, SettingsError
from headwater.lake.connection import Connection
from headwater.lake.lake import Lake
from headwater.lake.own import component_version, ensure_component, lake_id, write

KEY_VARIABLE = "HEADWATER_SECRET_KEY"
STORED = "secret:"
FROM_ENVIRONMENT = "env:"

_COMPONENT = "secrets"
_VERSIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE headwater.secret (
            lake_id uuid NOT NULL, id uuid NOT NULL, sealed bytea NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lake_id, id))""",
    ),
)


class Secrets:
    """Texts that nobody should read in a catalog.

    What is stored elsewhere is a reference: `secret:<id>` for a text kept here, `env:NAME` for one that the
    environment has. Any other text stands for itself.
    """

    def __init__(self, lake: Lake):
        self._db = lake.db

    def put(self, text: str) -> str:
        """Keep a text; returns the reference to it."""
        identity = uuid4()
        sealed = _cipher(create=True).encrypt(text.encode())
        lake = ensure_component(self._db, _COMPONENT, _VERSIONS)
        write(
            self._db,
            lambda connection: connection.execute(
                "INSERT INTO headwater.secret (lake_id, id, sealed) VALUES (%s, %s, %s) "
                "ON CONFLICT DO NOTHING",
                (lake, identity, sealed),
            ),
        )
        return f"{STORED}{identity}"

    def get(self, reference: str) -> str:
        """The text behind a reference."""
        if reference.startswith(FROM_ENVIRONMENT):
            return _from_environment(reference.removeprefix(FROM_ENVIRONMENT))
        if not reference.startswith(STORED):
            return reference
        identity = _identity(reference)

        def work(connection: Connection) -> bytes | None:
            lake = lake_id(self._db, connection)
            if lake is None or component_version(connection, _COMPONENT) == 0:
                return None
            row = connection.execute(
                "SELECT sealed FROM headwater.secret WHERE lake_id = %s AND id = %s", (lake, identity)
            ).fetchone()
            return None if row is None else bytes(row[0])

        sealed = self._db.read(work)
        if sealed is None:
            raise NotFoundError("A stored password is not there any more.", detail=f"Nothing is {reference}.")
        try:
            return _cipher(create=False).decrypt(sealed).decode()
        except InvalidToken:
            raise SettingsError(
                "A stored password cannot be read: it was stored with another key.",
                hint=f"Set {KEY_VARIABLE} to the key of the machine it was stored on, or copy {key_file()}.",
            ) from None

    def delete(self, reference: str) -> None:
        """Forget a text; others than stored ones are left alone."""
        if not reference.startswith(STORED):
            return
        identity = _identity(reference)

        def work(connection: Connection) -> None:
            lake = lake_id(self._db, connection)
            if lake is not None and component_version(connection, _COMPONENT):
                connection.execute(
                    "DELETE FROM headwater.secret WHERE lake_id = %s AND id = %s", (lake, identity)
                )

        write(self._db, work)


def without_password(dsn: str) -> str:
    """An address as it may be shown; one that cannot be read is not shown at all."""
    if dsn.startswith((STORED, FROM_ENVIRONMENT)):
        return dsn
    try:
        parameters = conninfo.conninfo_to_dict(dsn)
    except ProgrammingError:
        return "(not readable)"
    for name in ("password", "sslpassword", "passfile"):
        parameters.pop(name, None)
    return conninfo.make_conninfo("", **{key: str(value) for key, value in parameters.items()})


def key_file() -> Path:
    """Where the key is kept if the environment has none."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "headwater" / "secret.key"


def _identity(reference: str) -> UUID:
    try:
        return UUID(reference.removeprefix(STORED))
    except ValueError:
        raise InvalidInputError(f"{reference!r} is no reference to a stored password.") from None


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise SettingsError(f"The environment has no variable {name}.", hint=f"Set {name}.", variable=name)
    return value


def _cipher(*, create: bool) -> Fernet:
    given = os.environ.get(KEY_VARIABLE)
    if given:
        return _fernet(given.encode(), KEY_VARIABLE)
    path = key_file()
    try:
        return _fernet(path.read_bytes().strip(), str(path))
    except FileNotFoundError:
        if not create:
            raise SettingsError(
                "A stored password cannot be read: there is no key.",
                detail=f"Neither {KEY_VARIABLE} nor {path} is there.",
                hint="Copy the key from the machine on which the password was stored.",
            ) from None
    except OSError as error:
        raise SettingsError(f"The key {path} cannot be read: {error.strerror}.") from None
    _create(path)
    return _cipher(create=False)


@lru_cache(maxsize=4)
def _fernet(key: bytes, place: str) -> Fernet:
    try:
        return Fernet(key)
    except ValueError:
        raise SettingsError(
            f"{place} is no key.", hint="A key is 32 random bytes in URL-safe base64."
        ) from None


def _create(path: Path) -> None:
    """Make a key, for this user's eyes only; if somebody else does at the same time, theirs stays."""
    waiting = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(Fernet.generate_key())
        try:
            os.link(waiting, path)
        except FileExistsError:
            return
        finally:
            waiting.unlink()
    except OSError as error:
        raise SettingsError(
            f"The key for stored passwords cannot be written to {path}: {error.strerror}.",
            hint=f"Set {KEY_VARIABLE} instead.",
        ) from None


__all__ = ["KEY_VARIABLE", "Secrets", "key_file", "without_password"]
