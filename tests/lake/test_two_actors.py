"""Two actors on one lake, Headwater and DuckDB, taking random turns.

After every step each table is compared at every live snapshot: a model, our reader and DuckDB's must agree on
rows, row ids, counts and filters. `actors` names each known error of DuckDB that the steps go around.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headwater.lake.embedded import EmbeddedServer
from tests.lake.actors import ACTORS, Step, play
from tests.support import create_database

#: What happens how often.
WEIGHTS = {
    "create_table": 2,
    "insert": 6,
    "delete": 4,
    "update": 4,
    "transaction": 3,
    "overlap": 4,
    "add_column": 2,
    "drop_column": 2,
    "rename_column": 2,
    "widen_column": 2,
    "flush": 2,
    "inlining": 2,
    "merge": 2,
    **dict.fromkeys(
        (
            "drop_table",
            "rename_table",
            "truncate",
            "set_not_null",
            "set_partition_by",
            "set_sort_by",
            "comment",
            "create_view",
            "rewrite",
            "expire",
            "cleanup",
            "checkpoint",
        ),
        1,
    ),
}
KINDS = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]
TURNS = ["ours"] * 4 + ["duck", "second", "fresh"]


@pytest.fixture
def new_lake(pg_server: EmbeddedServer, tmp_path: Path) -> Callable[[], tuple[str, Path]]:
    numbers = iter(range(10_000))
    return lambda: (create_database(pg_server.dsn), tmp_path / f"lake{next(numbers)}")


def random_steps(seed: int, count: int) -> list[Step]:
    rng = random.Random(seed)
    first = ["create_table"] * 2 + ["insert"] * 3
    begin = [Step(what, rng.choice(ACTORS), rng.randrange(10**6)) for what in first]
    return begin + [Step(rng.choice(KINDS), rng.choice(TURNS), rng.randrange(10**6)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(60, 66))
def test_both_readers_agree_at_every_snapshot(seed: int, new_lake: Callable[[], tuple[str, Path]]) -> None:
    play(random_steps(seed, 10), new_lake)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**32), count=st.integers(5, 40))
def test_both_readers_agree_however_long_it_goes_on(
    new_lake: Callable[[], tuple[str, Path]], seed: int, count: int
) -> None:
    play(random_steps(seed, count), new_lake)
