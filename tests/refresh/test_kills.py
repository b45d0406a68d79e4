"""A refresh that ends anywhere leaves what was there, and the next one makes up for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import InvariantError
from headwater.lake.writing.commit import Commit
from headwater.lake.writing.transaction import Transaction
from headwater.refresh.model import Action
from headwater.refresh.store import StreamStore
from headwater.refresh.storing import Storing
from tests.refresh.conftest import World, actions


class KilledError(BaseException):
    """Like the end of the process: nobody catches it."""


@pytest.fixture
def chain(world: World) -> World:
    world.run(
        "CREATE TABLE base (k INT, v INT)",
        "INSERT INTO base SELECT range % 5, range FROM range(1000)",
        "CALL lake.set_option('data_inlining_row_limit', 0)",
    )
    world.make("first_", "SELECT k, sum(v) AS total FROM base GROUP BY k")
    world.make(
        "second_", "SELECT total % 2 AS odd, count(*) AS n, max(k) AS k FROM first_ GROUP BY total % 2"
    )
    return world


def before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, nth: int = 1) -> None:
    """Kill at the nth call."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(1, 1000))

    def killed(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == nth:
            raise KilledError
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, killed)


STEPS: dict[str, tuple[Any, str, int]] = {
    "changes are computed": (Storing, "few", 1),
    "the second stage is computed": (Storing, "few", 2),
    "rows are removed": (Transaction, "remove_rows", 1),
    "rows are replaced": (Transaction, "replace_rows", 1),
    "rows are added": (Transaction, "append", 1),
    "the wave is described": (Transaction, "describe", 1),
    "frontiers are joined": (StreamStore, "commit_refreshes", 1),
    "the commit runs": (Commit, "run", 1),
    "rows join the commit": (Commit, "_join", 1),
}


@pytest.mark.parametrize("step", STEPS)
def test_killed_before(chain: World, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.run("INSERT INTO base VALUES (1, 7), (9, 1)", "DELETE FROM base WHERE v < 10")
    seen = {name: chain.rows(f"FROM {name}") for name in chain.queries}
    at, frontiers = chain.snapshots(), [stream.frontier for stream in chain.streams.all()]
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        before(patch, *STEPS[step])
        chain.refresh()
    assert chain.snapshots() == at
    assert {name: chain.rows(f"FROM {name}") for name in chain.queries} == seen
    assert [stream.frontier for stream in chain.streams.all()] == frontiers
    assert set(actions(chain.refresh()).values()) == {Action.INCREMENTAL}
    chain.check()
    assert _unknown_files(chain) == []


def _unknown_files(world: World) -> list[str]:
    """Files in the lake's folder that no snapshot names."""
    world.run("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    folder = Path(world.lake.data_path)
    found = world.con.execute(
        "CALL ducklake_delete_orphaned_files('lake', dry_run => true, cleanup_all => true)"
    )
    return [str(Path(row[0]).relative_to(folder)) for row in found.fetchall()]


@pytest.mark.parametrize(
    ("tampering", "said"),
    [
        ("DELETE FROM _headwater.main__first_ WHERE k = 1", ""),
        (
            "INSERT INTO _headwater.main__rows_ SELECT * FROM _headwater.main__rows_ WHERE v = 500",
            "there twice",
        ),
        ("DELETE FROM _headwater.main__rows_ WHERE v = 500", "not there"),
        ("UPDATE _headwater.main__first_ SET _hw_rows = 1", "fewer than no rows"),
    ],
)
def test_what_somebody_else_did_to_the_stored_rows_is_not_built_upon(
    chain: World, tampering: str, said: str
) -> None:
    chain.make("rows_", "SELECT k, v FROM base WHERE v >= 500")
    chain.run(tampering, "DELETE FROM base WHERE v IN (500, 505)")
    results = chain.refresh()
    found = [result.error for result in results.values() if result.error]
    if said:
        assert any(said in str(error) for error in found), results
        assert InvariantError.code in {error["code"] for error in found if error}
    chain.refresh(*chain.queries, full=True)
    chain.check()
