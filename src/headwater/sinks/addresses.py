"""Addresses of PostgreSQL servers: read, checked, and never repeated in a message."""

from __future__ import annotations

from psycopg import ProgrammingError, conninfo

from headwater.errors import SettingsError

#: Texts that stand for an address that is kept elsewhere.
REFERENCES = ("secret:", "env:")
_SECRET = ("password", "sslpassword")


def check_address(option: str, text: str) -> str:
    """An address that libpq can read, or a reference to one."""
    if text.startswith(REFERENCES):
        return text
    try:
        conninfo.conninfo_to_dict(text)
    except ProgrammingError:
        # Its message repeats the text, which may hold a password.
        raise SettingsError(
            f"The value of {option} is no address of a PostgreSQL database.",
            hint="Write 'postgresql://user@host:port/database', 'host=… dbname=…', or 'env:NAME'.",
            option=option,
        ) from None
    return text


def has_password(text: str) -> bool:
    """Whether an address holds something that must not be stored as it is."""
    return not text.startswith(REFERENCES) and any(
        conninfo.conninfo_to_dict(text).get(name) for name in _SECRET
    )
