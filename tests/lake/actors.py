"""Two actors on one lake, Headwater and DuckDB's extension, and a judge that compares after every step."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from headwater.errors import ConflictError
from headwater.lake.format.types import type_text
from headwater.lake.lake import Lake
from tests.lake.actor_ops import OPERATIONS, Model, ModelTable, Op
from tests.lake.actor_values import condition, is_nested, quoted, sql_type
from tests.support import duck, literal

#: Who takes a step: Headwater, one of two DuckDB sessions that stay open (and cache), a new DuckDB session.
ACTORS = ("ours", "duck", "second", "fresh")

# Errors of DuckDB 1.5.5 that the steps or the judge go around, each by its name.
DROPPED_INLINED_TABLE = (
    "A flush drops inlined tables of older column layouts; "
    "other sessions that know them die of an internal error."
)

WIDENED_BEFORE = (
    "Conditions on a column die of an internal error at snapshots from before its type was widened."
)
MERGE_RENUMBERS = (
    "Merging files gives rows other row ids, if the table is sorted or ids that files embed look contiguous."
)
INLINING_BESIDE_VIEW = (
    "Setting data_inlining_row_limit for a lake that has a view ends the process (SIGSEGV)."
)
#: What DuckDB says it does not do.
REFUSALS = (
    "Cannot SET NOT NULL",  # it trusts statistics, which remember deleted rows, and looks at no row itself
)


@dataclass(frozen=True)
class Step:
    """One turn. All else follows from the seed and the state of the lake."""

    what: str
    who: str
    seed: int


@dataclass
class Frozen:
    """A table as it was at one snapshot: the model's copy of its rows, and the row ids first seen there."""

    table: ModelTable
    rows: str
    """Name of the copy in the model."""
    expected: Counter[tuple[Any, ...]]
    row_ids: list[tuple[Any, ...]] | None = None


class World:
    """A lake, its actors, and the model."""

    def __init__(self, dsn: str, folder: Path):
        self.dsn = dsn
        self.folder = folder
        self.lake = Lake.open(dsn, data_path=folder)
        self.sessions = {name: duck(dsn) for name in ("duck", "second")}
        self.model = Model(duckdb.connect())
        self.model.duck.execute("SET TimeZone = 'UTC'")
        self.history: dict[int, dict[int, Frozen]] = {0: {}}
        self.copies: dict[int, Frozen] = {}
        self.dirty: set[int] = set()
        self.log: list[str] = []
        self.pg = psycopg.connect(dsn, autocommit=True)
        self.judge = random.Random(0)
        self.numbers = itertools.count()
        self.bugs: Counter[str] = Counter()
        self.types: dict[int, str] = {}
        """Types of columns, by id, as they are now or were last."""

    def close(self) -> None:
        self.pg.close()
        self.lake.close()
        for session in (*self.sessions.values(), self.model.duck):
            session.close()

    # -- steps --------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Run one step and compare everything."""
        rng = random.Random(step.seed)
        if step.what in OPERATIONS:
            self._alone(step, rng, [step.what])
        elif step.what == "transaction":
            names = [n for n in OPERATIONS if n not in ("create_view",)]
            weights = [6 if n in ("insert", "delete", "update") else 1 for n in names]
            self._alone(step, rng, rng.choices(names, weights, k=rng.randint(2, 4)))
        elif step.what == "overlap":
            self._overlap(step, rng)
        else:
            self._maintenance(step, rng)
        self.freeze()
        self.compare()

    def _draw(self, rng: random.Random, name: str) -> Op | None:
        return OPERATIONS[name](rng, self.model)

    def _apply(self, op: Op) -> None:
        """Let the model follow."""
        if op.incoming is not None:
            self.model.duck.register("incoming", op.incoming)
        for sql in op.model:
            self.model.duck.execute(sql)
        op.change(self.model.tables)
        self.dirty |= op.tables

    def _alone(self, step: Step, rng: random.Random, names: list[str]) -> None:
        """One transaction that nobody disturbs. Each operation is drawn from what those before it left."""
        ops = []
        with self._tentative():
            for name in names:
                op = self._draw(rng, name)
                if op is not None:
                    self._say(step.who, op.label)
                    self._apply(op)
                    ops.append(op)
            if not ops:
                return
            if step.who == "ours":
                with self.lake.transaction() as tx:
                    for op in ops:
                        op.ours(tx)
            else:
                with self._session(step.who) as session:
                    session.execute("BEGIN")
                    for op in ops:
                        _run(session, op)
                    session.execute("COMMIT")

    @contextlib.contextmanager
    def _tentative(self) -> Iterator[None]:
        """The model follows, unless DuckDB refuses to do something that it is known to refuse."""
        tables, dirty = dict(self.model.tables), set(self.dirty)
        self.model.duck.execute("BEGIN")
        try:
            yield
        except duckdb.Error as error:
            if not any(text in str(error) for text in REFUSALS):
                raise
            self._say("refused", _brief(error))
            self.model.duck.execute("ROLLBACK")
            self.model.tables, self.dirty = tables, dirty
            for session in self.sessions.values():
                with contextlib.suppress(duckdb.TransactionException):  # none was open
                    session.execute("ROLLBACK")
        else:
            self.model.duck.execute("COMMIT")

    def _overlap(self, step: Step, rng: random.Random) -> None:
        """A transaction that begins, another that begins and commits, then the first tries to commit."""
        names = list(OPERATIONS)
        weights = [6 if n in ("insert", "delete", "update") else 1 for n in names]
        first, second = (self._draw(rng, rng.choices(names, weights)[0]) for _ in range(2))
        if first is None or second is None:
            return
        if step.who == "ours":
            self._say("ours", f"BEGIN; {first.label}")
            with self.lake.transaction() as tx:
                first.ours(tx)
                with self._tentative():
                    self._say("second", second.label)
                    self._apply(second)
                    _autocommit(self.sessions["second"], second)
                self.freeze()
                try:
                    tx.commit()
                except ConflictError as error:
                    self._say("ours", f"conflict: {error.message}")
                    return
            self._say("ours", "COMMIT")
            self._apply(first)
            return
        session = self.sessions["duck"]
        with self._tentative():
            self._say("duck", f"BEGIN; {first.label}")
            session.execute("BEGIN")
            _run(session, first)
            self._say("ours", second.label)
            with self.lake.transaction() as tx:
                second.ours(tx)
            self._apply(second)
            self.freeze()
            try:
                session.execute("COMMIT")
            except duckdb.TransactionException as error:
                self._say("duck", f"conflict: {_brief(error)}")
                return
            self._say("duck", "COMMIT")
            self._apply(first)

    def _maintenance(self, step: Step, rng: random.Random) -> None:
        table = self.model.pick(rng)
        if step.what == "flush":
            if step.who == "ours" and table is not None:
                self._say("ours", f"flush {table.sql}")
                with self.lake.transaction() as tx:
                    tx.flush_inlined(table.id)
                return
            self._call(step.who, "CALL ducklake_flush_inlined_data('lake')")
        elif step.what == "inlining":
            limit = rng.choice([0, 10, 3])
            view = self.pg.execute("SELECT FROM ducklake_view WHERE end_snapshot IS NULL").fetchall()
            if step.who == "ours" or (view and self._known(INLINING_BESIDE_VIEW)):
                self._say("ours", f"data_inlining_row_limit {limit}")
                with self.lake.transaction() as tx:
                    tx.set_option("data_inlining_row_limit", limit)
                return
            self._call(step.who, f"CALL lake.set_option('data_inlining_row_limit', {limit})")
        elif step.what == "merge":
            self._call(step.who, "CALL ducklake_merge_adjacent_files('lake')")
            self._forget_row_ids()
        elif step.what == "rewrite" and table is not None:
            name = literal(table.name)
            self._call(step.who, f"CALL ducklake_rewrite_data_files('lake', {name}, delete_threshold => 0)")
        elif step.what == "expire":
            live = self.snapshots()[:-1]
            chosen = sorted(rng.sample(live, rng.randint(0, len(live))))
            if chosen:
                self._call(step.who, f"CALL ducklake_expire_snapshots('lake', versions => {chosen})")
        elif step.what == "cleanup":
            self._call(step.who, "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
            self._call(step.who, "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
        elif step.what == "checkpoint":
            self._call(step.who, "CHECKPOINT lake")
            self._forget_row_ids()

    def _forget_row_ids(self) -> None:
        """Let the readers agree on row ids anew."""
        self._known(MERGE_RENUMBERS)
        for tables in self.history.values():
            for frozen in tables.values():
                frozen.row_ids = None

    def _call(self, who: str, sql: str) -> None:
        who = "duck" if who == "ours" else who
        self._say(who, sql)
        before = self._inlined_tables()
        with self._session(who) as session:
            session.execute(sql).fetchall()
        if before - self._inlined_tables():
            self._known(DROPPED_INLINED_TABLE)
            for name, session in self.sessions.items():
                session.close()
                self.sessions[name] = duck(self.dsn)

    def _inlined_tables(self) -> set[str]:
        return {row[0] for row in self.pg.execute("SELECT table_name FROM ducklake_inlined_data_tables")}

    def _known(self, bug: str) -> bool:
        self.bugs[bug] += 1
        return True

    @contextlib.contextmanager
    def _session(self, who: str) -> Iterator[Any]:
        if who != "fresh":
            yield self.sessions[who]
            return
        session = duck(self.dsn)
        try:
            yield session
        finally:
            session.close()

    def _say(self, who: str, what: str) -> None:
        self.log.append(f"{who}: {what}")

    # -- the judge ----------------------------------------------------------------------------------

    def snapshots(self) -> list[int]:
        rows = self.pg.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY 1").fetchall()
        return [row[0] for row in rows]

    def freeze(self) -> None:
        """Remember the model's tables as the contents of the snapshots that are new."""
        live = self.snapshots()
        for number in self.dirty:
            table = self.model.tables.get(number)
            if table is None:
                self.copies.pop(number, None)
                continue
            copy = f"h{next(self.numbers)}"
            self.model.duck.execute(f"CREATE TABLE {copy} AS FROM {table.rows}")
            rows = self.model.duck.execute(f"SELECT {_texts(table)} FROM {copy}").fetchall()
            self.copies[number] = Frozen(table, copy, Counter(tuple(row[0]) for row in rows))
        self.dirty.clear()
        self.types |= {c.id: c.type for table in self.model.tables.values() for c in table.columns}
        for snapshot in live:
            if snapshot not in self.history:
                self.history[snapshot] = {
                    number: Frozen(f.table, f.rows, f.expected) for number, f in self.copies.items()
                }
        # Also after a step without a snapshot: then nothing may have changed.
        latest = self.history[live[-1]]
        assert latest.keys() == self.copies.keys(), "a change of tables was not committed"
        for number, frozen in self.copies.items():
            assert latest[number].expected == frozen.expected, "a change of rows was not committed"

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
        self._check_catalog()

    def _read_ours(
        self, lake: Lake, places: list[tuple[int, Frozen]]
    ) -> dict[tuple[int, int], list[tuple[Any, ...]]]:
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

    def _read_duck(
        self, session: Any, places: list[tuple[int, Frozen]]
    ) -> dict[tuple[int, int], list[tuple[Any, ...]]]:
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
            with self._session("fresh") as session:
                try:
                    session.execute(query).fetchall()
                except duckdb.Error as found:
                    return f"DuckDB cannot run {query}: {_brief(found)}"
        return f"DuckDB cannot run all of these at once, or not in a long session: {queries}: {_brief(error)}"

    def _compare_rows(
        self, who: str, places: list[tuple[int, Frozen]], found: dict[tuple[int, int], list[tuple[Any, ...]]]
    ) -> None:
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
            texts = _texts(table)
            where = condition(rng, table.pairs)
            self._filter_ours(lake, snapshot, frozen, where)
            known = [
                c for c in table.columns if self.types[c.id] == c.type or not self._known(WIDENED_BEFORE)
            ]
            if not known:
                continue
            where = condition(rng, [(c.name, c.type) for c in known])
            at = f"{table.sql} AT (VERSION => {snapshot})"
            column = rng.choice([quoted(c.name) for c in known if not is_nested(c.type)] or ["rowid"])
            for head, tail in (
                (f"SELECT {texts} FROM", f"WHERE {where}"),
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
        texts = _texts(frozen.table)
        self.model.duck.register("r", lake.read(frozen.table.id, snapshot=snapshot, where=where))
        queries = [f"SELECT {texts} FROM {frozen.rows} WHERE {where}", f"SELECT {texts} FROM r"]
        expected, ours = self._answers(self.model.duck, queries)
        self.model.duck.unregister("r")
        _same(f"ours, table {frozen.table.name!r} at snapshot {snapshot} WHERE {where}", expected, ours)

    def _answers(self, session: Any, queries: list[str]) -> list[Counter[tuple[Any, ...]]]:
        """The rows of each query (lists of texts), asked for in one statement: DuckDB is slow to plan."""
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

    def _check_catalog(self) -> None:
        """What must hold for the catalog itself, whoever wrote."""
        doubled = self.pg.execute(
            "SELECT data_file_id, array_agg(delete_file_id) FROM ducklake_delete_file "
            "WHERE end_snapshot IS NULL GROUP BY 1 HAVING count(*) > 1"
        ).fetchall()
        assert not doubled, f"data files with several live delete files: {doubled}"


def _texts(table: ModelTable) -> str:
    """All columns as a list of texts. The cast names the type, for Arrow has not all of them."""
    return (
        "["
        + ", ".join(f"CAST(CAST({quoted(c.name)} AS {sql_type(c.type)}) AS VARCHAR)" for c in table.columns)
        + "]"
    )


def _select(snapshot: int, table: ModelTable, source: str) -> str:
    return f"SELECT {snapshot}, {table.number}, rowid, {_texts(table)} FROM {source}"


def _grouped(rows: list[tuple[Any, ...]]) -> dict[tuple[int, int], list[tuple[Any, ...]]]:
    grouped: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
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


def _brief(error: Exception) -> str:
    return str(error).split("\n\nStack Trace")[0]


def _run(session: Any, op: Op) -> None:
    if op.incoming is not None:
        session.register("incoming", op.incoming)
    for sql in op.duck:
        session.execute(sql)
    if op.incoming is not None:
        session.unregister("incoming")


def _autocommit(session: Any, op: Op) -> None:
    session.execute("BEGIN")
    _run(session, op)
    session.execute("COMMIT")


def play(steps: list[Step], new_lake: Callable[[], tuple[str, Path]]) -> None:
    """Take all steps on a new lake; an error says how to repeat them."""
    dsn, folder = new_lake()
    world = World(dsn, folder)
    try:
        for number, step in enumerate(steps):
            try:
                world.take(step)
            except Exception as error:
                done = "\n".join(f"    {line}" for line in world.log)
                taken = ",\n    ".join(map(repr, steps[: number + 1]))
                error.add_note(f"What happened:\n{done}\nRepeat with play([\n    {taken},\n])")
                raise
    finally:
        world.close()
