# ruff: noqa: E501 -- queries are easier to read on one line
"""Random queries over random tables that change at random, kept up to date and compared with DuckDB.

`HEADWATER_RANDOM_STEPS` sets how many refreshes the long run makes, `HEADWATER_RANDOM_SEED` where it begins. A failure
is cut down to a small query, few rows and few changes, and prints what repeats it.
"""

from __future__ import annotations

import os
import time

import duckdb
import pytest
from tests.algebra.choices import Choices, shrunk
from tests.algebra.following import follow
from tests.algebra.grammar import Grammar, Schema, schema
from tests.algebra.test_rules import TABLES

from headwater.errors import HeadwaterError

STEPS = 6
_FAILURES = (AssertionError, HeadwaterError, duckdb.Error, LookupError, TypeError, ValueError)


def case(choices: Choices) -> tuple[Schema, str, bool]:
    """Tables, a query over them, and whether it gives the same stored rows to the last bit each time."""
    tables = schema(choices)
    depth = 1 + choices.below(4)
    grammar = Grammar(choices, tables)
    return tables, grammar.whole(depth), grammar.exact


def run(choices: Choices) -> int:
    """Follow a random query for some steps."""
    tables, sql, exact = case(choices)
    return follow(sql, tables, choices, steps=STEPS, exact=exact)


def run_seeds(start: int, steps: int) -> None:
    """Follow one query after the other, until there were enough steps."""
    done, seed = 0, start
    while done < steps:
        choices = Choices(seed)
        try:
            done += run(choices)
        except duckdb.NotImplementedException:
            pass  # DuckDB cannot compute the text itself: there is nothing to compare with
        except _FAILURES as error:
            pytest.fail(explained(seed, choices.made, error), pytrace=False)
        seed += 1


def explained(seed: int, made: list[int], error: Exception, seconds: float = 60) -> str:
    """The smallest case that fails in the same way."""
    until = time.monotonic() + seconds

    def fails(given: list[int]) -> bool:
        if time.monotonic() > until:
            return False
        try:
            run(Choices(given=given))
        except _FAILURES as other:
            return type(other) is type(error) and str(other)[:12] == str(error)[:12]
        return False

    small = shrunk(made, fails, tries=5000)
    tables, sql, _ = case(Choices(given=small))
    try:
        run(Choices(given=small))
        why = str(error)
    except _FAILURES as other:
        why = f"{type(other).__name__}: {other}"
    return f"seed {seed}, Choices(given={small})\n{tables}\n{sql}\n{why}"


def test_random_queries_stay_right() -> None:
    run_seeds(0, 300)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_random_queries_stay_right_for_long() -> None:
    run_seeds(
        int(os.environ.get("HEADWATER_RANDOM_SEED", "1000")),
        int(os.environ.get("HEADWATER_RANDOM_STEPS", "10000")),
    )


#: Queries that went wrong once, with the seed of the tables and changes they went wrong with.
FOUND = [
    # A sum without values was stored as 0 after changes, as NULL after a full refresh.
    ("SELECT a, sum(b) AS w, avg(x) AS v FROM r GROUP BY a", 1),
    # A count over an empty table was NULL in its state.
    ("SELECT a, b FROM r WHERE b < (SELECT count(y) FROM s)", 1),
    # Helper columns had names that users give as well.
    ("SELECT a, sum(b) AS n, count(b) AS n_count, max(b) AS n_most FROM r GROUP BY a", 0),
    ("SELECT a AS _old_b, b FROM r", 0),
    # Semi-joins and outer joins inside each other made texts that took minutes to plan.
    (
        "SELECT r.b FROM r FULL JOIN s AS s1 ON r.a = s1.a LEFT JOIN s AS s2 ON s1.y = s2.a FULL JOIN t ON t.k = s2.y",
        0,
    ),
]


@pytest.mark.parametrize(("sql", "seed"), FOUND)
def test_what_was_wrong_stays_right(sql: str, seed: int) -> None:
    follow(sql, TABLES, Choices(seed), steps=STEPS)
