"""Stages refreshed by DuckDB alone: the algebra's rules on real rows, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import duckdb

from headwater.algebra.alone import alone, as_a_whole
from headwater.algebra.building import Catalog, build_query
from headwater.algebra.changes import DOUBTFUL, IN_DOUBT, IS, OLD, PLACE, WAS, changes, regrouped
from headwater.algebra.conditions import conditions
from headwater.algebra.existence import value_columns
from headwater.algebra.narrowing import Link, links, numbered
from headwater.algebra.predicates import And, Constant, Predicate, to_sql
from headwater.algebra.relations import WEIGHT, Relation, Scan
from headwater.algebra.render import render, scan_name
from headwater.algebra.stages import SHOWN, Program, Stage, Types, compile_query

_SPARK_TYPES = {"INTEGER": "int", "HUGEINT": "decimal(38,0)", "VARCHAR": "string"}
_DUCK_TYPES = {spark: duck for duck, spark in _SPARK_TYPES.items()}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def duck_type(spark: str) -> str:
    return _DUCK_TYPES.get(spark, spark)


def _understood(condition: Predicate) -> str:
    """What of a condition decides about rows."""
    parts = condition.parts if isinstance(condition, And) else (condition,)
    return to_sql(And(tuple(part for part in parts if "Opaque" not in repr(part)) or (Constant(True),)))


class DuckStream:
    """A stream table kept by DuckDB over tables of the same connection, which have a column `rowid_`."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        sql: str,
        tables: Mapping[str, list[tuple[str, str]]],
        catalog: Catalog,
        *,
        now: str = "2026-01-01 00:00:00+00",
        like: DuckStream | None = None,
    ):
        """`like` is a stream table of the same query, whose stages and texts serve this one too."""
        self.con = con
        self.tables = tables
        self.now = now
        self.before = now
        con.execute("SET max_expression_depth TO 10000")  # many terms lie inside each other
        for name in tables:
            self._version(name, "old")
            self._version(name, "new")
        self._texts: dict[Any, tuple[str, str] | None] = {} if like is None else like._texts
        self.program: Program
        self.program = (
            like.program if like is not None else compile_query(build_query(sql, catalog), self.describe)
        )
        for stage in self.program.stages:
            self._initialise(stage)

    # -- leaves -------------------------------------------------------------------------------------

    def _version(self, table: str, version: str) -> None:
        columns = ", ".join(quoted(name) for name, _ in self.tables[table])
        self.con.execute(
            f"CREATE OR REPLACE TABLE {quoted(f'{table}@{version}')} AS "
            f"SELECT {columns}, rowid_ AS rowid FROM {table}"
        )

    def describe(self, relation: Relation, stages: Mapping[str, Types]) -> Types:
        for source, types in stages.items():
            columns = ", ".join(f"{quoted(name)} {duck_type(t)}" for name, t in types.items())
            self.con.execute(f"CREATE OR REPLACE TABLE {quoted(source + '@new')} ({columns})")
        found = self.con.execute(f"DESCRIBE {self._text(relation)}").fetchall()
        return {row[0]: _SPARK_TYPES.get(row[1], row[1].lower()) for row in found}

    @property
    def moments(self) -> dict[str, str]:
        return {"now": self.now, "before": self.before}

    # -- stages -------------------------------------------------------------------------------------

    def _initialise(self, stage: Stage) -> None:
        number, text = "row_number() OVER ()", self._text(stage.relation)
        chosen = ", ".join(f"{quoted(inner)} AS {quoted(name)}" for name, inner in stage.fields)
        self.con.execute(
            f"CREATE OR REPLACE TABLE {quoted(stage.source)} AS SELECT {chosen}, "
            f"0 AS {PLACE[0]}, {number} AS {PLACE[1]}, {number} AS {PLACE[2]} FROM ({text})"
        )
        self._snapshot(stage, "new")

    def _snapshot(self, stage: Stage, version: str) -> None:
        self.con.execute(
            f"CREATE OR REPLACE TABLE {quoted(f'{stage.source}@{version}')} AS FROM {quoted(stage.source)}"
        )

    def refresh(
        self, *, full: bool = False, result_alone: bool = False, now: str | None = None
    ) -> dict[str, int]:
        """Bring everything up to date with the tables as they are; returns the changed rows by stage.

        With `result_alone` only the result is, from the tables, and what is stored in between stays as it is.
        """
        self.before, self.now = self.now, now or self.now
        changed = {name for name in self.tables if self._moved(name)}
        report = {}
        for stage in [alone(self.program)] if result_alone else self.program.stages:
            self._snapshot(stage, "old")
            found = self._changes(stage, changed, full=full or result_alone)
            count = 0 if found is None else self._apply(stage, *found)
            self._snapshot(stage, "new")
            if count:
                changed.add(stage.source)
            report[stage.source] = count
        return report

    def _changes(self, stage: Stage, changed: Iterable[str], *, full: bool) -> tuple[str, str] | None:
        """The shape and the text of a stage's changes."""
        moments = tuple(self.moments.items()) if stage.depends_on_time else ()
        which = (stage.source, stage.inputs, frozenset(changed) & frozenset(stage.inputs), moments, full)
        if which not in self._texts:
            found = changes(stage, changed, time_moved=self.before != self.now, full=full)
            text = self._whole if full else self._narrowed
            self._texts[which] = None if found is None else (found.shape, text(found.relation))
        return self._texts[which]

    def _text(self, relation: Relation) -> str:
        return render(relation, dialect="duckdb", moments=self.moments)

    def _whole(self, relation: Relation) -> str:
        """The text of a relation that computes everything."""
        plain = as_a_whole(relation)
        return render(plain, dialect="duckdb", moments=self.moments, subqueries=True)

    def _narrowed(self, relation: Relation) -> str:
        """The text of a relation whose scans are cut down by their links, from the deltas on."""
        named, leaves = numbered(relation)
        known = links(named)
        tables = {leaf: quoted(scan_name(scan)) for leaf, scan in leaves.items()}
        wanted = {leaf: _understood(condition) for leaf, condition in conditions(named).items()}
        made = {
            leaf: f"FROM {tables[leaf]} WHERE {wanted.get(leaf, 'true')}"
            for leaf, scan in leaves.items()
            if scan.version == "delta"
        }
        while True:
            ready = {
                leaf: [link for link in known[leaf] if all(place in made for place, _ in link.places)]
                for leaf in leaves
                if leaf not in made
            }
            chosen = {leaf: found[0] for leaf, found in ready.items() if found}
            if not chosen:
                break
            for leaf, link in chosen.items():
                met = wanted.get(leaf, "true")
                made[leaf] = f"FROM {tables[leaf]} WHERE ({_allowed(link, {})}) AND {met}"
        made |= {leaf: f"FROM {table}" for leaf, table in tables.items() if leaf not in made}
        # What is here is cut down by what else is, in any order: changes too, and by what was cut itself.
        left: dict[str, str] = {}
        for leaf in sorted(leaves, reverse=True):
            for link in known[leaf]:
                if leaf not in link.leaves:
                    name = f"{leaf}_{len(made)}"
                    made[name] = f"FROM {left.get(leaf, leaf)} WHERE {_allowed(link, left)}"
                    left[leaf] = name
        # Where only values matter there is one row of each, and nothing is said of other columns.
        for leaf, values in value_columns(named).items():
            made[f"{leaf}_values"] = _only_values(leaves[leaf], values, left.get(leaf, leaf))
            left[leaf] = f"{leaf}_values"
        parts = ", ".join(f"{leaf} AS MATERIALIZED ({text})" for leaf, text in made.items())
        text = render(
            named,
            dialect="duckdb",
            names=lambda scan: left.get(scan.source, scan.source),
            moments=self.moments,
        )
        return f"WITH {parts} FROM ({text})" if parts else text

    def _moved(self, table: str) -> bool:
        self.con.execute(f"CREATE OR REPLACE TABLE {quoted(f'{table}@old')} AS FROM {quoted(f'{table}@new')}")
        self._version(table, "new")
        old, new = quoted(f"{table}@old"), quoted(f"{table}@new")
        self.con.execute(
            f"CREATE OR REPLACE TABLE {quoted(f'{table}@delta')} AS "
            f"SELECT *, 1 AS {WEIGHT} FROM (FROM {new} EXCEPT FROM {old}) "
            f"UNION ALL SELECT *, -1 AS {WEIGHT} FROM (FROM {old} EXCEPT FROM {new})"
        )
        return bool(self.con.execute(f"SELECT count(*) FROM {quoted(f'{table}@delta')}").fetchone()[0])

    def _apply(self, stage: Stage, shape: str, text: str) -> int:
        self._evaluate(text)
        if stage.first is not None:
            before = self.con.execute(f"SELECT count(*) FROM {quoted(stage.source)}").fetchone()[0]
            if stage.runs_short(before, self._count(IS), self._count(WAS)):
                again = self._changes(stage, (), full=True)
                assert again is not None
                self._evaluate(again[1])
        if stage.extrema and self._has_doubts():
            self._settle(stage)
        names = [name for name, _ in stage.fields]
        own = ", ".join(map(quoted, names))
        if shape == "signed":
            came, went = f"{WEIGHT} > 0", f"{WEIGHT} < 0"
            assert not self._count(f"abs({WEIGHT}) <> 1"), "a row counts more than once"
            before = own
        else:
            came, went = IS, WAS
            before = ", ".join(quoted(OLD + name) for name in names)
        assert not self._count(f"({went}) AND {PLACE[2]} IS NULL"), "a row went that was not there"
        store = quoted(stage.source)
        self.con.execute(
            f"CREATE OR REPLACE TABLE {quoted(stage.source + '@delta')} AS "
            f"SELECT {own}, 1 AS {WEIGHT} FROM _changes WHERE {came} "
            f"UNION ALL SELECT {before}, -1 AS {WEIGHT} FROM _changes WHERE {went}"
        )
        self.con.execute(
            f"DELETE FROM {store} WHERE {PLACE[2]} IN (SELECT {PLACE[2]} FROM _changes WHERE {went})"
        )
        highest = self.con.execute(f"SELECT coalesce(max({PLACE[2]}), 0) FROM {store}").fetchone()[0] + 1000
        self.con.execute(
            f"INSERT INTO {store} SELECT {own}, 0, {highest} + row_number() OVER (), "
            f"{highest} + row_number() OVER () FROM _changes WHERE {came}"
        )
        key = ", ".join(map(quoted, stage.key)) or "1"
        doubled = self.con.execute(
            f"SELECT count(*) FROM (SELECT {key} FROM {store} GROUP BY ALL HAVING count(*) > 1)"
            if stage.key
            else f"SELECT greatest(count(*) - 1, 0) FROM {store}"
        ).fetchone()[0]
        assert not doubled, "a key is stored twice"
        return self._count(came) + self._count(went)

    def _has_doubts(self) -> bool:
        names = [row[0] for row in self.con.execute("DESCRIBE _changes").fetchall()]
        return IN_DOUBT in names and bool(self._count(IN_DOUBT))

    def _settle(self, stage: Stage) -> None:
        """Compute the groups again whose smallest or largest value may have gone."""
        key = ", ".join(map(quoted, stage.key)) or "1 AS one"
        self.con.execute(
            f"CREATE OR REPLACE TABLE {quoted(DOUBTFUL + '@new')} AS "
            f"SELECT {key} FROM _changes WHERE {IN_DOUBT}"
        )
        self.con.execute(f"CREATE OR REPLACE TABLE _sure AS FROM _changes WHERE NOT {IN_DOUBT}")
        self._evaluate(self._text(regrouped(stage).relation))
        self.con.execute("CREATE OR REPLACE TABLE _changes AS FROM _sure UNION ALL BY NAME FROM _changes")

    def _evaluate(self, text: str) -> None:
        self.con.execute(f"CREATE OR REPLACE TABLE _changes AS {text}")

    def _count(self, condition: str) -> int:
        return int(self.con.execute(f"SELECT count(*) FROM _changes WHERE {condition}").fetchone()[0])

    # -- results ------------------------------------------------------------------------------------

    def rows(self) -> Counter[tuple[Any, ...]]:
        stage = self.program.result
        shown = f" WHERE {SHOWN}" if SHOWN in dict(stage.fields) else ""
        columns = ", ".join(map(quoted, self.program.columns))
        return Counter(self.con.execute(f"SELECT {columns} FROM {quoted(stage.source)}{shown}").fetchall())

    def stored(self) -> dict[str, list[tuple[Any, ...]]]:
        """All columns of all stages, without the places of rows and without rows that are kept to spare."""
        found = {}
        for stage in self.program.stages:
            columns = ", ".join(quoted(name) for name, _ in stage.fields)
            shown = "" if stage.first is None else f" WHERE {SHOWN}"
            read = f"SELECT {columns} FROM {quoted(stage.source)}{shown}"
            found[stage.source] = self.con.execute(read).fetchall()
        return found


def _only_values(scan: Scan, values: Collection[str], name: str) -> str:
    stored = dict.fromkeys([*(own for _, own in (*scan.fields, *scan.key_fields)), WEIGHT])
    chosen = [quoted(own) if own in values else f"NULL AS {quoted(own)}" for own in stored]
    return f"SELECT DISTINCT {', '.join(chosen)} FROM {name}"


def _allowed(link: Link, left: Mapping[str, str]) -> str:
    """The condition that a link is, over what is left of the scans whose values it takes."""
    column = quoted(link.column)
    places = [(left.get(place, place), quoted(name)) for place, name in sorted(link.places)]
    values = " UNION ".join(f"SELECT {name} FROM {place}" for place, name in places)
    if not link.nulls:
        return f"{column} IN ({values})"
    return f"({column} IN ({values}) OR ({column} IS NULL AND EXISTS (FROM ({values}) v(v) WHERE v IS NULL)))"
