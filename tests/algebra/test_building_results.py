"""What a built query means is what its text means: both are computed by DuckDB on random tables."""

from __future__ import annotations

import duckdb
import pytest
from tests.algebra.building_world import build, expected, filled, result, rows

from headwater.algebra.relations import Opaque, Scan

PLAIN = """
SELECT a, b FROM r
SELECT * FROM r
SELECT r.* FROM r
SELECT sales.r.a, r.b FROM sales.r
SELECT A, R.B AS bb FROM R
SELECT * EXCEPT (a, d) FROM r
SELECT q.* EXCEPT (a), q.a AS last FROM r AS q
SELECT a + 1 AS b2, b2 * 2 AS c2, c2 - b2 AS d2 FROM r
SELECT a + 1 AS b, b AS c2 FROM r
SELECT 1 AS one, 'x' AS word
SELECT a, a AS again FROM r
SELECT a FROM r WHERE a > 1 AND (b < 3 OR c = 'x')
SELECT a FROM r WHERE NOT (a > 1) OR b IS NULL
SELECT CASE WHEN a > 2 THEN 'big' WHEN a IS NULL THEN c ELSE 'small' END AS size FROM r
SELECT x.p AS p FROM (SELECT st AS x FROM n) WHERE x.p > 1
SELECT st.p, st.q.z FROM n
SELECT n.st.q.z, n.id FROM n
SELECT m.st.p AS p1 FROM n AS m WHERE m.st.q.z IS NOT NULL
SELECT st.* EXCEPT (q) FROM n
SELECT d, x FROM r WHERE d >= DATE '2024-01-31' AND x BETWEEN 1 AND 2
SELECT a FROM (SELECT a, b FROM r WHERE b > 1) AS q WHERE q.b < 4
SELECT p, q FROM (SELECT a, b FROM r) AS w(p, q)
SELECT * FROM (SELECT a, b FROM r) WHERE a = b
SELECT * FROM VALUES (1, 'a'), (2, NULL) AS v(n1, w1)
SELECT * FROM (VALUES (1, 2), (3, 4)) AS v(f, g) WHERE f > 1
SELECT v.col1 FROM VALUES (1), (2), (2) AS v(col1)
SELECT a, tags FROM n JOIN r ON n.id = r.a
SELECT a FROM r ORDER BY b
SELECT a AS b, b AS a FROM r WHERE a > 2
"""

JOINS = """
SELECT r.a, s.y FROM r, s WHERE r.a = s.a
SELECT r.a, s.y FROM r JOIN s ON r.a = s.a AND r.b < s.b
SELECT r.a, s.y FROM r INNER JOIN s ON r.a = s.a WHERE s.y > 1
SELECT r.a, s.y, t.v FROM r JOIN s ON r.a = s.a JOIN t ON t.a = s.b
SELECT r.a, s.y FROM r CROSS JOIN s
SELECT r.a, s.y FROM r JOIN s ON r.a < s.a
SELECT r.a, s.y FROM r LEFT JOIN s ON r.a = s.a
SELECT r.a, s.y FROM r LEFT OUTER JOIN s ON r.a = s.a AND s.y > 2
SELECT r.a, s.y FROM r LEFT JOIN s ON r.a = s.a AND r.b > 1
SELECT r.a, s.y FROM r RIGHT JOIN s ON r.a = s.a AND r.b > 1
SELECT r.a, s.a AS sa, s.y FROM r FULL JOIN s ON r.a = s.a
SELECT r.a, s.a AS sa FROM r FULL OUTER JOIN s ON r.a = s.a AND r.b = s.b
SELECT p.a, q.b FROM r AS p JOIN r AS q ON p.a = q.b
SELECT p.a, q.b, w.a AS wa FROM r p JOIN r q ON p.a = q.b LEFT JOIN r w ON w.b = p.a AND w.a = q.a
SELECT a, r.b AS rb, y FROM r JOIN s USING (a)
SELECT a, y, v FROM s LEFT JOIN t USING (a)
SELECT a, s.a AS sa, t.a AS ta FROM s RIGHT JOIN t USING (a)
SELECT a, y, v FROM s FULL JOIN t USING (a)
SELECT a, b, y, v FROM r JOIN s USING (a, b) JOIN t USING (a)
SELECT a, y, v FROM s NATURAL JOIN t
SELECT a, b FROM r LEFT SEMI JOIN s ON r.a = s.a
SELECT a, b FROM r LEFT ANTI JOIN s ON r.a = s.a AND s.y > 1
SELECT r.a FROM r LEFT SEMI JOIN s USING (a)
SELECT * FROM (t JOIN (SELECT y, b FROM s) AS q ON t.a = q.b)
SELECT r.a, q.v FROM r LEFT JOIN (t JOIN s ON t.a = s.a) AS q(k, a1, v, a2, b2, e2, y2) ON r.a = q.k
SELECT r.a, s.y FROM r JOIN s ON TRUE WHERE r.b = s.b
SELECT r.a, s.y FROM r LEFT JOIN s ON r.a = s.a WHERE s.a IS NULL
SELECT r.a, s.y FROM r JOIN s ON r.a = s.a AND r.b IN (SELECT k FROM t)
SELECT l.a, m.total FROM r AS l JOIN sales.big AS m ON l.a = m.a
SELECT o.twice, big.total FROM over_big AS o, big WHERE o.a = big.a
"""

GROUPS = """
SELECT count(*) AS n FROM r
SELECT count(*) AS n, sum(a) AS s1, min(b) AS m1, max(c) AS m2, avg(x) AS v1 FROM r
SELECT a, count(*) AS n FROM r GROUP BY a
SELECT a, b, sum(x) AS total FROM r GROUP BY a, b
SELECT sum(x) AS total FROM r GROUP BY a
SELECT a + 1 AS a1, count(b) AS n FROM r GROUP BY a + 1
SELECT a + 1 AS k1, sum(b) + count(*) * 2 AS w FROM r GROUP BY k1
SELECT a AS k1, sum(b) AS w FROM r GROUP BY 1
SELECT a % 2 AS odd, c, count(*) AS n FROM r GROUP BY ALL
SELECT a, sum(b) AS w FROM r GROUP BY a HAVING sum(b) > 3
SELECT a, sum(b) AS w FROM r GROUP BY a HAVING w > 3 OR count(*) = 1
SELECT a FROM r GROUP BY a HAVING count(*) > 1 AND a IS NOT NULL
SELECT count(*) AS n FROM r HAVING count(*) > 3
SELECT a, count(DISTINCT b) AS n, count(DISTINCT b, c) AS m FROM r GROUP BY a
SELECT sum(DISTINCT a) AS w, count(DISTINCT c) AS n FROM r
SELECT a, sum(b) FILTER (WHERE c = 'x') AS w, count(*) FILTER (WHERE b > 1) AS n FROM r GROUP BY a
SELECT a, sum(CASE WHEN b > 2 THEN x ELSE 0 END) / count(*) AS share FROM r GROUP BY a
SELECT a, sum(b) AS w, sum(b) + 1 AS w1, max(b) - min(b) AS spread FROM r GROUP BY a
SELECT (a + b) * 2 AS k1, a + b AS k2, count(*) AS n FROM r GROUP BY a + b
SELECT upper(c) AS u, length(c) AS l, count(*) AS n FROM r GROUP BY c
SELECT a, stddev(b) AS v1, variance(b) AS v2, var_pop(b) AS v3 FROM r GROUP BY a
SELECT a, count_if(b > 1) AS n, bool_and(b > 0) AS every1, bool_or(b > 3) AS some1 FROM r GROUP BY a
SELECT a, mean(b) AS m FROM r GROUP BY a
SELECT a, median(b) AS m FROM r GROUP BY a
SELECT a, max_by(b, b) AS m1, min_by(b, b) AS m2 FROM r GROUP BY a
SELECT DISTINCT a FROM r
SELECT DISTINCT a, b + 1 AS b1 FROM r WHERE c IS NOT NULL
SELECT DISTINCT count(*) AS n FROM r GROUP BY a
SELECT max(total) AS top FROM (SELECT a, sum(b) AS total FROM r GROUP BY a)
SELECT total, count(*) AS n FROM (SELECT a, sum(b) AS total FROM r GROUP BY a) GROUP BY total
SELECT r.a, sum(s.y) AS w FROM r JOIN s ON r.a = s.a GROUP BY r.a
SELECT q.a, count(*) AS n FROM r AS q GROUP BY A
SELECT sum(b) + a AS w FROM r GROUP BY a
SELECT 1 AS one FROM r GROUP BY a
SELECT st.p, count(*) AS n FROM n GROUP BY st.p
SELECT * FROM (SELECT a, b FROM r) GROUP BY a, b
SELECT 'k' AS k1, count(*) AS n FROM r GROUP BY k1
SELECT a, count(*) AS n, (SELECT max(y) FROM s) AS top FROM r GROUP BY a
SELECT a, count(*) AS n, (SELECT max(y) FROM s WHERE s.a = r.a) AS top FROM r GROUP BY a
SELECT a, count(*) AS n FROM r GROUP BY a HAVING a IN (SELECT a FROM s)
SELECT a, sum(b) AS w FROM r GROUP BY a HAVING sum(b) > (SELECT avg(y) FROM s)
SELECT a, sum(b + (SELECT min(y) FROM s)) AS w FROM r GROUP BY a
SELECT CASE WHEN count(*) > 2 THEN a ELSE -1 END AS z FROM r GROUP BY a
"""

GROUPING_SETS = """
SELECT a, b, count(*) AS n FROM r GROUP BY ROLLUP (a, b)
SELECT a, b, sum(x) AS w, grouping(a) AS ga, grouping(b) AS gb FROM r GROUP BY CUBE (a, b)
SELECT a, b, c, count(*) AS n, grouping_id(a, b, c) AS gid FROM r GROUP BY CUBE (a, b, c)
SELECT a, b, max(a) AS top FROM r GROUP BY GROUPING SETS ((a, b), (a), ())
SELECT a, b, count(*) AS n FROM r GROUP BY GROUPING SETS ((a), (a), (b))
SELECT a, count(*) AS n FROM r GROUP BY a, ROLLUP (b)
SELECT a + 1 AS a1, sum(b) AS w FROM r GROUP BY ROLLUP (a + 1)
SELECT a, b, count(*) AS n FROM r GROUP BY ROLLUP (a, b) HAVING grouping(b) = 1 OR n > 1
"""

MEMBERSHIP = """
SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a)
SELECT a, b FROM r WHERE EXISTS (SELECT * FROM s WHERE s.a = r.a AND s.y > 1 AND s.b <> r.b)
SELECT a, b FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.a = r.a)
SELECT a, b FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.b > r.b)
SELECT a, b FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.y > 3)
SELECT a, b FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.y > 3)
SELECT a FROM r WHERE EXISTS (SELECT a FROM s WHERE s.a = r.a LIMIT 1)
SELECT a FROM r WHERE EXISTS (SELECT s.a FROM s JOIN t ON s.a = t.a AND t.v = r.b WHERE s.b = r.a)
SELECT a FROM r WHERE EXISTS (SELECT s.a FROM s WHERE s.a = r.a GROUP BY s.a HAVING count(*) > 1)
SELECT a FROM r WHERE a IN (SELECT a FROM s)
SELECT a FROM r WHERE a + 1 IN (SELECT b * 2 FROM s WHERE y > 0)
SELECT a FROM r WHERE a IN (SELECT s.a FROM s WHERE s.b = r.b)
SELECT a FROM r WHERE a IN (SELECT a FROM s GROUP BY a HAVING sum(y) > 3)
SELECT a FROM r WHERE a IN (SELECT max(y) FROM s WHERE s.b = r.b)
SELECT a FROM r WHERE (a, b) IN (SELECT a, b FROM s)
SELECT a FROM r WHERE a IN (SELECT DISTINCT a FROM s UNION SELECT k FROM t)
SELECT a FROM r WHERE a IN (SELECT y FROM s ORDER BY y DESC, a, b, e LIMIT 3)
SELECT a FROM r WHERE a IN (SELECT a FROM s WHERE b IN (SELECT v FROM t))
SELECT a, b FROM r WHERE a NOT IN (SELECT a FROM s)
SELECT a, b FROM r WHERE a NOT IN (SELECT a FROM s WHERE a IS NOT NULL)
SELECT a, b FROM r WHERE NOT a IN (SELECT a FROM s WHERE y > 100)
SELECT a, b FROM r WHERE a NOT IN (SELECT s.a FROM s WHERE s.b = r.b)
SELECT a, b FROM r WHERE a NOT IN (SELECT s.y FROM s WHERE s.b < r.b AND s.y IS NOT NULL)
SELECT a, b FROM r WHERE a + b NOT IN (SELECT a FROM s WHERE a > 2)
SELECT a, b FROM r WHERE a NOT IN (SELECT max(y) FROM s GROUP BY a)
SELECT a, b FROM r WHERE NOT (NOT (a IN (SELECT a FROM s)))
SELECT a, b FROM r WHERE a = 1 OR EXISTS (SELECT 1 FROM s WHERE s.a = r.a)
SELECT a, b FROM r WHERE a = 1 OR NOT EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.b = 2)
SELECT a, b FROM r WHERE b > 2 OR a IN (SELECT a FROM s)
SELECT a, b FROM r WHERE NOT (b > 2 OR a IN (SELECT a FROM s))
SELECT a, a IN (SELECT a FROM s) AS found FROM r
SELECT a, a NOT IN (SELECT a FROM s WHERE a IS NOT NULL) AS lost FROM r
SELECT a, b, a IN (SELECT s.a FROM s WHERE s.b = r.b) AS found FROM r
SELECT a, (a IN (SELECT a FROM s WHERE y > 100)) IS NULL AS open FROM r
SELECT a, EXISTS (SELECT 1 FROM s WHERE s.a = r.a) AS there FROM r
SELECT a, EXISTS (SELECT 1 FROM s WHERE s.a <=> r.a) AS there FROM r
SELECT a, EXISTS (SELECT 1 FROM s) AS there, NOT EXISTS (SELECT 1 FROM t WHERE k > 3) AS none FROM r
SELECT CASE WHEN a IN (SELECT k FROM t) THEN 'in' WHEN b > 2 THEN 'big' ELSE 'out' END AS w FROM r
SELECT a FROM r WHERE a IN (SELECT a FROM s) AND b NOT IN (SELECT k FROM t WHERE k > 2) AND c = 'x'
SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND EXISTS (SELECT 1 FROM t WHERE t.k = s.b))
"""

SCALARS = """
SELECT a, (SELECT max(y) FROM s) AS top FROM r
SELECT a FROM r WHERE b > (SELECT avg(y) FROM s)
SELECT a FROM r WHERE b < (SELECT max(y) FROM s WHERE s.a = r.a)
SELECT a FROM r WHERE b < 0.5 * (SELECT sum(y) FROM s WHERE s.a = r.a AND s.b > 0) + 1
SELECT a, (SELECT max(y) FROM s WHERE s.a = r.a) AS top FROM r
SELECT a, (SELECT count(*) FROM s WHERE s.a = r.a) AS n FROM r
SELECT a FROM r WHERE (SELECT count(*) FROM s WHERE s.a = r.a) = 0
SELECT a, (SELECT coalesce(sum(y), -1) FROM s WHERE s.a = r.a AND s.b = r.b) AS w FROM r
SELECT a, (SELECT count(y) + max(y) FROM s WHERE s.a = r.a) AS w FROM r
SELECT a, (SELECT count(*) * 2 + 1 FROM s WHERE s.a = r.a) AS w FROM r
SELECT a, (SELECT max(y) + r.b FROM s WHERE s.a = r.a) AS w FROM r
SELECT a, (SELECT max(y) FROM s WHERE s.a = r.a + 1) AS w FROM r
SELECT a, (SELECT max(y) FROM s WHERE s.a + 1 = r.a) AS w FROM r
SELECT a, (SELECT max(s.y) FROM s JOIN t ON s.a = t.a WHERE t.k = r.b) AS w FROM r
SELECT a, (SELECT max(y) FROM s WHERE s.a = r.a GROUP BY s.a) AS w FROM r
SELECT a, (SELECT count(*) FROM s WHERE s.a = r.a GROUP BY s.a) AS w FROM r
SELECT a, (SELECT y FROM s ORDER BY y DESC, a, b, e LIMIT 1) AS w FROM r
SELECT a, (SELECT r.b + 1) AS w, (SELECT 7) AS seven FROM r
SELECT a, (SELECT max(y) FROM s HAVING count(*) > 8) AS w FROM r
SELECT a, (SELECT max(y) FROM s) - (SELECT min(y) FROM s WHERE s.b = r.b) AS w FROM r
SELECT a FROM r WHERE a = (SELECT max(k) FROM t) OR b > 3
SELECT a, (SELECT count(DISTINCT y) FROM s WHERE s.a = r.a) AS n FROM r
SELECT (SELECT max(a) FROM r) AS m1, (SELECT count(*) FROM s) AS n
SELECT a FROM r WHERE b >= (SELECT min(y) FROM s WHERE s.a = r.a AND s.e IN (SELECT 'x'))
SELECT a, (SELECT sum(v) FROM (SELECT v FROM t WHERE v > 0)) AS w FROM r
"""

SETS = """
SELECT a FROM r UNION ALL SELECT y FROM s
SELECT a, b FROM r UNION SELECT a, y FROM s
SELECT a FROM r UNION ALL SELECT y FROM s UNION ALL SELECT v FROM t
SELECT a FROM r UNION ALL SELECT y FROM s UNION SELECT v FROM t
SELECT a FROM r INTERSECT SELECT a FROM s
SELECT a, b FROM r INTERSECT SELECT a, b FROM s
SELECT a FROM r INTERSECT ALL SELECT a FROM s
SELECT a FROM r EXCEPT SELECT a FROM s
SELECT a FROM r EXCEPT ALL SELECT a FROM s
SELECT a FROM r MINUS SELECT k FROM t
SELECT a FROM r UNION ALL SELECT a FROM s INTERSECT SELECT k FROM t
(SELECT a FROM r EXCEPT SELECT a FROM s) UNION ALL (SELECT k FROM t)
SELECT a, a AS b FROM r UNION ALL SELECT 1, 2
SELECT a FROM r UNION SELECT y FROM s ORDER BY a DESC LIMIT 3
SELECT a AS z, count(*) AS n FROM (SELECT a FROM r UNION ALL SELECT k FROM t) GROUP BY a
SELECT n FROM (SELECT a AS n, b FROM r UNION SELECT k, v FROM t) WHERE b > 1
SELECT a, b FROM r EXCEPT SELECT k, v FROM t UNION ALL SELECT 7, 7
"""

WINDOWS = """
SELECT a, b, sum(b) OVER (PARTITION BY a) AS w FROM r
SELECT a, b, rank() OVER (PARTITION BY a ORDER BY b) AS w FROM r
SELECT a, b, dense_rank() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST) + 1 AS w FROM r
SELECT a, b, sum(b) OVER (PARTITION BY a ORDER BY b) AS w, count(*) OVER (PARTITION BY c) AS n FROM r
SELECT a, count(*) OVER () AS n, max(b) OVER (PARTITION BY a, c) AS m FROM r
SELECT a, sum(b) OVER (PARTITION BY a + 1) AS w FROM r
SELECT a, sum(b) OVER w AS w1, avg(b) OVER w AS w2 FROM r WINDOW w AS (PARTITION BY a)
SELECT max(b) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 9 PRECEDING AND UNBOUNDED FOLLOWING) AS w FROM r
SELECT a, sum(b) OVER (PARTITION BY a ORDER BY b RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS w FROM r
SELECT a, b FROM r QUALIFY rank() OVER (PARTITION BY a ORDER BY b) = 1
SELECT a, rank() OVER (PARTITION BY a ORDER BY b DESC) AS place FROM r QUALIFY place <= 2
SELECT a, sum(b) AS w, rank() OVER (ORDER BY sum(b)) AS place FROM r GROUP BY a
SELECT a, c, sum(sum(b)) OVER (PARTITION BY a) AS w FROM r GROUP BY a, c
SELECT a, sum(b) / sum(sum(b)) OVER () AS share FROM r GROUP BY a
SELECT a, first_value(b) OVER (PARTITION BY a ORDER BY b) AS w FROM r
SELECT b, last_value(c) OVER (PARTITION BY b ORDER BY c) AS z FROM r
SELECT w FROM (SELECT a, sum(b) OVER (PARTITION BY a) AS w FROM r) WHERE w > 3
SELECT a, sum(b) FILTER (WHERE c = 'x') OVER (PARTITION BY a) AS w FROM r
SELECT percent_rank() OVER w AS p, cume_dist() OVER w AS q FROM r WINDOW w AS (PARTITION BY c ORDER BY a)
SELECT DISTINCT a, count(*) OVER (PARTITION BY a) AS n FROM r
SELECT r.a, count(s.y) OVER (PARTITION BY r.a) AS n FROM r LEFT JOIN s ON r.a = s.a
SELECT a, b FROM r QUALIFY count(*) OVER (PARTITION BY a) > 1 AND b IN (SELECT a FROM s)
SELECT a, row_number() OVER (PARTITION BY a ORDER BY b, c, d, x) AS n FROM (SELECT DISTINCT * FROM r)
SELECT lag(b, 1, -1) OVER (PARTITION BY a ORDER BY b, c, d, x) AS p FROM (SELECT DISTINCT * FROM r)
SELECT 2 * (sum(b) OVER (PARTITION BY a) + 1) AS w, a FROM r
"""

LIMITS = """
SELECT DISTINCT a, b FROM r ORDER BY a, b LIMIT 3
SELECT DISTINCT a, b FROM r ORDER BY b DESC, 1 LIMIT 3 OFFSET 1
SELECT a, count(*) AS n FROM r GROUP BY a ORDER BY n DESC, a LIMIT 2
SELECT a, count(*) AS n FROM r GROUP BY a ORDER BY count(*) DESC, a NULLS LAST LIMIT 2
SELECT a FROM r GROUP BY a ORDER BY sum(b) + a, a LIMIT 2
SELECT a + 1 AS z FROM (SELECT DISTINCT a FROM r) ORDER BY -z LIMIT 2
SELECT b FROM (SELECT DISTINCT a, b FROM r) ORDER BY a, b LIMIT 2
SELECT a FROM (SELECT DISTINCT a, b FROM r ORDER BY a, b LIMIT 4) WHERE a > 0
SELECT max(a) AS m FROM r LIMIT 1
SELECT a FROM r WHERE a IN (SELECT a FROM s ORDER BY a)
(SELECT DISTINCT a FROM r ORDER BY a LIMIT 2) UNION ALL (SELECT DISTINCT k FROM t ORDER BY k DESC LIMIT 1)
SELECT a FROM r LIMIT 0
SELECT DISTINCT a FROM r ORDER BY a + 0 LIMIT 2
"""

NAMED = """
WITH q AS (SELECT a, b FROM r WHERE b > 1) SELECT a FROM q
WITH q AS (SELECT a, b FROM r) SELECT p.a, w.b FROM q AS p JOIN q AS w ON p.a = w.b
WITH q(f, g) AS (SELECT a, b FROM r) SELECT f FROM q WHERE g > 1
WITH q AS (SELECT a FROM r), w AS (SELECT a + 1 AS a FROM q) SELECT * FROM w
WITH r AS (SELECT a FROM sales.s) SELECT a FROM r
WITH q AS (SELECT a FROM r) SELECT y FROM (WITH q AS (SELECT y FROM s) SELECT y FROM q), q WHERE a = y
WITH q AS (SELECT max(y) AS top FROM s) SELECT r.a FROM r, q WHERE r.b = q.top
WITH q AS (SELECT a, sum(b) AS w FROM r GROUP BY a) SELECT a FROM q WHERE w = (SELECT max(w) FROM q)
WITH q AS (SELECT a FROM r) SELECT k FROM t WHERE k IN (SELECT a FROM q)
SELECT a, total FROM big WHERE total > 2
SELECT sum(twice) AS w FROM sales.over_big
SELECT a FROM r WHERE a IN (WITH q AS (SELECT y FROM s) SELECT y FROM q)
"""


def listed(*texts: str) -> list[str]:
    return [line for text in texts for line in text.strip().splitlines()]


EVERYTHING = listed(PLAIN, JOINS, GROUPS, GROUPING_SETS, MEMBERSHIP, SCALARS, SETS, WINDOWS, LIMITS, NAMED)
#: What DuckDB would read differently, with the text that means the same there.
PAIRS = [
    (
        "SELECT * FROM t JOIN (SELECT y, a FROM s) AS q USING (a)",
        "SELECT t.a, k, v, y FROM t JOIN s ON t.a = s.a",
    ),
    (
        "SELECT * FROM (SELECT a, b FROM r) NATURAL JOIN (SELECT y, b FROM s)",
        "SELECT r.b, r.a, y FROM r JOIN s ON r.b = s.b",
    ),
    (
        "SELECT t.*, q.* EXCEPT (a), q.a AS qa FROM t RIGHT JOIN (SELECT y, a FROM s) AS q USING (a)",
        "SELECT t.a, k, v, y, s.a FROM t RIGHT JOIN s ON t.a = s.a",
    ),
    (
        "SELECT a, every(b > 0) AS e1, some(b > 3) AS s1, any(b > 2) AS a1 FROM r GROUP BY a",
        "SELECT a, bool_and(b > 0), bool_or(b > 3), bool_or(b > 2) FROM r GROUP BY a",
    ),
    (
        "SELECT a, b, count(*) AS n FROM r GROUP BY a, b WITH ROLLUP",
        "SELECT a, b, count(*) FROM r GROUP BY ROLLUP (a, b)",
    ),
    (
        "SELECT a, b, count(*) AS n, grouping_id() AS g FROM r GROUP BY a, b WITH CUBE",
        "SELECT a, b, count(*), grouping(a, b) FROM r GROUP BY CUBE (a, b)",
    ),
    (
        "SELECT b, a, count(*) AS n, grouping__id AS g FROM r GROUP BY a, b GROUPING SETS ((a), (b), (a, b))",
        "SELECT b, a, count(*), grouping(a, b) FROM r GROUP BY GROUPING SETS ((a), (b), (a, b))",
    ),
    (
        "SELECT a, b, c, count(*) AS n FROM r GROUP BY ROLLUP (a, (b, c)), c",
        "SELECT a, b, c, count(*) FROM r GROUP BY GROUPING SETS ((a, b, c), (a, c), (c))",
    ),
    (
        "SELECT a, b FROM r WHERE (a, b) NOT IN (SELECT a, b FROM s)",
        "SELECT a, b FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE (r.a = s.a AND r.b = s.b) IS NOT FALSE)",
    ),
    (
        "SELECT b AS a, sum(x) AS w FROM r GROUP BY b, a HAVING a > 1",
        "SELECT b, sum(x) FROM r GROUP BY b, a HAVING r.a > 1",
    ),
    (
        "SELECT a, sum(b) AS b FROM r GROUP BY a HAVING b > 3",
        "SELECT a, sum(b) FROM r GROUP BY a HAVING sum(b) > 3",
    ),
    (
        "SELECT b AS a, max(x) OVER (PARTITION BY a) AS w FROM r QUALIFY a > 2",
        "SELECT b, w FROM (SELECT b, max(x) OVER (PARTITION BY a) AS w FROM r) WHERE b > 2",
    ),
    ("SELECT id, tag FROM n LATERAL VIEW explode(tags) AS tag", "SELECT id, unnest(tags) FROM n"),
    (
        "SELECT id, w.tag FROM n LATERAL VIEW OUTER explode(tags) w AS tag",
        "SELECT id, unnest(CASE WHEN len(tags) > 0 THEN tags ELSE [NULL] END) FROM n",
    ),
    (
        "SELECT id, p, q FROM n LATERAL VIEW posexplode(tags) w AS p, q",
        "SELECT id, unnest(range(len(tags))), unnest(tags) FROM n",
    ),
    ("SELECT id, explode(tags) AS tag FROM n", "SELECT id, unnest(tags) FROM n"),
    ("SELECT explode(tags), id FROM n", "SELECT unnest(tags), id FROM n"),
    (
        "SELECT id, explode_outer(tags) AS tag FROM n",
        "SELECT id, unnest(CASE WHEN len(tags) > 0 THEN tags ELSE [NULL] END) FROM n",
    ),
    (
        "SELECT id, posexplode(tags) FROM n",
        "SELECT id, unnest(range(len(tags))), unnest(tags) FROM n",
    ),
    (
        "SELECT id, f, w.g FROM n LATERAL VIEW inline(items) w",
        "SELECT id, i.f, i.g FROM (SELECT id, unnest(items) AS i FROM n)",
    ),
    (
        "SELECT id, inline(items) AS (f1, g1) FROM n WHERE id > 1",
        "SELECT id, i.f, i.g FROM (SELECT id, unnest(items) AS i FROM n WHERE id > 1)",
    ),
    (
        "SELECT n.id, u.tag FROM n, LATERAL explode(n.tags) AS u(tag) WHERE tag > 1",
        "SELECT * FROM (SELECT id, unnest(tags) AS tag FROM n) WHERE tag > 1",
    ),
    (
        "SELECT tag, count(*) AS m FROM n LATERAL VIEW explode(tags) AS tag GROUP BY tag",
        "SELECT tag, count(*) FROM (SELECT unnest(tags) AS tag FROM n) GROUP BY tag",
    ),
    (
        "SELECT p.u, q.u AS w FROM n LATERAL VIEW explode(tags) p AS u LATERAL VIEW explode(tags) q AS u",
        "SELECT p, unnest(tags) FROM (SELECT tags, unnest(tags) AS p FROM n)",
    ),
    ("SELECT * FROM explode(array(1, 2, 2)) AS e(x1)", "SELECT unnest([1, 2, 2])"),
    ("SELECT a, sum(b) AS a2 FROM r GROUP BY a LIMIT ALL", "SELECT a, sum(b) FROM r GROUP BY a"),
    ("SELECT a FROM r CLUSTER BY a", "SELECT a FROM r"),
    ("SELECT /*+ BROADCAST(s) */ r.a FROM r JOIN s ON r.a = s.a", "SELECT r.a FROM r JOIN s ON r.a = s.a"),
    ("SELECT 7 AS n7, a, count(*) AS n FROM r GROUP BY ALL", "SELECT 7, a, count(*) FROM r GROUP BY a"),
    (
        "SELECT a + (SELECT max(y) FROM s) AS k, count(*) AS n FROM r GROUP BY k",
        "SELECT a + (SELECT max(y) FROM s), count(*) FROM r GROUP BY 1",
    ),
    ("FROM r SELECT a WHERE b > 1", "SELECT a FROM r WHERE b > 1"),
    ("SELECT count(*), a + 1 FROM r GROUP BY a + 1", "SELECT count(*), a + 1 FROM r GROUP BY a + 1"),
    ("SELECT w.e FROM VALUES 'p', 'q' AS w(e)", "SELECT 'p' UNION ALL SELECT 'q'"),
    ("VALUES (1, 'a'), (2, 'b')", "SELECT 1, 'a' UNION ALL SELECT 2, 'b'"),
]
#: DuckDB has a row for the empty grouping set even if there are no rows; Spark does not.
NOT_ON_EMPTY = frozenset(listed(GROUPING_SETS))


@pytest.fixture(scope="module")
def worlds() -> list[duckdb.DuckDBPyConnection]:
    return [filled(seed) for seed in (1, 2, 3, 4, 5, 6)]


@pytest.fixture(scope="module")
def empty_world() -> duckdb.DuckDBPyConnection:
    return filled(None)


@pytest.mark.parametrize("sql", EVERYTHING)
def test_the_algebra_of_a_query_has_its_rows(
    sql: str, worlds: list[duckdb.DuckDBPyConnection], empty_world: duckdb.DuckDBPyConnection
) -> None:
    query = build(sql)
    assert not [one.reason for one in query.relation.walk() if isinstance(one, Opaque)]
    for session in [*worlds, *([] if sql in NOT_ON_EMPTY else [empty_world])]:
        assert result(session, query) == expected(session, sql)


@pytest.mark.parametrize(("sql", "same"), PAIRS)
def test_what_spark_means_by_a_query(sql: str, same: str, worlds: list[duckdb.DuckDBPyConnection]) -> None:
    query = build(sql)
    assert not [one.reason for one in query.relation.walk() if isinstance(one, Opaque)]
    for session in worlds:
        assert result(session, query) == rows(session, same)


@pytest.mark.parametrize("sql", EVERYTHING)
def test_every_column_has_a_name_of_its_own(sql: str) -> None:
    scans = [one for one in build(sql).relation.walk() if isinstance(one, Scan)]
    names = [name for scan in scans for name, _ in (*scan.fields, *scan.key_fields)]
    assert len({name.lower() for name in names}) == len(names)
