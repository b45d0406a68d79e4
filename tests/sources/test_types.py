"""Every type, by copy and by capture, value by value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from headwater.errors import HeadwaterError
from headwater.sources.model import Form, TableStatus
from headwater.sources.types import PgType, lake_type
from tests.sources.conftest import World

_UUID = "0123abcd-0000-4000-8000-00000000ffff"
_UTC = dt.UTC
#: (type, PostgreSQL's literal, type in the lake, how DuckDB shows it, the value)
VALUES: list[tuple[str, str, str, str, Any]] = [
    ("boolean", "true", "boolean", "{}", True),
    ("smallint", "-32768", "int16", "{}", -32768),
    ("integer", "2147483647", "int32", "{}", 2**31 - 1),
    ("bigint", "-9223372036854775808", "int64", "{}", -(2**63)),
    ("oid", "4294967295", "int64", "{}", 2**32 - 1),
    ("real", "'3.4028235e38'", "float32", "{}", 3.4028234663852886e38),
    ("double precision", "0.1::float8 + 0.2", "float64", "{}", 0.1 + 0.2),
    ("double precision", "'Infinity'", "float64", "{}", float("inf")),
    ("double precision", "'NaN'", "float64", "isnan({})", True),
    ("double precision", "'-0'", "float64", "{}::varchar", "-0.0"),
    ("numeric(10,2)", "-12345678.90", "decimal(10,2)", "{}", Decimal("-12345678.90")),
    ("numeric(38,10)", "1234567890123456789012345678.0123456789", "decimal(38,10)", "{}::varchar",
     "1234567890123456789012345678.0123456789"),
    ("numeric(5,-2)", "12300", "decimal(7,0)", "{}", Decimal(12300)),
    ("numeric(2,4)", "0.0012", "decimal(4,4)", "{}", Decimal("0.0012")),
    ("numeric", "1.50", "varchar", "{}", "1.50"),
    ("numeric", "'NaN'", "varchar", "{}", "NaN"),
    ("numeric(50,1)", "12345678901234567890123456789012345678901234.5", "varchar", "{}",
     "12345678901234567890123456789012345678901234.5"),
    ("date", "'2024-02-29'", "date", "{}", dt.date(2024, 2, 29)),
    ("date", "'infinity'", "date", "{}::varchar", "infinity"),
    ("date", "'0044-03-15 BC'", "date", "{}::varchar", "0044-03-15 (BC)"),
    ("date", "'12345-06-07'", "date", "{}::varchar", "12345-06-07"),
    ("time", "'23:59:59.999999'", "time", "{}", dt.time(23, 59, 59, 999999)),
    ("timetz", "'12:00:00+02'", "varchar", "{}", "12:00:00+02"),
    ("timestamp", "'2020-01-02 03:04:05.678901'", "timestamp", "{}",
     dt.datetime(2020, 1, 2, 3, 4, 5, 678901)),  # noqa: DTZ001
    ("timestamp", "'-infinity'", "timestamp", "{}::varchar", "-infinity"),
    ("timestamp", "'0044-03-15 12:00:01 BC'", "timestamp", "{}::varchar", "0044-03-15 (BC) 12:00:01"),
    ("timestamptz", "'2020-07-02 03:04:05.6+05:30'", "timestamptz", "{}",
     dt.datetime(2020, 7, 1, 21, 34, 5, 600000, _UTC)),
    ("timestamptz", "'infinity'", "timestamptz", "{}::varchar", "infinity"),
    ("timestamptz", "'0001-01-01 00:00:00+00 BC'", "timestamptz", "{}::varchar",
     "0001-01-01 (BC) 00:00:00+00"),
    ("interval", "'1 year 2 mons -3 days 04:05:06.000007'", "varchar", "{}", "P1Y2M-3DT4H5M6.000007S"),
    ("text", "E'a\\n\"b\"\\t\\\\ ,é€\U0001f600'", "varchar", "{}", "a\n\"b\"\t\\ ,é€\U0001f600"),
    ("text", "''", "varchar", "{}", ""),
    ("varchar(5)", "'null'", "varchar", "{}", "null"),
    ("char(4)", "'ab'", "varchar", "{}", "ab  "),
    ("uuid", f"'{_UUID}'", "uuid", "{}", UUID(_UUID)),
    ("bytea", "'\\x0001ff'", "blob", "{}", b"\x00\x01\xff"),
    ("json", "'{\"b\": 1.10,  \"a\":[1e400]}'", "json", "{}::varchar", '{"b": 1.10,  "a":[1e400]}'),
    ("jsonb", "'{\"b\": 1.10, \"a\": [null]}'", "json", "{}::varchar", '{"a": [null], "b": 1.10}'),
    ("jsonb", "'null'", "json", "{}", None),
    ("integer[]", "'{1,NULL,-3}'", "list", "{}", [1, None, -3]),
    ("integer[]", "'{}'", "list", "{}", []),
    ("integer[]", "'[5:6]={1,2}'", "list", "{}", [1, 2]),
    ("numeric(6,3)[]", "'{1.5,-2.25}'", "list", "{}", [Decimal("1.500"), Decimal("-2.250")]),
    ("float8[]", "'{NaN,-Infinity}'", "list", "{}::varchar", "[nan, -inf]"),
    ("text[]", "ARRAY['a,b', 'NULL', NULL, '\"']", "list", "{}", ["a,b", "NULL", None, '"']),
    ("timestamptz[]", "ARRAY['2020-01-01 00:00+00'::timestamptz]", "list", "{}",
     [dt.datetime(2020, 1, 1, tzinfo=_UTC)]),
    ("uuid[]", f"ARRAY['{_UUID}'::uuid]", "list", "{}", [UUID(_UUID)]),
    ("boolean[]", "'{t,f}'", "list", "{}", [True, False]),
    ("integer[][]", "'{{1,2},{3,4}}'", "json", "{}::varchar", "[[1,2],[3,4]]"),
    ("jsonb[]", "ARRAY['{\"a\": 1}'::jsonb]", "json", "{}::varchar", '[{"a": 1}]'),
    ("mood", "'so so'", "varchar", "{}", "so so"),
    ("mood[]", "ARRAY['so so']::mood[]", "list", "{}", ["so so"]),
    ("price", "12.5", "decimal(8,2)", "{}", Decimal("12.50")),
    ("pair", "ROW(1, 'x')", "json", "{}::varchar", '{"a":1,"b":"x"}'),
    ("inet", "'10.0.0.1/8'", "varchar", "{}", "10.0.0.1/8"),
    ("bit(3)", "B'101'", "varchar", "{}", "101"),
    ("int4range", "'[1,5)'", "varchar", "{}", "[1,5)"),
    ("tstzrange", "'[2020-01-01 00:00+00,)'", "varchar", "{}", '["2020-01-01 00:00:00+00",)'),
    ("money", "'12.34'", "varchar", "{}", "$12.34"),
    ("point", "'(1,2.5)'", "varchar", "{}", "(1,2.5)"),
]  # fmt: skip


def test_every_type_is_copied_and_captured_exactly(world: World) -> None:
    world.run(
        "CREATE TYPE mood AS ENUM ('good', 'so so')",
        "CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE >= 0)",
        "CREATE TYPE pair AS (a int, b text)",
    )
    columns = ", ".join(f"c{i} {kind}" for i, (kind, *_) in enumerate(VALUES))
    literals = ", ".join(f"({literal})::{kind}" for kind, literal, *_ in VALUES)
    nulls = ", ".join("NULL" for _ in VALUES)
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    world.run(f"INSERT INTO t SELECT 1, {literals}", f"INSERT INTO t SELECT 2, {nulls}")
    world.add("t")
    world.run(
        f"INSERT INTO t SELECT 3, {literals}",
        f"INSERT INTO t SELECT 4, {nulls}",
        f"INSERT INTO t SELECT 5, {nulls}",
        "DELETE FROM t WHERE id = 5",
    )
    world.capture()
    stored = {column.name: column.type for column in world.lake.table("t").columns}
    for i, (kind, literal, type_, shown, value) in enumerate(VALUES):
        assert stored[f"c{i}"] == type_, kind
        rows = world.con.execute(f"SELECT {shown.format(f'c{i}')} FROM t ORDER BY id").fetchall()
        assert [row[0] for row in rows] == [value, None, value, None], f"{kind} {literal}"
    # Replaced and found again: the text of a value is the same whenever it is printed.
    world.run("UPDATE t SET c1 = 7 WHERE id = 1", "DELETE FROM t WHERE id = 3")
    assert world.capture().stopped == ()


def test_rows_of_every_type_are_found_without_a_key(world: World) -> None:
    world.run("CREATE TYPE mood AS ENUM ('so so')", "CREATE DOMAIN price AS numeric(8,2)")
    world.run("CREATE TYPE pair AS (a int, b text)")
    columns = ", ".join(f"c{i} {kind}" for i, (kind, *_) in enumerate(VALUES))
    literals = ", ".join(f"({literal})::{kind}" for kind, literal, *_ in VALUES)
    world.run(f"CREATE TABLE t ({columns})", *[f"INSERT INTO t SELECT {literals}"] * 3)
    world.add("t")
    world.run("DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t)", f"INSERT INTO t SELECT {literals}")
    world.run("DELETE FROM t WHERE ctid = (SELECT max(ctid) FROM t)", "UPDATE t SET c1 = 8")
    result = world.capture()
    assert (result.stopped, result.rows_deleted, result.rows_inserted) == ((), 3, 2)
    assert world.here("SELECT count(*), min(c1) FROM t") == {(2, 8): 1}


@pytest.mark.parametrize(
    ("kind", "good", "bad", "shown"),
    [
        ("numeric(10,2)", "1", "'NaN'", "NaN"),
        ("timestamp", "'2020-01-01'", "'294270-01-01'", "294270-01-01"),
        ("integer[]", "'{1}'", "'{{1},{2}}'", "several dimensions"),
    ],
)
def test_what_the_lake_cannot_hold_stops_the_table_alone(
    world: World, kind: str, good: str, bad: str, shown: str
) -> None:
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, a {kind})", "CREATE TABLE u (id int PRIMARY KEY)")
    world.run(f"INSERT INTO t VALUES (1, {good})")
    world.add("t", "u")
    world.run(f"INSERT INTO t VALUES (2, {bad})", "INSERT INTO u VALUES (1)")
    assert world.capture().stopped == ("public.t",)
    world.check("u")
    (table, _) = world.sources.get("shop").tables
    assert table.status is TableStatus.STOPPED
    assert shown in str(table.error)
    assert world.here("SELECT id FROM t") == {(1,): 1}
    world.sources.remove("shop", drop_tables=True)
    with pytest.raises(HeadwaterError, match=shown):
        world.add("t", "u")
    assert world.sources.all() == []
    assert world.there("SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater_capture'") == {(0,): 1}
    world.run("DELETE FROM t WHERE id = 2")
    world.add("t")
    world.check("(SELECT id FROM t)", "SELECT id FROM t")


@pytest.mark.parametrize(
    ("columns", "message"),
    [('a int, "A" int', "differ only in case"), ("rowid int", "rowid"), ("", "no columns")],
)
def test_tables_that_the_lake_cannot_have_are_refused(world: World, columns: str, message: str) -> None:
    world.run(f"CREATE TABLE t ({columns})")
    with pytest.raises(HeadwaterError, match=message):
        world.add("t")
    assert world.sources.all() == []


def test_generated_columns_are_mirrored_if_they_are_stored(world: World) -> None:
    virtual = ", b int GENERATED ALWAYS AS (id * 3) VIRTUAL" if world.pg.info.server_version >= 180000 else ""
    world.run(
        f"CREATE TABLE t (id int PRIMARY KEY, a int GENERATED ALWAYS AS (id * 2) STORED{virtual})",
        "INSERT INTO t VALUES (1)",
    )
    world.add("t")
    world.run("INSERT INTO t VALUES (2)", "UPDATE t SET id = 5 WHERE id = 1")
    world.capture()
    world.check("t", "SELECT id, a FROM t")


def test_types_inside_an_array_decide_its_form() -> None:
    element = PgType(23, "int4", "b", -1)
    assert lake_type(PgType(1007, "_int4", "b", -1, 1, element)) == ("int32[]", Form.LIST)
    assert lake_type(PgType(1007, "_int4", "b", -1, 2, element)) == ("json", Form.DOCUMENT)
