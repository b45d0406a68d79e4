"""Values on their way to PostgreSQL: what arrives is what was sent, by either way."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.embedded import EmbeddedServer
from headwater.lake.format.types import arrow_schema
from headwater.lake.model import Column
from headwater.sinks.postgres_values import are_plain, postgres_csv, postgres_rows, postgres_type

COLUMNS = [
    Column(number, name, kind)
    for number, (name, kind) in enumerate(
        [
            ("i", "int64"),
            ("f", "float64"),
            ("x", "decimal(12,3)"),
            ("t", "varchar"),
            ("b", "boolean"),
            ("d", "date"),
            ("n", "timestamp"),
            ("z", "timestamptz"),
        ],
        1,
    )
]
TEXT = some.text(some.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
MOMENT = some.datetimes(dt.datetime.fromisoformat("0001-01-02"), dt.datetime.fromisoformat("9999-12-30")).map(
    lambda moment: moment.replace(fold=0)
)
ROW = some.tuples(
    some.none() | some.integers(-(2**63), 2**63 - 1),
    some.none() | some.floats(),
    some.none() | some.decimals(-999_999_999, 999_999_999, places=3, allow_nan=False),
    some.none() | TEXT | some.sampled_from(["", "\\.", "\\N", '"', "a,b", "\n", "\r\n", "NULL"]),
    some.none() | some.booleans(),
    some.none() | some.dates(),
    some.none() | MOMENT,
    some.none() | MOMENT.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
)


@pytest.fixture(scope="module")
def connection(pg_server: EmbeddedServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(pg_server.dsn, autocommit=True) as opened:
        opened.execute("SET TIME ZONE 'UTC'")
        yield opened


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=some.lists(ROW, min_size=1, max_size=5))
def test_plain_values_arrive_exactly_by_both_ways(
    connection: psycopg.Connection[Any], rows: list[tuple[Any, ...]]
) -> None:
    schema = arrow_schema(COLUMNS, field_ids=False)
    sent = pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
    assert are_plain(COLUMNS)
    defined = ", ".join(f"{column.name} {postgres_type(column)}" for column in COLUMNS)
    with connection.transaction(force_rollback=True):
        connection.execute(f"CREATE TEMP TABLE fast ({defined})".encode())
        connection.execute("CREATE TEMP TABLE slow (LIKE fast)")
        with connection.cursor().copy("COPY fast FROM STDIN (FORMAT csv)") as copy:
            copy.write(postgres_csv(sent))
        with connection.cursor().copy("COPY slow FROM STDIN") as copy:
            for row in postgres_rows(sent, COLUMNS):
                copy.write_row(row)
        for table in ("fast", "slow"):
            found = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
            assert list(map(comparable, found)) == list(map(comparable, rows)), table


def comparable(row: tuple[Any, ...]) -> list[str]:
    return ["nan" if isinstance(value, float) and math.isnan(value) else repr(_same(value)) for value in row]


def _same(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return Decimal(value).normalize() if isinstance(value, Decimal) else value


def test_what_has_no_form_in_postgresql_is_said() -> None:
    with pytest.raises(UnsupportedError, match="geometry"):
        postgres_type(Column(1, "g", "geometry"))
    with pytest.raises(InvalidInputError) as caught:
        list(postgres_rows(pa.table({"j": ['"a\0"']}), [Column(1, "j", "json")]))
    assert "NUL" in (caught.value.detail or "")
