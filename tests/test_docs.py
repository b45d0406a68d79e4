"""What the documents show is run, and must print what they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import headwater
from headwater.lake.embedded import EmbeddedServer
from tests.support import create_database

ROOT = Path(__file__).parent.parent


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prints_what_it_says(document: str, folder: Path) -> None:
    """The first Python of a document prints the first text of it, and nothing else."""
    code = blocks(document, "python")[0]
    run = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == blocks(document, "text")[0]
    assert run.stderr == ""


def test_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    prints_what_it_says("README.md", tmp_path)


@pytest.mark.slow
def test_the_guide_to_spark_prints_what_it_says(tmp_path: Path) -> None:
    prints_what_it_says("docs/spark.md", tmp_path)


def test_the_guide_to_stream_tables_prints_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    (folder / "streams" / "sales").mkdir(parents=True)
    prints_what_it_says("docs/stream-tables.md", folder)
    (folder / "streams" / "sales" / "mean.sql").write_text(blocks("docs/stream-tables.md", "sql")[1])
    for shown in blocks("docs/stream-tables.md", "console"):
        command, _, printed = shown.removeprefix("$ headwater ").partition("\n")
        assert output_of(folder, *command.split()) == printed


def output_of(folder: Path, *arguments: str) -> str:
    headwater_command = str(Path(sys.executable).with_name("headwater"))
    return subprocess.run(
        [headwater_command, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_the_guide_to_stream_tables_names_only_options_that_exist() -> None:
    from headwater.refresh.options import NAMES

    table = (ROOT / "docs/stream-tables.md").read_text().split("| option |")[1].split("##")[0]
    first = ["".join(row.split("|")[1:2]) for row in table.splitlines()]
    named = [name for cell in first for name in re.findall(r"`([a-z_]+)`", cell)]
    assert named
    assert set(named) <= set(NAMES)


def test_the_guide_to_the_lake_runs(tmp_path: Path) -> None:
    _, transaction, reading = blocks("docs/lake.md", "python")
    rows = pa.table({"id": [1, 2], "price": ["150.00", "-1.00"], "tags": [["new"], []]})
    with headwater.connect(folder=tmp_path / "lake") as hw:
        names = {"hw": hw, "headwater": headwater, "arrow_table": rows}
        exec(transaction, names)
        now = hw.lake.snapshot().time.isoformat()
        adapted = reading.replace("snapshot=7", "snapshot=1").replace("VERSION => 7", "VERSION => 1")
        exec(adapted.replace("2026-11-01T00:00:00Z", now), names)
        assert hw.lake.read("sales.orders").column("price").to_pylist()[0] == 165


def test_the_guide_names_only_options_that_exist() -> None:
    from headwater.lake.options import OPTIONS

    table = (ROOT / "docs/lake.md").read_text().split("| option |")[1].split("##")[0]
    for row in table.splitlines():
        cells = row.split("|")
        if len(cells) > 2:
            for name in re.findall(r"`([a-z_]+)`", cells[1]):
                assert name in OPTIONS


@pytest.mark.slow
def test_the_guide_to_sinks_prints_what_it_says(tmp_path: Path) -> None:
    prints_what_it_says("docs/sinks.md", tmp_path)


def test_the_guide_to_sinks_names_the_options_that_exist() -> None:
    from headwater.sinks.model import SINK_OPTIONS

    table = (ROOT / "docs/sinks.md").read_text().split("| option |")[1].split("##")[0]
    for name in SINK_OPTIONS:
        assert name in table or f"`{name.removeprefix('ducklake_sink_s3')}`" in table, name


TUTORIALS = ("modern-data-stack", "postgres-to-lake", "outbox")
#: Runs the code of documents in one process, each in a folder and with a database of its own.
RUN_ALL = """
import json, os, sys
for code, folder, dsn in json.load(open(sys.argv[1])):
    os.environ["SHOP_DSN"] = dsn
    os.makedirs(folder)
    os.chdir(folder)
    print("#", os.path.basename(folder), flush=True)
    names = {}
    exec(code, names)
    names["hw"].close()
"""


@pytest.mark.slow
def test_the_tutorials_print_what_they_say(tmp_path: Path, pg_server: EmbeddedServer) -> None:
    work, expected = [], ""
    for name in TUTORIALS:
        document = f"docs/tutorials/{name}.md"
        code = "\n".join(blocks(document, "python"))
        work.append((code, str(tmp_path / name), create_database(pg_server.dsn)))
        expected += f"# {name}\n" + "".join(blocks(document, "text"))
    (tmp_path / "work.json").write_text(json.dumps(work))
    run = subprocess.run(
        [sys.executable, "-c", RUN_ALL, str(tmp_path / "work.json")], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == expected
    assert run.stderr == ""
