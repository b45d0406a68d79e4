# ruff: noqa: E501 -- queries are easier to read on one line
"""Random tables, random changes of them, and random queries over them in Spark's SQL.

Every query has one result, whatever the order of rows: ties are never decided by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from tests.algebra.choices import Choices

#: A table's columns: (name, Spark type). A reference: (text, kind).
Schema = dict[str, list[tuple[str, str]]]
Ref = tuple[str, str]

KINDS = {
    "int": "int",
    "str": "string",
    "dec": "decimal(10,2)",
    "date": "date",
    "bool": "boolean",
    "dbl": "double",
}
FIRST_DAY = date(2026, 1, 1)


def kind_of(type_text: str) -> str:
    return next(kind for kind, text in KINDS.items() if text == type_text)


# -- tables and their changes ------------------------------------------------------------------------


def value(choices: Choices, kind: str) -> Any:
    """A value out of few, so that rows meet; sometimes NULL."""
    if choices.below(6) == 1:
        return None
    number = choices.below(4)
    match kind:
        case "int":
            return number
        case "str":
            return ("x", "y", "zz", "")[number]
        case "dec":
            return (Decimal("1.50"), Decimal("2.00"), Decimal("-3.25"), Decimal("0.00"))[number]
        case "date":
            return FIRST_DAY + timedelta(days=number - 1)
        case "bool":
            return number % 2 == 0
        case _:
            return (0.5, 1.25, -2.0, 0.0)[number]


def schema(choices: Choices) -> Schema:
    """Two or three tables that have columns to meet in."""
    tables: Schema = {}
    for name in ("r", "s", "t")[: 2 + choices.below(2)]:
        kinds = ["int", "int", *(choices.one(list(KINDS)) for _ in range(1 + choices.below(3)))]
        tables[name] = [(f"{name}{place}", KINDS[kind]) for place, kind in enumerate(kinds)]
    return tables


@dataclass
class Contents:
    """The rows of all tables by their row ids."""

    tables: Schema
    rows: dict[str, dict[int, tuple[Any, ...]]] = field(default_factory=dict)
    highest: int = 0

    def row(self, choices: Choices, table: str) -> tuple[Any, ...]:
        return tuple(value(choices, kind_of(type_text)) for _, type_text in self.tables[table])

    def insert(self, table: str, row: tuple[Any, ...]) -> None:
        self.highest += 1
        self.rows.setdefault(table, {})[self.highest] = row

    def copy(self) -> Contents:
        return Contents(self.tables, {name: dict(rows) for name, rows in self.rows.items()}, self.highest)


def contents(choices: Choices, tables: Schema) -> Contents:
    """A few rows for each table, some of them twice; perhaps none at all."""
    made = Contents(tables, {name: {} for name in tables})
    for table in tables:
        for _ in range(choices.below(9)):
            row = made.row(choices, table)
            for _ in range(1 + choices.chance(4)):
                made.insert(table, row)
    return made


def change(choices: Choices, held: Contents) -> None:
    """A batch of changes of one table, or of all at once."""
    everything = choices.chance(2)
    for table in held.tables:
        if everything or choices.chance(2):
            for _ in range(1 + choices.below(2)):
                _change_table(choices, held, table)


def _change_table(choices: Choices, held: Contents, table: str) -> None:
    rows = held.rows[table]
    some = [row_id for row_id in rows if choices.chance(3)]
    match choices.below(8):
        case 0 | 1:
            for _ in range(1 + choices.below(3)):
                held.insert(table, held.row(choices, table))
        case 2:
            for row_id in some:
                del rows[row_id]
        case 3 | 4:
            for row_id in some:
                changed = list(rows[row_id])
                place = choices.below(len(changed))
                changed[place] = value(choices, kind_of(held.tables[table][place][1]))
                rows[row_id] = tuple(changed)
        case 5:
            for row_id in some:
                held.insert(table, rows.pop(row_id))
        case 6:
            for row_id in some:
                held.insert(table, rows[row_id])
        case _:
            if choices.chance(3):
                rows.clear()


# -- queries -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A query's text and the columns it gives."""

    sql: str
    columns: tuple[Ref, ...]


class Grammar:
    """Writes queries over tables."""

    def __init__(self, choices: Choices, tables: Schema):
        self.choices = choices
        self.tables = tables
        self._names = 0
        #: Names of WITH clauses that can be read.
        self.ctes: dict[str, tuple[Ref, ...]] = {}
        #: Whether computing it twice gives the same stored rows to the last bit and in every list.
        self.exact = True

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def whole(self, depth: int) -> str:
        """A query, perhaps with a WITH clause whose query is read more than once."""
        if not self.choices.chance(8):
            return self.query(depth).sql
        given = self.query(depth - 1)
        name = self.fresh("w")
        self.ctes[name] = given.columns
        return f"WITH {name} AS ({given.sql}) {self.query(depth).sql}"

    def query(self, depth: int) -> Text:
        if depth <= 0:
            return self.plain()
        makers: list[Callable[[int], Text]] = [
            *(self.rows, self.rows, self.rows, self.grouped, self.grouped, self.distinct, self.windowed),
            *(self.united, self.counted_sets, self.first_rows, self.exploded, self.grouping_sets),
        ]
        return self.choices.one(makers)(depth)

    # -- what stands after FROM ----------------------------------------------------------------------

    def plain(self) -> Text:
        """Some columns of a table."""
        source, refs = self.table()
        return self.selected(self.choices.some(refs, least=1), source)

    def table(self) -> tuple[str, list[Ref]]:
        names = [*self.tables, *self.ctes]
        name = self.choices.one(names)
        alias = self.fresh("q")
        if name in self.ctes:
            given = list(self.ctes[name])
        else:
            given = [(column, kind_of(type_text)) for column, type_text in self.tables[name]]
        return f"{name} AS {alias}", [(f"{alias}.{column}", kind) for column, kind in given]

    def source(self, depth: int) -> tuple[str, list[Ref]]:
        """A table or a query in parentheses."""
        if depth <= 1 or self.choices.below(2) == 0:
            return self.table()
        inner = self.query(depth - 1)
        alias = self.fresh("q")
        return f"({inner.sql}) AS {alias}", [(f"{alias}.{name}", kind) for name, kind in inner.columns]

    def sources(self, depth: int) -> tuple[str, list[Ref]]:
        """One to three of them, joined in some way."""
        text, refs = self.source(depth)
        for _ in range(self.choices.one((0, 0, 1, 1, 2))):
            other, more = self.source(depth - 1)
            kind = self.choices.one(("INNER", "LEFT", "FULL", "RIGHT", "CROSS", "LEFT SEMI", "LEFT ANTI"))
            if kind == "CROSS":
                text, refs = f"{text} CROSS JOIN {other}", refs + more
                continue
            on = self.joining(refs, more)
            text = f"{text} {kind} JOIN {other} ON {on}"
            refs = refs if kind in ("LEFT SEMI", "LEFT ANTI") else refs + more
        return text, refs

    def joining(self, left: Sequence[Ref], right: Sequence[Ref], least: int = 0) -> str:
        """A condition between two sides: mostly equalities."""
        parts = []
        for _ in range(max(least, self.choices.one((1, 1, 1, 2, 0)))):
            pairs = [(a, b) for a, kind in left for b, other in right if kind == other]
            if not pairs:
                break
            a, b = self.choices.one(pairs)
            parts.append(f"{a} {self.choices.one(('=', '=', '<=>'))} {b}")
        if not parts or self.choices.chance(5):
            a, b = self.number(left), self.number(right)
            parts.append(f"{a} {self.choices.one(('<', '<>', '>='))} {b}")
        if self.choices.chance(6):
            parts.append(self.condition(right))
        return " AND ".join(parts)

    # -- expressions ---------------------------------------------------------------------------------

    def number(self, refs: Sequence[Ref]) -> str:
        found = [text for text, kind in refs if kind == "int"]
        return self.choices.one(found) if found else "1"

    def expression(self, refs: Sequence[Ref]) -> Ref:
        """A value of a row."""
        text, kind = self.choices.one(refs)
        match self.choices.below(8):
            case 5 if kind in ("int", "dec", "dbl"):
                return f"{text} + {self.choices.below(3)}", kind
            case 6:
                return f"CASE WHEN {self.condition(refs)} THEN {text} END", kind
            case 7 if kind == "str":
                return f"coalesce({text}, 'none')", kind
            case 7 if kind == "int":
                return f"coalesce({text}, -1)", kind
            case _:
                return text, kind

    def condition(self, refs: Sequence[Ref]) -> str:
        """A condition on one row."""
        text, kind = self.choices.one(refs)
        match self.choices.below(6):
            case 0 | 1 | 2:
                sign = self.choices.one((">", "<=", "=", "<>"))
                return f"{text} {sign} {self.literal(kind)}" if kind != "bool" else text
            case 3:
                return f"{text} IS {self.choices.one(('', 'NOT '))}NULL"
            case 4:
                return f"NOT ({self.condition(refs)})"
            case _:
                word = self.choices.one(("AND", "OR"))
                return f"({self.condition(refs)} {word} {self.condition(refs)})"

    def literal(self, kind: str) -> str:
        found = None
        while found is None:
            found = value(self.choices, kind)
        match kind:
            case "str":
                return f"'{found}'"
            case "date":
                return f"DATE '{found}'"
            case "dec":
                return f"CAST('{found}' AS DECIMAL(10,2))"
            case "dbl":
                return f"CAST('{found}' AS DOUBLE)"
            case _:
                return str(found)

    def where(self, refs: Sequence[Ref], depth: int) -> str:
        """A WHERE clause, perhaps with subqueries or with the current time."""
        parts = []
        for _ in range(self.choices.one((0, 1, 1, 2))):
            kind = self.choices.below(9)
            if kind == 8:
                days = [text for text, each in refs if each == "date"]
                if days:
                    parts.append(self.timed(self.choices.one(days)))
                    continue
            parts.append(self.subquery(refs, depth) if kind >= 5 else self.condition(refs))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def timed(self, day: str) -> str:
        return self.choices.one(
            (
                f"{day} >= current_date() - INTERVAL 1 DAY",
                f"{day} BETWEEN date_sub(current_date(), 1) AND current_date()",
                f"{day} < current_date()",
            )
        )

    def subquery(self, refs: Sequence[Ref], depth: int) -> str:
        """EXISTS, IN, a comparison with one value, each with NOT, under OR, correlated or not."""
        test = self.choices.one((self.exists, self.exists, self.member, self.member, self.scalar))(
            refs, depth
        )
        if self.choices.chance(4):
            return f"({test} OR {self.condition(refs)})"
        return test

    def exists(self, refs: Sequence[Ref], depth: int) -> str:
        source, inner = self.source(depth - 1)
        negated = self.choices.one(("", "NOT "))
        on = self.joining(refs, inner) if not self.choices.chance(6) else self.condition(inner)
        return f"{negated}EXISTS (SELECT 1 FROM {source} WHERE {on})"

    def member(self, refs: Sequence[Ref], depth: int) -> str:
        source, inner = self.source(depth - 1)
        negated = self.choices.one(("", "NOT "))
        pairs = [(a, b) for a, kind in refs for b, other in inner if kind == other]
        if not pairs:
            return self.condition(refs)
        a, b = self.choices.one(pairs)
        where = ""
        match self.choices.below(4):
            case 1:
                where = f" WHERE {self.condition(inner)}"
            case 2:
                where = f" WHERE {self.correlation(refs, inner)}"
            case 3:
                where = f" WHERE {b} IS NOT NULL"
        return f"{a} {negated}IN (SELECT {b} FROM {source}{where})"

    def correlation(self, refs: Sequence[Ref], inner: Sequence[Ref]) -> str:
        pairs = [(a, b) for a, kind in refs for b, other in inner if kind == other]
        if not pairs:
            return self.condition(inner)
        a, b = self.choices.one(pairs)
        return f"{b} = {a}"

    def scalar(self, refs: Sequence[Ref], depth: int) -> str:
        sign = self.choices.one(("<", ">=", "="))
        return f"{self.number(refs)} {sign} {self.scalar_value(refs, depth)}"

    def scalar_value(self, refs: Sequence[Ref], depth: int) -> str:
        source, inner = self.source(depth - 1)
        call = self.choices.one(
            ("max({})", "count(*)", "sum({})", "min({}) + 1", "count({})", "coalesce(max({}), 1)")
        )
        where = f" WHERE {self.correlation(refs, inner)}" if self.choices.below(2) else ""
        return f"(SELECT {call.format(self.number(inner))} FROM {source}{where})"

    def aggregate(self, refs: Sequence[Ref]) -> Ref:
        """An aggregate function's call."""
        text, kind = self.choices.one(refs)
        numbers = ("int", "dec", "dbl")
        made: list[Ref] = [("count(*)", "int"), (f"count({text})", "int")]
        if kind in numbers:
            total = "int" if kind == "int" else kind
            made += [(f"sum({text})", total), (f"sum({text})", total), (f"avg({text})", "dbl")]
            made += [(f"sum({text}) FILTER (WHERE {self.condition(refs)})", total)]
            made += [(f"sum(CASE WHEN {self.condition(refs)} THEN {text} ELSE 0 END)", total)]
        made += [(f"min({text})", kind), (f"max({text})", kind), (f"count(DISTINCT {text})", "int")]
        made += [(f"count_if({self.condition(refs)})", "int")]
        made += [(f"count(*) FILTER (WHERE {self.condition(refs)})", "int")]
        if kind == "bool":
            made += [(f"bool_and({text})", "bool"), (f"bool_or({text})", "bool")]
        if kind == "int":
            made += [
                (f"sum(DISTINCT {text})", "int"),
                (f"stddev({text})", "dbl"),
                (f"var_pop({text})", "dbl"),
            ]
            made += [(f"median({text})", "dbl"), (f"max_by({text}, {text})", "int")]
            made += [(f"size(collect_list({text}))", "int"), (f"sort_array(collect_set({text}))[0]", "int")]
        call, result = self.choices.one(made)
        if any(word in call for word in ("stddev", "var_pop", "collect")):
            self.exact = False
        return call, result

    # -- kinds of queries ----------------------------------------------------------------------------

    def selected(self, items: Sequence[Ref], source: str, rest: str = "", distinct: str = "") -> Text:
        columns = tuple((self.fresh("c"), kind) for _, kind in items)
        listed = ", ".join(f"{text} AS {name}" for (text, _), (name, _) in zip(items, columns, strict=True))
        return Text(f"SELECT {distinct}{listed} FROM {source}{rest}", columns)

    def items(self, refs: Sequence[Ref], most: int = 3) -> list[Ref]:
        return [self.expression(refs) for _ in range(1 + self.choices.below(most))]

    def rows(self, depth: int) -> Text:
        source, refs = self.sources(depth)
        where = self.where(refs, depth)
        items = self.items(refs)
        if self.choices.chance(6):
            items.append((self.scalar_value(refs, depth), "int"))
        if self.choices.chance(10):
            items.append((self.choices.one((self.exists, self.member))(refs, depth), "bool"))
        return self.selected(items, source, where)

    def grouped(self, depth: int) -> Text:
        source, refs = self.sources(depth)
        where = self.where(refs, depth)
        groups = [self.expression(refs) for _ in range(self.choices.one((1, 1, 2, 0)))]
        calls = [self.aggregate(refs) for _ in range(1 + self.choices.below(3))]
        having = ""
        if self.choices.chance(4):
            sign = self.choices.one((">", "<=", "="))
            having = f" HAVING {self.choices.one(('count(*)', calls[0][0] if calls[0][1] == 'int' else 'count(*)'))} {sign} 1"
        by = f" GROUP BY {', '.join(text for text, _ in groups)}" if groups else ""
        shown = [each for each in groups if not self.choices.chance(5)]
        return self.selected([*shown, *calls], source, f"{where}{by}{having}")

    def grouping_sets(self, depth: int) -> Text:
        source, refs = self.sources(depth - 1)
        where = self.where(refs, depth - 1)
        groups = list(dict.fromkeys(self.choices.one(refs) for _ in range(2)))
        names = [text for text, _ in groups]
        listed = ", ".join(names)
        sets = self.choices.one(
            (f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS (({listed}), ({names[0]}), ())")
        )
        calls = [self.aggregate(refs) for _ in range(1 + self.choices.below(2))]
        calls.append((f"grouping({names[0]})", "int"))
        # DuckDB has a grand total of no rows, Spark has none.
        return self.selected([*groups, *calls], source, f"{where} GROUP BY {sets} HAVING count(*) > 0")

    def distinct(self, depth: int) -> Text:
        source, refs = self.sources(depth)
        return self.selected(self.items(refs), source, self.where(refs, depth), distinct="DISTINCT ")

    def windowed(self, depth: int) -> Text:
        """Functions over partitions; where ties matter the order is by all columns."""
        source, refs = self.sources(depth)
        where = self.where(refs, depth)
        every = ", ".join(text for text, _ in refs)
        items = self.items(refs, most=2)
        calls: list[Ref] = []
        for _ in range(1 + self.choices.below(2)):
            partition = ", ".join(self.choices.one(refs)[0] for _ in range(self.choices.one((1, 1, 2, 0))))
            by = f"PARTITION BY {partition} " if partition else ""
            one = self.choices.one(refs)[0]
            number = self.number(refs)
            calls.append(
                self.choices.one(
                    (
                        (f"sum({number}) OVER ({by})", "int"),
                        (f"rank() OVER ({by}ORDER BY {one})", "int"),
                        (f"dense_rank() OVER ({by}ORDER BY {one} DESC)", "int"),
                        (f"row_number() OVER ({by}ORDER BY {every})", "int"),
                        (f"count(*) OVER ({by}ORDER BY {one})", "int"),
                        (f"lag({number}) OVER ({by}ORDER BY {every})", "int"),
                        (f"first_value({number}) OVER ({by}ORDER BY {every})", "int"),
                        (
                            f"max({number}) OVER ({by}ORDER BY {every} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
                            "int",
                        ),
                    )
                )
            )
        qualify = ""
        if self.choices.chance(3):
            qualify = f" QUALIFY {calls[0][0]} {self.choices.one(('=', '<=', '>'))} 1"
        return self.selected([*items, *calls], source, f"{where}{qualify}")

    def first_rows(self, depth: int) -> Text:
        inner = self.query(depth - 1)
        alias = self.fresh("q")
        refs = [(f"{alias}.{name}", kind) for name, kind in inner.columns]
        order = [
            f"{text}{self.choices.one(('', ' DESC', ' NULLS LAST', ' DESC NULLS FIRST'))}" for text, _ in refs
        ]
        start = self.choices.below(len(order))
        order = order[start:] + order[:start]
        offset = f" OFFSET {self.choices.below(3)}" if self.choices.chance(3) else ""
        limit = f" ORDER BY {', '.join(order)} LIMIT {self.choices.one((1, 2, 3, 100))}{offset}"
        return self.selected(refs, f"({inner.sql}) AS {alias}", limit)

    def exploded(self, depth: int) -> Text:
        source, refs = self.sources(depth - 1)
        where = self.where(refs, depth - 1)
        a, b = self.number(refs), self.number(refs)
        items = self.items(refs)
        return self.selected([*items, (f"explode(array({a}, {b}, 7))", "int")], source, where)

    def united(self, depth: int) -> Text:
        return self._set_operation(depth, ("UNION ALL", "UNION", "UNION ALL"))

    def counted_sets(self, depth: int) -> Text:
        return self._set_operation(depth, ("INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"))

    def _set_operation(self, depth: int, words: Sequence[str]) -> Text:
        """Two queries over columns of the same kinds."""
        left_source, left = self.source(depth)
        right_source, right = self.source(depth)
        kinds = {kind for _, kind in left} & {kind for _, kind in right}
        wanted = [kind for _, kind in left if kind in kinds][: 1 + self.choices.below(2)]
        if not wanted:
            return self.rows(depth - 1)
        sides = []
        for source, refs in ((left_source, left), (right_source, right)):
            items = [
                (self.choices.one([text for text, each in refs if each == kind]), kind) for kind in wanted
            ]
            sides.append(self.selected(items, source, self.where(refs, depth - 1)))
        word = self.choices.one(words)
        return Text(f"({sides[0].sql}) {word} ({sides[1].sql})", sides[0].columns)
