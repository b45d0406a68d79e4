"""Sinks from Python, from SQL and on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater import Headwater
from headwater.algebra.statement_reader import without_secrets
from headwater.algebra.statements import AddSink, DropSink, ShowSinks, parse_stream_statement
from headwater.errors import HeadwaterError, InvalidInputError, NotFoundError, SettingsError
from headwater.refresh.options import settle, settle_sink
from headwater.sinks.model import sinks_of
from tests.sinks.conftest import Elsewhere

TOTALS = "SELECT region, sum(amount) AS total FROM sales.orders GROUP BY region"


@pytest.fixture
def hw(new_database: str, tmp_path: Path, spark: SparkSession) -> Iterator[Headwater]:
    with headwater.connect(new_database, data_path=tmp_path / "data", spark=spark) as opened:
        with opened.lake.transaction() as tx:
            tx.create_schema("sales")
            tx.create_table("sales.orders", {"region": "varchar", "amount": "int64"})
            tx.append("sales.orders", [{"region": r, "amount": a} for r, a in (("n", 1), ("s", 2), ("n", 4))])
        yield opened


def test_sinks_are_added_shown_and_dropped_by_statements(hw: Headwater, elsewhere: Elsewhere) -> None:
    hw.sql(f"CREATE STREAM TABLE sales.t WITH (ducklake_sink_mode = 'accumulate') AS {TOTALS}")
    hw.sql(
        f"ALTER STREAM TABLE sales.t ADD SINK shop WITH (sink = 'postgres', "
        f"postgres_sink_dsn = '{elsewhere.dsn} password=topsecret', postgres_sink_table = 'totals')"
    )
    hw.add_sink("sales.t", "copy", ducklake_sink_table="sales.copy")
    assert dict(elsewhere.fetch("SELECT region, total FROM totals")) == {"n": 5, "s": 2}
    shown = {row["sink"]: row.asDict() for row in hw.sql("SHOW SINKS FOR sales.t").collect()}
    assert {name: (row["kind"], row["mode"], row["current"]) for name, row in shown.items()} == {
        "ducklake": ("ducklake", "accumulate", True),
        "shop": ("postgres", "merge", True),
        "copy": ("ducklake", "merge", True),
    }
    assert "topsecret" not in str(shown)
    assert "dbname" in shown["shop"]["target"]
    hw.sql("INSERT INTO sales.orders VALUES ('w', 9)")
    hw.sql("REFRESH STREAM TABLE sales.t")
    assert dict(elsewhere.fetch("SELECT region, total FROM totals")) == {"n": 5, "s": 2, "w": 9}
    assert hw.duckdb().sql("SELECT count(*) FROM sales.copy").fetchone() == (3,)
    assert hw.sql("SELECT count(*) FROM sales.t").collect()[0][0] == 3  # Spark reads the log's view, too
    assert len(hw.sinks()) == 3
    assert hw.deliver() == []
    hw.create_stream_table("sales.t", TOTALS, or_replace=True, ducklake_sink_mode="merge")
    assert {status.sink for status in hw.sinks("sales.t")} == {"ducklake", "shop", "copy"}
    hw.sql("ALTER STREAM TABLE sales.t DROP SINK shop")
    assert hw.drop_sink("sales.t", "copy")
    assert not hw.drop_sink("sales.t", "copy", if_exists=True)
    assert [status.sink for status in hw.sinks()] == ["ducklake"]
    assert hw.lake.state().find_table("sales.copy") is None
    assert elsewhere.fetch("SELECT * FROM headwater.sink_position") == []
    for wrong in ("ducklake", "a b"):
        with pytest.raises(InvalidInputError):
            hw.add_sink("sales.t", wrong)
    with pytest.raises(SettingsError, match="no option 'shedule' of sinks"):
        hw.add_sink("sales.t", "x", shedule="5s")
    with pytest.raises(NotFoundError):
        hw.sql("ALTER STREAM TABLE sales.t DROP SINK nothing")


def test_options_are_set_back_and_others_stay(hw: Headwater, elsewhere: Elsewhere, tmp_path: Path) -> None:
    hw.create_stream_table("sales.t", TOTALS, ducklake_sink_compression="zstd")
    hw.sql(
        f"ALTER STREAM TABLE sales.t SET (sink = 'postgres', postgres_sink_dsn = '{elsewhere.dsn}', "
        "postgres_sink_table = 'sales.t')"
    )
    hw.sql("ALTER STREAM TABLE sales.t SET (postgres_sink_table = NULL, max_failures = 3)")
    options = hw.stream_tables.store.all()[0].definition.options
    assert options == {
        "ducklake_sink_compression": "zstd",
        "sink": "postgres",
        "postgres_sink_dsn": elsewhere.dsn,
        "max_failures": "3",
    }
    with pytest.raises(SettingsError, match="has no address"):
        hw.sql("ALTER STREAM TABLE sales.t SET (postgres_sink_dsn = NULL)")
    assert hw.stream_tables.store.all()[0].definition.options == options


@pytest.mark.parametrize(
    "options",
    [
        {"sink": "postgres"},
        {"ducklake_sink_table_id": "1", "ducklake_sink_table": "a.b"},
        {"ducklake_sink_table_id": "1", "ducklake_sink_path": "/tmp/x"},
        {"ducklake_sink_s3_access_key_id": "only one"},
    ],
)
def test_options_that_do_not_go_together(options: dict[str, str | None]) -> None:
    with pytest.raises(SettingsError):
        sinks_of(settle(options).options, {})


def test_a_sink_with_a_name_is_of_one_kind() -> None:
    with pytest.raises(SettingsError, match="several kinds"):
        sinks_of({}, {"both": settle_sink({"sink": "ducklake, postgres", "postgres_sink_dsn": "dbname=x"})})


def test_statements_about_sinks_are_read() -> None:
    found = parse_stream_statement("alter stream table a.b add sink c with (sink = postgres)")
    assert isinstance(found, AddSink)
    assert (found.name, found.sink, found.options[0].value) == (("a", "b"), "c", "postgres")
    dropped = parse_stream_statement("ALTER STREAM TABLE b DROP SINK IF EXISTS c;")
    assert dropped == DropSink("ALTER STREAM TABLE b DROP SINK IF EXISTS c;", ("b",), "c", True)
    assert parse_stream_statement("SHOW SINKS") == ShowSinks("SHOW SINKS")
    assert parse_stream_statement("SHOW SINKS FOR a.b") == ShowSinks("SHOW SINKS FOR a.b", ("a", "b"))
    assert parse_stream_statement("SELECT * FROM sinks") is None
    with pytest.raises(HeadwaterError):
        parse_stream_statement("SHOW SINKS OF a")


@pytest.mark.parametrize(
    "text",
    [
        "ALTER STREAM TABLE t SET (postgres_sink_dsn = 'host=h password=topsecret', sink = 'kafka')",
        "ALTER STREAM TABLE t SET (postgres_sink_dsn = 'postgresql://u:topsecret@h/d' sink = 1)",
        "ALTER STREAM TABLE t SET (postgres_sink_dsn = 'postgresql://u:topsecret@h/d",
        'ALTER STREAM TABLE t SET (ducklake_sink_s3_secret_access_key = "topsecret", x = 1)',
        "ALTER STREAM TABLE t SET (postgres_sink_dsn = 'postgresql://u:topsecret@[h/d')",
    ],
)
def test_errors_about_statements_show_no_password(hw: Headwater, text: str) -> None:
    with pytest.raises(HeadwaterError) as caught:
        hw.sql(text)
    assert "topsecret" not in str(caught.value) + str(caught.value.as_dict())
    assert len(without_secrets(text)) == len(text)


def test_a_query_keeps_what_looks_like_a_password(hw: Headwater) -> None:
    hw.sql("CREATE STREAM TABLE t AS SELECT region AS catalog FROM sales.orders WHERE region = 'n'")
    hw.sql("CREATE STREAM TABLE u AS SELECT * FROM t WHERE catalog = 'n'")
    assert hw.sql("SELECT count(*) FROM u").collect()[0][0] == 2
