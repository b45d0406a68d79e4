"""The `headwater` command: finds the subcommand, runs it, shows what it returns."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import click

from headwater._version import __version__
from headwater.cli.options import Invocation, common_options
from headwater.cli.output import open_output
from headwater.errors import HeadwaterError

#: Every subcommand with its one line of help. Its module is imported when it runs.
COMMANDS = {
    "init": "Create a lake and a settings file here.",
    "doctor": "Check this machine, the connections and the health of the lake.",
    "tables": "List tables and views, with rows, files and sizes.",
    "snapshots": "List snapshots, newest first.",
    "sql": "Run one statement of Spark's SQL on the lake.",
    "source": "Mirror tables of PostgreSQL databases into the lake.",
    "plan": "Show what `apply` would do with a folder of stream tables.",
    "apply": "Make the lake's stream tables what a folder says.",
    "refresh": "Bring stream tables up to date, all of them or the named ones.",
    "run": "Capture, refresh and publish on schedule, until stopped.",
    "outbox": "Deliver the changes of stream tables to a table, a webhook or standard output.",
    "deltas": "Small changes beside large tables: deltas, tombstones, compaction, proof of erasure.",
    "status": "Show which stream tables are fresh, behind or suspended.",
    "history": "List past refreshes, newest first.",
    "explain": "Show how a stream table follows its inputs.",
    "verify": "Compare stream tables with what DuckDB computes.",
    "provenance": "Show which refresh wrote which snapshot, and from what.",
    "lineage": "Show the columns that a stream table's columns come from.",
    "check": "Find every mistake in playbooks, without running anything.",
    "play": "Run a playbook: steps of SQL and other tools, from a YAML file.",
    "runs": "List runs of playbooks, or show one with its steps and events.",
    "credential": "Keep what playbooks log in with, encrypted.",
    "compact": "Merge small files, and leave deleted rows behind.",
    "expire": "Expire old snapshots.",
    "cleanup": "Remove files that no snapshot needs any more.",
    "optimize": "Flush, compact and, if asked, expire and clean up, in the right order.",
    "migrate-playbook": "Turn steps on DuckDB files into steps on lakes, and copy the tables.",
    "demo": "From PostgreSQL to the lake, live: orders, or a leaderboard.",
}

EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = cmd_name.replace("-", "_")
        command: click.Command = importlib.import_module(f"headwater.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; a wrong name gets the nearest right one."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else "Commands: " + ", ".join(COMMANDS) + "."
            raise click.UsageError(f"There is no command '{args[0]}'. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headwater", message="%(prog)s %(version)s")
@common_options
def cli() -> None:
    """Keep SQL results fresh in a data lake.

    Every command takes --output json, --config FILE and --debug.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Errors can come before the options are parsed, and must be shown in the form that was asked for.
    asked = Invocation.guess(given)
    sys.excepthook = _Unexpected(asked)
    try:
        sys.exit(_run(given, asked))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has enough of it (`headwater snapshots | head`). Python would complain
        # once more when it closes the stream at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run(arguments: list[str], asked: Invocation) -> int:
    try:
        result: Any = cli.main(arguments, prog_name="headwater", standalone_mode=False, obj=asked)
        if result is None or isinstance(result, int):  # --help, --version
            return result or 0
        open_output(asked.output).show(result)
        sys.stdout.flush()
        return int(result.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        usage = getattr(error, "ctx", None)
        open_output(asked.output).fail(
            {
                "code": "usage",
                "message": error.format_message(),
                "hint": f"Try '{usage.command_path} --help'." if usage is not None else None,
            }
        )
        return error.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except HeadwaterError as error:
        if asked.debug:
            traceback.print_exception(error)
        open_output(asked.output).fail(error.as_dict())
        return 1


class _Unexpected:
    """Shows an exception that nobody foresaw; the traceback only with `--debug`."""

    def __init__(self, asked: Invocation):
        self._asked = asked

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self._asked.debug:
            traceback.print_exception(kind, error, trace)
        open_output(self._asked.output).fail(
            {
                "code": "internal",
                "message": f"{kind.__name__}: {error}",
                "detail": "This is an error in Headwater, or one that it does not know how to explain.",
                "hint": None if self._asked.debug else "Run the command again with --debug to see where.",
            }
        )
