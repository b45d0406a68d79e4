"""After each step: every table at every live snapshot, through our reader and through DuckDB's."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb

from headwater.lake.format.types import type_text
from headwater.lake.lake import Lake
from tests.lake.actor_bugs import STATISTICS_TOO_TIGHT, WIDENED_BEFORE, brief
from tests.lake.actor_ops import ModelColumn, ModelTable
from tests.lake.actor_scene import Frozen, Scene, texts
from tests.lake.actor_values import condition, is_nested, quoted, sql_type

Rows = dict[tuple[int, int], list[tuple[Any, ...]]]
"""Row id and values of each row, by snapshot and number of the table."""


class Judge(Scene):
    """Compares what the readers say with the model, and with each other."""

    def __init__(self, dsn: str, folder: Path):
        super().__init__(dsn, folder)
        self.judge = random.Random(0)

    def compare(self, lake: Lake | None = None, session: Any = None) -> None:
        """Every table at every live snapshot, through both readers."""
        lake = lake or self.lake
        session = session or self.judge.choice(list(self.sessions.values()))
        live = self.snapshots()
        places = [(s, frozen) for s in live for frozen in self.history[s].values()]
        self._compare_names(lake, session, live[-1])
        if not places:
            return
        self._compare_rows("ours", places, self._read_ours(lake, places))
        theirs = self._read_duck(session, places)
        self._compare_rows("duck", places, theirs)
        self._compare_filters(lake, session, places)

    def _read_ours(self, lake: Lake, places: list[tuple[int, Frozen]]) -> Rows:
        parts = []
        for place, (snapshot, frozen) in enumerate(places):
            rows = lake.read(frozen.table.id, snapshot=snapshot, hidden=["rowid"])
            wanted = [*(c.name for c in frozen.table.columns), "rowid"]
            assert rows.column_names == wanted, (snapshot, frozen.table, rows.column_names)
            self.model.duck.register(f"r{place}", rows)
            parts.append(_select(snapshot, frozen.table, f"r{place}"))
        found = self.model.duck.execute(" UNION ALL ".join(parts)).fetchall()
        for place in range(len(places)):
            self.model.duck.unregister(f"r{place}")
        return _grouped(found)

    def _read_duck(self, session: Any, places: list[tuple[int, Frozen]]) -> Rows:
        parts = [_select(s, f.table, f"{f.table.sql} AT (VERSION => {s})") for s, f in places]
        counts = [
            f"SELECT {s}, {f.table.number}, NULL, [count(*)::VARCHAR] FROM {f.table.sql} AT (VERSION => {s})"
            for s, f in places
        ]
        try:
            found = session.execute(" UNION ALL ".join([*parts, *counts])).fetchall()
        except duckdb.Error as error:
            raise AssertionError(self._explain(error, [*parts, *counts])) from error
        counted = [(s, number, int(values[0])) for s, number, row_id, values in found if row_id is None]
        found = _grouped([row for row in found if row[2] is not None])
        for s, number, count in counted:
            actual = len(found.get((s, number), []))
            assert count == actual, f"DuckDB counts {count} rows and reads {actual} of table {number} at {s}"
        return found

    def _explain(self, error: duckdb.Error, queries: list[str]) -> str:
        """Which of the queries fails, each in a session of its own: an internal error ends a session."""
        for query in queries:
            with self.session("fresh") as session:
                try:
                    session.execute(query).fetchall()
                except duckdb.Error as found:
                    return f"DuckDB cannot run {query}: {brief(found)}"
        return f"DuckDB cannot run all of these at once, or not in a long session: {queries}: {brief(error)}"

    def _compare_rows(self, who: str, places: list[tuple[int, Frozen]], found: Rows) -> None:
        for snapshot, frozen in places:
            rows = found.get((snapshot, frozen.table.number), [])
            where = f"{who}, table {frozen.table.name!r} at snapshot {snapshot}"
            _same(where, frozen.expected, Counter(values for _, values in rows))
            ids = [row_id for row_id, _ in rows]
            assert None not in ids, f"{where}: rows without a row id"
            assert len(set(ids)) == len(ids), f"{where}: row ids twice: {Counter(ids).most_common(3)}"
            ordered = sorted(rows, key=lambda row: row[0])
            if frozen.row_ids is None:
                frozen.row_ids = ordered
            if frozen.row_ids != ordered:
                different = [pair for pair in zip(frozen.row_ids, ordered, strict=True) if pair[0] != pair[1]]
                raise AssertionError(f"{where}: row ids changed: {different[:4]}")

    def _compare_names(self, lake: Lake, session: Any, latest: int) -> None:
        expected = {
            t.name: [(c.name, sql_type(c.type)) for c in t.columns] for t in self.model.tables.values()
        }
        ours = {
            t.name.name: [(c.name, type_text(c)) for c in t.columns] for t in lake.state().tables.values()
        }
        assert ours == expected
        rows = session.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE database_name = 'lake' AND NOT internal ORDER BY table_name, column_index"
        ).fetchall()
        theirs: dict[str, list[tuple[str, str]]] = {}
        for table, column, type_ in rows:
            if table != "v":
                theirs.setdefault(table, []).append((column, type_))
        shown = {name: [(c, self._shown(t)) for c, t in columns] for name, columns in expected.items()}
        assert theirs == shown

    def _shown(self, type_: str) -> str:
        return str(self.model.duck.execute(f"SELECT typeof(CAST(NULL AS {type_}))").fetchall()[0][0])

    def _compare_filters(self, lake: Lake, session: Any, places: list[tuple[int, Frozen]]) -> None:
        """Statistics, counts and partition values may hide rows: the same questions to all sides."""
        rng = self.judge
        questions: list[tuple[str, str]] = []  # for the model, for DuckDB
        for number in sorted({f.table.number for _, f in places}):
            snapshot, frozen = rng.choice([(s, f) for s, f in places if f.table.number == number])
            table = frozen.table
            row = texts(table)
            where = condition(rng, table.pairs)
            self._filter_ours(lake, snapshot, frozen, where)
            known = [c for c in table.columns if self.types[c.id] == c.type or not self.known(WIDENED_BEFORE)]
            if not known:
                continue
            where = condition(rng, [(c.name, c.type) for c in known])
            at = f"{table.sql} AT (VERSION => {snapshot})"
            column = rng.choice([quoted(c.name) for c in known if not is_nested(c.type)] or ["rowid"])
            for head, tail in (
                (f"SELECT {row} FROM", f"WHERE {where}"),
                (
                    f"SELECT [min({column})::VARCHAR, max({column})::VARCHAR, count({column})::VARCHAR] FROM",
                    "",
                ),
                (f"SELECT [{column}::VARCHAR, count(*)::VARCHAR] FROM", f"GROUP BY {column}"),
            ):
                questions.append((f"{head} {frozen.rows} {tail}", f"{head} {at} {tail}"))
        wanted = self._answers(self.model.duck, [query for query, _ in questions])
        actual = self._answers(session, [query for _, query in questions])
        for (_, query), one, other in zip(questions, wanted, actual, strict=True):
            _same(f"duck, {query}", one, other)

    def _filter_ours(self, lake: Lake, snapshot: int, frozen: Frozen, where: str) -> None:
        row = texts(frozen.table)
        self.model.duck.register("r", lake.read(frozen.table.id, snapshot=snapshot, where=where))
        queries = [f"SELECT {row} FROM {frozen.rows} WHERE {where}", f"SELECT {row} FROM r"]
        expected, ours = self._answers(self.model.duck, queries)
        self.model.duck.unregister("r")
        _same(f"ours, table {frozen.table.name!r} at snapshot {snapshot} WHERE {where}", expected, ours)

    def _answers(self, session: Any, queries: list[str]) -> list[Counter[tuple[Any, ...]]]:
        """The rows of each query (a list of texts each), in one statement: DuckDB is slow to plan."""
        if not queries:
            return []
        parts = [f"SELECT {i} AS i, * FROM ({query}) q(v)" for i, query in enumerate(queries)]
        answers: list[Counter[tuple[Any, ...]]] = [Counter() for _ in queries]
        try:
            for i, values in session.execute(" UNION ALL ".join(parts)).fetchall():
                answers[i][tuple(values)] += 1
        except duckdb.Error as error:
            raise AssertionError(self._explain(error, queries)) from error
        return answers

    def check_catalog(self) -> None:
        """What must hold for the catalog itself, whoever wrote."""
        doubled = self.pg.execute(
            "SELECT data_file_id, array_agg(delete_file_id) FROM ducklake_delete_file "
            "WHERE end_snapshot IS NULL GROUP BY 1 HAVING count(*) > 1"
        ).fetchall()
        assert not doubled, f"data files with several live delete files: {doubled}"

    def check_statistics(self, *, ours: bool) -> None:
        """Do statistics of tables cover all rows of live snapshots? Where they do not, DuckDB hides rows.

        What DuckDB itself has broken is taken out of the catalog; what comes after is compared as strictly.
        After a step of ours it is an error.
        """
        broken = []
        for table in self.model.tables.values():
            found = self.lake.table(table.id)
            ids = {column.name: column.id for column in found.columns}
            kept = {
                row[0]: row[1:]
                for row in self.pg.execute(
                    "SELECT column_id, contains_null, contains_nan, min_value, max_value "
                    "FROM ducklake_table_column_stats WHERE table_id = %s",
                    (found.id,),
                )
            }
            for column in table.columns:
                stats = kept.get(ids[column.name])
                if stats is not None and not is_nested(column.type):
                    wrong = self._uncovered(table.number, column, *stats)
                    if wrong:
                        broken.append(
                            (found.id, ids[column.name], f"{table.name}.{column.name} {stats}: {wrong}")
                        )
        if not broken:
            return
        assert not ours, f"statistics that hide rows: {broken}"
        self.known(STATISTICS_TOO_TIGHT)
        for table_id, column_id, what in broken:
            self.say("healed", what)
            self.pg.execute(
                "DELETE FROM ducklake_table_column_stats WHERE table_id = %s AND column_id = %s",
                (table_id, column_id),
            )
        self.reopen()

    def _uncovered(
        self,
        number: int,
        column: ModelColumn,
        contains_null: bool | None,
        contains_nan: bool | None,
        low: str | None,
        high: str | None,
    ) -> str | None:
        """What a column's statistics leave out of its values at live snapshots."""
        type_ = sql_type(column.type)
        sources = {}
        for snapshot in self.snapshots():
            frozen = self.history[snapshot].get(number)
            if frozen is not None:
                for same in frozen.table.columns:
                    if same.id == column.id:
                        sources[frozen.rows] = quoted(same.name)
        values = " UNION ALL ".join(
            f"SELECT {name}::{type_} AS v FROM {rows}" for rows, name in sources.items()
        )
        nan = "isnan(v)" if column.type.startswith("float") else "false"
        nulls, nans, count, least, most = self.model.duck.execute(
            f"SELECT count(*) FILTER (v IS NULL), count(*) FILTER ({nan}), count(v) FILTER (NOT {nan}), "
            f"min(v) FILTER (NOT {nan}) >= CAST($1 AS {type_}), "
            f"max(v) FILTER (NOT {nan}) <= CAST($2 AS {type_}) FROM ({values})",
            [low, high],
        ).fetchall()[0]
        if nulls and contains_null is False:
            return f"{nulls} NULLs"
        if nans and contains_nan is False:
            return f"{nans} NaNs"
        if count and column.type not in ("blob", "interval") and not (least and most):
            return f"values out of bounds (above the least: {least}, below the most: {most})"
        return None


def _select(snapshot: int, table: ModelTable, source: str) -> str:
    return f"SELECT {snapshot}, {table.number}, rowid, {texts(table)} FROM {source}"


def _grouped(rows: list[tuple[Any, ...]]) -> Rows:
    grouped: Rows = {}
    for snapshot, number, row_id, values in rows:
        grouped.setdefault((snapshot, number), []).append((row_id, tuple(values)))
    return grouped


def _same(where: str, expected: Counter[tuple[Any, ...]], actual: Counter[tuple[Any, ...]]) -> None:
    if expected != actual:
        missing, extra = expected - actual, actual - expected
        raise AssertionError(
            f"{where}: {missing.total()} of {expected.total()} rows missing, {extra.total()} extra\n"
            f"  missing {list(missing.items())[:3]}\n  extra   {list(extra.items())[:3]}"
        )
