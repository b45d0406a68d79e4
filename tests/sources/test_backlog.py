"""Backlogs that are cut between transactions."""

from __future__ import annotations

import random
import threading

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sources import triggers
from headwater.sources.backlog import Transactions, end_with, with_taken
from tests.sources.conftest import World

ACCOUNTS = 12
xids = st.sets(st.integers(1, 40))


@given(
    old_end=st.integers(1, 40), old_running=xids, new_running=xids, later=st.integers(1, 40), data=st.data()
)
def test_a_position_has_what_it_had_and_what_was_taken_and_nothing_else(
    old_end: int, old_running: set[int], new_running: set[int], later: int, data: st.DataObject
) -> None:
    old = Transactions(old_end, frozenset(xid for xid in old_running if xid < old_end))
    new_end = old_end + later
    # What was there before is there still; what was not may have committed since.
    running = {xid for xid in new_running if xid < new_end and xid not in old}
    new = Transactions(new_end, frozenset(running))
    came = [xid for xid in range(1, new_end) if xid in new and xid not in old]
    if not came:
        return
    taken = set(data.draw(st.lists(st.sampled_from(came), min_size=1, unique=True)))
    waiting = [xid for xid in came if xid not in taken and xid < end_with(str(old), taken)]
    made = Transactions.of(with_taken(str(old), str(new), taken, waiting))
    assert {xid for xid in range(1, new_end + 5) if xid in made} == {
        xid for xid in range(1, new_end) if xid in old or xid in taken
    }
    assert Transactions.of(str(made)) == made


def test_a_backlog_is_taken_piece_by_piece_and_never_half_of_a_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transfers that wait for each other, and end in another order than they began in."""
    monkeypatch.setattr(triggers, "MOST_CHANGES", 25)
    world.run(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL)",
        f"INSERT INTO account SELECT i, 1000 FROM generate_series(1, {ACCOUNTS}) i",
    )
    world.add("account")

    def write(seed: int) -> None:
        dice = random.Random(seed)
        with psycopg.connect(world.dsn) as connection:
            for _ in range(15):
                try:
                    transfer(connection, dice)
                except psycopg.errors.DeadlockDetected:
                    connection.rollback()

    def transfer(connection: psycopg.Connection, dice: random.Random) -> None:
        for _ in range(dice.choice((1, 1, 4))):
            amount = dice.randrange(50)
            for account, sign in zip(dice.sample(range(1, ACCOUNTS + 1), 2), (1, -1), strict=True):
                connection.execute(
                    "UPDATE account SET balance = balance + %s WHERE id = %s", (sign * amount, account)
                )
            if dice.random() < 0.5:
                connection.commit()
        connection.commit()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    first = world.lake.snapshot().id
    assert world.capture().changes > 50
    world.check("account")
    assert not world.sources.pending("shop")
    last = world.lake.snapshot().id
    assert last > first + 1, "it was taken in one piece"
    for snapshot in range(2, last + 1):
        ((total,),) = world.here(f"SELECT sum(balance) FROM account AT (VERSION => {snapshot})")
        assert total == 1000 * ACCOUNTS, f"snapshot {snapshot} shows half of a transfer"
