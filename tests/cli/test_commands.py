"""`tables`, `snapshots`, and what all commands share: output, errors, exit codes."""

from __future__ import annotations

import json
import os
import pty
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from headwater._version import __version__
from headwater.cli import snapshots as snapshots_module
from headwater.cli.main import COMMANDS, _Unexpected, cli
from headwater.cli.options import Invocation
from headwater.cli.output import Grid, Line, TextOutput, size
from headwater.lake.lake import Lake
from tests.cli.running import run, start

HEAVY = ("pyspark", "pyarrow", "duckdb", "psycopg", "sqlglot", "pydantic", "rich", "ruamel")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["tables", "--help"]])
def test_what_needs_no_lake_imports_nothing_heavy_and_is_quick(arguments: list[str]) -> None:
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr))\n"
        f"from headwater.cli import main; main({arguments!r})"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.stderr == "[]\n"
    # Processor time, because the machine may be busy with other tests.
    assert (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime) < 0.5


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, headwater; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_the_version_is_told() -> None:
    assert run("--version").out == f"headwater {__version__}\n"


def test_help_names_every_command_as_the_command_itself_does() -> None:
    shown = run("--help").out
    for name, text in COMMANDS.items():
        assert name in shown
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.get_short_help_str(200) == text


def test_tables_as_text(project: Lake) -> None:
    ran = run("tables")
    assert ran.code == 0
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0].startswith("snapshot 2 of ")
    assert lines[1].split() == [
        "name",
        "kind",
        "columns",
        "rows",
        "files",
        "size",
        "deleted",
        "in",
        "catalog",
    ]
    assert lines[2].split()[:5] == ["sales.orders", "table", "2", "71", "1"]
    assert lines[2].split()[-2:] == ["30", "1"]
    assert lines[3].split() == ["sales.v", "view"]
    assert all(line == line.rstrip() for line in lines)


def test_tables_as_json(project: Lake) -> None:
    found = run("tables", "--output", "json").json
    assert found["snapshot"]["id"] == 2
    orders, view = found["tables"]
    assert (orders["schema"], orders["name"], orders["kind"]) == ("sales", "orders", "table")
    assert (orders["rows"], orders["files"], orders["deleted_rows"], orders["inlined_rows"]) == (71, 1, 30, 1)
    assert orders["columns"] == [{"name": "id", "type": "BIGINT"}, {"name": "Odd Name", "type": "VARCHAR"}]
    assert orders["comment"] == "Orders"
    assert (view["kind"], view["rows"]) == ("view", None)


def test_tables_at_an_older_snapshot_or_time(project: Lake) -> None:
    first = project.snapshot(1)
    for at in ("1", first.time.isoformat()):
        found = run("tables", "--at", at, "--output=json").json
        assert found["snapshot"]["id"] == 1
        assert [(t["name"], t["rows"]) for t in found["tables"]] == [("orders", 100)]
    assert run("tables", "--at", "0").out.splitlines()[-1] == "no tables"


@pytest.mark.parametrize(
    ("at", "code"), [("99", "snapshot"), ("1999-01-01", "snapshot"), ("soon", "invalid_input")]
)
def test_a_snapshot_that_is_not_there_is_an_error(project: Lake, at: str, code: str) -> None:
    ran = run("tables", "--at", at, "-o", "json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.error["code"] == code


def test_snapshots_as_text(project: Lake) -> None:
    lines = run("snapshots").out.splitlines()
    assert lines[0].split() == ["snapshot", "time", "(UTC)", "author", "message", "changes"]
    assert lines[1].split()[0] == "2"
    assert "deleted from table sales.orders" in lines[1]
    assert "begin [bold]here[/bold]" in lines[2]
    assert lines[3].split()[0] == "0"


def test_snapshots_as_json_with_a_limit(project: Lake) -> None:
    found = run("snapshots", "--limit", "2", "-ojson").json
    assert [s["id"] for s in found["snapshots"]] == [2, 1]
    assert found["more"] is True
    assert (found["snapshots"][1]["author"], found["snapshots"][0]["message"]) == ("ada", None)
    assert found["snapshots"][1]["changes_made"].startswith("created_schema")
    everything = run("snapshots", "--limit", "0", "-o", "json").json
    assert (len(everything["snapshots"]), everything["more"]) == (3, False)
    assert "--limit 0 for all" in run("snapshots", "--limit", "1").out


def test_options_may_stand_before_the_command(project: Lake, tmp_path: Path) -> None:
    Path("headwater.yaml").rename(tmp_path / "other.yaml")
    text = (tmp_path / "other.yaml").read_text().replace("data_path: data", "metadata_schema: public")
    (tmp_path / "other.yaml").write_text(text)
    config = str(tmp_path / "other.yaml")
    assert run("--config", config, "-o", "json", "snapshots").json["snapshots"]
    assert run("snapshots", "--config", config, "-o", "json").json["snapshots"]


def test_a_folder_without_a_lake_is_an_error_and_nothing_is_created() -> None:
    ran = run("tables")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error[not_found]: There is no lake in .headwater.\n")
    assert "headwater init" in ran.err
    assert os.listdir() == []


def test_bad_settings_are_an_error_with_their_place() -> None:
    Path("headwater.yaml").write_text("lake:\n  catalgo: x\n")
    ran = run("tables", "--output", "json")
    assert (ran.code, ran.error["code"], ran.error["place"]) == (1, "settings", "headwater.yaml:2:3")
    assert ran.error["hint"] == "Did you mean 'catalog'?"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabels"], "Did you mean 'tables'?"),
        (["tables", "--output", "xml"], "xml"),
        (["tables", "--nothing"], "--nothing"),
        (["snapshots", "--limit", "-1"], "-1"),
        (["snapshots", "--limit", "many"], "many"),
        (["zzz"], "Commands: init"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], message: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error[usage]: ")
    assert message in ran.err
    as_json = run("-o", "json", *arguments)
    assert as_json.code == 2
    if "xml" not in arguments:
        assert message in as_json.error["message"]


def test_no_command_shows_the_help_and_is_wrong_usage() -> None:
    ran = run()
    assert ran.code == 2
    assert "Commands:" in ran.err


def test_an_interrupted_command_ends_quietly_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(snapshots_module, "current", interrupted)
    ran = run("snapshots")
    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "")


def test_debug_shows_the_traceback_of_an_error() -> None:
    assert "Traceback" not in run("tables").err
    assert "Traceback" in run("tables", "--debug").err
    assert "Traceback" in run("--debug", "tables").err


def test_an_error_that_nobody_foresaw_is_short_unless_debugging(capsys: pytest.CaptureFixture[str]) -> None:
    for debug in (False, True):
        try:
            raise ZeroDivisionError("by zero")
        except ZeroDivisionError as error:
            _Unexpected(Invocation(debug=debug))(type(error), error, error.__traceback__)
        shown = capsys.readouterr().err
        assert "error[internal]: ZeroDivisionError: by zero" in shown
        assert ("Traceback" in shown) is debug
    _Unexpected(Invocation(output="json"))(ValueError, ValueError("x"), None)
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "internal"


def test_a_reader_that_has_enough_is_no_error(project: Lake) -> None:
    process = start("snapshots", cwd=Path.cwd())
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.wait(60)
    process.stderr.close()


def test_colours_are_for_terminals_only() -> None:
    plain = run("nosuch").err
    assert "\x1b" not in plain
    reader, writer = pty.openpty()
    process = start("nosuch", stderr=writer, env={"TERM": "xterm-256color", "NO_COLOR": ""})
    process.communicate(timeout=60)
    os.close(writer)
    shown = os.read(reader, 10_000).decode()
    os.close(reader)
    assert "\x1b[" in shown
    assert "nosuch" in shown


def test_text_wider_than_any_terminal_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    class Wide:
        exit_code = 0

        def as_dict(self) -> dict[str, str]:
            return {}

        def blocks(self) -> list[Line | Grid]:
            return [Grid(("a", "b"), (("x" * 500, "[red]y"),)), Line.of("z" * 500)]

    TextOutput().show(Wide())
    shown = capsys.readouterr().out.splitlines()
    assert shown[1] == "x" * 500 + "  [red]y"
    assert shown[2] == "z" * 500


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (3 << 50, "3072.0 TiB")],
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert size(count) == text


def test_the_installed_command_works() -> None:
    process = start("--version")
    assert process.communicate(timeout=60) == (f"headwater {__version__}\n", "")
    assert process.returncode == 0


def test_tables_behind_views_are_listed_on_request(project: Lake) -> None:
    with project.transaction() as tx:
        tx.create_schema("_headwater")
        tx.create_table("_headwater.main__revenue", {"total": "int64"})
    assert "_headwater" not in run("tables").out
    assert "_headwater.main__revenue" in run("tables", "--all").out
