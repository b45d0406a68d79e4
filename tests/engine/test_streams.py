"""Stream tables from Python and from SQL: what is understood, what is refused, what is returned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater
from headwater import Headwater
from headwater.errors import (
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    QueryError,
    SettingsError,
    StreamTableError,
)
from headwater.refresh.functions import function_inputs, function_path, load_function
from tests.engine import stream_functions
from tests.spark.conftest import spark  # noqa: F401  (one session for all tests of the process)

TOTALS = "SELECT region, sum(amount) AS total FROM sales.orders GROUP BY region"


@pytest.fixture
def hw(new_database: str, tmp_path: Path, spark: SparkSession) -> Iterator[Headwater]:  # noqa: F811
    with headwater.connect(new_database, data_path=tmp_path / "data", spark=spark) as opened:
        with opened.lake.transaction() as tx:
            tx.create_schema("sales")
            tx.create_table("sales.orders", {"region": "varchar", "amount": "int64"})
            tx.append("sales.orders", [{"region": r, "amount": a} for r, a in (("n", 1), ("s", 2), ("n", 4))])
        yield opened


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def test_the_life_of_a_stream_table(hw: Headwater) -> None:
    made = hw.create_stream_table(
        "sales.totals", TOTALS, schedule="5S", sink="ducklake", ducklake_sink_mode="merge", max_failures=3
    )
    assert (made.action, made.rows_inserted) == ("FULL", 2)
    (stream,) = hw.stream_tables.store.all()
    assert (stream.definition.schedule, stream.definition.options) == (
        "5s",
        {"sink": "ducklake", "ducklake_sink_mode": "merge", "max_failures": "3"},
    )
    hw.sql("INSERT INTO sales.orders VALUES ('w', 8)")
    (refreshed,) = rows(hw.sql("REFRESH STREAM TABLE sales.totals"))
    assert (refreshed["name"], refreshed["action"], refreshed["rows_inserted"]) == (
        "sales.totals",
        "INCREMENTAL",
        1,
    )
    assert hw.verify("sales.totals").ok
    assert {row["region"]: row["total"] for row in rows(hw.sql("SELECT * FROM sales.totals"))} == {
        "n": 5,
        "s": 2,
        "w": 8,
    }
    (shown,) = rows(hw.sql("SHOW STREAM TABLES"))
    assert (shown["name"], shown["status"], shown["mode"], shown["pending_rows"]) == (
        "sales.totals",
        "active",
        "auto",
        0,
    )
    ((plan,),) = hw.fetch("EXPLAIN STREAM TABLE lake.sales.totals").rows
    assert plan == str(hw.explain("sales.totals"))
    assert [row.action for row in hw.history("sales.totals")] == ["INCREMENTAL", "FULL"]
    assert [row.snapshot_id for row in hw.provenance("sales.totals")] == [
        refreshed["snapshot_id"],
        made.snapshot_id,
    ]
    assert str(hw.lineage("sales.totals", "TOTAL")) == (
        "total ← sales.orders.amount\n  decided by sales.orders.region"
    )

    assert hw.fetch("ALTER STREAM TABLE sales.totals SUSPEND").columns == ()
    assert hw.refresh() == []
    hw.alter_stream_table("sales.totals", status="active", schedule=None, refresh_mode="strict")
    (status,) = hw.status()
    assert (status.status, status.schedule, status.mode) == ("active", None, "strict")
    hw.sql("ALTER STREAM TABLE sales.totals SET (max_failures = 4)")
    (stream,) = hw.stream_tables.store.all()
    assert (stream.definition.options["max_failures"], stream.definition.options["sink"]) == ("4", "ducklake")
    other = TOTALS.replace("GROUP BY", "WHERE amount > 2 GROUP BY")
    replaced = rows(hw.sql(f"CREATE OR REPLACE STREAM TABLE sales.totals AS {other}"))
    assert (replaced[0]["action"], replaced[0]["rows_inserted"]) == ("REINITIALIZE", 2)
    assert hw.sql("DROP STREAM TABLE sales.totals").columns == []
    assert not hw.drop_stream_table("sales.totals", if_exists=True)


def test_errors_in_a_statement_point_at_their_place(hw: Headwater) -> None:
    def failure(text: str, kind: type[HeadwaterError]) -> HeadwaterError:
        with pytest.raises(kind) as caught:
            hw.sql(text)
        return caught.value

    error = failure("CREATE STREAM TABLE t\nAS SELECT regoin\nFROM sales.orders", QueryError)
    assert (error.line, error.column) == (2, 11)
    error = failure("CREATE STREAM TABLE t\nWITH (shedule = '5s') AS SELECT 1 AS a", SettingsError)
    assert (error.line, error.column, error.hint) == (2, 7, "Did you mean 'schedule'?")
    error = failure("CREATE STREAM TABLE t SCHEDULE 'soon' AS SELECT 1 AS a", SettingsError)
    assert (error.line, error.column) == (1, 32)
    error = failure("ALTER STREAM TABLE t SET (sink = 'kafka')", SettingsError)
    assert (error.line, error.column) == (1, 27)
    error = failure("CREATE STREAM TABLE t AS SELECT nonsense(region) AS a FROM sales.orders", QueryError)
    assert error.message == "Spark cannot run the query of main.t."
    assert "nonsense" in error.detail.lower()
    assert "SQLSTATE" not in error.detail
    failure("REFRESH STREAM TABLE nothing", NotFoundError)
    failure("DROP STREAM TABLE nothing", NotFoundError)
    failure("DROP STREAM TABLE other.sales.totals", InvalidInputError)
    assert hw.sql("DROP STREAM TABLE IF EXISTS nothing").collect() == []


def test_a_refresh_that_fails_is_an_error_of_the_statement(hw: Headwater) -> None:
    hw.create_stream_table("totals", TOTALS)
    hw.sql("ALTER TABLE sales.orders RENAME COLUMN amount TO price")
    hw.sql("INSERT INTO sales.orders VALUES ('w', 8)")
    with pytest.raises(StreamTableError, match=r"main\.totals"):
        hw.sql("REFRESH STREAM TABLE totals")
    (result,) = hw.refresh("totals")
    assert result.action == "FAILED"


def test_arguments_that_cannot_be_used(hw: Headwater) -> None:
    with pytest.raises(SettingsError, match="refresh_mode"):
        hw.create_stream_table("t", TOTALS, refresh_mode="fast")
    with pytest.raises(SettingsError) as caught:
        hw.create_stream_table("t", TOTALS, max_failure=3)
    assert caught.value.hint == "Did you mean 'max_failures'?"
    with pytest.raises(InvalidInputError):
        hw.create_stream_table("t", TOTALS, max_failures=2.5)
    with pytest.raises(InvalidInputError):
        hw.create_stream_table("t", TOTALS, if_not_exists=True, or_replace=True)
    with pytest.raises(InvalidInputError):
        hw.create_stream_table("t", TOTALS, inputs={"orders": "sales.orders"})
    with pytest.raises(InvalidInputError):
        hw.alter_stream_table("t", status="asleep")


def test_a_function_makes_a_stream_table(hw: Headwater) -> None:
    made = hw.create_stream_table("totals", stream_functions.totals, inputs={"orders": "sales.orders"})
    assert made.rows_inserted == 2
    hw.sql("INSERT INTO sales.orders VALUES ('s', 8)")
    (done,) = hw.refresh("totals")
    assert (done.action, done.rows_inserted, done.rows_deleted) == ("FULL", 1, 1)
    assert {row["region"]: row["total"] for row in rows(hw.sql("SELECT * FROM totals"))} == {"n": 5, "s": 10}
    assert hw.lineage("totals").tables == (("sales.orders", "main.totals"),)
    again = hw.create_stream_table(
        "totals", stream_functions.totals, inputs={"orders": "sales.orders"}, or_replace=True
    )
    assert again.reason_code == "same_definition"


def test_functions_are_found_again_by_their_path() -> None:
    path = function_path(stream_functions.large)
    assert path == "tests.engine.stream_functions:large"
    assert load_function(path) is stream_functions.large


def test_parameters_are_given_the_tables_of_their_names() -> None:
    assert function_inputs(stream_functions.large, {"orders": "sales.orders"}) == {
        "orders": "sales.orders",
        "customers": "main.customers",
    }
    with pytest.raises(InvalidInputError, match="has no parameter order"):
        function_inputs(stream_functions.large, {"order": "sales.orders"})
    with pytest.raises(InvalidInputError, match="frames"):
        function_inputs(stream_functions.anything, {})


def test_functions_that_a_later_refresh_could_not_import_are_refused() -> None:
    def nested(orders: DataFrame) -> DataFrame:
        return orders

    main: Any = type(nested)(nested.__code__, {}, "main")
    main.__module__, main.__qualname__ = "__main__", "main"
    for function, message in (
        (lambda orders: orders, "lambda"),
        (nested, "inside another function"),
        (main, "program that is running"),
        (stream_functions.original, "another function"),
        (print, "not a function of a module"),
    ):
        with pytest.raises(InvalidInputError, match=message) as caught:
            function_path(function)
        assert caught.value.hint
    with pytest.raises(NotFoundError):
        load_function("tests.engine.stream_functions:nothing")
    with pytest.raises(NotFoundError):
        load_function("tests.no_such_module:nothing")
