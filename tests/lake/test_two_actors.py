"""Two actors on one lake, Headwater and DuckDB, taking random turns.

After every step each table is compared at every live snapshot: a model, our reader and DuckDB's must agree on
rows, row ids, counts, conditions and aggregates. `actor_bugs` names each error of DuckDB that is gone around.
An error prints the steps that led to it, ready to be played again.
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

#: What happens how often. "overlap" is two transactions at once, "transaction" several operations in one.
WEIGHTS = {
    "insert": 6,
    "delete": 4,
    "update": 4,
    "overlap": 4,
    "transaction": 3,
    **dict.fromkeys(("create_table", "add_column", "drop_column", "rename_column", "widen_column"), 2),
    **dict.fromkeys(("flush", "inlining", "merge"), 2),
    **dict.fromkeys(("rewrite", "expire", "cleanup", "checkpoint"), 1),
    **dict.fromkeys(("drop_table", "rename_table", "truncate", "set_not_null", "comment", "create_view"), 1),
    **dict.fromkeys(("set_partition_by", "set_sort_by"), 1),
}
KINDS = [kind for kind, weight in WEIGHTS.items() for _ in range(weight)]
TURNS = ["ours"] * 4 + ["duck", "second", "fresh"]
FIRST = ["create_table"] * 2 + ["insert"] * 3

NewLake = Callable[[], tuple[str, Path]]


@pytest.fixture(scope="module")
def new_lake(pg_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> NewLake:
    return lambda: (create_database(pg_server.dsn), tmp_path_factory.mktemp("lake"))


def random_steps(seed: int, count: int) -> list[Step]:
    rng = random.Random(seed)
    begin = [Step(what, rng.choice(ACTORS), rng.randrange(10**6)) for what in FIRST]
    return begin + [Step(rng.choice(KINDS), rng.choice(TURNS), rng.randrange(10**6)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_both_readers_agree_at_every_snapshot(seed: int, new_lake: NewLake) -> None:
    play(random_steps(seed, 10), new_lake)


SEEDS = st.integers(0, 10**6)
STEPS = st.lists(
    st.builds(Step, st.sampled_from(KINDS), st.sampled_from(TURNS), SEEDS), min_size=10, max_size=35
)


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@settings(
    max_examples=100,
    deadline=None,
    database=None,
    print_blob=False,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(
    first=st.tuples(*(st.builds(Step, st.just(what), st.sampled_from(ACTORS), SEEDS) for what in FIRST)),
    rest=STEPS,
)
def test_both_readers_agree_however_long_it_goes_on(
    new_lake: NewLake, first: tuple[Step, ...], rest: list[Step]
) -> None:
    play([*first, *rest], new_lake)
