"""A few small tables in DuckDB, with NULLs and duplicates, that queries are built over and judged on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from headwater.algebra.building import Found, build_query
from headwater.algebra.relations import Query
from headwater.algebra.render import render

TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "sales.r": (("a", "INT"), ("b", "INT"), ("c", "STRING"), ("d", "DATE"), ("x", "DECIMAL(10,2)")),
    "sales.s": (("a", "INT"), ("b", "INT"), ("e", "STRING"), ("y", "INT")),
    "sales.t": (("k", "INT"), ("a", "INT"), ("v", "INT")),
    "other.n": (
        ("id", "INT"),
        ("tags", "ARRAY<INT>"),
        ("st", "STRUCT<p: INT, q: STRUCT<z: INT>>"),
        ("items", "ARRAY<STRUCT<f: INT, g: STRING>>"),
    ),
}
VIEWS = {
    "sales.big": "SELECT a, sum(b) AS total FROM r GROUP BY a",
    "sales.over_big": "SELECT a, total * 2 AS twice FROM sales.big WHERE total IS NOT NULL",
    "sales.loop": "SELECT * FROM sales.pool",
    "sales.pool": "SELECT * FROM sales.loop",
    "sales.broken": "SELECT nowhere FROM r",
    "sales.some": "SELECT a, b FROM r LIMIT 3",
}


class World:
    """The catalog of the tests."""

    def table(self, parts: tuple[str, ...]) -> Found | None:
        wanted = ".".join(parts).lower()
        for name, columns in TABLES.items():
            if wanted in (name, name.partition(".")[2]):
                return Found(name, columns)
        for name, text in VIEWS.items():
            if wanted in (name, name.partition(".")[2]):
                return Found(name, view=text)
        return None

    def names(self) -> Sequence[str]:
        return [*TABLES, *VIEWS]


def build(sql: str, **options: Any) -> Query:
    """The algebra of a query over the world."""
    return build_query(sql, World(), **options)


def filled(seed: int | None) -> duckdb.DuckDBPyConnection:
    """The tables with random rows; with None they are empty."""
    session = duckdb.connect()
    session.execute("CREATE SCHEMA sales; CREATE SCHEMA other; SET search_path = 'sales,other'")
    for name, columns in TABLES.items():
        session.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {_duck(t)}' for c, t in columns)})")
        if seed is not None:
            rows = _rows(name, random.Random(f"{name} {seed}"))
            marks = ", ".join("?" for _ in columns)
            session.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        session.execute(f'CREATE VIEW sales."{name}@new" AS SELECT rowid, * FROM {name}')
    for name in ("sales.big", "sales.over_big"):
        session.execute(f"CREATE VIEW {name} AS {VIEWS[name]}")
    return session


def result(session: duckdb.DuckDBPyConnection, query: Query) -> Counter[str]:
    """The rows of the algebra, as a multiset."""
    chosen = ", ".join(f'"{internal}"' for _, internal in query.outputs)
    return rows(session, f"SELECT {chosen} FROM ({render(query.relation, dialect='duckdb')})")


def expected(session: duckdb.DuckDBPyConnection, sql: str) -> Counter[str]:
    """The rows of the query as written, in Spark's dialect."""
    tree = sqlglot.parse_one(sql, read="spark")
    for call in list(tree.find_all(exp.CountIf)):
        # For no values DuckDB's count_if is NULL.
        call.replace(exp.Count(this=exp.Case().when(call.this, exp.Literal.number(1))))
    return rows(session, tree.sql(dialect="duckdb"))


def rows(session: duckdb.DuckDBPyConnection, sql: str) -> Counter[str]:
    """The rows of a query of DuckDB's, as a multiset."""
    found = session.execute(sql).fetchall()
    return Counter(repr(tuple(_plain(value) for value in row)) for row in found)


def _plain(value: Any) -> Any:
    """Numbers of equal value alike: 2, 2.0 and Decimal('2.00')."""
    if isinstance(value, (float, Decimal)) and not isinstance(value, bool):
        return round(float(value), 6)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _duck(kind: str) -> str:
    return sqlglot.exp.DataType.build(kind, dialect="spark").sql(dialect="duckdb")


def _rows(name: str, chance: random.Random) -> list[tuple[Any, ...]]:
    def small() -> int | None:
        return chance.choice([None, 0, 1, 2, 3, 4])

    def row() -> tuple[Any, ...]:
        word = chance.choice([None, "x", "y", "zz"])
        if name == "sales.r":
            day = chance.choice([None, date(2024, 1, 5), date(2024, 2, 6), date(2025, 3, 7)])
            price = chance.choice([None, Decimal("1.50"), Decimal("2.25"), Decimal("-3.00")])
            return small(), small(), word, day, price
        if name == "sales.s":
            return small(), small(), word, small()
        if name == "sales.t":
            return small(), small(), small()
        tags = chance.choice([None, [], [1], [1, None, 2], [3, 3]])
        struct = chance.choice([None, {"p": small(), "q": {"z": small()}}])
        items = chance.choice([None, [], [{"f": 1, "g": "u"}, {"f": None, "g": "v"}]])
        return small(), tags, struct, items

    made = [row() for _ in range(chance.choice([5, 9, 14]))]
    return made + made[:2]
