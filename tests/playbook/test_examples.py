"""Every example is run, and its envelopes are those that lie beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.engine import Headwater
from headwater.playbook.records.reporting import RunReport, StepReport
from tests.playbook.playing import open_headwater, play

EXAMPLES = Path(__file__).parents[2] / "examples" / "playbooks"
EXPECTED = EXAMPLES / "expected"
#: In the order in which they can be run: later ones ask for what earlier ones made.
ORDER = (
    "required_fields",
    "basic_table_operations",
    "distributed_loop",
    "catalog_introspection",
    "time_travel",
    "maintenance",
    "migration_after",
    "migration_before",
)
#: What is another one in each run.
VARIES = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?"), "<time>"),
    (re.compile(r"item \d+"), "item <item>"),
    (re.compile(r"(process_batches[^,]*, 1, )\d+"), r"\1<item>"),
)


@pytest.fixture
def place(new_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Headwater]:
    """A lake to play on, and the credentials that the examples name."""
    monkeypatch.chdir(tmp_path)
    for name in ("MY_POSTGRES_CREDENTIAL", "POSTGRES_CATALOG_AUTH"):
        monkeypatch.setenv(f"HEADWATER_CREDENTIAL_{name}", new_database)
    (tmp_path / "data").mkdir()
    with open_headwater(new_database, tmp_path) as opened:
        yield opened


def envelopes(report: RunReport) -> dict[str, Any]:
    """What the steps of a run gave back, with what varies taken out."""
    found = {step.record.step: _told(step) for step in report.steps}
    text = json.dumps(found)
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    told: dict[str, Any] = json.loads(text)
    return told


def _told(step: StepReport) -> Any:
    if step.record.loop is None:
        return step.envelope
    # Items end in any order, so what the catalog looked like after each is anybody's guess.
    return [item.envelope["result"] for item in step.items if item.envelope is not None]


def age(dsn: str) -> None:
    """Make the lake older than the time that the document asks for."""
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "UPDATE analytics.ducklake_snapshot SET snapshot_time = snapshot_time - interval '5 years'"
        )


def play_all(hw: Headwater, dsn: str, folder: Path, runner: str) -> Iterator[tuple[str, RunReport]]:
    """Play the examples one after the other."""
    for name in ORDER:
        if name == "time_travel":
            age(dsn)
        workload: dict[str, Any] = {} if name == "migration_before" else {"data_path": str(folder / "lakes")}
        if name == "migration_after":
            workload["catalog_connection"] = dsn
        workers = 2 if name == "distributed_loop" else 1
        report, _ = play(hw, EXAMPLES / f"{name}.yaml", workload, runner=runner, workers=workers)
        assert report.ok, (name, report.error)
        yield name, report


def test_every_example_gives_the_envelopes_beside_it(
    place: Headwater, new_database: str, tmp_path: Path
) -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == set(ORDER)
    for name, report in play_all(place, new_database, tmp_path, "local"):
        expected = json.loads((EXPECTED / f"{name}.json").read_text())
        assert envelopes(report) == expected, name
        if name == "basic_table_operations":
            assert report.vars == {"sale_count": 2}


def test_hostile_elements_are_data(place: Headwater, new_database: str, tmp_path: Path) -> None:
    hostile = [
        "x'); DROP TABLE processed; --",
        "'; DELETE FROM processed; '",
        '"; --',
        "{{ 7 * 7 }}",
        "\\'; --",
    ]
    book = tmp_path / "hostile.yaml"
    book.write_text(
        """
        workload: {elements: []}
        workflow:
          - {step: start, tool: ducklake, auth: postgres_catalog_auth, catalog_name: analytics,
             data_path: lakes, command: CREATE TABLE processed (element VARCHAR), next: load}
          - step: load
            loop: {collection: "{{ elements }}", element: element, mode: async}
            tool: ducklake
            auth: postgres_catalog_auth
            catalog_name: analytics
            data_path: lakes
            command: INSERT INTO processed VALUES ({{ loop.element }})
            next: look
          - {step: look, tool: ducklake, auth: postgres_catalog_auth, catalog_name: analytics,
             data_path: lakes, command: FROM processed}
        """
    )
    report, _ = play(place, book, {"elements": hostile})
    assert report.ok, report.error
    envelope = report.step("look").envelope
    assert envelope is not None
    found = [row["element"] for row in envelope["result"]["commands"][0]["rows"]]
    assert sorted(found) == sorted(hostile)
