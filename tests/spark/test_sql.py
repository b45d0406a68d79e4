"""SQL over the lake: what it reads and writes, DuckDB judges."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import InvalidInputError, NotFoundError, SnapshotError, UnsupportedError
from headwater.lake.embedded import EmbeddedServer
from headwater.lake.lake import Lake
from headwater.spark.connector import LakeSpark
from headwater.spark.sql import run_sql
from tests.support import create_database, duck


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


@pytest.fixture(scope="module")
def shared(
    pg_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[Judged]:
    """The same, for tests that change nothing."""
    lake = Lake.open(create_database(pg_server.dsn), data_path=tmp_path_factory.mktemp("shared"))
    made = Judged(lake, spark)
    for statement in ORDERS:
        made.db.execute(statement)
    yield made
    made.db.close()
    lake.close()


# -- queries -------------------------------------------------------------------------------------------------


def test_tables_are_found_by_every_name_they_have(shared: Judged) -> None:
    row = shared.sql(
        "SELECT orders.id, sales.orders.id, lake.sales.orders.id, o.id FROM lake.sales.orders "
        "JOIN sales.orders o USING (id) JOIN customers ON customers.name = main.customers.name LIMIT 1"
    )

    assert len(set(row[0])) == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM sales.orders WHERE id > 30",
        "SELECT vip, count(*), sum(price) FROM sales.orders LEFT JOIN customers USING (name) GROUP BY vip",
        "WITH big AS (SELECT * FROM sales.orders WHERE price > 5) "
        "SELECT a.id, b.id FROM big a JOIN big b ON a.id = b.id + 1",
        "SELECT id FROM sales.orders o "
        "WHERE price = (SELECT max(price) FROM sales.orders i WHERE i.name = o.name)",
        "SELECT id FROM sales.orders WHERE name NOT IN (SELECT name FROM customers WHERE vip)",
        "SELECT id FROM sales.orders EXCEPT SELECT id FROM sales.orders WHERE id % 2 = 0",
    ],
)
def test_queries_answer_as_in_duckdb(shared: Judged, query: str) -> None:
    assert shared.same(query)


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
    shared: Judged, spark: SparkSession
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        text = shared.duck(
            "SELECT strftime(snapshot_time::TIMESTAMP + INTERVAL 9 HOUR, '%Y-%m-%d %H:%M:%S.%f') "
            "FROM snapshots() WHERE snapshot_id = 3"
        )[0][0]
        found = shared.sql(f"SELECT count(*) FROM sales.orders TIMESTAMP AS OF '{text}'")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert found == shared.duck("SELECT count(*) FROM sales.orders AT (VERSION => 3)")


def test_sparks_own_tables_functions_and_temporary_views_stay(shared: Judged, spark: SparkSession) -> None:
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW customers AS SELECT 'only one' AS name")
    try:
        assert shared.sql("SELECT * FROM customers") == [("only one",)]
        assert shared.sql("SELECT count(*) FROM main.customers") == [(6,)]
    finally:
        spark.catalog.dropTempView("customers")
    assert shared.sql("SELECT count(*) FROM range(5) r JOIN sales.orders o ON o.id = r.id") == [(4,)]
    shared.sql("CREATE TEMPORARY VIEW some AS SELECT id FROM sales.orders WHERE id < 3")
    assert shared.sql("SELECT * FROM some ORDER BY id") == [(1,), (2,)]
    assert spark.table("some").count() == 2
    spark.catalog.dropTempView("some")
    assert shared.sql("SET spark.sql.shuffle.partitions") == [("spark.sql.shuffle.partitions", "2")]


def test_mistakes_are_explained(shared: Judged) -> None:
    with pytest.raises(NotFoundError, match=r"sales\.ordres(.|\n)*Did you mean sales\.orders\?"):
        shared.sql("SELECT * FROM sales.ordres")
    with pytest.raises(SnapshotError, match="does not exist at snapshot 0"):
        shared.sql("SELECT * FROM sales.orders VERSION AS OF 0")
    with pytest.raises(InvalidInputError, match="several statements"):
        shared.sql("SELECT 1; SELECT 2")
    with pytest.raises(ParseException):
        shared.sql("SELEC 1")
    with pytest.raises(AnalysisException, match="nope"):
        shared.sql("SELECT nope FROM sales.orders")
    assert shared.sql("SELECT 1;") == [(1,)]


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
    "SELECT name IS DISTINCT FROM 'n1', coalesce(name, '?'), nullif(id, 2), least(id, NULL, 3) FROM orders",
    "WITH q AS (SELECT id FROM orders) SELECT * FROM q UNION ALL SELECT 1 UNION SELECT 2",
    "SELECT CASE WHEN price > 3 THEN 'dear' WHEN price IS NULL THEN 'none' ELSE 'cheap' END k FROM orders",
    "SELECT count(*) FILTER (WHERE id > 3), bool_and(id > 0), round(sum(price), 1), median(id) FROM orders",
    "SELECT id::BIGINT AS a, id::VARCHAR AS b, price::DOUBLE AS c, day::TIMESTAMP AS d, ts::DATE AS e, "
    "'a\\b' AS f FROM orders",
    'SELECT sum(id) AS "Odd Name", name FROM orders GROUP BY ROLLUP (name)',
    "SELECT id FROM orders WHERE id IN (SELECT max(id) FROM orders GROUP BY name)",
    "VALUES (1, 'a'), (2, NULL)",
    "SELECT u.col1, k FROM (VALUES (1, 'a')) u JOIN (VALUES (1, 2)) v(k, l) ON u.col0 = v.k",
    "SELECT o.id, EXISTS (SELECT 1 FROM main.customers c WHERE c.name = o.name) AS known FROM orders o",
]


def test_views_of_duckdb_are_read_as_duckdb_reads_them(shared: Judged) -> None:
    for number, text in enumerate(VIEWS):
        shared.db.execute("USE lake.sales")
        shared.db.execute(f"CREATE VIEW sales.v{number} AS {text}")
        shared.db.execute("USE lake")
        frame = shared.frame(f"SELECT * FROM sales.v{number}")

        assert frame.columns == [
            c[0] for c in shared.db.execute(f"SELECT * FROM sales.v{number}").description
        ], text
        found = ordered([tuple(row) for row in frame.collect()])
        assert found == ordered(shared.duck(f"SELECT * FROM sales.v{number}")), text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT list(id) FROM sales.orders", "AGG"),
        ("SELECT price::INTEGER FROM sales.orders", "CAST"),
        ("SELECT string_agg(name, ',') FROM sales.orders", "not known"),
        ("SELECT log(id) FROM sales.orders", "log"),
        ("SELECT * FROM sales.orders JOIN customers USING (name)", "not known"),
        ("SELECT a.id, b.id FROM sales.orders a, sales.orders b", "two columns of one name"),
        ("SELECT try_cast(name AS INTEGER) FROM sales.orders", "otherwise"),
        ("SELECT day - day FROM sales.orders", "otherwise"),
        ("SELECT name LIKE 'a\\%' FROM sales.orders", "LIKE"),
        ("SELECT DISTINCT ON (name) * FROM sales.orders", "not known"),
        ("SELECT regexp_matches(name, 'a') FROM sales.orders", "not known"),
        ("SELECT concat([id], [2]) FROM sales.orders", "not known"),
        ("SELECT price::DOUBLE::VARCHAR FROM sales.orders", "otherwise"),
        ("SELECT day + INTERVAL 1 DAY FROM sales.orders", "not known"),
    ],
)
def test_views_that_would_mean_something_else_are_refused(shared: Judged, text: str, why: str) -> None:
    shared.db.execute(f"CREATE OR REPLACE VIEW sales.v AS {text}")

    with pytest.raises(UnsupportedError, match=r"View sales\.v cannot be read by Spark") as caught:
        shared.sql("SELECT * FROM sales.v")

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


# -- rows ----------------------------------------------------------------------------------------------------


def counts(rows: list[tuple[Any, ...]]) -> tuple[int, int, int]:
    """Inserted, updated, deleted."""
    ((affected, inserted, updated, deleted, snapshot_id),) = rows
    assert affected == inserted + updated + deleted
    assert snapshot_id is not None
    return inserted, updated, deleted


def test_insert_matches_columns_by_place_by_list_and_by_name(orders: Judged) -> None:
    orders.db.execute("CREATE TABLE t (id INTEGER, x VARCHAR DEFAULT 'none', p DECIMAL(6,2))")

    assert counts(orders.sql("INSERT INTO t VALUES (1, 'a', 1.5), (2, DEFAULT, 2), (3, NULL, NULL)")) == (
        3,
        0,
        0,
    )
    orders.sql("INSERT INTO t (p, id) SELECT price, id FROM sales.orders WHERE id IN (4, 5)")
    orders.sql("INSERT INTO t BY NAME SELECT 'seven' AS x, 7L AS id")
    orders.sql("WITH q AS (SELECT max(id) + 1 AS id FROM t) INSERT INTO main.t SELECT id, 'self', 0 FROM q")

    assert orders.duck("FROM t ORDER BY id") == [
        (1, "a", Decimal("1.50")),
        (2, "none", Decimal("2.00")),
        (3, None, None),
        (4, "none", Decimal("1.00")),
        (5, "none", Decimal("1.25")),
        (7, "seven", None),
        (8, "self", Decimal("0.00")),
    ]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("INSERT INTO customers VALUES ('x')", "takes 2 columns, and the query gives 1"),
        ("INSERT INTO customers (name, nope) VALUES ('x', true)", "no column 'nope'"),
        ("INSERT INTO customers VALUES ('x', 'y')", "'vip' of table main.customers is boolean"),
        ("INSERT INTO custommers VALUES ('x', true)", r"Did you mean main\.customers"),
        ("INSERT INTO customers SELECT * FROM sales.ordres", r"Did you mean sales\.orders"),
        ("UPDATE customers SET nope = 1", "no column 'nope'"),
        ("UPDATE customers SET vip = true, VIP = false", "set twice"),
        (
            "MERGE INTO customers c USING sales.orders o ON c.name = o.name "
            "WHEN MATCHED THEN UPDATE SET vip = id > 0",
            "several rows",
        ),
        ("INSERT OVERWRITE customers PARTITION (vip = true) SELECT 'x'", "not partitioned by 'vip'"),
        ("INSERT INTO customers REPLACE WHERE vip VALUES ('x', false)", "does not meet the condition"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_changes_nothing(shared: Judged, statement: str, problem: str) -> None:
    before = shared.lake.snapshot().id

    with pytest.raises((InvalidInputError, NotFoundError), match=problem):
        shared.sql(statement)

    assert shared.lake.snapshot().id == before


def test_delete_and_update_by_conditions_that_ask_other_tables(orders: Judged) -> None:
    copy = "CREATE TABLE judge AS FROM sales.orders"
    orders.db.execute(copy)
    for statement in (
        "DELETE FROM sales.orders WHERE name IN (SELECT name FROM customers WHERE vip) AND id < 20",
        "UPDATE sales.orders SET price = (SELECT max(length(name)) FROM customers), name = 'x' WHERE id > 30",
        "DELETE FROM sales.orders AS o "
        "WHERE EXISTS (SELECT 1 FROM customers c WHERE c.name = o.name AND o.id > 25)",
        "UPDATE sales.orders SET price = price + 1 WHERE price IS NOT NULL OR id = 100",
    ):
        done = orders.sql(statement)
        judge = statement.replace("sales.orders", "judge")
        ((expected,),) = orders.duck(judge)
        assert done[0][0] == expected, statement

    assert ordered(orders.duck("FROM sales.orders")) == ordered(orders.duck("FROM judge"))


def test_rows_keep_their_ids_through_updates(orders: Judged) -> None:
    before = orders.duck("SELECT rowid FROM sales.orders WHERE id IN (5, 100) ORDER BY id")

    orders.sql("UPDATE sales.orders o SET o.name = DEFAULT, price = o.price * 2 WHERE o.id IN (5, 100)")

    assert orders.duck("SELECT rowid FROM sales.orders WHERE id IN (5, 100) ORDER BY id") == before


def test_conditions_prune_files_only_by_what_they_say_of_the_table_itself(judged: Judged) -> None:
    judged.db.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    judged.db.execute("CREATE TABLE t (id INTEGER, x INTEGER)")
    judged.db.execute("CREATE TABLE u (id INTEGER, x INTEGER)")
    for start in (0, 10, 20):
        judged.db.execute(f"INSERT INTO t SELECT i, i FROM range({start}, {start + 10}) r(i)")
    judged.db.execute("INSERT INTO u VALUES (1000, 5), (1000, 15)")

    # The subquery's condition is about a column of the same place in another table.
    done = judged.sql("DELETE FROM t WHERE x IN (SELECT x FROM u WHERE id > 500) AND t.x < 12")

    assert counts(done) == (0, 0, 1)
    assert judged.duck("SELECT count(*), count(*) FILTER (x = 5) FROM t") == [(29, 0)]


def test_merge_with_every_kind_of_clause(orders: Judged) -> None:
    orders.db.execute("CREATE TABLE t AS SELECT id, name, price FROM sales.orders WHERE id BETWEEN 10 AND 30")
    orders.db.execute("CREATE TEMPORARY TABLE judge AS FROM t")  # DuckLake's own MERGE takes fewer clauses
    statement = (
        "MERGE INTO {t} AS t USING (SELECT id, name, price * 2 AS price FROM sales.orders WHERE id > 20) s "
        "ON t.id = s.id "
        "WHEN MATCHED AND s.id % 3 = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET price = s.price, name = concat(t.name, '!') "
        "WHEN NOT MATCHED AND s.id < 100 THEN INSERT (id, price) VALUES (s.id, s.price) "
        "WHEN NOT MATCHED BY SOURCE AND t.id < 12 THEN UPDATE SET name = 'alone' "
        "WHEN NOT MATCHED BY SOURCE AND t.id < 15 THEN DELETE"
    )

    done = orders.sql(statement.format(t="t"))

    # DuckDB's concat leaves NULLs out, Spark's does not.
    orders.duck(statement.format(t="judge").replace("concat(t.name, '!')", "t.name || '!'"))
    assert ordered(orders.duck("FROM t")) == ordered(orders.duck("FROM judge"))
    assert min(counts(done)) > 0


def test_merge_takes_all_columns_and_new_ones(orders: Judged) -> None:
    orders.sql(
        "WITH s AS (SELECT 'n1' AS name, true AS vip, 7 AS points UNION ALL SELECT 'new', false, 8) "
        "MERGE WITH SCHEMA EVOLUTION INTO customers USING s ON customers.name = s.name "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    orders.sql(
        "MERGE INTO main.customers USING sales.orders ON main.customers.name = sales.orders.name "
        "WHEN NOT MATCHED AND id = 101 THEN INSERT (name, vip) VALUES (upper(name), DEFAULT)"
    )

    assert orders.duck("FROM customers WHERE points IS NOT NULL ORDER BY name") == [
        ("n1", True, 7),
        ("new", False, 8),
    ]
    assert orders.duck("SELECT name FROM customers WHERE vip IS NULL") == [("IT'S",)]


def test_overwrites_replace_all_a_condition_or_partitions(judged: Judged, spark: SparkSession) -> None:
    judged.sql("CREATE TABLE t (id INT, k STRING) PARTITIONED BY (k)")
    judged.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'a'), (4, NULL)")

    assert counts(judged.sql("INSERT OVERWRITE t PARTITION (k = 'a') SELECT 10")) == (1, 0, 2)
    assert judged.duck("FROM t ORDER BY id") == [(2, "b"), (4, None), (10, "a")]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        assert counts(judged.sql("INSERT OVERWRITE t VALUES (20, 'b')")) == (1, 0, 1)
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert counts(judged.sql("INSERT INTO t REPLACE WHERE t.id >= 10 VALUES (11, 'c')")) == (1, 0, 2)
    assert judged.duck("FROM t ORDER BY id") == [(4, None), (11, "c")]
    judged.sql("INSERT OVERWRITE t SELECT id + 1, k FROM t")
    assert judged.duck("FROM t ORDER BY id") == [(5, None), (12, "c")]
    assert counts(judged.sql("TRUNCATE TABLE t")) == (0, 0, 2)
    assert judged.duck("FROM t") == []


def test_a_statement_reads_the_snapshot_that_it_changes(
    orders: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict runs the statement again, on what the other writer left."""
    from headwater.spark.sql import changing

    tries = []
    real = changing.delete_rows

    def disturbed(*arguments: Any) -> int:
        found = real(*arguments)
        tries.append(found)
        if len(tries) == 1:
            orders.db.execute("INSERT INTO customers VALUES ('it''s', true)")
            orders.db.execute("UPDATE sales.orders SET price = 9 WHERE id = 101")
        return found

    monkeypatch.setattr(changing, "delete_rows", disturbed)
    orders.sql("DELETE FROM sales.orders WHERE name IN (SELECT name FROM customers)")

    assert len(tries) == 2
    assert orders.duck(
        "SELECT count(*) FROM sales.orders WHERE name IN (FROM (SELECT name FROM customers))"
    ) == [(0,)]


def test_new_columns_and_tables_that_are_gone(judged: Judged) -> None:
    judged.sql("CREATE SCHEMA old")
    judged.sql("CREATE TABLE old.t (id INT) PARTITIONED BY (k STRING)")
    judged.sql("INSERT WITH SCHEMA EVOLUTION INTO old.t SELECT 1, 'a', 2.5D AS more")
    version = judged.lake.snapshot().id
    assert judged.duck("FROM old.t") == [(1, "a", 2.5)]

    judged.sql("DROP SCHEMA old CASCADE")

    assert judged.sql(f"SELECT * FROM old.t VERSION AS OF {version}") == [(1, "a", 2.5)]
    with pytest.raises(NotFoundError):
        judged.sql("SELECT * FROM old.t")


def test_changes_of_a_table_are_a_table(shared: Judged) -> None:
    found = shared.sql(
        "SELECT c.id, _change_type FROM table_changes('sales.orders', 4) c WHERE c.id IN (9, 100)"
    )

    assert ordered(found) == ordered([(9, "delete"), (100, "insert")])


# -- definitions ---------------------------------------------------------------------------------------------


def test_tables_are_created_altered_and_dropped(judged: Judged) -> None:
    judged.sql("CREATE SCHEMA hr COMMENT 'people'")
    judged.sql(
        "CREATE TABLE hr.staff (id INT NOT NULL COMMENT 'key', name STRING DEFAULT 'it''s', born DATE, "
        "seen TIMESTAMP DEFAULT current_timestamp(), tags ARRAY<STRING>, home STRUCT<zip: INT, City: STRING>)"
        " PARTITIONED BY (months(born), bucket(4, id)) COMMENT 'people' TBLPROPERTIES ('k' = 'v')"
    )
    judged.sql("INSERT INTO hr.staff (id, born, seen) VALUES (1, DATE'2026-05-06', DEFAULT)")
    judged.db.execute("INSERT INTO hr.staff (id, tags, home) VALUES (2, ['a'], {'zip': 3, 'City': 'x'})")
    expected = [(1, "it's", None, True), (2, "it's", ["a"], True)]
    assert judged.duck("SELECT id, name, tags, seen IS NOT NULL FROM hr.staff ORDER BY id") == expected
    keys = judged.lake.table("hr.staff").partition
    assert keys is not None
    assert [field.transform for field in keys.fields] == ["year", "month", "bucket(4)"]

    for change in (
        "ADD COLUMNS (level INT DEFAULT 3 COMMENT 'rank', home.street STRING)",
        "ALTER COLUMN level TYPE BIGINT",
        "RENAME COLUMN name TO label",
        "ALTER COLUMN level SET DEFAULT 4 + 5",
        "ALTER COLUMN label DROP DEFAULT",
        "ALTER COLUMN level SET NOT NULL",
        "ALTER COLUMN id DROP NOT NULL",
        "DROP COLUMN IF EXISTS tags",
        "SET TBLPROPERTIES ('a' = 'b')",
        "UNSET TBLPROPERTIES ('k')",
        "CLUSTER BY (id)",
        "RENAME TO people",
    ):
        judged.sql(f"ALTER TABLE hr.staff {change}")
    judged.sql("COMMENT ON TABLE hr.people IS 'all of them'")
    judged.db.execute("INSERT INTO hr.people (born) VALUES (NULL)")
    rows = judged.duck("SELECT id, label, level, home FROM hr.people ORDER BY id NULLS LAST")
    assert rows == [
        (1, "it's", 3, None),
        (2, "it's", 3, {"zip": 3, "City": "x", "street": None}),
        (None, None, 9, None),
    ]
    table = judged.lake.table("hr.people")
    assert (table.comment, table.tags.get("a"), table.tags.get("k")) == ("all of them", "b", None)
    assert [field.expression for field in table.sort] == ["id"]

    judged.sql("DROP TABLE hr.people")
    judged.sql("DROP TABLE IF EXISTS hr.people")
    with pytest.raises(NotFoundError):
        judged.sql("DROP TABLE hr.people")
    judged.sql("DROP SCHEMA hr CASCADE")
    assert judged.sql("SHOW SCHEMAS") == [("main",)]


def test_tables_are_made_of_queries_in_one_snapshot(orders: Judged) -> None:
    before = orders.lake.snapshot().id
    done = orders.sql("CREATE TABLE kept PARTITIONED BY (name) AS SELECT * FROM sales.orders WHERE id < 20")
    assert orders.lake.snapshot().id == before + 1 == done[0][4]
    assert ordered(orders.duck("FROM kept")) == ordered(orders.duck("FROM sales.orders WHERE id < 20"))

    done = orders.sql("CREATE OR REPLACE TABLE kept AS SELECT id * 2 AS twice FROM kept")
    assert orders.lake.snapshot().id == before + 2
    assert orders.duck("SELECT sum(twice) FROM kept") == orders.duck(
        "SELECT sum(id) * 2 FROM sales.orders WHERE id < 20"
    )
    assert counts(orders.sql("CREATE TABLE IF NOT EXISTS kept AS SELECT 1 AS x")) == (0, 0, 0)
    with pytest.raises(NotFoundError):
        orders.sql("REPLACE TABLE nope AS SELECT 1 AS x")
    with pytest.raises(InvalidInputError, match="void"):
        orders.sql("CREATE TABLE empty AS SELECT NULL AS x")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (a INT) USING parquet",
        "CREATE TABLE t (a INT) LOCATION 'somewhere'",
        "CREATE TABLE t (a INT, PRIMARY KEY (a))",
        "CREATE TABLE t (a INT GENERATED ALWAYS AS (1))",
        "CREATE TABLE t (a DOUBLE DEFAULT rand())",
        "ALTER TABLE customers ADD COLUMN c INT FIRST",
        "ALTER TABLE customers SET LOCATION 'x'",
        "ALTER TABLE customers RENAME TO sales.customers",
        "DROP TABLE customers PURGE",
        "TRUNCATE TABLE customers PARTITION (vip = true)",
        "UPDATE sales.orders SET name.x = 1",
        "USE sales",
        "EXPLAIN DELETE FROM customers",
    ],
)
def test_what_ducklake_does_not_have_is_refused(shared: Judged, statement: str) -> None:
    before = shared.lake.snapshot().id

    with pytest.raises(UnsupportedError):
        shared.sql(statement)

    assert shared.lake.snapshot().id == before


def test_views_of_spark_are_views_of_duckdb(orders: Judged) -> None:
    for number, text in enumerate(
        [
            "SELECT name, sum(price), count(*) AS n FROM sales.orders WHERE id > 3 GROUP BY name",
            "SELECT concat(name, '-', `day`) AS k, id FROM sales.orders o ORDER BY name, id LIMIT 20",
            "WITH q AS (SELECT * FROM customers) "
            "SELECT q.vip, sales.orders.id FROM q JOIN sales.orders USING (name)",
            "SELECT id, row_number() OVER (PARTITION BY name ORDER BY id) AS n FROM sales.orders",
            "SELECT col2 FROM VALUES (1, 'a'), (2, \"b's\")",
            "SELECT name FROM v0 UNION SELECT name FROM customers",
        ]
    ):
        asked = orders.frame(text)
        orders.sql(f"CREATE OR REPLACE VIEW v{number} AS {text}")

        assert [c[0] for c in orders.db.execute(f"FROM v{number}").description] == asked.columns, text
        expected = ordered([tuple(row) for row in asked.collect()])
        assert ordered(orders.duck(f"FROM v{number}")) == expected, text
        assert ordered(orders.sql(f"SELECT * FROM v{number}")) == expected, text
    orders.sql("CREATE VIEW IF NOT EXISTS v0 AS SELECT 1")
    orders.sql("ALTER VIEW v0 AS SELECT 'changed' AS name")
    assert orders.duck("FROM v0") == [("changed",)]
    orders.sql("DROP VIEW v0")
    assert ("main", "v1", False) in orders.sql("SHOW VIEWS")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT price / 3 FROM sales.orders",
        "SELECT CAST(price AS INT) FROM sales.orders",
        "SELECT collect_list(id) FROM sales.orders",
        "SELECT * FROM range(3)",
        "SELECT date_trunc('month', ts) FROM sales.orders",
        "SELECT name FROM sales.orders LATERAL VIEW explode(array(1)) AS x",
    ],
)
def test_views_that_duckdb_would_compute_otherwise_are_not_registered(shared: Judged, text: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be registered"):
        shared.sql(f"CREATE VIEW v AS {text}")


def test_what_there_is_is_shown(orders: Judged) -> None:
    orders.db.execute("CREATE VIEW sales.v AS SELECT id FROM sales.orders")
    assert orders.sql("SHOW TABLES IN sales") == [("sales", "orders", False), ("sales", "v", False)]
    assert orders.sql("SHOW TABLES LIKE 'cust*'") == [("main", "customers", False)]
    assert orders.sql("SHOW DATABASES LIKE 's*'") == [("sales",)]
    assert orders.sql("SHOW COLUMNS IN customers") == [("name",), ("vip",)]
    assert orders.sql("DESCRIBE sales.v") == [("id", "int", None)]
    extended = {row[0]: row[1] for row in orders.sql("DESCRIBE TABLE EXTENDED sales.orders")}
    assert (extended["price"], extended["Schema"]) == ("decimal(8,2)", "sales")
    history = orders.sql("DESCRIBE HISTORY sales.orders")
    assert [row[2] for row in history] == [
        "inlined_delete",
        "inlined_insert",
        "inserted_into_table",
        "created_table",
    ]
    assert "LakeFiles" in orders.sql("EXPLAIN SELECT * FROM sales.orders WHERE id = 1")[0][0]
    (created,) = orders.sql("SHOW CREATE TABLE sales.orders")[0]
    orders.sql(created.replace("`orders`", "`again`"))
    assert orders.lake.table("sales.again").columns == orders.lake.table("sales.orders").columns


def test_the_guide_to_sql_runs(judged: Judged) -> None:
    text = Path("docs/sql.md").read_text()
    (block,) = re.findall(r"^```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    for statement in block.strip().split(";\n"):
        judged.sql(statement)

    assert judged.duck("SELECT customer, total FROM sales.totals ORDER BY 1") == [
        ("ada", Decimal("21.00")),
        ("bob", Decimal("4.00")),
    ]
