"""Which fields each kind of tool has. One table: `check` judges by it, tools and documentation follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: `sql`: text in which templates become literals. `code`: text that is not rendered at all.
FieldType = Literal[
    "text", "sql", "sql list", "code", "boolean", "integer", "number", "list", "mapping", "credential", "any"
]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a tool."""

    name: str
    type: FieldType
    about: str
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolFields:
    """The fields of a kind of tool."""

    kind: str
    about: str
    fields: tuple[Field, ...]
    exactly_one: tuple[tuple[str, ...], ...] = ()
    """Groups of which one field must be there, and only one."""
    at_least_one: tuple[tuple[str, ...], ...] = ()
    """Groups of which one field must be there; where several are, the first of them wins."""
    dialect: Literal["duckdb", "postgres", "spark"] = "duckdb"
    """Whose SQL the `sql` fields are."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every field."""
        return tuple(field.name for field in self.fields)

    def field(self, name: str) -> Field | None:
        """The field of that name."""
        return next((field for field in self.fields if field.name == name), None)


_COMMAND = Field("command", "sql", "SQL to run; may hold several statements.")
_COMMANDS = Field("commands", "sql list", "SQL commands to run, in order.")

DUCKLAKE = ToolFields(
    "ducklake",
    "SQL of DuckDB on a DuckLake catalog, from any number of workers at once.",
    (
        Field("auth", "credential", "Credential of the PostgreSQL database that holds the catalog."),
        Field("catalog_connection", "text", "Connection string of that database; wins over `auth`."),
        Field("catalog_name", "text", "Name of the catalog; each name is a lake of its own.", required=True),
        Field("data_path", "text", "Where data files are stored; shared by all workers.", required=True),
        _COMMAND,
        _COMMANDS,
        Field("create_catalog", "boolean", "Create the catalog if it does not exist.", default=True),
        Field("use_catalog", "boolean", "`USE` the catalog before the commands.", default=True),
        Field("memory_limit", "text", 'Memory limit of DuckDB, such as "4GB".'),
        Field("threads", "integer", "Number of threads of DuckDB."),
        Field(
            "transaction",
            "boolean",
            "All commands of the step are one transaction; `false`: each commits by itself.",
            default=True,
        ),
        Field("max_rows", "integer", "Rows that the result of one command keeps.", default=10_000),
    ),
    exactly_one=(("command", "commands"),),
    at_least_one=(("catalog_connection", "auth"),),
)

DUCKDB = ToolFields(
    "duckdb",
    "SQL of DuckDB on a database file, one step at a time.",
    (
        Field("database_path", "text", "The database file; without it, a database in memory."),
        _COMMAND,
        _COMMANDS,
    ),
    exactly_one=(("command", "commands"),),
)

POSTGRES = ToolFields(
    "postgres",
    "SQL of PostgreSQL; the commands of a step are one transaction.",
    (
        Field("auth", "credential", "Credential of the database."),
        Field("connection", "text", "Connection string of the database; wins over `auth`."),
        _COMMAND,
        _COMMANDS,
    ),
    exactly_one=(("command", "commands"),),
    at_least_one=(("connection", "auth"),),
    dialect="postgres",
)

SPARK = ToolFields(
    "spark",
    "SQL of Spark over the lake's tables, or a function that gets the Spark session.",
    (
        Field("sql", "sql", "The same as `command`."),
        _COMMAND,
        _COMMANDS,
        Field("callable", "text", "`module:function`, called with the session and `args`."),
        Field("args", "mapping", "Keyword arguments of the function."),
    ),
    exactly_one=(("sql", "command", "commands", "callable"),),
    dialect="spark",
)

PYTHON = ToolFields(
    "python",
    "A Python function, or a few lines of code.",
    (
        Field("callable", "text", "`module:function`, called with `args`."),
        Field("code", "code", "Lines that see `args` and assign `result`; no templates in them."),
        Field("args", "mapping", "Values for the function or the code."),
    ),
    exactly_one=(("callable", "code"),),
)

HTTP = ToolFields(
    "http",
    "A request to a web service.",
    (
        Field("url", "text", "Where to.", required=True),
        Field(
            "method",
            "text",
            "The request's method.",
            default="GET",
            choices=("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"),
        ),
        Field("headers", "mapping", "Headers."),
        Field("params", "mapping", "Parameters of the query string."),
        Field("json", "any", "The body, sent as JSON."),
        Field("data", "any", "The body as text, or a mapping sent as a form."),
        Field("auth", "credential", "Credential for the `Authorization` header."),
        Field("expected_status", "any", "A status or a list of them; without it, every 2xx."),
    ),
)

REFRESH = ToolFields(
    "refresh",
    "Bring stream tables up to date.",
    (
        Field("stream_tables", "list", "Their names; without them, all."),
        Field("full", "boolean", "Compute them anew.", default=False),
    ),
)

PLAYBOOK = ToolFields(
    "playbook",
    "Run another playbook; the result is its run's.",
    (
        Field("path", "text", "The file, seen from the one that calls it.", required=True),
        Field("workload", "mapping", "Values for its workload."),
    ),
)

TOOLS: Mapping[str, ToolFields] = {
    tool.kind: tool for tool in (DUCKLAKE, DUCKDB, POSTGRES, SPARK, PYTHON, HTTP, REFRESH, PLAYBOOK)
}

#: What any step may have beside its tool's fields, and in `tool: {kind: …}` beside `kind`.
STEP_FIELDS = ("step", "desc", "tool", "loop", "next", "vars", "retry", "timeout")


def with_defaults(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a step with the tool's defaults for those that it does not give."""
    defaults = {field.name: field.default for field in TOOLS[kind].fields if field.default is not None}
    return defaults | {name: value for name, value in values.items() if value is not None}
