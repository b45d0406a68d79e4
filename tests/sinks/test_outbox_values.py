"""Values of the lake in JSON, exactly."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.sinks.outbox import TargetKind, check_headers, json_line, parse_target
from headwater.sinks.outbox_values import json_values

US = pa.timestamp("us")
UTC_US = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([True, None]), [True, None]),
        (pa.array([2**63 - 1, -(2**63)], pa.int64()), [2**63 - 1, -(2**63)]),
        (pa.array([0.1, float("nan"), float("inf"), float("-inf")]), [0.1, "NaN", "Infinity", "-Infinity"]),
        (pa.array([Decimal("12.50"), Decimal("-0.00")], pa.decimal128(38, 2)), ["12.50", "0.00"]),
        (pa.array([date(2026, 3, 1)]), ["2026-03-01"]),
        (pa.array([-719529, 2932897, 2**31 - 1], pa.date32()), ["-0001-12-31", "+10000-01-01", "infinity"]),
        (pa.array([time(8, 30, 0, 250000)], pa.time64("us")), ["08:30:00.25"]),
        (pa.array([1_772_353_800_000_000], pa.int64()).view(US), ["2026-03-01T08:30:00"]),
        (pa.array([datetime(2026, 3, 1, 8, 30, 1, 1, tzinfo=UTC)], UTC_US), ["2026-03-01T08:30:01.000001Z"]),
        (pa.array([-(2**63) + 1], pa.int64()).view(US), ["-infinity"]),
        (pa.array([b"\x00\xff", b""]), ["AP8=", ""]),
        (pa.array([(1, 2, 3_500_000_000)], pa.month_day_nano_interval()), ["P1M2DT3.5S"]),
        (pa.array([[1, None], None, []], pa.list_(pa.int32())), [[1, None], None, []]),
        (
            pa.array([{"a": Decimal("1.5"), "b": [b"x"]}, None, {"a": None, "b": None}]),
            [{"a": "1.5", "b": ["eA=="]}, None, {"a": None, "b": None}],
        ),
        (
            pa.array([[(1, Decimal("2"))], None], pa.map_(pa.int32(), pa.decimal128(5, 0))),
            [[{"key": 1, "value": "2"}], None],
        ),
        (pa.array([UUID(int=7).bytes], pa.uuid()), ["00000000-0000-0000-0000-000000000007"]),
    ],
)
def test_values_are_exact(array: Any, expected: list[Any]) -> None:
    found = json_values(array)
    assert found == expected
    assert json.loads(json_line(found)) == expected
    # A part of a larger array, and one in pieces.
    doubled = pa.chunked_array([array, array])
    assert json_values(doubled) == expected * 2
    assert json_values(pa.concat_arrays([array, array]).slice(len(array))) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_back_as_they_were(number: float) -> None:
    assert json.loads(json_line(json_values(pa.array([number])))) == [number]


@given(st.datetimes())
def test_timestamps_are_iso(moment: datetime) -> None:
    assert datetime.fromisoformat(json_values(pa.array([moment], US))[0]) == moment


def test_targets_are_understood_and_their_secrets_not_shown() -> None:
    assert parse_target("stdout").kind is TargetKind.STDOUT
    assert parse_target("table:audit.log").place == "audit.log"
    hook = parse_target("https://hooks.example.org:8443/services/T0/s3cret?token=x")
    assert hook.shown == "https://hooks.example.org:8443/…"
    for wrong in ("kafka:topic", "ftp://x/y", ""):
        with pytest.raises(UnsupportedError):
            parse_target(wrong)
    for wrong in ("https://", "https://user:pw@host/", "http://a b/"):
        with pytest.raises(InvalidInputError) as error:
            parse_target(wrong)
        assert "pw" not in str(error.value)


@pytest.mark.parametrize("headers", [{"Content-Type": "x"}, {"A b": "x"}, {"A": "x\r\nB: y"}])
def test_headers_that_would_break_the_request_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        check_headers(headers)
