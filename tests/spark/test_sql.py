"""SQL over the lake: what it reads and writes, DuckDB judges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import InvalidInputError, NotFoundError, SnapshotError, UnsupportedError
from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
from headwater.spark.sql import run_sql
from tests.support import duck


class Judged:
    """A lake that Spark and DuckDB work on in turn."""

    def __init__(self, lake: Lake, spark: SparkSession):
        self.lake = lake
        self.session = LakeSpark(lake, spark)
        self.db = duck(lake.dsn)

    def sql(self, text: str, **options: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.frame(text, **options).collect()]

    def frame(self, text: str, **options: Any) -> DataFrame:
        return run_sql(self.session, text, **options)

    def duck(self, text: str) -> list[tuple[Any, ...]]:
        return self.db.execute(text).fetchall()

    def same(self, text: str, judge: str | None = None) -> list[tuple[Any, ...]]:
        """Both give the same rows, in any order."""
        found = ordered(self.sql(text))
        assert found == ordered(self.duck(judge or text))
        return found


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(plain, row)) for row in rows), key=repr)


def plain(value: Any) -> Any:
    """Floats are sums in no certain order; numbers of other types are equal if their values are."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.10g}")
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


@pytest.fixture
def judged(lake: Lake, spark: SparkSession) -> Iterator[Judged]:
    made = Judged(lake, spark)
    yield made
    made.db.close()


ORDERS = (
    "CREATE SCHEMA sales",
    "CREATE TABLE sales.orders (id INTEGER, name VARCHAR, price DECIMAL(8,2), day DATE, ts TIMESTAMP)",
    "INSERT INTO sales.orders SELECT i, CASE WHEN i % 5 > 0 THEN 'n' || (i % 7) END, i / 4, "
    "DATE '2026-01-01' + i::INTEGER, TIMESTAMP '2026-01-01 10:00:00' + INTERVAL 1 HOUR * i "
    "FROM range(40) r(i)",
    "INSERT INTO sales.orders VALUES (100, NULL, NULL, NULL, NULL), (101, 'it''s', 1.5, NULL, NULL)",
    "DELETE FROM sales.orders WHERE id % 9 = 0",
    "CREATE TABLE customers (name VARCHAR, vip BOOLEAN)",
    "INSERT INTO customers SELECT 'n' || i, i % 2 = 0 FROM range(6) r(i)",
)


@pytest.fixture
def orders(judged: Judged) -> Judged:
    for statement in ORDERS:
        judged.db.execute(statement)
    return judged


# -- queries -------------------------------------------------------------------------------------------------


def test_tables_are_found_by_every_name_they_have(orders: Judged) -> None:
    row = orders.sql(
        "SELECT orders.id, sales.orders.id, lake.sales.orders.id, o.id FROM lake.sales.orders "
        "JOIN sales.orders o USING (id) JOIN customers ON customers.name = main.customers.name LIMIT 1"
    )

    assert len(set(row[0])) == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM sales.orders WHERE id > 30",
        "SELECT vip, count(*), sum(price) FROM sales.orders o LEFT JOIN customers c USING (name) GROUP BY vip",
        "WITH big AS (SELECT * FROM sales.orders WHERE price > 5) "
        "SELECT a.id, b.id FROM big a JOIN big b ON a.id = b.id + 1",
        "SELECT id FROM sales.orders o "
        "WHERE price = (SELECT max(price) FROM sales.orders i WHERE i.name = o.name)",
        "SELECT name FROM customers WHERE name NOT IN (SELECT name FROM sales.orders WHERE name IS NOT NULL)",
        "SELECT id FROM sales.orders EXCEPT SELECT id FROM sales.orders WHERE id % 2 = 0",
    ],
)
def test_queries_answer_as_in_duckdb(orders: Judged, query: str) -> None:
    assert orders.same(query)


def test_one_statement_reads_one_snapshot_and_older_ones_where_it_says_so(orders: Judged) -> None:
    inserted = orders.duck(
        "SELECT max(snapshot_id) FROM snapshots() WHERE changes::VARCHAR LIKE '%inserted%'"
    )
    before = orders.duck("SELECT count(*) FROM sales.orders AT (VERSION => 3)")
    time = orders.duck("SELECT snapshot_time::VARCHAR FROM snapshots() WHERE snapshot_id = 3")[0][0]

    assert inserted
    assert orders.sql("SELECT count(*) FROM sales.orders VERSION AS OF 3") == before
    assert orders.sql("SELECT count(*) FROM sales.orders VERSION AS OF '3'") == before
    assert orders.sql(f"SELECT count(*) FROM sales.orders TIMESTAMP AS OF '{time}'") == before
    assert orders.sql("SELECT count(*) FROM sales.orders", at=3) == before
    old_and_new = (
        "SELECT o.id FROM sales.orders VERSION AS OF 3 o LEFT ANTI JOIN sales.orders n ON o.id = n.id"
    )
    assert ordered(orders.sql(old_and_new)) == ordered([(i,) for i in range(0, 40, 9)])
    frame = orders.frame("SELECT count(*) FROM sales.orders")
    orders.db.execute("INSERT INTO sales.orders (id) VALUES (500)")
    assert frame.collect()[0][0] == orders.sql("SELECT count(*) - 1 FROM sales.orders")[0][0]


def test_the_time_of_a_snapshot_is_meant_in_the_sessions_time_zone(
    orders: Judged, spark: SparkSession
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        text = orders.duck(
            "SELECT strftime(snapshot_time::TIMESTAMP + INTERVAL 9 HOUR, '%Y-%m-%d %H:%M:%S.%f') "
            "FROM snapshots() WHERE snapshot_id = 3"
        )[0][0]
        found = orders.sql(f"SELECT count(*) FROM sales.orders TIMESTAMP AS OF '{text}'")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert found == orders.duck("SELECT count(*) FROM sales.orders AT (VERSION => 3)")


def test_sparks_own_tables_functions_and_temporary_views_stay(orders: Judged, spark: SparkSession) -> None:
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW customers AS SELECT 'only one' AS name")
    try:
        assert orders.sql("SELECT * FROM customers") == [("only one",)]
        assert orders.sql("SELECT count(*) FROM main.customers") == [(6,)]
    finally:
        spark.catalog.dropTempView("customers")
    assert orders.sql("SELECT count(*) FROM range(5) r JOIN sales.orders o ON o.id = r.id") == [(4,)]
    orders.sql("CREATE TEMPORARY VIEW some AS SELECT id FROM sales.orders WHERE id < 3")
    assert orders.sql("SELECT * FROM some ORDER BY id") == [(1,), (2,)]
    assert spark.table("some").count() == 2
    spark.catalog.dropTempView("some")
    assert orders.sql("SET spark.sql.shuffle.partitions") == [("spark.sql.shuffle.partitions", "2")]


def test_mistakes_are_explained(orders: Judged) -> None:
    with pytest.raises(NotFoundError, match=r"sales\.ordres(.|\n)*Did you mean sales\.orders\?"):
        orders.sql("SELECT * FROM sales.ordres")
    with pytest.raises(SnapshotError, match="does not exist at snapshot 0"):
        orders.sql("SELECT * FROM sales.orders VERSION AS OF 0")
    with pytest.raises(InvalidInputError, match="several statements"):
        orders.sql("SELECT 1; SELECT 2")
    with pytest.raises(ParseException):
        orders.sql("SELEC 1")
    with pytest.raises(AnalysisException, match="nope"):
        orders.sql("SELECT nope FROM sales.orders")
    assert orders.sql("SELECT 1;") == [(1,)]


def files_read(frame: DataFrame) -> int:
    frame.collect()
    found, plans = 0, [frame._jdf.queryExecution().executedPlan()]
    while plans:
        plan = plans.pop()
        if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            plans.append(plan.executedPlan())
        elif plan.getClass().getSimpleName().endswith("QueryStageExec"):
            plans.append(plan.plan())
        metric = plan.metrics().get("numFiles")
        found += metric.get().value() if metric.isDefined() else 0
        plans += [plan.children().apply(i) for i in range(plan.children().size())]
    return found


def test_files_are_pruned_by_conditions_of_the_statement(judged: Judged) -> None:
    judged.db.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    judged.db.execute("CREATE TABLE t (id INTEGER, x VARCHAR)")
    for start in range(0, 60, 10):
        judged.db.execute(f"INSERT INTO t SELECT i, 'x' || i FROM range({start}, {start + 10}) r(i)")
    judged.db.execute("CREATE VIEW late AS SELECT id AS key, x FROM t WHERE id >= 40")

    assert files_read(judged.frame("SELECT * FROM t")) == 6
    assert files_read(judged.frame("SELECT x FROM t WHERE id = 15")) == 1
    assert files_read(judged.frame("SELECT a.x FROM t a JOIN t b ON a.id = b.id WHERE a.id < 10")) == 2
    assert files_read(judged.frame("SELECT * FROM late")) == 2
    assert files_read(judged.frame("SELECT * FROM late WHERE key < 50")) == 1


# -- views ---------------------------------------------------------------------------------------------------

VIEWS = [
    "SELECT name, count(*), sum(price), avg(price), min(day), max(ts) FROM orders GROUP BY name",
    "SELECT id / 7, id // 7, id % 7, -id, price * 2, price / 3, id / 0, id // 0, id % 0, 0 / 0 FROM orders",
    "SELECT concat(name, '-', id), name || '!', upper(name), length(name), substr(name, 1, 1) FROM orders",
    "SELECT id, name LIKE 'n%', name ILIKE 'N1', name NOT LIKE '%2' FROM orders",
    "SELECT year(day), extract(month FROM ts), date_part('hour', ts), date_trunc('month', day), "
    "date_trunc('hour', ts), strftime(day, '%Y/%m'), second(ts) FROM orders",
    "SELECT id, row_number() OVER (PARTITION BY name ORDER BY price DESC, id) AS n FROM orders QUALIFY n = 1",
    "SELECT name, sum(id) FROM orders GROUP BY ALL",
    "SELECT name, id % 2, count(DISTINCT day) FROM orders GROUP BY 1, 2",
    "SELECT * EXCLUDE (price, ts) FROM orders",
    "SELECT name FROM orders ORDER BY name LIMIT 12",
    "SELECT name FROM orders ORDER BY name DESC, id LIMIT 12 OFFSET 3",
    "SELECT id, lag(id) OVER (ORDER BY name, id), rank() OVER (ORDER BY name) FROM orders",
    "SELECT o.id, c.vip FROM orders o LEFT JOIN main.customers c USING (name) WHERE c.vip IS NOT TRUE",
    "SELECT id IN (1, 2), id NOT IN (SELECT 3), EXISTS (SELECT 1 FROM customers WHERE vip) FROM orders",
    "SELECT name IS DISTINCT FROM 'n1', coalesce(name, '?'), nullif(id, 2), greatest(id, NULL, 3) FROM orders",
    "WITH q AS (SELECT id FROM orders) SELECT * FROM q UNION ALL SELECT 1 UNION SELECT 2",
    "SELECT CASE WHEN price > 3 THEN 'dear' WHEN price IS NULL THEN 'none' ELSE 'cheap' END k FROM orders",
    "SELECT count(*) FILTER (WHERE id > 3), bool_and(id > 0), round(sum(price), 1), median(id) FROM orders",
    "SELECT id::BIGINT, id::VARCHAR, price::DOUBLE, day::TIMESTAMP, ts::DATE, 'a\\b'::VARCHAR FROM orders",
    'SELECT sum(id) AS "Odd Name", name FROM orders GROUP BY ROLLUP (name)',
    "SELECT id FROM orders WHERE id IN (SELECT max(id) FROM orders GROUP BY name)",
    "VALUES (1, 'a'), (2, NULL)",
]


def test_views_of_duckdb_are_read_as_duckdb_reads_them(orders: Judged) -> None:
    for number, text in enumerate(VIEWS):
        orders.db.execute("USE lake.sales")
        orders.db.execute(f"CREATE VIEW sales.v{number} AS {text}")
        orders.db.execute("USE lake")
        frame = orders.frame(f"SELECT * FROM sales.v{number}")

        assert frame.columns == [
            c[0] for c in orders.db.execute(f"SELECT * FROM sales.v{number}").description
        ], text
        found = ordered([tuple(row) for row in frame.collect()])
        assert found == ordered(orders.duck(f"SELECT * FROM sales.v{number}")), text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT list(id) FROM sales.orders", "AGG"),
        ("SELECT price::INTEGER FROM sales.orders", "CAST"),
        ("SELECT string_agg(name, ',') FROM sales.orders", "not known"),
        ("SELECT log(id) FROM sales.orders", "log"),
        ("SELECT day - day FROM sales.orders", "otherwise"),
        ("SELECT name LIKE 'a\\%' FROM sales.orders", "LIKE"),
        ("SELECT DISTINCT ON (name) * FROM sales.orders", "not known"),
        ("SELECT regexp_matches(name, 'a') FROM sales.orders", "not known"),
        ("SELECT concat([id], [2]) FROM sales.orders", "not known"),
        ("SELECT price::DOUBLE::VARCHAR FROM sales.orders", "otherwise"),
        ("SELECT day + INTERVAL 1 DAY FROM sales.orders", "not known"),
    ],
)
def test_views_that_would_mean_something_else_are_refused(orders: Judged, text: str, why: str) -> None:
    orders.db.execute(f"CREATE VIEW sales.v AS {text}")

    with pytest.raises(UnsupportedError, match=r"View sales\.v cannot be read by Spark") as caught:
        orders.sql("SELECT * FROM sales.v")

    assert why in str(caught.value)


def test_views_of_views_have_their_own_names_schema_and_time(orders: Judged) -> None:
    orders.db.execute("USE lake.sales")
    orders.db.execute("CREATE VIEW sales.few(key, label) AS SELECT id, name FROM orders WHERE id < 5")
    orders.db.execute("USE lake")
    orders.db.execute(
        "CREATE VIEW twice AS SELECT a.key, b.label FROM sales.few a JOIN lake.sales.few b USING (key)"
    )
    version = orders.lake.snapshot().id
    found = orders.same("SELECT * FROM twice")

    orders.db.execute("DELETE FROM sales.orders WHERE id = 1")
    orders.db.execute("CREATE OR REPLACE VIEW sales.few(key, label) AS SELECT id, 'new' FROM sales.orders")

    assert ordered(orders.sql(f"SELECT * FROM twice VERSION AS OF {version}")) == found
    orders.same("SELECT * FROM twice")
