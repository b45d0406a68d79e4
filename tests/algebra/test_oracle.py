"""Queries of Spark's in DuckDB: the same rows from both engines, where their dialects differ."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import spark  # noqa: F401  (the session that all tests share)

from headwater.algebra.oracle import collects, has_limit, to_duckdb, view_to_duckdb
from headwater.errors import UnsupportedError

_ROWS = """
    (1, 'a', 10, CAST(1.25 AS DECIMAL(10,2)), CAST(0.5 AS DOUBLE), DATE'2024-01-31',
        TIMESTAMP'2024-01-31 10:20:30.5', true, array(1, 2, 2)),
    (2, 'b', 20, CAST(2.50 AS DECIMAL(10,2)), CAST('NaN' AS DOUBLE), DATE'2024-02-29',
        TIMESTAMP'2024-02-29 23:59:59', false, array(3)),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (4, 'a%b_c', -7, CAST(-3.75 AS DECIMAL(10,2)), CAST(-2.5 AS DOUBLE), DATE'2023-12-25',
        TIMESTAMP'2023-12-25 00:00:00', true, array(CAST(NULL AS INT), 4)),
    (5, 'a', 10, CAST(7.00 AS DECIMAL(10,2)), CAST(3.5 AS DOUBLE), DATE'2024-03-15',
        TIMESTAMP'2024-03-15 12:00:00', NULL, array())"""
_TABLE = f"SELECT * FROM VALUES {_ROWS} AS t(id, s, i, d, f, dt, ts, b, xs)"

_VALUES = r"""
i / 3; d / d; i div 3; i % 3; pmod(-7, 3); try_divide(i, 0); i * d; d - i; 0.1 + 0.2
s || 'x'; concat(s, 'x'); concat_ws('-', s, 'x', NULL); substring(s, 0, 2); substring(s, -2); substr(s, 2, 1)
substring(s, id - 1, 2); substring_index('a.b.c', '.', 2); substring_index('a.b.c', '.', -1); left(s, 1)
instr(s, 'b'); split(s, '%')[0]; regexp_replace(s, '[ab]', '#'); initcap('hello world')
s LIKE 'a\\%b%'; s LIKE 'a!%b%' ESCAPE '!'; s LIKE '_'; s NOT LIKE 'a%'; s <=> NULL; i <=> 10
s IN ('a', NULL); s NOT IN ('a', NULL); isnull(i); isnotnull(i); isnan(f); nanvl(f, 0); greatest(i, id, NULL)
date_add(dt, 1); date_sub(dt, 1); dt + 1; datediff(dt, DATE'2024-01-01'); add_months(dt, 1); last_day(dt)
months_between(dt, DATE'2024-01-15'); date_trunc('month', ts); trunc(dt, 'MM'); trunc(dt, 'YEAR')
next_day(dt, 'MON'); dayofweek(dt); weekday(dt); weekofyear(dt); extract(dow FROM dt); extract(year FROM dt)
date_format(ts, 'yyyy-MM-dd HH:mm'); unix_timestamp(ts); datediff(HOUR, ts, TIMESTAMP'2024-04-01 00:00:00')
timestampdiff(HOUR, ts, TIMESTAMP'2024-04-01 00:00:00'); ts + INTERVAL 90 MINUTES; ts > '2024-01-31'
CAST(d AS INT); CAST(2.5 AS INT); CAST(-2.5 AS INT); CAST(3.5D AS BIGINT); CAST('12' AS INT)
CAST(i AS STRING); CAST(ts AS STRING); CAST(f AS STRING); CAST(b AS STRING); CAST(b AS INT)
CAST(1.255 AS DECIMAL(10,2)); try_cast('x' AS INT); CAST(dt AS TIMESTAMP); CAST(ts AS DATE); round(d, 1)
round(-2.5); bround(2.5); ceil(d); floor(-2.5); sqrt(d); ln(i); log10(id); log(2, id); log(id)
power(id, 2); i & 3; ~i; rint(f)
hypot(3, 4); size(xs); array_contains(xs, 2); array_position(xs, 2); sort_array(xs); transform(xs, x -> x + 1)
dayname(dt); monthname(ts); date_from_unix_date(id); timestamp_micros(1700000000123456)
get(xs, 0); get(xs, -1)
array_remove(xs, 2); array_remove(xs, NULL); sequence(3, id); sequence(1, 9, 4); months_between(ts, dt)
months_between(ts, TIMESTAMP'2023-11-30 11:00:00', false); months_between(dt, DATE'2023-02-28')
from_utc_timestamp(ts, 'America/New_York'); to_utc_timestamp(ts, 'America/New_York')
convert_timezone('Europe/Brussels', TIMESTAMP_NTZ'2021-12-05 15:00:00'); extract(second FROM ts); second(ts)
convert_timezone('Asia/Seoul', 'UTC', TIMESTAMP_NTZ'2021-12-05 15:00:00'); date_part('SECONDS', ts)
date_part('DOW', ts); extract(dayofweek_iso FROM dt); extract(yearofweek FROM dt); extract(week FROM dt)
named_struct('a', i).a; map('k', i)['k']; if(b, 1, 2); CASE s WHEN 'a' THEN 1 WHEN NULL THEN 2 ELSE 3 END
"""
_AGGREGATES = r"""
count(i, s); count_if(i > 5); count_if(i > 5) FILTER (WHERE id > 9); sum(d); avg(d); avg(i); sum(f); max(f)
stddev(i); std(id); stddev_pop(i); variance(i); var_pop(id); median(d); percentile(id, 0.3)
percentile(i, array(0.5, 0.75)); percentile_cont(0.25) WITHIN GROUP (ORDER BY id DESC); kurtosis(id)
percentile_disc(0.5) WITHIN GROUP (ORDER BY i); bool_and(b); every(b); any(b); some(b); max_by(s, id)
min_by(s, i); first(i, true); first_value(id); any_value(id); sort_array(collect_list(i)); collect_list(id)
sort_array(collect_set(i)); collect_list(i) FILTER (WHERE id > 9); concat_ws(',', sort_array(collect_list(s)))
covar_samp(id, i); corr(id, i); bit_xor(id); sum(i) FILTER (WHERE b); sum(d) / sum(i)
max(struct(s, i)).i; min(named_struct('x', i, 'y', id)).y; max_by(id, struct(s, i)); min_by(id, struct(i, id))
listagg(s) WITHIN GROUP (ORDER BY id DESC); any_value(b) FILTER (WHERE id > 4); sum(i) FILTER (WHERE id > 9)
sum(i) / count(*); string_agg(s, ',') WITHIN GROUP (ORDER BY id); try_sum(i); regr_slope(id, i)
"""
_QUERIES = r"""
SELECT id, i FROM t ORDER BY i, id LIMIT 2
SELECT id, i FROM t ORDER BY i DESC, id LIMIT 4
SELECT id, f FROM t ORDER BY f DESC LIMIT 2
SELECT id, rank() OVER (ORDER BY i DESC) AS v, lag(i) OVER (ORDER BY i, id) AS w FROM t
SELECT id, first_value(i) OVER (PARTITION BY s ORDER BY id) AS v FROM t
SELECT s, i, count(*) AS n FROM t GROUP BY CUBE (s, i)
SELECT s, count(*) AS n, grouping(s) AS g, grouping_id() AS h FROM t GROUP BY s WITH ROLLUP
SELECT s, i, count(*) AS n FROM t GROUP BY s, i GROUPING SETS ((s), (i), ())
SELECT i % 3 AS i, count(*) AS n FROM t GROUP BY i
SELECT id, x FROM t LATERAL VIEW OUTER explode(xs) e AS x
SELECT id, p, x FROM t LATERAL VIEW posexplode(xs) e AS p, x
SELECT id, explode_outer(xs) AS x FROM t
SELECT id, x FROM t, LATERAL explode(xs) AS e(x)
SELECT id FROM t WHERE i NOT IN (SELECT i FROM t WHERE id = 3)
SELECT id FROM t WHERE (id, i) IN (SELECT id, i FROM t WHERE i > 0)
SELECT a.id FROM t a LEFT ANTI JOIN t b ON a.i = b.i AND a.id < b.id
SELECT * FROM (SELECT id, i FROM t) a JOIN (SELECT id, s FROM t) b USING (id)
SELECT s FROM t EXCEPT ALL SELECT 'a'
SELECT s FROM t MINUS SELECT 'a'
WITH t AS (SELECT id + 100 AS id FROM t) SELECT id FROM t
SELECT id FROM t QUALIFY row_number() OVER (PARTITION BY s ORDER BY id DESC) = 1
SELECT id, i + 1 AS j, j * 2 AS k FROM t
SELECT col1 FROM VALUES (1), (2)
SELECT /*+ BROADCAST(t) */ f, count(*) AS n FROM t GROUP BY f
SELECT count(DISTINCT i) AS a, count(DISTINCT i, s) AS b FROM t
SELECT s, sum(i) AS i FROM t GROUP BY s HAVING sum(i) > 5
SELECT window.start, window.end, count(*) AS n FROM t GROUP BY window(ts, '2 hours')
SELECT window, s FROM t GROUP BY s, window(ts, '40 days', '8 days', '5 minutes') HAVING max(id) > 1
SELECT id, window(ts, '1 week') AS w FROM t
SELECT window(dt, '90 minutes').end AS w, max(id) AS m FROM t WHERE id > 0 GROUP BY window(dt, '90 minutes')
SELECT id, window(CAST(ts AS TIMESTAMP_NTZ), '1 day', '10 hours').start AS b, i FROM t
SELECT window_time(w) AS at, n FROM (SELECT window(ts, '1 day') AS w, count(*) AS n FROM t GROUP BY w)
SELECT window(ts, 3600000000) AS window, count(*) OVER (PARTITION BY s) AS n FROM t WHERE id < 4 OR id = 5
SELECT window, count(*) OVER w AS n FROM (SELECT id AS window FROM t) WINDOW w AS (ORDER BY window)
"""


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> Any:  # noqa: F811
    """Runs a query on both engines; gives the rows of each."""
    spark.sql(_TABLE).coalesce(1).createOrReplaceTempView("t")
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'; CREATE SCHEMA src")
    arrow = spark.table("t").toArrow()  # noqa: F841  (DuckDB finds it by its name)
    con.execute("CREATE TABLE src.t AS SELECT * FROM arrow")

    def run(query: str) -> tuple[list[Any], list[Any]]:
        text = to_duckdb(query, lambda parts: "(SELECT * FROM src.t)" if parts == ("t",) else None)
        return [tuple(row) for row in spark.sql(query).collect()], con.execute(text).fetchall()

    yield run
    spark.catalog.dropTempView("t")
    con.close()


def _listed(text: str) -> list[str]:
    return [each.strip() for line in text.strip().splitlines() for each in line.split("; ")]


def _plain(value: Any) -> Any:
    """Values that compare: numbers by nine digits, times without their zone."""
    match value:
        case bool() | None:
            return value
        case int() | float() | Decimal():
            return "NaN" if math.isnan(value) else float(f"{float(value) + 0.0:.9g}")
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        case list() | tuple():
            return tuple(map(_plain, value))
        case dict():
            return tuple(map(_plain, value.values()))
        case _:
            return value


def test_values_are_the_same_in_both_engines(both: Any) -> None:
    expressions = _listed(_VALUES)
    listed = ", ".join(f"{each} AS v{number}" for number, each in enumerate(expressions))
    ours, theirs = both(f"SELECT id, {listed} FROM t")

    theirs = {row[0]: row for row in theirs}
    differing = [
        (expression, row[place], theirs[row[0]][place])
        for row in ours
        for place, expression in enumerate(expressions, 1)
        if _plain(row[place]) != _plain(theirs[row[0]][place])
    ]
    assert not differing


def test_aggregates_are_the_same_in_both_engines(both: Any) -> None:
    expressions = _listed(_AGGREGATES)
    listed = ", ".join(f"{each} AS v{number}" for number, each in enumerate(expressions))
    (ours,), (theirs,) = both(f"SELECT {listed} FROM t")

    found = zip(expressions, ours, theirs, strict=True)
    assert not [each for each in found if _plain(each[1]) != _plain(each[2])]


@pytest.mark.parametrize("query", _QUERIES.strip().splitlines())
def test_clauses_mean_the_same_in_both_engines(both: Any, query: str) -> None:
    ours, theirs = both(query)

    assert Counter(map(_plain, ours)) == Counter(map(_plain, theirs))


# -- tables --------------------------------------------------------------------------------------------------


def tables(parts: tuple[str, ...]) -> str | None:
    return f'(SELECT a FROM lake."{parts[-1]}" AT (VERSION => 7))'


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("SELECT t.a FROM s.t", 'SELECT t.a FROM (SELECT a FROM lake."t" AT (VERSION => 7)) AS t'),
        ("SELECT s.t.a FROM s.t", 'SELECT t.a FROM (SELECT a FROM lake."t" AT (VERSION => 7)) AS t'),
        (
            "SELECT x.a FROM t AS x(a)",
            'SELECT x.a FROM (SELECT a FROM lake."t" AT (VERSION => 7)) AS x(a)',
        ),
        (
            "WITH t AS (SELECT a FROM t) SELECT a FROM t",
            'WITH t AS (SELECT a FROM (SELECT a FROM lake."t" AT (VERSION => 7)) AS t) SELECT a FROM t',
        ),
        (
            "SELECT (SELECT max(a) FROM `odd t`) AS m",
            'SELECT (SELECT MAX(a) FROM (SELECT a FROM lake."odd t" AT (VERSION => 7)) AS "odd t") AS m',
        ),
    ],
)
def test_tables_are_replaced_and_names_of_with_are_not(given: str, wanted: str) -> None:
    assert to_duckdb(given, tables) == wanted


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT a.t.x, b.t.x FROM a.t JOIN b.t ON a.t.id = b.t.id", [(20, 200)]),
        ("SELECT id FROM a.t WHERE NOT EXISTS (SELECT 1 FROM b.t WHERE b.t.id = a.t.id)", [(1,)]),
        ("SELECT t.id FROM a.t WHERE t.id IN (SELECT t.id FROM b.t WHERE t.x = 200)", [(2,)]),
        ("SELECT t.x FROM a.t AS u JOIN b.t ON u.id = b.t.id", [(200,)]),
        ("SELECT A.T.* FROM a.t JOIN b.t AS t ON a.t.id = t.id", [(2, 20)]),
    ],
)
def test_tables_of_one_name_in_two_schemas_are_told_apart(query: str, rows: list[Any]) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE SCHEMA a; CREATE TABLE a.t AS FROM (VALUES (1, 10), (2, 20)) v(id, x);"
            "CREATE SCHEMA b; CREATE TABLE b.t AS FROM (VALUES (2, 200), (3, 300)) v(id, x)"
        )
        text = to_duckdb(query, lambda parts: f"(SELECT * FROM {'.'.join(parts)})")
        assert con.execute(text).fetchall() == rows


def test_the_text_of_a_view_is_duckdbs_already() -> None:
    text = "SELECT a / 2, dayofweek(b) FROM {DUCKLAKE_CATALOG}.s.t WHERE c = current_date"

    made = view_to_duckdb(text, tables, moment=datetime(2026, 1, 2, 23, tzinfo=UTC))

    assert made == (
        'SELECT a / 2, DAYOFWEEK(b) FROM (SELECT a FROM lake."t" AT (VERSION => 7)) AS t '
        "WHERE c = CAST('2026-01-02' AS DATE)"
    )


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT rand() AS r FROM t", "something else each time"),
        ("SELECT approx_count_distinct(a) FROM t", "estimates"),
        ("SELECT skewness(a) FROM t", "population"),
        ("SELECT a FROM t LATERAL VIEW OUTER posexplode(a) x AS p, c", "without elements"),
        ("SELECT hash(a) FROM t", "own"),
        ("SELECT typeof(a) FROM t", "own"),
        ("SELECT to_json(a) FROM t", "NULL"),
        ("SELECT current_user() AS u FROM t", "for whom"),
        ("SELECT filter(a, (x, i) -> x > i) FROM t", "counted from 0"),
        ("SELECT transform(a, (x, i) -> i) FROM t", "counted from 0"),
        ("SELECT get_json_object(a, '$[*].b') FROM t", "list"),
        ("SELECT posexplode_outer(a) FROM t", "without elements"),
        ("SELECT a FROM", "parsed"),
        ("DELETE FROM t", "one query"),
    ],
)
def test_what_would_mean_something_else_is_refused(query: str, why: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        to_duckdb(query, tables)
    assert why in str(error.value)


def test_what_a_comparison_must_know_of_a_query() -> None:
    assert has_limit("SELECT * FROM (SELECT a FROM t LIMIT 3)")
    assert not has_limit("SELECT a FROM t ORDER BY a")
    assert collects("SELECT sort_array(collect_set(a)) FROM t")
    assert not collects("SELECT array(a) FROM t")
