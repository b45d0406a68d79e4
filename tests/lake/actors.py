"""Two actors on one lake, Headwater and DuckDB's own extension, taking turns."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from headwater.errors import ConflictError
from headwater.lake.lake import Lake
from tests.lake.actor_bugs import (
    ADDED_AND_ALTERED,
    DROPPED_INLINED_TABLE,
    INLINING_BESIDE_VIEW,
    MERGE_RENUMBERS,
    REFUSALS,
    WIDENED_IN_CACHE,
    brief,
)
from tests.lake.actor_judge import Judge
from tests.lake.actor_ops import OPERATIONS, Op
from tests.support import literal

#: Who takes a step: Headwater, one of two DuckDB sessions that stay open (and cache), a new DuckDB session.
ACTORS = ("ours", "duck", "second", "fresh")
#: Steps besides operations. Only flushing and the option have a form of ours; the others DuckDB takes.
MAINTENANCE = ("flush", "inlining", "merge", "rewrite", "expire", "cleanup", "checkpoint")


@dataclass(frozen=True)
class Step:
    """One turn. All else follows from the seed and the state of the lake."""

    what: str
    who: str
    seed: int


class World(Judge):
    """The lake, with actors that take steps."""

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
        self.check_catalog()
        self.check_statistics(ours=step.who == "ours" and step.what not in MAINTENANCE)
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
        ops: list[Op] = []
        with self._tentative():
            for name in names:
                fragile = step.who != "ours" and any(op.adds_nested for op in ops)
                if fragile and name in ("rename_column", "set_not_null") and self.known(ADDED_AND_ALTERED):
                    continue
                op = self._draw(rng, name)
                if op is not None:
                    self.say(step.who, op.label)
                    self._apply(op)
                    ops.append(op)
            if not ops:
                return
            if step.who == "ours":
                with self.lake.transaction() as tx:
                    for op in ops:
                        op.ours(tx)
            else:
                with self.session(step.who) as session:
                    session.execute("BEGIN")
                    for op in ops:
                        _run(session, op)
                    session.execute("COMMIT")
                self._after_duck(ops)

    def _after_duck(self, ops: list[Op]) -> None:
        if any(op.retypes for op in ops) and self.known(WIDENED_IN_CACHE):
            self.reopen()

    @contextlib.contextmanager
    def _tentative(self) -> Iterator[None]:
        """The model follows, unless DuckDB refuses to do something that it is known to refuse."""
        tables, dirty = dict(self.model.tables), set(self.dirty)
        try:
            yield
        except duckdb.Error as error:
            if not any(text in str(error) for text in REFUSALS):
                raise
            self.say("refused", brief(error))
            for number in self.dirty:
                self.model.duck.execute(f"DROP TABLE IF EXISTS m{number}")
                if number in self.copies:
                    self.model.duck.execute(f"CREATE TABLE m{number} AS FROM {self.copies[number].rows}")
            self.model.tables, self.dirty = tables, dirty
            for session in self.sessions.values():
                with contextlib.suppress(duckdb.TransactionException):  # none was open
                    session.execute("ROLLBACK")

    def _overlap(self, step: Step, rng: random.Random) -> None:
        """A transaction that begins, another that begins and commits, then the first tries to commit."""
        names = list(OPERATIONS)
        weights = [6 if n in ("insert", "delete", "update") else 1 for n in names]
        first, second = (self._draw(rng, rng.choices(names, weights)[0]) for _ in range(2))
        if first is None or second is None:
            return
        if step.who == "ours":
            self.say("ours", f"BEGIN; {first.label}")
            with self.lake.transaction() as tx:
                first.ours(tx)
                with self._tentative():
                    self.say("second", second.label)
                    self._apply(second)
                    _autocommit(self.sessions["second"], second)
                    self._after_duck([second])
                self.freeze()
                before = self.snapshots()
                try:
                    tx.commit()
                except ConflictError as error:
                    self.say("ours", f"conflict: {error.message}")
                    return
            self._follow("ours", first, before)
            return
        session = self.sessions["duck"]
        with self._tentative():
            self.say("duck", f"BEGIN; {first.label}")
            session.execute("BEGIN")
            _run(session, first)
            self.say("ours", second.label)
            with self.lake.transaction() as tx:
                second.ours(tx)
            self._apply(second)
            self.freeze()
            before = self.snapshots()
            try:
                session.execute("COMMIT")
            except duckdb.TransactionException as error:
                self.say("duck", f"conflict: {brief(error)}")
                return
            self._follow("duck", first, before)
            self._after_duck([first])

    def _follow(self, who: str, op: Op, before: list[int]) -> None:
        """The model follows a commit, unless it had found nothing to change when it looked."""
        self.say(who, "COMMIT")
        if self.snapshots() != before:
            self._apply(op)

    def _maintenance(self, step: Step, rng: random.Random) -> None:
        table = self.model.pick(rng)
        if step.what == "flush":
            if step.who == "ours" and table is not None:
                self.say("ours", f"flush {table.sql}")
                with self.lake.transaction() as tx:
                    tx.flush_inlined(table.id)
                return
            self._call(step.who, "CALL ducklake_flush_inlined_data('lake')")
        elif step.what == "inlining":
            limit = rng.choice([0, 10, 3])
            view = self.pg.execute("SELECT FROM ducklake_view WHERE end_snapshot IS NULL").fetchall()
            if step.who == "ours" or (view and self.known(INLINING_BESIDE_VIEW)):
                self.say("ours", f"data_inlining_row_limit {limit}")
                with self.lake.transaction() as tx:
                    tx.set_option("data_inlining_row_limit", limit)
                return
            self._call(step.who, f"CALL lake.set_option('data_inlining_row_limit', {limit})")
        elif step.what == "merge":
            self._call(step.who, "CALL ducklake_merge_adjacent_files('lake')")
            self._forget_row_ids()
        elif step.what == "rewrite" and table is not None:
            name = literal(table.name)
            with self._tentative():
                self._call(
                    step.who, f"CALL ducklake_rewrite_data_files('lake', {name}, delete_threshold => 0)"
                )
        elif step.what == "expire":
            live = self.snapshots()[:-1]
            chosen = sorted(rng.sample(live, rng.randint(0, len(live))))
            if chosen:
                self._call(step.who, f"CALL ducklake_expire_snapshots('lake', versions => {chosen})")
        elif step.what == "cleanup":
            self._call(step.who, "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
            self._call(step.who, "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")
        elif step.what == "checkpoint":
            with self._tentative():
                self._call(step.who, "CHECKPOINT lake")
            self._forget_row_ids()

    def _forget_row_ids(self) -> None:
        """Let the readers agree on row ids anew."""
        self.known(MERGE_RENUMBERS)
        for tables in self.history.values():
            for frozen in tables.values():
                frozen.row_ids = None

    def _call(self, who: str, sql: str) -> None:
        who = "duck" if who == "ours" else who
        self.say(who, sql)
        before = self._inlined_tables()
        with self.session(who) as session:
            session.execute(sql).fetchall()
        if before - self._inlined_tables():
            self.known(DROPPED_INLINED_TABLE)
            self.reopen()

    def _inlined_tables(self) -> set[str]:
        return {row[0] for row in self.pg.execute("SELECT table_name FROM ducklake_inlined_data_tables")}


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
    world = World(*new_lake())
    taken: list[Step] = []
    try:
        for step in steps:
            taken.append(step)
            world.take(step)
        with world.session("fresh") as session:
            world.compare(Lake.open(world.dsn), session)
    except BaseException as error:
        done = "\n".join(f"    {line}" for line in world.log)
        listed = "".join(f"    {one!r},\n" for one in taken)
        error.add_note(f"What happened:\n{done}\nRepeat with play([\n{listed}], new_lake)")
        raise
    finally:
        world.close()
