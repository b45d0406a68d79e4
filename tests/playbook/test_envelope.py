"""Envelopes: exactly their fields, and values that survive JSON."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.playbook.results.envelope import error_envelope
from headwater.playbook.results.values import fetch, unique_names
from headwater.playbook.task import TaskError
from tests.playbook.lakes import Desk


@pytest.fixture
def desk(new_database: str, tmp_path: Path) -> Iterator[Desk]:
    opened = Desk(new_database, tmp_path)
    yield opened
    opened.close()


def session() -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL arrow_lossless_conversion = true")
    return connection.cursor(), connection.cursor()


CURSOR, SIDE = session()


def value(expression: str, parameters: list[Any] | None = None) -> Any:
    """A value as the envelope has it, after a way through JSON."""
    CURSOR.execute(f"SELECT {expression} AS x", parameters or [])
    _, rows, _ = fetch(CURSOR, SIDE, 10)
    return json.loads(json.dumps(rows[0]["x"], allow_nan=False))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("true", True),
        ("9007199254740993", 9007199254740993),
        ("170141183460469231731687303715884105727::HUGEINT", 170141183460469231731687303715884105727),
        ("(-170141183460469231731687303715884105727 - 1)::HUGEINT", -170141183460469231731687303715884105728),
        ("1.10::DECIMAL(10,2)", "1.10"),
        ("99999999999999999999999999999999999999::DECIMAL(38,0)", "9" * 38),
        ("'NaN'::DOUBLE", "NaN"),
        ("'Infinity'::FLOAT", "Infinity"),
        ("'-Infinity'::DOUBLE", "-Infinity"),
        ("TIMESTAMPTZ '2025-01-06 10:00:00+02'", "2025-01-06T08:00:00+00:00"),
        ("TIMESTAMPTZ '2025-01-06 10:00:00.123456+00'", "2025-01-06T10:00:00.123456+00:00"),
        ("TIMESTAMP '2025-01-06 10:00:00.5'", "2025-01-06T10:00:00.5"),
        ("'2025-01-06 10:00:00.123456789'::TIMESTAMP_NS", "2025-01-06T10:00:00.123456789"),
        ("'infinity'::TIMESTAMPTZ", "infinity"),
        ("DATE '2025-01-06'", "2025-01-06"),
        ("DATE '0044-03-15 (BC)'", "0044-03-15 (BC)"),
        ("TIME '10:00:00.5'", "10:00:00.5"),
        ("'10:00:00+02'::TIMETZ", "10:00:00+02:00"),
        ("INTERVAL '1 year 2 days 3 hours'", "1 year 2 days 03:00:00"),
        ("'5dfd24ef-e18b-49aa-bd3e-07ca641ed6e4'::UUID", "5dfd24ef-e18b-49aa-bd3e-07ca641ed6e4"),
        ("'\\xAA\\x00'::BLOB", "qgA="),
        ("'10101'::BIT", "10101"),
        ("'a'::ENUM('a', 'b')", "a"),
        ("'{\"a\": 1}'::JSON", '{"a": 1}'),
        ("[1, NULL, 3]", [1, None, 3]),
        ("[1.5, 2.5]::DECIMAL(3,1)[2]", ["1.5", "2.5"]),
        ("{'a': 1.50::DECIMAL(5,2), 'b c': [DATE '2025-01-06'], 'n': 'nan'::DOUBLE}",
         {"a": "1.50", "b c": ["2025-01-06"], "n": "NaN"}),
        ("NULL::STRUCT(a INTEGER)", None),
        ("MAP {[1]: 2.0::DECIMAL(2,1)}", [{"key": [1], "value": "2.0"}]),
        ("union_value(k := 1)", "1"),
        ("[[{'x': '\\xAA'::BLOB}]]", [[{"x": "qg=="}]]),
        ("NULL", None),
    ],
)  # fmt: skip
def test_values_of_every_kind(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@given(st.decimals(min_value=-(10**20), max_value=10**20, places=8))
@settings(max_examples=40)
def test_decimals_keep_every_digit(number: Decimal) -> None:
    assert Decimal(value("?::DECIMAL(38, 8)", [str(number)])) == number


@given(st.binary(max_size=40))
@settings(max_examples=40)
def test_bytes_come_back(content: bytes) -> None:
    assert base64.b64decode(value("?::BLOB", [content])) == content


@given(st.datetimes())
@settings(max_examples=40)
def test_instants_come_back(moment: datetime) -> None:
    written = value("?::TIMESTAMPTZ", [moment.replace(tzinfo=UTC).isoformat(sep=" ")])
    assert datetime.fromisoformat(written) == moment.replace(tzinfo=UTC)


@given(
    st.floats()
    | st.integers(-(2**127), 2**127 - 1)
    | st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"))
)
@settings(max_examples=60)
def test_numbers_and_texts_come_back(given_value: float | int | str) -> None:
    found = value("?::HUGEINT" if isinstance(given_value, int) else "?", [given_value])
    if isinstance(given_value, float) and not math.isfinite(given_value):
        assert str(float(found)) == str(given_value)
    else:
        assert found == given_value


@given(st.lists(st.sampled_from(["a", "b", "a_1", "a_2", "A"]), max_size=8))
def test_columns_of_the_same_name_stay_apart(names: list[str]) -> None:
    found = unique_names(names)
    assert len(set(found)) == len(names)
    assert all(new.startswith(old) for new, old in zip(found, names, strict=True))


def test_an_envelope_has_exactly_the_fields_that_playbooks_know(desk: Desk) -> None:
    outcome = desk.outcome(
        "CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1), (2)", "SELECT id, id FROM t ORDER BY id"
    )
    assert outcome.envelope is not None
    assert set(outcome.envelope) == {"status", "result", "catalog_info"}
    assert outcome.envelope["status"] == "ok"
    assert outcome.envelope["result"] == {
        "command_count": 3,
        "commands": [
            {"command_index": 0, "affected_rows": 0, "status": "executed"},
            {"command_index": 1, "affected_rows": 2, "status": "executed"},
            {
                "command_index": 2,
                "row_count": 2,
                "columns": ["id", "id_1"],
                "rows": [{"id": 1, "id_1": 1}, {"id": 2, "id_1": 2}],
            },
        ],
    }
    info = outcome.envelope["catalog_info"]
    assert list(info) == ["catalog_name", "snapshot_count", "latest_snapshot", "table_count", "tables"]
    assert json.loads(json.dumps(outcome.envelope)) == outcome.envelope


def test_what_it_says_about_the_catalog_is_true(desk: Desk) -> None:
    desk.run("CREATE TABLE t (id INTEGER)")
    for number in range(7):
        desk.run(f"INSERT INTO t VALUES ({number})")
    desk.run("CREATE SCHEMA s; CREATE TABLE s.u (id INTEGER); DROP TABLE t")
    outcome = desk.outcome(
        "SELECT snapshot_id, snapshot_time FROM ducklake_snapshots('analytics') ORDER BY 1"
    )
    assert outcome.envelope is not None
    snapshots = outcome.envelope["result"]["commands"][0]["rows"]
    info = outcome.envelope["catalog_info"]
    assert info["catalog_name"] == "analytics"
    assert info["snapshot_count"] == len(snapshots)
    assert {"snapshot_id": info["latest_snapshot"]["snapshot_id"],
            "snapshot_time": info["latest_snapshot"]["snapshot_time"]} == snapshots[-1]  # fmt: skip
    assert [(table["schema_name"], table["table_name"]) for table in info["tables"]] == [("s", "u")]
    assert info["table_count"] == 1


def test_rows_beyond_the_bound_are_counted_and_left_out(desk: Desk) -> None:
    (entry,) = desk.run("SELECT i, DATE '2025-01-01' + i::INTEGER AS d FROM range(50000) r(i)", max_rows=3)
    assert entry["row_count"] == 50000
    assert [row["i"] for row in entry["rows"]] == [0, 1, 2]
    assert entry["rows"][2]["d"] == str(date(2025, 1, 3))


def test_a_failure_is_typed() -> None:
    error = TaskError("sql", "BinderException", "no", command_index=1, position=7)
    assert error_envelope(error) == {
        "status": "error",
        "error": {
            "kind": "sql",
            "code": "BinderException",
            "message": "no",
            "retryable": False,
            "command_index": 1,
            "position": 7,
        },
    }
