"""Two results compared as multisets, inside DuckDB: what one has more often than the other.

Rows are first compared as they are. What is left over, where computed numbers may differ in their last
digits, is compared again within a tolerance, among rows that agree in everything else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import duckdb

#: How far two computations of the same floating-point number may be apart, relative to it.
TOLERANCE = 1e-9
#: The same for numbers of single precision.
SINGLE_TOLERANCE = 1e-6
#: What is left of numbers that cancel each other.
NOTHING = 1e-12
#: Leftover rows that are matched one by one.
MOST_MATCHED = 2000

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_WHOLE = frozenset(
    [
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "UHUGEINT",
    ]
)
Side = Literal["missing", "unexpected"]


@dataclass(frozen=True)
class Column:
    """A column of both results and how it is compared."""

    name: str
    #: The type in which it is compared.
    type: str
    #: How far apart values may be, relative and absolute; None if they must be equal.
    tolerance: tuple[float, float] | None = None
    #: Whether elements of its arrays have no order.
    unordered: bool = False

    @property
    def value(self) -> str:
        """What is compared, as SQL."""
        value = f"CAST({_quoted(self.name)} AS {self.type})"
        return f"list_sort({value})" if self.unordered else value


@dataclass(frozen=True)
class Comparison:
    """What differs, and how many rows were compared."""

    rows: int
    missing: int
    unexpected: int
    differences: tuple[tuple[Side, Mapping[str, Any], int], ...]


def how(name: str, expected: str, stored: str) -> Column:
    """How a column of two types is compared: a decimal is rounded where DuckDB computes with doubles."""
    if stored == expected and stored not in ("DOUBLE", "FLOAT"):
        return Column(name, stored)
    if _is_number(stored) and _is_number(expected):
        scale = _scale(stored)
        if scale is not None and scale == _scale(expected):
            return Column(
                name, "HUGEINT" if stored in _WHOLE and expected in _WHOLE else f"DECIMAL(38,{scale})"
            )
        relative = SINGLE_TOLERANCE if "FLOAT" in (stored, expected) else TOLERANCE
        return Column(name, "DOUBLE", (relative, NOTHING if scale is None else 10.0**-scale))
    return Column(name, stored)


def _is_number(kind: str) -> bool:
    return kind in ("DOUBLE", "FLOAT") or _scale(kind) is not None


def _scale(kind: str) -> int | None:
    if kind in _WHOLE:
        return 0
    found = _DECIMAL.fullmatch(kind)
    return None if found is None else int(found[2])


def compare(
    session: duckdb.DuckDBPyConnection, expected: str, stored: str, columns: Sequence[Column], limit: int
) -> Comparison:
    """Compare two tables of a session, which have these columns in this order."""
    names = [f"c{number}" for number in range(len(columns))]
    chosen = ", ".join(f"{column.value} AS {name}" for name, column in zip(names, columns, strict=True))
    listed = ", ".join(names)
    session.execute(
        f"CREATE OR REPLACE TEMP TABLE _hw_diff AS SELECT {listed}, sum(_hw_n)::BIGINT AS _hw_n FROM ("
        f"SELECT {chosen}, 1 AS _hw_n FROM {expected} UNION ALL SELECT {chosen}, -1 FROM {stored}) "
        f"GROUP BY {listed} HAVING sum(_hw_n) <> 0"
    )
    tolerant = [(name, column) for name, column in zip(names, columns, strict=True) if column.tolerance]
    if tolerant:
        _forgive(session, names, tolerant)
    missing, unexpected = session.execute(
        "SELECT coalesce(sum(_hw_n) FILTER (_hw_n > 0), 0), coalesce(-sum(_hw_n) FILTER (_hw_n < 0), 0) "
        "FROM _hw_diff"
    ).fetchall()[0]
    rows = session.execute(f"SELECT count(*) FROM {expected}").fetchall()[0][0]
    order = ", ".join([*(f"{name} NULLS FIRST" for name in names), "_hw_n DESC"])
    differing = session.execute(f"SELECT * FROM _hw_diff ORDER BY {order} LIMIT {int(limit)}").fetchall()
    return Comparison(
        rows, int(missing), int(unexpected), tuple(_difference(row, columns) for row in differing)
    )


def _difference(row: tuple[Any, ...], columns: Sequence[Column]) -> tuple[Side, Mapping[str, Any], int]:
    values = {column.name: value for column, value in zip(columns, row[:-1], strict=True)}
    return ("missing" if row[-1] > 0 else "unexpected"), values, abs(row[-1])


def _forgive(
    session: duckdb.DuckDBPyConnection, names: Sequence[str], tolerant: Sequence[tuple[str, Column]]
) -> None:
    """Take pairs of rows out of the difference that are equal within the tolerance."""
    close = {name for name, _ in tolerant}
    exact = [name for name in names if name not in close]
    # Numbers of the same first digits are put side by side, so that noise does not decide the order.
    order = ", ".join(f"printf('%.6e', {name})" for name in close)
    session.execute(
        "CREATE OR REPLACE TEMP TABLE _hw_numbered AS "
        "SELECT *, row_number() OVER "
        f"(PARTITION BY {', '.join([*exact, 'sign(_hw_n)'])} ORDER BY {order}, {', '.join(close)}) AS _hw_k "
        "FROM (SELECT * EXCLUDE (_hw_copy) FROM "
        "(SELECT *, unnest(range(abs(_hw_n))) AS _hw_copy FROM _hw_diff))"
    )
    same = [f"m.{name} IS NOT DISTINCT FROM u.{name}" for name in exact]
    same += [_near(name, column) for name, column in tolerant]
    listed = ", ".join(names)
    session.execute(
        "CREATE OR REPLACE TEMP TABLE _hw_paired AS SELECT m.rowid AS a, u.rowid AS b FROM _hw_numbered m "
        f"JOIN _hw_numbered u ON {' AND '.join(['m._hw_k = u._hw_k', *same])} "
        "WHERE m._hw_n > 0 AND u._hw_n < 0"
    )
    session.execute(
        "DELETE FROM _hw_numbered "
        "WHERE rowid IN (SELECT a FROM _hw_paired UNION ALL SELECT b FROM _hw_paired)"
    )
    _match_rest(session, same)
    session.execute(
        f"CREATE OR REPLACE TEMP TABLE _hw_diff AS SELECT {listed}, sum(sign(_hw_n))::BIGINT AS _hw_n "
        f"FROM _hw_numbered GROUP BY {listed}"
    )


def _match_rest(session: duckdb.DuckDBPyConnection, same: Sequence[str]) -> None:
    """Rows that noise has put in another order, matched each with any that is near."""
    count = session.execute("SELECT count(*) FROM _hw_numbered").fetchall()[0][0]
    if count > MOST_MATCHED:
        return
    pairs = session.execute(
        f"SELECT m.rowid, u.rowid FROM _hw_numbered m JOIN _hw_numbered u ON {' AND '.join(same)} "
        "WHERE m._hw_n > 0 AND u._hw_n < 0 ORDER BY 1, 2"
    ).fetchall()
    taken: set[int] = set()
    for pair in pairs:
        if not taken.intersection(pair):
            taken.update(pair)
    if taken:
        session.execute("DELETE FROM _hw_numbered WHERE rowid IN (SELECT unnest(?))", [sorted(taken)])


def _near(name: str, column: Column) -> str:
    relative, absolute = column.tolerance or (0.0, 0.0)
    one, other = f"m.{name}", f"u.{name}"
    return (
        f"({one} IS NOT DISTINCT FROM {other} OR abs({one} - {other}) <= "
        f"greatest(abs({one}), abs({other})) * {relative!r} + {absolute!r} "
        f"AND isfinite({one}) AND isfinite({other}))"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
