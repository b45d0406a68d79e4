"""`headwater check`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.given_values import given_option, read_given
from headwater.cli.options import common_options, current
from headwater.cli.output import Block, Line

if TYPE_CHECKING:
    from headwater.playbook.language.findings import Finding


@dataclass(frozen=True)
class Checked:
    """What was found in each file."""

    files: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """1 when there is an error."""
        return 1 if self._errors else 0

    @property
    def _errors(self) -> int:
        return sum(1 for one in self.findings if one.severity == "error")

    def as_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "ok": not self._errors,
            "files": list(self.files),
            "findings": [one.as_dict() for one in self.findings],
        }

    def blocks(self) -> Iterator[Block]:
        """Each finding with the line it is about."""
        for one in self.findings:
            style = "fail" if one.severity == "error" else "warn"
            yield Line(
                ((f"{one.place}: ", "bold"), (f"{one.severity}[{one.code}]", style), (f": {one.message}", ""))
            )
            yield from _source(one)
            if one.hint:
                yield Line.of(f"  do:  {one.hint}")
        warnings = len(self.findings) - self._errors
        files = f"{len(self.files)} playbook{'' if len(self.files) == 1 else 's'}"
        counts = f"{_count(self._errors, 'error')}, {_count(warnings, 'warning')}"
        yield Line.of(f"{files}: {counts}", "fail" if self._errors else "ok")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _source(finding: Finding) -> Iterator[Line]:
    try:
        lines = Path(finding.file).read_text(encoding="utf-8").splitlines()
        line = lines[finding.line - 1]
    except (OSError, UnicodeDecodeError, IndexError):
        return
    if len(line) <= 160:
        yield Line.of(f"  {line}", "dim")
        yield Line.of("  " + " " * (finding.column - 1) + "^", "dim")


@click.command("check")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@given_option
@click.option("--offline", is_flag=True, help="Do not look whether the credentials exist.")
@click.option(
    "--credentials",
    "credential_paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A file or folder of credentials.",
)
@common_options
def command(
    paths: tuple[Path, ...], given: tuple[str, ...], offline: bool, credential_paths: tuple[Path, ...]
) -> Checked:
    """Find every mistake in playbooks, without running anything.

    FILE is a playbook, or a folder with playbooks. Values given with --set count as parts of the workload, as
    they do when it is played. Exits with 1 when there is an error.
    """
    from headwater.playbook.checking.checks import check_file

    files = [file for path in paths for file in _playbooks(path)]
    known = None if offline else _credentials(files, credential_paths)
    workload = read_given(given)
    findings = [one for file in files for one in check_file(file, credentials=known, workload=workload)]
    return Checked(tuple(str(file) for file in files), tuple(findings))


def _playbooks(path: Path) -> Iterator[Path]:
    """The file, or those in a folder that are playbooks."""
    from headwater.errors import PlaybookError
    from headwater.playbook.language.document import read_document
    from headwater.playbook.language.reading import is_playbook

    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*.y*ml")):
        try:
            if file.is_file() and is_playbook(read_document(file)):
                yield file
        except PlaybookError:  # it may have been meant as one, and `check` says what is wrong with it
            yield file


def _credentials(files: Sequence[Path], paths: Sequence[Path]) -> Collection[str] | None:
    """The names that are known: from files, the environment, and the lake if the project has one."""
    from headwater.engine.connecting import connect, resolve
    from headwater.playbook.credentials.registry import Credentials
    from headwater.settings import load_settings

    if not any(_names_credentials(file) for file in files):
        return None
    target = resolve(load_settings(current().config))
    if target.dsn is None and not target.server_folder.exists():
        return Credentials(None, paths).names()
    with connect(config=current().config, create=False) as hw:
        return Credentials(hw.lake, paths).names()


def _names_credentials(file: Path) -> bool:
    """Whether a lake has to be asked at all."""
    from headwater.errors import PlaybookError
    from headwater.playbook.language.document import read_document
    from headwater.playbook.language.reading import read_playbook

    try:
        playbook, _ = read_playbook(read_document(file))
    except PlaybookError:
        return False
    return playbook is not None and any("auth" in step.fields for step in playbook.steps)
