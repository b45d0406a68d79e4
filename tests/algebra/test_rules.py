# ruff: noqa: E501 -- queries are easier to read on one line
"""Each rule by itself: the text of what it computes, and that text executed on rows with NULLs and duplicates.

A case is a query over the tables below. Its file in `golden/` holds the stages it is cut into and, for each, the
SQL that computes its changes when all inputs changed. `HEADWATER_GOLDEN=write pytest tests/algebra/test_rules.py`
writes the files anew; the difference is to be read before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.algebra.choices import Choices
from tests.algebra.following import Follower, follow
from tests.algebra.grammar import Contents, Schema, contents

from headwater.algebra.changes import changes
from headwater.algebra.relations import Join
from headwater.algebra.render import Renderer
from headwater.algebra.stages import Program

GOLDEN = Path(__file__).parent / "golden"
TABLES: Schema = {
    "r": [("a", "int"), ("b", "int"), ("c", "string"), ("d", "date"), ("x", "decimal(10,2)")],
    "s": [("a", "int"), ("y", "int"), ("e", "string"), ("z", "double")],
    "t": [("k", "int"), ("v", "int"), ("ok", "boolean")],
}

#: One query for each rule; what is written into its golden file.
RULES = {
    "row_by_row": "SELECT a + 1 AS a1, coalesce(c, '-') AS c FROM r WHERE b > 1 OR c IS NULL",
    "explode": "SELECT a, explode(array(a, b)) AS e FROM r",
    "union_all": "SELECT a FROM r UNION ALL SELECT y FROM s UNION ALL SELECT a FROM r",
    "inner_join": "SELECT r.b, s.y FROM r JOIN s ON r.a = s.a AND r.b < s.y",
    "self_join": "SELECT p.b AS b1, q.b AS b2 FROM r AS p JOIN r AS q ON p.a = q.a",
    "theta_join": "SELECT r.a, s.y FROM r JOIN s ON r.a < s.y",
    "three_way_join": "SELECT r.b, s.y, t.v FROM r JOIN s ON r.a = s.a JOIN t ON t.k = s.y WHERE t.ok",
    "left_join": "SELECT r.a, s.y FROM r LEFT JOIN s ON r.a = s.a AND s.y > 0",
    "sums_over_left_join": "SELECT r.a, sum(s.y) AS w, max(s.y) AS m FROM r LEFT JOIN s ON r.a = s.a AND s.y <> r.b GROUP BY r.a",
    "full_join": "SELECT r.a, s.y FROM r FULL JOIN s ON r.a = s.a",
    "semi_join": "SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y <> r.b)",
    "anti_join": "SELECT a, b FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.a = r.a)",
    "exists_of_exists": "SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y IN (SELECT k FROM t))",
    "exists_and_not_exists": "SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y <> r.b) AND NOT EXISTS (SELECT 1 FROM t WHERE t.k = r.a AND t.v > r.b)",
    "not_in": "SELECT a, b FROM r WHERE a NOT IN (SELECT a FROM s)",
    "exists_under_or": "SELECT a, b FROM r WHERE b = 1 OR EXISTS (SELECT 1 FROM s WHERE s.a = r.a)",
    "window": "SELECT a, b, rank() OVER (PARTITION BY a ORDER BY b) AS place FROM r",
    "sums": "SELECT a, count(*) AS n, sum(b) AS total, avg(x) AS mean FROM r GROUP BY a",
    "extrema": "SELECT a, min(b) AS least, max(c) AS last FROM r GROUP BY a",
    "groups": "SELECT a, count(DISTINCT b) AS n, median(b) AS middle FROM r GROUP BY a",
    "distinct": "SELECT DISTINCT a, b % 2 AS odd FROM r",
    "rollup": "SELECT a, b, count(*) AS n FROM r GROUP BY ROLLUP (a, b) HAVING count(*) > 0",
    "having": "SELECT a, sum(b) AS total FROM r GROUP BY a HAVING count(*) > 1",
    "intersect_all": "SELECT a FROM r INTERSECT ALL SELECT a FROM s",
    "except": "SELECT a FROM r EXCEPT SELECT a FROM s",
    "first_rows": "SELECT a, b, c, d, x FROM r ORDER BY b DESC, a, c, d, x LIMIT 3 OFFSET 1",
    "scalar_subquery": "SELECT a, b FROM r WHERE b > (SELECT avg(y) FROM s)",
    "correlated_scalar_subquery": "SELECT a, (SELECT count(*) FROM s WHERE s.a = r.a) AS n FROM r",
    "time": "SELECT a, d FROM r WHERE d >= current_date() - INTERVAL 1 DAY",
    "nested_aggregates": "SELECT n, count(*) AS groups FROM (SELECT a, count(*) AS n FROM r GROUP BY a) GROUP BY n",
}

#: Corners of the rules, only executed.
CORNERS = """
SELECT r.a, s.a AS sa FROM r JOIN s ON r.a <=> s.a
SELECT r.a, s.y FROM r LEFT JOIN s ON r.a <=> s.a AND r.b = s.y
SELECT r.a, s.a AS sa, s.y FROM r FULL JOIN s ON r.a <=> s.a AND s.y > 1
SELECT r.a, s.y FROM r RIGHT JOIN s ON r.a = s.a AND r.b > 1
SELECT r.a, s.y FROM r LEFT JOIN s ON r.a < s.y
SELECT r.a, s.y FROM r FULL JOIN s ON r.a < s.y
SELECT l.a, l.n, m.a AS ma, m.w FROM (SELECT a, count(*) AS n FROM r GROUP BY a) l FULL JOIN (SELECT a, sum(y) AS w FROM s GROUP BY a) m ON l.a = m.a
SELECT l.n, m.w FROM (SELECT a, count(*) AS n FROM r GROUP BY a) l FULL JOIN (SELECT a, sum(y) AS w FROM s GROUP BY a) m ON l.a <=> m.a
SELECT l.n, m.w FROM (SELECT count(*) AS n FROM r) l FULL JOIN (SELECT sum(y) AS w FROM s) m ON l.n = m.w
SELECT p.n, q.k FROM (SELECT l.n FROM (SELECT count(*) AS n FROM r) l FULL JOIN (SELECT sum(y) AS w FROM s) m ON l.n = m.w) p JOIN (SELECT l.k FROM (SELECT count(*) AS k FROM t) l FULL JOIN (SELECT sum(y) AS w FROM s) m ON l.k = m.w) q ON p.n <=> q.k
SELECT r.a, m.w FROM r LEFT JOIN (SELECT max(y) AS w FROM s) m ON r.b = m.w
SELECT r.a, m.w FROM r LEFT JOIN (SELECT max(y) AS w FROM s HAVING count(*) > 3) m ON true
SELECT r.a, s.y, t.v FROM r LEFT JOIN s ON r.a = s.a LEFT JOIN t ON t.k = s.y
SELECT r.a, s.y, t.v FROM r LEFT JOIN (s LEFT JOIN t ON t.k = s.y) ON r.a = s.a
SELECT r.a, s.y, t.v FROM r FULL JOIN s ON r.a = s.a FULL JOIN t ON t.k = s.y
SELECT a, b FROM r LEFT ANTI JOIN s ON r.a <=> s.a
SELECT r.a, s.y, t.v FROM r LEFT JOIN s ON r.a = s.a LEFT JOIN t ON t.k = r.a AND t.v > s.y
SELECT r.a, s.y, t.v FROM r LEFT JOIN s ON r.a <=> s.a AND s.y > 0 LEFT JOIN t ON t.k <=> r.a WHERE s.y IS NULL OR t.v > 0
SELECT r.a, s.y, t.v, q.e FROM r LEFT JOIN s ON r.a = s.a LEFT JOIN t ON t.k = r.b LEFT JOIN s AS q ON q.a = r.a
SELECT l.a, l.b FROM (SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a)) l LEFT ANTI JOIN t ON t.k = l.a
SELECT r.a FROM r JOIN t ON t.v = r.b WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y <> t.v) AND NOT EXISTS (SELECT 1 FROM r AS q WHERE q.a = r.a AND q.b < r.b) AND r.a NOT IN (SELECT k FROM t)
SELECT r.a, s.y FROM r LEFT JOIN s ON r.a = s.a WHERE s.y + r.b > 1 AND r.a IN (SELECT k FROM t)
SELECT a, b FROM r LEFT ANTI JOIN (SELECT s.a, t.v FROM s LEFT JOIN t ON t.k = s.y) m ON r.a <=> m.a AND r.b = m.v
SELECT a, b FROM r WHERE a + b IN (SELECT s.a + s.y FROM s WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.k = s.y))
SELECT a, b FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y > (SELECT sum(v) FROM t WHERE t.k = s.y))
SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y <> r.b AND s.y IN (SELECT k FROM t))
SELECT a, b FROM r WHERE a NOT IN (SELECT s.a FROM s WHERE s.y = r.b)
SELECT a, b FROM r WHERE a NOT IN (SELECT a FROM s WHERE a IS NOT NULL)
SELECT a, b FROM r WHERE b > 2 OR a NOT IN (SELECT a FROM s)
SELECT a, a IN (SELECT a FROM s) AS found, EXISTS (SELECT 1 FROM t WHERE t.k = r.b) AS there FROM r
SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.y > 2)
SELECT a, b FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.y > 2)
SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND NOT EXISTS (SELECT 1 FROM t WHERE t.k = s.y))
SELECT a FROM r UNION ALL SELECT a FROM r
SELECT a, b FROM r UNION SELECT a, y FROM s
SELECT a FROM r EXCEPT ALL SELECT a FROM s
SELECT a, b FROM r INTERSECT SELECT a, y FROM s
SELECT a FROM r EXCEPT ALL SELECT a FROM r WHERE b > 1
SELECT count(*) AS n, sum(b) AS w, min(b) AS m, avg(x) AS v, count(DISTINCT c) AS k FROM r
SELECT count(*) AS n FROM r WHERE b > 2
SELECT sum(b) AS w FROM r HAVING sum(b) > 3
SELECT a, sum(b) AS w, sum(x) AS v, avg(b) AS m FROM r GROUP BY a
SELECT a, sum(b) AS n, count(b) AS n_count, sum(x) AS n_sum, max(b) AS n_most FROM r GROUP BY a
SELECT a AS _old_b, b FROM r
SELECT a, sum(b) FILTER (WHERE c = 'x') AS w, count_if(b > 1) AS n, count(*) FILTER (WHERE b > 2) AS m FROM r GROUP BY a
SELECT a, min(b) FILTER (WHERE c = 'x') AS w, max(x) AS m, sum(b) AS v FROM r GROUP BY a
SELECT a, sum(z) AS w, avg(z) AS v, max(z) AS m FROM s GROUP BY a
SELECT bool_and(ok) AS every1, bool_or(ok) AS some1, max(v) AS m FROM t
SELECT sum(b) AS w FROM r GROUP BY a
SELECT a % 2 AS odd, c, count(*) AS n FROM r GROUP BY a % 2, c HAVING sum(b) > 2 OR c IS NULL
SELECT DISTINCT count(*) AS n FROM r GROUP BY a
SELECT max(w) AS top, count(*) AS n FROM (SELECT a, sum(b) AS w FROM r GROUP BY a HAVING sum(b) > 1)
SELECT a, b, grouping(a) AS ga, sum(x) AS w, max(b) AS m FROM r GROUP BY CUBE (a, b) HAVING count(*) > 0
SELECT a, c, count(*) AS n FROM r GROUP BY GROUPING SETS ((a), (c), (a, c), (a))
SELECT a, b, row_number() OVER (PARTITION BY a ORDER BY b, c, d, x) AS n, sum(b) OVER (PARTITION BY a) AS w FROM r
SELECT a, b, sum(b) OVER (PARTITION BY a, c) AS w, count(*) OVER (PARTITION BY b) AS n FROM r
SELECT a, b, sum(b) OVER () AS w, rank() OVER (ORDER BY b) AS n FROM r
SELECT a, b, c FROM r QUALIFY row_number() OVER (PARTITION BY a ORDER BY d DESC, b, c, x) = 1
SELECT q.a, s.y, q.n FROM (SELECT a, count(*) OVER (PARTITION BY b) AS n FROM r) q LEFT JOIN s ON q.a = s.a
SELECT a, n, count(*) AS m FROM (SELECT a, rank() OVER (PARTITION BY a ORDER BY b) AS n FROM r) GROUP BY a, n
SELECT a, max(n) AS m FROM (SELECT a, rank() OVER (PARTITION BY b ORDER BY a) AS n FROM r) GROUP BY a
SELECT a, b, c FROM r ORDER BY b, a, c LIMIT 100
SELECT a, sum(b) AS w FROM r GROUP BY a ORDER BY w DESC NULLS LAST, a LIMIT 2
SELECT a + 1 AS a1 FROM (SELECT a, b, c FROM r ORDER BY b DESC, a, c LIMIT 4) WHERE b > 0
SELECT q.a, s.y FROM (SELECT a, b, c FROM r ORDER BY b DESC, a, c LIMIT 3) q JOIN s ON q.a = s.a
SELECT a, b FROM r WHERE a IN (SELECT a FROM s ORDER BY y, a, e, z LIMIT 2)
SELECT a, (SELECT max(y) FROM s WHERE s.a = r.a) AS top, (SELECT coalesce(sum(v), -1) FROM t WHERE t.k = r.b) AS w FROM r
SELECT a FROM r WHERE b < (SELECT max(y) FROM s WHERE s.a = r.a)
SELECT (SELECT max(a) FROM r) AS m, (SELECT count(*) FROM s) AS n
SELECT a, b FROM r WHERE b > (SELECT avg(y) FROM s) AND a < (SELECT count(*) FROM t)
SELECT a, count(*) AS n FROM r WHERE d < current_date() GROUP BY a
SELECT r.a, s.y FROM r LEFT JOIN s ON r.a = s.a WHERE r.d BETWEEN date_sub(current_date(), 1) AND current_date()
SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM r AS q WHERE q.a = r.a AND q.d > current_date())
SELECT p.a, q.b FROM r AS p JOIN r AS q ON p.a = q.b WHERE p.d >= current_date() AND q.d < current_date()
SELECT count(*) AS n, max(d) AS last FROM r WHERE d <= current_date()
WITH w AS (SELECT a, sum(b) AS v FROM r GROUP BY a) SELECT p.a, q.v FROM w AS p JOIN w AS q ON p.a = q.a
WITH w AS (SELECT a, sum(b) AS v FROM r GROUP BY a) SELECT a, v FROM w WHERE v = (SELECT max(v) FROM w)
WITH w AS (SELECT a, b, c FROM r ORDER BY b DESC, a, c LIMIT 3) SELECT p.a, q.b FROM w AS p JOIN w AS q ON p.a = q.a
SELECT a, count(*) AS n FROM (SELECT a, explode(array(b, 1)) AS e FROM r) WHERE e > 0 GROUP BY a
SELECT e, count(*) AS n FROM (SELECT explode(array(a, b)) AS e FROM r) GROUP BY e
SELECT r.a, s.y FROM r JOIN s ON r.a = s.a AND r.d > current_date()
SELECT a, max(d) AS m FROM r GROUP BY a HAVING max(d) < current_date()
SELECT a, d FROM r QUALIFY row_number() OVER (PARTITION BY a ORDER BY d, b, c, x) = 1 AND d < current_date()
SELECT a, d FROM (SELECT a, d, b FROM r ORDER BY d, a, b LIMIT 3) WHERE d <= current_date()
SELECT a, d FROM r WHERE d <= current_date() ORDER BY d DESC, a LIMIT 3
SELECT a, (SELECT max(y) FROM s WHERE s.y < r.b) AS m FROM r
SELECT q.m, count(*) AS n FROM (SELECT a, (SELECT max(y) FROM s WHERE s.y < r.b) AS m FROM r) q GROUP BY q.m
SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM r AS q WHERE q.d > current_date() AND q.a <=> r.a)
SELECT a, b FROM r WHERE a NOT IN (SELECT a FROM r AS q WHERE q.d > current_date() AND a IS NOT NULL)
SELECT p.a FROM r AS p WHERE p.d > current_date() UNION ALL SELECT q.a FROM r AS q WHERE q.d <= current_date()
SELECT a, b FROM r WHERE d > current_date() OR EXISTS (SELECT 1 FROM s WHERE s.a = r.a)
SELECT a, b FROM r WHERE b > (SELECT count(*) FROM r WHERE d <= current_date())
SELECT DISTINCT d FROM r WHERE NOT (d > current_date())
WITH RECURSIVE w(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM w WHERE n < 3) SELECT r.a, w.n FROM r JOIN w ON r.a = w.n
SELECT a, sum(b) AS w FROM r GROUP BY a UNION ALL SELECT a, sum(y) FROM s GROUP BY a
SELECT a, count(*) AS n FROM r GROUP BY a UNION SELECT y, count(*) FROM s GROUP BY y
SELECT a, n FROM (SELECT a, count(*) AS n FROM r GROUP BY a) EXCEPT SELECT a, n FROM (SELECT a, count(*) AS n FROM s GROUP BY a)
SELECT l.a, (SELECT count(*) FROM (SELECT a, count(*) AS n FROM s GROUP BY a) m WHERE m.n = l.n) AS k FROM (SELECT a, count(*) AS n FROM r GROUP BY a) l
SELECT a, b, lead(b) OVER (PARTITION BY a ORDER BY b, c, d, x) AS w, ntile(2) OVER (PARTITION BY a ORDER BY b, c, d, x) AS n FROM r
SELECT a, sum(w) AS w2 FROM (SELECT a, b, sum(b) OVER (PARTITION BY a) AS w FROM r) GROUP BY a
SELECT r.a, sum(s.y) AS w, count(s.y) AS n, min(s.y) AS m FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a
SELECT r.a, sum(s.y) AS w, count(*) AS n FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a
SELECT r.a, count(s.e) AS n, max(r.b) AS m, sum(s.y + r.b) AS w FROM r LEFT JOIN s ON r.a < s.y GROUP BY r.a
SELECT r.a, sum(r.b) AS w FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a
SELECT r.a, sum(coalesce(s.y, 1)) AS w FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a
SELECT r.a, s.e, count(s.y) AS n FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a, s.e
SELECT count(s.y) AS n, count_if(s.e = 'x' OR s.y > 1) AS k, max(r.d) AS m FROM r LEFT JOIN s ON r.a <=> s.a WHERE r.b > 0
SELECT r.a, count_if(s.e = 'x' OR r.b > 1) AS k FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a
SELECT r.a, count(s.y) AS n FROM r LEFT JOIN s ON r.a = s.a WHERE s.y IS NULL OR r.b > 0 GROUP BY r.a
SELECT r.a, count(s.y) AS n FROM r LEFT JOIN s ON r.a = s.a WHERE r.d <= current_date() GROUP BY r.a
SELECT r.a, count(s.y) FILTER (WHERE s.e IS NOT NULL AND r.b > 0) AS n, count(CASE WHEN s.y BETWEEN 1 AND 2 THEN 1 END) AS k FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a
SELECT r.a, count(s.y) FILTER (WHERE s.e IS NULL) AS n, count(CASE WHEN s.y > 1 THEN 1 ELSE r.b END) AS k FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a
SELECT q.a, count(t.v) AS n FROM (SELECT r.a, s.y FROM r LEFT JOIN s ON r.a = s.a) q LEFT JOIN t ON t.k = q.y GROUP BY q.a
SELECT m.a, m.n, count(t.v) AS k FROM (SELECT r.a, count(s.y) AS n FROM r LEFT JOIN s ON r.a = s.a GROUP BY r.a) m LEFT JOIN t ON t.k = m.n GROUP BY m.a, m.n
SELECT r.a, sum(s.y) AS w FROM r FULL JOIN s ON r.a = s.a GROUP BY r.a
SELECT count(*) AS n, max(s.y) AS m FROM r FULL JOIN s ON r.a = s.a
SELECT a, min(b) AS m, count(DISTINCT c) AS n, sum(b) AS w FROM r GROUP BY a
SELECT min(b) AS m, max(d) AS k FROM r WHERE c = 'x'
SELECT min(b) + max(b) AS m FROM r
SELECT a, sum(b) AS w, sum(b) + 1 AS w1, sum(b) / count(*) AS v FROM r GROUP BY a
SELECT 1 AS one, 'x' AS word
SELECT a FROM r WHERE false
SELECT r.a, v.n FROM r JOIN (VALUES (1, 10), (2, 20), (NULL, 30)) AS v(k, n) ON r.a <=> v.k
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_computes_its_changes_by_this_text(name: str) -> None:
    held = contents(Choices(0), TABLES)
    made = described(RULES[name], Follower(RULES[name], held).stream.program)
    path = GOLDEN / f"{name}.sql"
    if os.environ.get("HEADWATER_GOLDEN") == "write":
        path.write_text(made, encoding="utf-8")
    assert made == path.read_text(encoding="utf-8")


def test_every_golden_file_is_that_of_a_rule() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sql")} == set(RULES)


@pytest.mark.parametrize("sql", [*RULES.values(), *lines(CORNERS)])
def test_what_a_rule_computes_is_what_the_query_says(sql: str) -> None:
    follow(sql, TABLES, Choices(sql), steps=4)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT p.n, q.v FROM p LEFT JOIN q ON p.n = q.w",
        "SELECT p.n, q.v FROM p FULL JOIN q ON p.n = q.w",
        "SELECT n FROM p WHERE EXISTS (SELECT 1 FROM q WHERE q.w = p.n)",
        "SELECT n FROM p WHERE NOT EXISTS (SELECT 1 FROM q WHERE p.n = q.w)",
        "SELECT n, (SELECT max(v) FROM q WHERE q.w = p.n) AS m FROM p",
        "SELECT n FROM p WHERE n = 2 OR EXISTS (SELECT 1 FROM q WHERE q.w = p.n)",
    ],
)
def test_different_texts_that_equal_one_number_are_one_key(sql: str) -> None:
    tables: Schema = {"p": [("n", "int")], "q": [("w", "string"), ("v", "int")]}
    held = Contents(tables, {"p": {1: (1,), 2: (2,)}, "q": {3: ("1", 1), 4: ("01", 2), 5: (None, 3)}})
    follower = Follower(sql, held)
    less = held.copy()
    del less.rows["q"][4]
    for now in (less, held):
        follower.put(now)
        follower.refresh()
        follower.check("one of two equal keys")


def test_a_query_used_twice_is_stored_once() -> None:
    sql = next(line for line in lines(CORNERS) if "max(v) FROM w" in line)
    program = Follower(sql, contents(Choices(0), TABLES)).stream.program
    assert [stage.strategy for stage in program.stages] == ["sums", "extrema", "rows"]


@pytest.mark.parametrize(
    ("chosen", "inner"),
    [
        ("count(s.y) AS n, sum(s.y * 2 + r.b) AS w, min(s.e) AS m", True),
        ("avg(s.y) FILTER (WHERE s.e LIKE 'x%' AND r.b > 0) AS w, max(r.d) AS m", True),
        ("count(CASE WHEN s.y IS NOT NULL OR s.e IN ('x', 'y') THEN r.b END) AS n", True),
        ("count_if(s.y BETWEEN 1 AND 2) AS n, sum(CAST(s.y AS DECIMAL(10, 2))) AS w", True),
        ("sum(s.y) FILTER (WHERE r.b > 1) AS w, sum(r.b) FILTER (WHERE s.y > 1) AS v", True),
        ("max(r.b) FILTER (WHERE r.a > 0) AS m, sum(s.y) FILTER (WHERE s.e IS NULL) AS w", True),
        ("count(*) AS n", False),
        ("count(r.b) AS n", False),
        ("max(r.b) FILTER (WHERE s.y IS NULL) AS m", False),
        ("max(s.y IS NOT NULL) AS m, count_if(s.y IS NOT NULL) AS n", False),
        ("sum(coalesce(s.y, 1)) AS w", False),
        ("count_if(s.y IS NULL) AS n", False),
        ("count_if(s.e <=> 'x') AS n", False),
        ("count(CASE WHEN s.y > 1 THEN 1 ELSE 2 END) AS n", False),
        ("count(DISTINCT s.y) AS n", False),
        ("count_if(s.y IS NOT NULL OR r.b > 0) AS n", False),
    ],
)
def test_whether_rows_without_a_partner_matter_to_aggregates(chosen: str, inner: bool) -> None:
    sql = f"SELECT r.a, {chosen} FROM r LEFT JOIN s ON r.a = s.a WHERE r.b >= 0 GROUP BY r.a"
    program = Follower(sql, contents(Choices(0), TABLES)).stream.program
    kinds = [node.kind for node in program.result.relation.walk() if isinstance(node, Join)]
    assert kinds == ["inner" if inner else "left"]
    follow(sql, TABLES, Choices(sql), steps=4)


def test_outer_joins_inside_each_other_stay_small() -> None:
    joins = " ".join(f"FULL JOIN s AS s{n} ON r.a = s{n}.a" for n in range(5))
    program = Follower(f"SELECT r.b FROM r {joins}", contents(Choices(0), TABLES)).stream.program
    sources = {"r", "s", *(stage.source for stage in program.stages)}
    found = [changes(stage, sources) for stage in program.stages]
    assert max(sum(1 for _ in each.relation.walk()) for each in found if each is not None) < 2000


def described(sql: str, program: Program) -> str:
    """A query, its stages, and the text of each one's changes when everything changed."""
    sources = {source for stage in program.stages for source in stage.inputs}
    parts = [f"-- {sql}"]
    for stage in program.stages:
        found = changes(stage, sources, time_moved=stage.depends_on_time)
        key = ", ".join(stage.key) or "none"
        parts.append(
            f"\n-- {stage.source}: {stage.strategy}, key {key}, changes {found.shape if found else 'none'}"
        )
        if found is not None:
            parts.append(Renderer().select(found.relation).sql(dialect="spark", pretty=True))
    return "\n".join(parts) + "\n"
