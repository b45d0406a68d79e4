"""Column lineage: which source columns flow into a column, and which only decide."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater.algebra.building import Found, build_query
from headwater.algebra.lineage import Origin, column_lineage, lineage
from headwater.algebra.relations import Query
from headwater.errors import NotFoundError

_TABLES = {
    "o": (
        "main.o",
        (("id", "bigint"), ("cust", "bigint"), ("price", "decimal(10,2)"), ("tags", "array<string>")),
    ),
    "c": ("main.c", (("id", "bigint"), ("name", "string"), ("region", "string"))),
}


class _Catalog:
    def table(self, parts: tuple[str, ...]) -> Found | None:
        if parts[-1] == "v":
            return Found("main.v", view="SELECT cust AS k, sum(price) AS total FROM o GROUP BY cust")
        found = _TABLES.get(parts[-1])
        return None if found is None else Found(found[0], found[1])

    def names(self) -> Sequence[str]:
        return list(_TABLES)


def query(sql: str) -> Query:
    return build_query(sql, _Catalog())


def of(sql: str, column: str, *, deciding: bool = False) -> set[str]:
    found = lineage(query(sql), column, deciding=deciding)
    return {f"{table.removeprefix('main.')}.{name}" for table, name in found}


@pytest.mark.parametrize(
    ("sql", "column", "values", "deciding"),
    [
        ("SELECT price * 2 + id AS v FROM o WHERE cust > 1", "v", "o.price o.id", "o.cust"),
        ("SELECT 1 AS v FROM o", "v", "", ""),
        ("SELECT name FROM o JOIN c ON o.cust = c.id", "NAME", "c.name", "o.cust c.id"),
        ("SELECT c.id, price FROM o LEFT JOIN c ON o.cust = c.id", "id", "c.id", "o.cust"),
        ("SELECT region, sum(price) AS s FROM o JOIN c ON cust = c.id GROUP BY region", "s", "o.price",
         "c.region o.cust c.id"),
        ("SELECT region, sum(price) AS s FROM o JOIN c ON cust = c.id GROUP BY region", "region", "c.region",
         "o.cust c.id"),
        ("SELECT count(*) AS n FROM o", "n", "", ""),
        ("SELECT sum(price) FILTER (WHERE cust = 1) AS s FROM o", "s", "o.price", "o.cust"),
        ("SELECT cust, sum(price) AS s FROM o GROUP BY cust HAVING max(id) > 5", "s", "o.price",
         "o.cust o.id"),
        ("SELECT total FROM v WHERE k > 1", "total", "o.price", "o.cust"),
        ("SELECT id FROM o WHERE cust IN (SELECT id FROM c WHERE region = 'x')", "id", "o.id",
         "o.cust c.id c.region"),
        ("SELECT id FROM o WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.id = o.cust)", "id", "o.id",
         "o.cust c.id"),
        ("SELECT id AS x FROM o UNION ALL SELECT cust FROM o", "x", "o.id o.cust", ""),
        ("SELECT (SELECT max(name) FROM c WHERE c.id = o.cust) AS m FROM o", "m", "c.name", "c.id o.cust"),
        ("SELECT t FROM o LATERAL VIEW explode(tags) e AS t", "t", "o.tags", ""),
        ("SELECT id FROM o LATERAL VIEW explode(tags) e AS t", "id", "o.id", "o.tags"),
        ("SELECT lag(price) OVER (PARTITION BY cust ORDER BY id) AS p FROM o", "p", "o.price", "o.cust o.id"),
        ("SELECT price, rank() OVER (PARTITION BY cust ORDER BY id) AS r FROM o", "price", "o.price", ""),
        ("SELECT price, rank() OVER (PARTITION BY cust ORDER BY id) AS r FROM o", "r", "o.id", "o.cust"),
        ("SELECT price FROM o ORDER BY id LIMIT 3", "price", "o.price", "o.id"),
        ("WITH a AS (SELECT cust, max(price) AS p FROM o GROUP BY cust) SELECT avg(p) AS v FROM a", "v",
         "o.price", "o.cust"),
        ("SELECT DISTINCT region FROM c", "region", "c.region", ""),
    ],
)  # fmt: skip
def test_columns_come_from_what_is_computed_into_them(
    sql: str, column: str, values: str, deciding: str
) -> None:
    assert of(sql, column) == set(values.split())
    assert of(sql, column, deciding=True) == set(deciding.split())


def test_all_columns_at_once() -> None:
    found = column_lineage(query("SELECT price + id AS v, 1 AS one FROM o"))

    assert found == {"v": (Origin("main.o", "id"), Origin("main.o", "price")), "one": ()}


def test_an_unknown_column_is_named_with_the_one_that_was_meant() -> None:
    with pytest.raises(NotFoundError) as error:
        lineage(query("SELECT price FROM o"), "prise")
    assert "'price'" in str(error.value)
