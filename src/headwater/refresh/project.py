"""A project: a folder of stream tables as files, in the order in which they depend on each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from headwater.errors import HeadwaterError, NotFoundError, SettingsError
from headwater.lake.catalog import key
from headwater.refresh.options import PROJECT
from headwater.refresh.stream_file import StreamFile, read_stream_file
from headwater.typedefs import TableName

#: Where a project is looked for if no folder is named.
DEFAULT_FOLDER = "streams"


@dataclass(frozen=True)
class Project:
    """The stream tables of a folder, each after those that it reads."""

    name: str
    folder: Path
    files: tuple[StreamFile, ...]

    def upstream(self, file: StreamFile) -> tuple[StreamFile, ...]:
        """The files whose stream tables a file reads."""
        read = {key(name) for name in file.reads}
        return tuple(other for other in self.files if key(other.name) in read)


def load_project(folder: Path | str = DEFAULT_FOLDER, name: str | None = None) -> Project:
    """Read all `.sql` files below a folder.

    `sales/revenue.sql` is `sales.revenue` unless its header names it. The project's own name is the folder's
    (of a folder called `streams` the name of the one it is in); stream tables remember it, so that those
    whose file is gone can be found.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise NotFoundError(
            f"There is no folder {folder}.",
            hint="Name the folder that holds the .sql files of your stream tables.",
            folder=str(folder),
        )
    called = name or _name_of(folder)
    files: list[StreamFile] = []
    errors: list[HeadwaterError] = []
    for path in sorted(_sql_files(folder)):
        try:
            default = path.relative_to(folder).with_suffix("").parts
            files.append(read_stream_file(path, default, {PROJECT: called}))
        except HeadwaterError as error:
            errors.append(error)
    errors += _duplicates(files)
    if errors:
        raise _together(errors)
    return Project(called, folder, _ordered(files))


def _name_of(folder: Path) -> str:
    whole = folder.resolve()
    name = whole.parent.name if whole.name == DEFAULT_FOLDER else whole.name
    return name or whole.name or "project"


def _sql_files(folder: Path) -> Iterator[Path]:
    """Files that are not hidden, and not in a hidden folder."""
    for path in folder.rglob("*.sql"):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def _duplicates(files: Sequence[StreamFile]) -> Iterator[HeadwaterError]:
    first: dict[tuple[str, str], StreamFile] = {}
    for file in files:
        other = first.setdefault(key(file.name), file)
        if other is not file:
            yield SettingsError(
                f"{file.path}:1:1: {file.name} is also the stream table of {other.path}.",
                hint="Give one of them another name (`-- name: schema.name`).",
                place=f"{file.path}:1:1",
                file=str(file.path),
            )


def _together(errors: Sequence[HeadwaterError]) -> HeadwaterError:
    """One error for all."""
    if len(errors) == 1:
        return errors[0]
    lines = [f"{error.message} {error.hint or ''}".rstrip() for error in errors]
    return SettingsError(
        f"{len(errors)} files of the project cannot be used.",
        detail="\n".join(lines),
        hint="Correct them, then try again.",
        problems=[error.as_dict() for error in errors],
    )


def _ordered(files: Sequence[StreamFile]) -> tuple[StreamFile, ...]:
    """Each file after those that it reads; otherwise by name."""
    by_name = {key(file.name): file for file in sorted(files, key=lambda file: key(file.name))}
    graph: TopologicalSorter[tuple[str, str]] = TopologicalSorter()
    for name, file in by_name.items():
        graph.add(name, *sorted(key(read) for read in file.reads if key(read) in by_name))
    try:
        return tuple(by_name[name] for name in graph.static_order())
    except CycleError as error:
        circle = [by_name[name] for name in error.args[1]]
        # graphlib lists who comes before whom; people ask who reads whom.
        shown = " reads ".join(str(file.name) for file in reversed(circle))
        raise SettingsError(
            f"Stream tables read each other in a circle: {shown}.",
            detail="\n".join(dict.fromkeys(str(file.path) for file in circle)),
            hint="One of them must read something else.",
            names=[str(TableName(*file.name)) for file in circle],
        ) from None
