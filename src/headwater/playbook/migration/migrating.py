"""Playbooks that work on a DuckDB database file, turned into ones that work on a lake.

The text of the file is changed only where it must be: `tool: duckdb` becomes `tool: ducklake`, and
`database_path` becomes the fields of a lake. Comments, anchors and layout stay. The file's name is the
catalog's, so SQL that names the database still finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headwater.errors import PlaybookError
from headwater.playbook.checking.names import UNKNOWN, Scope, known_value
from headwater.playbook.language.document import Document, ValuePath, parse_document, read_document
from headwater.playbook.language.findings import refuse
from headwater.playbook.language.reading import read_playbook

#: Names that mean something else where a catalog has its name.
_TAKEN = frozenset({"headwater", "information_schema", "main", "memory", "public", "system", "temp"})

#: What DuckDB's own storage has and DuckLake has not.
_MISSING = re.compile(
    r"CREATE\s+(?:UNIQUE\s+)?INDEX|CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP\w*\s+)?SEQUENCE|CREATE\s+TYPE|NEXTVAL"
    r"|FOREIGN\s+KEY|REFERENCES|CHECK\s*\(|GENERATED\s+ALWAYS",
    re.IGNORECASE,
)
_ALIASED = re.compile(r"[\"']?database_path[\"']?\s*:\s*\*[^\s,}]+")
_BRACE = re.compile(r"\s*(?:&\S+\s+)?\{")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the lakes are: a credential or an address of the database, and the folder of the files."""

    auth: str | None = None
    catalog_connection: str | None = None
    data_path: str | None = None
    """None: `ducklake` beside each database file."""

    def fields(self, database: str, catalog: str) -> Mapping[str, str]:
        """The fields that take the place of `database_path`."""
        access = (
            {"catalog_connection": self.catalog_connection}
            if self.catalog_connection is not None
            else {"auth": "{{ " + str(self.auth) + " }}"}
        )
        beside = str(PurePosixPath(database).parent / "ducklake")
        return {**access, "catalog_name": catalog, "data_path": self.data_path or beside}


@dataclass(frozen=True, slots=True)
class MigratedStep:
    """A step that changes."""

    step: str
    database: str
    catalog_name: str
    data_path: str

    def as_dict(self) -> dict[str, Any]:
        """The step as plain data."""
        return {
            "step": self.step,
            "database": self.database,
            "catalog_name": self.catalog_name,
            "data_path": self.data_path,
        }


@dataclass(frozen=True, slots=True)
class Migration:
    """What becomes of a playbook."""

    file: str
    before: str
    after: str
    steps: tuple[MigratedStep, ...]
    notes: tuple[str, ...]
    """What was left as it is, and what needs a look."""

    @property
    def databases(self) -> tuple[MigratedStep, ...]:
        """Each database once, with its lake."""
        return tuple({step.catalog_name: step for step in reversed(self.steps)}.values())[::-1]


def plan_migration(path: Path | str, destination: Destination) -> Migration:
    """What `migrate-playbook` makes of a file; nothing is written."""
    document = read_document(path)
    playbook, findings = read_playbook(document)
    refuse(findings)
    return _Migrating(document, destination, playbook.workload if playbook is not None else {}).plan()


class _Migrating:
    def __init__(self, document: Document, destination: Destination, workload: Mapping[str, Any]):
        self._document = document
        self._destination = destination
        self._scope = Scope({**workload, "workload": workload})
        self._catalogs: dict[str, str] = {}
        """Of each database file."""
        self._edits: dict[tuple[int, int], str] = {}
        self._steps: list[MigratedStep] = []
        self._notes: list[str] = []

    def plan(self) -> Migration:
        for name, step, path in self._duckdb_steps():
            self._step(name, step, path)
        after = self._edited()
        if self._edits:
            self._check_result(after)
        return Migration(
            self._document.file, self._document.text, after, tuple(self._steps), tuple(self._notes)
        )

    def _duckdb_steps(self) -> Iterator[tuple[str, Mapping[str, Any], ValuePath]]:
        content = self._document.content
        whole = isinstance(content, Mapping)
        for index, step in enumerate(content["workflow"] if whole else content):
            path: ValuePath = ("workflow", index) if whole else (index,)
            tool = step.get("tool")
            kind = tool.get("kind") if isinstance(tool, Mapping) else tool
            if kind == "duckdb":
                yield str(step["step"]), step, path

    def _step(self, name: str, step: Mapping[str, Any], path: ValuePath) -> None:
        tool = step["tool"]
        kind_path: ValuePath = (*path, "tool", "kind") if isinstance(tool, Mapping) else (*path, "tool")
        inside = isinstance(tool, Mapping) and "database_path" in tool
        path_of_database = (*path, "tool", "database_path") if inside else (*path, "database_path")
        written = tool["database_path"] if inside else step.get("database_path")
        database = known_value(written, self._scope)
        place = self._document.place(path_of_database)
        if written is None or database == ":memory:":
            self._notes.append(f"{place}: step `{name}` works in memory, and stays as it is.")
            return
        if not isinstance(database, str) or database is UNKNOWN or not database:
            self._notes.append(
                f"{place}: step `{name}` stays as it is: its database is known only when it runs."
            )
            return
        catalog = self._catalog(str(database))
        fields = dict(self._destination.fields(str(database), catalog))
        self._replace_kind(kind_path)
        self._replace_field(path_of_database, fields)
        self._steps.append(MigratedStep(name, str(database), catalog, fields["data_path"]))
        self._note_sql(name, {**(tool if isinstance(tool, Mapping) else {}), **step}, path)

    def _catalog(self, database: str) -> str:
        """The name of the lake: the file's own, made different where two files are called the same."""
        if database not in self._catalogs:
            file = PurePosixPath(database)
            name = _catalog_name(file.stem)
            if name in self._catalogs.values():
                name = _catalog_name(f"{file.parent.name}_{file.stem}")
            while name in self._catalogs.values():
                name += "_2"
            self._catalogs[database] = name
        return self._catalogs[database]

    def _note_sql(self, name: str, step: Mapping[str, Any], path: ValuePath) -> None:
        commands = step.get("commands") or [step.get("command")]
        for command in commands if isinstance(commands, list) else []:
            for found in _MISSING.finditer(str(command)):
                what = " ".join(found[0].upper().split()).rstrip("( ")
                place = command.at(found.start()) if hasattr(command, "at") else self._document.place(path)
                self._notes.append(f"{place}: step `{name}` has {what}, which DuckLake does not have.")

    # --- the text -------------------------------------------------------------------------------

    def _replace_kind(self, path: ValuePath) -> None:
        start, end = self._document.spans[path]
        text = self._document.text[start:end]
        if text.rstrip("'\"").endswith("duckdb"):  # an alias changes with what it stands for
            kept = text[text.rindex("duckdb") + len("duckdb") :]
            self._edits[(start, end)] = text[: text.rindex("duckdb")] + "ducklake" + kept

    def _replace_field(self, path: ValuePath, fields: Mapping[str, str]) -> None:
        text = self._document.text
        start, end = self._document.spans[path]
        alias = _ALIASED.match(text, start)
        if alias is not None:
            end = alias.end()
        before = text[text.rfind("\n", 0, start) + 1 : start]
        # In `{…}` fields are separated by commas, else each has a line of its own.
        in_braces = before.strip(" -") or self._in_braces(path[:-1])
        between = ", " if in_braces else "\n" + " " * len(before)
        self._edits[(start, end)] = between.join(
            f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()
        )

    def _in_braces(self, path: ValuePath) -> bool:
        written = self._document.text[self._document.spans[path][0] :]
        return _BRACE.match(written.partition(":")[2] if path[-1] == "tool" else written) is not None

    def _edited(self) -> str:
        text = self._document.text
        for (start, end), new in sorted(self._edits.items(), reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def _check_result(self, after: str) -> None:
        """The new text must be a playbook, of steps that are now on lakes."""
        document = parse_document(after, self._document.file)
        playbook, findings = read_playbook(document)
        refuse(findings)
        steps = {} if playbook is None else {step.name: step for step in playbook.steps}
        for one in self._steps:
            step = steps.get(one.step)
            if step is None or step.tool != "ducklake" or "database_path" in step.fields:
                raise PlaybookError(
                    f"{self._document.file}: step `{one.step}` cannot be changed where it stands.",
                    hint="Its fields come from elsewhere in the file; write them on the step itself.",
                    step=one.step,
                )


def _catalog_name(stem: str) -> str:
    """A file's name as a catalog's.

    >>> _catalog_name("my-db 2"), _catalog_name("pg_dump"), _catalog_name("memory")
    ('my_db_2', 'db_pg_dump', 'db_memory')
    """
    name = re.sub(r"\W+", "_", stem).strip("_") or "db"
    return f"db_{name}" if name.lower() in _TAKEN or name.lower().startswith("pg_") else name
