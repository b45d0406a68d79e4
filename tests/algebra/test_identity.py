"""Which sources are known by their row ids where results are stored."""

from __future__ import annotations

import pytest
from tests.algebra.building_world import build

from headwater.algebra.identity import by_row_id
from headwater.algebra.relations import Relation
from headwater.algebra.stages import Types, compile_query


def _untyped(relation: Relation, stages: object) -> Types:
    return dict.fromkeys(relation.all_columns, "int")


@pytest.mark.parametrize(
    ("sql", "sources"),
    [
        ("SELECT a FROM r WHERE b > 1", "r"),
        ("SELECT r.a, s.y FROM r JOIN s ON r.a = s.a", "r s"),
        ("SELECT r.a, s.y FROM r FULL JOIN s ON r.a = s.a", "r s"),
        ("SELECT a FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.a = r.a)", "r"),
        ("SELECT a FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.a = r.a AND s.y = 2)", "r"),
        ("SELECT a FROM r UNION ALL SELECT a FROM s", "r s"),
        ("SELECT a FROM r UNION SELECT a FROM s", ""),
        ("SELECT a, sum(b) AS n FROM r GROUP BY a", ""),
        ("SELECT count(*) AS n FROM r", ""),
        ("SELECT DISTINCT r.a FROM r LEFT JOIN s ON r.a = s.a", ""),
        ("SELECT s.y, g.n FROM s JOIN (SELECT a, count(*) AS n FROM r GROUP BY a) g ON g.a = s.a", "s"),
        ("SELECT a, b FROM r ORDER BY b LIMIT 3", "r"),
        ("SELECT sum(b) AS n FROM (SELECT b FROM r ORDER BY b LIMIT 3)", "r"),
        ("SELECT a, max(n) AS m FROM (SELECT a, row_number() OVER (PARTITION BY a ORDER BY b) AS n FROM r) "
         "GROUP BY a", "r"),
    ],
)  # fmt: skip
def test_sources_are_known_by_row_ids_unless_only_their_values_are_stored(sql: str, sources: str) -> None:
    found = by_row_id(compile_query(build(sql), _untyped))
    assert sorted(found) == [f"sales.{name}" for name in sources.split()]
