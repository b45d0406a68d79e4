"""What a credential is: its types and fields, the forms it is written in, and how a tool comes by one.

A task names its credential (`credential:NAME`); the worker has the text behind that name, and
`credential_for` makes a `Credential` of it. Nothing here prints a secret: `repr`, errors and `shown()` leave
them out.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args
from urllib.parse import unquote, urlsplit

from psycopg import ProgrammingError, conninfo, pq

from headwater.errors import CredentialError
from headwater.playbook.task import TaskError, TaskFailed, Worker

CredentialType = Literal["postgres", "s3", "generic"]
TYPES: Final[tuple[CredentialType, ...]] = get_args(CredentialType)

#: How a task refers to a credential by its name.
REFERENCE: Final = "credential:"
_OTHER_REFERENCES = ("secret:", "env:")

_POSTGRES_SECRETS = frozenset({"password", "sslpassword", "passfile"})
#: A whole address; its password is taken apart before anything is shown.
_ADDRESS = "uri"
_POSTGRES_ALIASES = {
    "username": "user",
    "database": "dbname",
    "db_host": "host",
    "db_port": "port",
    "db_user": "user",
    "db_password": "password",
    "db_name": "dbname",
    "dsn": _ADDRESS,
    "url": _ADDRESS,
    "connection": _ADDRESS,
}
_S3 = ("region", "endpoint", "access_key_id", "secret_access_key", "session_token", "url_style", "use_ssl")
_S3_SECRETS = frozenset({"secret_access_key", "session_token"})
_S3_ALIASES = {"key_id": "access_key_id", "secret": "secret_access_key", "endpoint_url": "endpoint"}
#: The one field of a generic credential that was given as plain text.
PLAIN_FIELD: Final = "value"
#: The field that is asked for when a credential is added piece by piece.
MAIN_SECRET: Final = {"postgres": "password", "s3": "secret_access_key", "generic": PLAIN_FIELD}


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential with its secret parts."""

    name: str
    type: CredentialType
    fields: Mapping[str, str] = field(repr=False)

    @property
    def dsn(self) -> str:
        """The address of a PostgreSQL database, password included: for clients, never for people."""
        if self.type != "postgres":
            raise CredentialError(
                f"Credential {self.name} is of type {self.type}; one of type postgres is needed.",
                credential=self.name,
            )
        return conninfo.make_conninfo("", **dict(self.fields))

    def secrets(self) -> list[str]:
        """The texts that nobody may see."""
        return [value for name, value in self.fields.items() if value and self._is_secret(name)]

    def shown(self) -> dict[str, str]:
        """The fields as they may be shown: secret ones are stars."""
        return {name: "***" if self._is_secret(name) else value for name, value in self.fields.items()}

    def text(self) -> str:
        """The credential as one JSON text, secrets included; `parse_credential` reads it."""
        return json.dumps({"type": self.type, "fields": dict(self.fields)})

    def _is_secret(self, name: str) -> bool:
        return is_secret(self.type, name)


def is_secret(kind: str, field_name: str) -> bool:
    """Whether a field of a credential is one that nobody may see."""
    if kind == "postgres":
        return _POSTGRES_ALIASES.get(field_name, field_name) in {*_POSTGRES_SECRETS, _ADDRESS}
    # Nobody knows what a generic credential holds, so all of it counts.
    return kind == "generic" or _S3_ALIASES.get(field_name, field_name) in _S3_SECRETS


def make_credential(name: str, kind: str, fields: Mapping[str, Any]) -> Credential:
    """A credential of checked fields; addresses are taken apart, other spellings are understood."""
    if kind not in TYPES:
        raise CredentialError(
            f"There is no type of credential {kind!r}.", hint=_near(kind, TYPES), credential=name
        )
    given = {str(key): _text(value) for key, value in fields.items() if value is not None}
    if kind == "postgres":
        return Credential(name, "postgres", _postgres(name, given))
    if kind == "s3":
        return Credential(name, "s3", _s3(name, given))
    if not given:
        raise CredentialError(f"Credential {name} has no fields.", credential=name)
    return Credential(name, "generic", given)


def parse_credential(name: str, text: str) -> Credential:
    """A credential from one text: a PostgreSQL address, a JSON object, or one plain secret.

    >>> parse_credential("shop", "postgresql://me:pw@db/shop").shown()
    {'user': 'me', 'password': '***', 'dbname': 'shop', 'host': 'db'}
    >>> parse_credential("api", '{"type": "generic", "token": "x"}').shown()
    {'token': '***'}
    """
    stripped = text.strip()
    if stripped.startswith("{"):
        try:
            content = json.loads(stripped)
        except json.JSONDecodeError as error:
            raise CredentialError(
                f"Credential {name} is not valid JSON.",
                detail=f"{error.msg} at line {error.lineno}, column {error.colno}.",
                credential=name,
            ) from None
        return credential_from(name, content)
    if not stripped:
        raise CredentialError(f"Credential {name} is empty.", credential=name)
    if urlsplit_scheme(stripped) in ("postgresql", "postgres") or _is_conninfo(stripped):
        return make_credential(name, "postgres", {_ADDRESS: stripped})
    return make_credential(name, "generic", {PLAIN_FIELD: stripped})


def credential_from(name: str, content: Any) -> Credential:
    """A credential from a mapping: `type` and the fields beside it, or below `fields` or `data`."""
    if isinstance(content, str):
        return parse_credential(name, content)
    if not isinstance(content, Mapping):
        raise CredentialError(f"Credential {name} is neither a text nor a mapping.", credential=name)
    rest = {key: value for key, value in content.items() if key not in ("type", "name")}
    for inner in ("fields", "data"):
        if isinstance(rest.get(inner), Mapping):
            rest = dict(rest[inner])
    return make_credential(name, str(content.get("type") or _guessed_type(rest)), rest)


def credential_for(auth: Any, worker: Worker) -> Credential:
    """The credential that a task's `auth` is: a reference, or a mapping whose values may be references."""
    try:
        if isinstance(auth, Mapping):
            return credential_from("auth", {key: _revealed(value, worker) for key, value in auth.items()})
        name = str(auth).removeprefix(REFERENCE)
        return parse_credential(name, worker.secret(str(auth)))
    except CredentialError as error:
        raise TaskFailed(
            TaskError("credential", error.code, error.message, retryable=False), hint=error.hint
        ) from None


def dsn_for(fields: Mapping[str, Any], worker: Worker, direct: str = "catalog_connection") -> str:
    """The PostgreSQL address that a task's fields give: the `direct` field wins over `auth`."""
    given = fields.get(direct)
    if given:
        return _revealed(given, worker)
    auth = fields.get("auth")
    if not auth:
        raise TaskFailed(
            TaskError("field", "missing", f"The step has neither `{direct}` nor `auth`."),
            hint=f"Name a credential with `auth`, or write an address into `{direct}`.",
        )
    try:
        return credential_for(auth, worker).dsn
    except CredentialError as error:
        raise TaskFailed(TaskError("credential", error.code, error.message)) from None


def dsn_secrets(text: str) -> list[str]:
    """The passwords inside a PostgreSQL address; none in other texts."""
    if "://" not in text and "=" not in text:
        return []
    found = []
    try:
        parameters = conninfo.conninfo_to_dict(text)
        found = [str(parameters[name]) for name in _POSTGRES_SECRETS if parameters.get(name)]
    except ProgrammingError:
        pass
    try:
        password = urlsplit(text).password
    except ValueError:
        password = None
    if password:
        # As it is written, which may differ from what it means.
        found += [password, unquote(password)]
    return list(dict.fromkeys(found))


def urlsplit_scheme(text: str) -> str:
    """The scheme of an address, or an empty text."""
    scheme, separator, _ = text.partition("://")
    return scheme.lower() if separator and scheme.isalnum() else ""


def _revealed(value: Any, worker: Worker) -> str:
    text = _text(value)
    return worker.secret(text) if text.startswith((*_OTHER_REFERENCES, REFERENCE)) else text


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _guessed_type(fields: Mapping[str, Any]) -> str:
    names = {_POSTGRES_ALIASES.get(str(name), str(name)) for name in fields}
    if names & {"host", "dbname", _ADDRESS}:
        return "postgres"
    return "s3" if names & {"access_key_id", "secret_access_key", "key_id"} else "generic"


def _is_conninfo(text: str) -> bool:
    try:
        parameters = conninfo.conninfo_to_dict(text)
    except ProgrammingError:
        return False
    return bool({"host", "dbname", "service"} & set(parameters))


def _postgres(name: str, given: Mapping[str, str]) -> dict[str, str]:
    fields = {_POSTGRES_ALIASES.get(key, key): value for key, value in given.items()}
    address = fields.pop(_ADDRESS, "")
    known = [option.keyword.decode() for option in pq.Conninfo.get_defaults()]
    for key in fields:
        if key not in known:
            raise _unknown_field(name, "postgres", key, (*known, _ADDRESS))
    try:
        merged = conninfo.conninfo_to_dict(address, **fields)
    except ProgrammingError:
        # The message would repeat the address.
        raise CredentialError(
            f"The address of credential {name} cannot be understood.",
            hint="Write postgresql://user:password@host:port/database, with % escapes in the password.",
            credential=name,
        ) from None
    if not merged:
        raise CredentialError(
            f"Credential {name} has no fields.",
            hint="A postgres credential has a uri, or host, dbname, user and password.",
            credential=name,
        )
    return {key: str(value) for key, value in merged.items() if value is not None}


def _s3(name: str, given: Mapping[str, str]) -> dict[str, str]:
    fields = {_S3_ALIASES.get(key, key): value for key, value in given.items()}
    for key in fields:
        if key not in _S3:
            raise _unknown_field(name, "s3", key, _S3)
    missing = [key for key in ("access_key_id", "secret_access_key") if not fields.get(key)]
    if missing:
        raise CredentialError(f"Credential {name} lacks {' and '.join(missing)}.", credential=name)
    return fields


def _unknown_field(name: str, kind: str, key: str, known: tuple[str, ...] | list[str]) -> CredentialError:
    return CredentialError(
        f"Credential {name} has a field {key!r}, which credentials of type {kind} do not have.",
        hint=_near(key, known),
        credential=name,
    )


def _near(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean '{near[0]}'?" if near else "Known: " + ", ".join(known) + "."
