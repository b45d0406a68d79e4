"""`headwater credential`: what playbooks log in with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.options import common_options
from headwater.cli.output import Block, Grid, Line, moment
from headwater.cli.refreshes import opened

if TYPE_CHECKING:
    from headwater.playbook.credentials.registry import Listed


@dataclass(frozen=True)
class CredentialList:
    """Credentials, without their secret parts."""

    credentials: tuple[Listed, ...]
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"credentials": [each.as_dict() for each in self.credentials]}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        if not self.credentials:
            yield Line.of("no credentials")
            return
        yield Grid(
            ("name", "type", "where", "fields", "changed (UTC)"),
            tuple(
                (
                    each.name,
                    each.type,
                    each.where,
                    each.shown,
                    "" if each.changed_at is None else moment(each.changed_at),
                )
                for each in self.credentials
            ),
        )


@dataclass(frozen=True)
class Changed:
    """What became of a credential."""

    name: str
    action: str
    exit_code: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"name": self.name, "action": self.action}

    def blocks(self) -> Iterator[Block]:
        """The result for people."""
        yield Line.of(f"{self.action} credential {self.name}")


@click.group("credential")
def command() -> None:
    """Keep what playbooks log in with, encrypted."""


@command.command("add")
@click.argument("name")
@click.option("--type", "kind", type=click.Choice(("postgres", "s3", "generic")), help="Default: postgres.")
@click.option("--field", "fields", metavar="NAME=VALUE", multiple=True, help="A field that is no secret.")
@click.option("--secret", "secrets", metavar="NAME", multiple=True, help="A secret field to ask for.")
@click.option("--from-env", metavar="VARIABLE", help="Take the whole credential from a variable.")
@click.option(
    "--from-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Take the whole credential from a file.",
)
@common_options
def add(
    name: str,
    kind: str | None,
    fields: tuple[str, ...],
    secrets: tuple[str, ...],
    from_env: str | None,
    from_file: Path | None,
) -> Changed:
    """Keep a credential in the lake's database, encrypted.

    Secrets are never arguments, which every user of the machine can list: they are asked for on a terminal,
    else read from standard input, one on each line. Without --field the whole credential is read: a
    PostgreSQL address, or a JSON object. An existing one of that name is replaced.
    """
    from headwater.playbook.credentials.registry import Credentials, check_name
    from headwater.playbook.credentials.types import credential_from, make_credential, parse_credential

    check_name(name)
    if from_env is not None or from_file is not None:
        if fields or secrets or (from_env is not None and from_file is not None):
            raise click.UsageError("--from-env and --from-file give the whole credential, alone.")
        text = _variable(from_env) if from_env is not None else _file(from_file)
        credential = parse_credential(name, text)
    elif not fields and not secrets and kind in (None, "postgres"):
        credential = parse_credential(name, _ask(f"address or JSON of {name}"))
    else:
        chosen = kind or "postgres"
        credential = make_credential(name, chosen, _given(chosen, fields, secrets))
    if kind is not None and credential.type != kind:
        # Plain text counts as generic; what its author says it is, wins.
        credential = credential_from(name, {"type": kind, **credential.fields})
    with opened("storing") as (hw, _):
        replaced = Credentials(hw.lake).add(credential)
    return Changed(name, "replaced" if replaced else "added")


@command.command("list")
@click.option("--credentials", "paths", metavar="PATH", multiple=True, help="A file or folder of them.")
@common_options
def list_(paths: tuple[str, ...]) -> CredentialList:
    """List credentials: those of the lake, of the environment and of files. Never their secrets."""
    from headwater.playbook.credentials.registry import Credentials

    with opened("looking") as (hw, _):
        return CredentialList(tuple(Credentials(hw.lake, paths).listed()))


@command.command("remove")
@click.argument("name")
@common_options
def remove(name: str) -> Changed:
    """Forget a credential of the lake."""
    from headwater.playbook.credentials.registry import Credentials

    with opened("removing") as (hw, _):
        Credentials(hw.lake).remove(name)
    return Changed(name, "removed")


def _given(kind: str, fields: Sequence[str], secrets: Sequence[str]) -> dict[str, str]:
    from headwater.playbook.credentials.types import MAIN_SECRET, is_secret

    found = {}
    for each in fields:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE.", param_hint="--field")
        if is_secret(kind, name):
            raise click.BadParameter(
                f"{name} is secret, and arguments can be seen by others. Write --secret {name}, and give it "
                "on standard input or when it is asked for.",
                param_hint="--field",
            )
        found[name] = value
    for name in secrets or (MAIN_SECRET[kind],):
        found[name] = _ask(name)
    return found


def _ask(what: str) -> str:
    """A secret, from a terminal without showing it, else the next line of standard input."""
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=True, err=True))
    text = sys.stdin.read() if "JSON" in what else sys.stdin.readline()
    if not text.strip():
        raise click.UsageError(f"Nothing on standard input for {what}.")
    return text.rstrip("\r\n")


def _variable(name: str | None) -> str:
    value = os.environ.get(name or "")
    if value is None:
        raise click.BadParameter(f"The environment has no variable {name}.", param_hint="--from-env")
    return value


def _file(path: Path | None) -> str:
    try:
        return "" if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise click.BadParameter(f"{path} cannot be read.", param_hint="--from-file") from None
