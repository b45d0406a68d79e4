"""A stream table beside the tables it reads, both in DuckDB, and the checks that hold at every refresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp
from tests.algebra.choices import Choices
from tests.algebra.duck_refresh import DuckStream, duck_type, quoted
from tests.algebra.grammar import FIRST_DAY, Contents, Schema, change, contents

from headwater.algebra.building import Found


class Tables:
    """The catalog of a schema."""

    def __init__(self, schema: Schema):
        self.schema = schema

    def table(self, parts: tuple[str, ...]) -> Found | None:
        name = parts[-1].lower()
        return Found(name, columns=tuple(self.schema[name])) if name in self.schema else None

    def names(self) -> Sequence[str]:
        return list(self.schema)


class Follower:
    """A query kept up to date over tables whose contents are set from outside."""

    def __init__(self, sql: str, held: Contents, like: Follower | None = None):
        self.sql = sql
        self.schema = held.tables
        self.con = duckdb.connect(config={"threads": 1})
        self.day = FIRST_DAY
        self.put(held)
        self._expected: dict[date, str] = {}
        other = None if like is None else like.stream
        self.stream = DuckStream(self.con, sql, self.schema, Tables(self.schema), now=self.now, like=other)

    @property
    def now(self) -> str:
        return f"{self.day} 12:00:00+00"

    def put(self, held: Contents) -> None:
        """Let the tables hold these rows."""
        for name, columns in self.schema.items():
            typed = ", ".join(f"{quoted(column)} {duck_type(text)}" for column, text in columns)
            self.con.execute(f"CREATE OR REPLACE TABLE {name} ({typed}, rowid_ BIGINT)")
            rows = [(*row, row_id) for row_id, row in held.rows[name].items()]
            if rows:
                listed = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
                self.con.execute(f"INSERT INTO {name} VALUES {listed}")

    def move(self, days: int) -> None:
        """Let time pass, or go back."""
        self.day += timedelta(days=days)

    def refresh(self, *, full: bool = False, alone: bool = False) -> int:
        """How many rows changed in all stages but those whose spare rows depend on what happened."""
        changed = self.stream.refresh(full=full, result_alone=alone, now=self.now)
        return sum(
            changed.get(stage.source, 0) for stage in self.stream.program.stages if stage.first is None
        )

    def expected(self) -> Counter[str]:
        """What DuckDB has to say to the query's text."""
        if self.day not in self._expected:
            self._expected[self.day] = in_duckdb(self.sql, self.day)
        return counted(self.con.execute(self._expected[self.day]).fetchall())

    def rows(self) -> Counter[str]:
        """What is stored."""
        return counted(list(self.stream.rows().elements()))

    def stored(self) -> dict[str, Counter[str]]:
        """What is stored in all stages, helper columns too, but not the spare rows of first rows."""
        return {source: counted(rows) for source, rows in self.stream.stored().items()}

    def check(self, what: str) -> None:
        """What is stored is the result of the query."""
        expected, found = self.expected(), self.rows()
        assert found == expected, (
            f"{what}: missing {dict((expected - found).most_common(4))}, "
            f"too many {dict((found - expected).most_common(4))}"
        )


#: How the steps of a stream table in `auto` mode may go: the result alone, all that was left behind, changes.
_AUTO: tuple[dict[str, bool], ...] = ({"alone": True}, {"alone": True}, {"full": True}, {})


def follow(sql: str, schema: Schema, choices: Choices, *, steps: int, exact: bool = True) -> int:
    """Change tables, refresh, compare; at the end: full is incremental, and once is as good as often."""
    held = contents(choices, schema)
    one = Follower(sql, held)
    late = Follower(sql, held, like=one)
    auto = Follower(sql, held, like=one)
    one.check("at first")
    for step in range(steps):
        if choices.chance(8):
            _there_and_back(one, held, choices, step, exact)
        change(choices, held)
        days = choices.one((0, 0, 0, 1, 2, -1))
        late.move(days)
        for each, how in ((one, {}), (auto, _AUTO[step % len(_AUTO)])):
            each.put(held)
            each.move(days)
            each.refresh(**how)
            each.check(f"after step {step}{''.join(f', {name}' for name in how)}")
    late.put(held)
    late.refresh()
    late.check("once for all steps")
    if exact:
        changed = one.refresh(full=True)
        assert not changed, f"a full refresh finds {changed} rows changed"
    return steps


def _there_and_back(one: Follower, held: Contents, choices: Choices, step: int, exact: bool) -> None:
    before = one.stored()
    other = held.copy()
    change(choices, other)
    one.put(other)
    one.refresh()
    one.check(f"there, step {step}")
    one.put(held)
    one.refresh()
    one.check(f"and back, step {step}")
    if exact:
        after = one.stored()
        assert after == before, f"there and back leaves another state at step {step}: {before} {after}"


def in_duckdb(sql: str, day: date) -> str:
    """The text of a query of Spark's in DuckDB, on a day."""
    moment = exp.cast(exp.Literal.string(str(day)), "date")
    tree = sqlglot.parse_one(sql, read="spark")
    tree = tree.transform(lambda node: moment.copy() if isinstance(node, exp.CurrentDate) else node)
    for call in list(tree.find_all(exp.CountIf)):
        # For no rows DuckDB's count_if is NULL.
        call.replace(exp.Count(this=exp.Case().when(call.this, exp.Literal.number(1))))
    return tree.sql(dialect="duckdb")


def _literal(value: Any) -> str:
    """A value in the text: DuckDB would import pandas for parameters, which takes longer than a test."""
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, (str, date)) else str(value)


def counted(rows: Sequence[tuple[Any, ...]]) -> Counter[str]:
    """Rows as a multiset, numbers of equal value alike: 2, 2.0 and Decimal('2.00')."""
    return Counter(repr(tuple(_plain(value) for value in row)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float, Decimal)):
        return round(float(value), 6) + 0.0
    return [_plain(one) for one in value] if isinstance(value, list) else value
