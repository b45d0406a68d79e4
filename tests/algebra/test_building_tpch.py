"""The 22 queries of TPC-H: all of them become operators with rules, and mean what they meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pytest
import sqlglot
from tests.algebra.building_world import result, rows
from tests.support import extension, literal

from headwater.algebra.building import Found, build_query
from headwater.algebra.relations import Opaque


class Tpch:
    """The catalog of a DuckDB session that has the tables of TPC-H."""

    def __init__(self, session: duckdb.DuckDBPyConnection):
        self.tables: dict[str, list[tuple[str, str]]] = {}
        for (table,) in session.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            described = session.execute(f"DESCRIBE {table}").fetchall()
            self.tables[table] = [(name, kind) for name, kind, *_ in described]

    def table(self, parts: tuple[str, ...]) -> Found | None:
        found = self.tables.get(parts[-1].lower())
        return None if found is None else Found(f"main.{parts[-1].lower()}", tuple(found))

    def names(self) -> Sequence[str]:
        return list(self.tables)


@pytest.fixture(scope="module")
def tpch() -> Iterator[tuple[duckdb.DuckDBPyConnection, Tpch]]:
    session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    session.execute(f"LOAD {literal(extension('tpch'))}")
    session.execute("CALL dbgen(sf = 0.01)")
    catalog = Tpch(session)
    for table in catalog.tables:
        session.execute(f'CREATE VIEW "main.{table}@new" AS SELECT rowid, * FROM {table}')
    yield session, catalog
    session.close()


@pytest.mark.parametrize("number", range(1, 23))
def test_a_query_of_tpch_is_incremental_and_right(
    number: int, tpch: tuple[duckdb.DuckDBPyConnection, Tpch]
) -> None:
    session, catalog = tpch
    found = session.execute("SELECT query FROM tpch_queries() WHERE query_nr = ?", [number]).fetchone()
    assert found is not None
    query = build_query(sqlglot.transpile(found[0], read="duckdb", write="spark")[0], catalog)
    assert not [one for one in query.relation.walk() if isinstance(one, Opaque)]
    assert result(session, query) == rows(session, found[0])
