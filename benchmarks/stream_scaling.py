"""The same change to ten times the data: what a refresh of TPC-H's queries takes should hardly grow.

The number of orders that change is that of a thousandth at scale 1, whatever the scale is.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.environment import Environment
from benchmarks.measure import Result, seconds
from benchmarks.spark_session import spark_session
from benchmarks.spark_tpch import generated
from benchmarks.stream_tpch import Changes, check, name_of, refresh_all, spark_text
from headwater.refresh.model import Definition, Mode
from headwater.refresh.streams import Streams
from headwater.spark.connector import LakeSpark

#: The share of the orders that is changed at scale 1.
SHARE = 0.001
#: So many queries may take longer than twice as long.
EXCEPTIONS = 4
TWICE = 2.0


def run(environment: Environment, scale: float = 1.0) -> Iterator[Result]:
    """From a tenth of a scale to the scale."""
    small, large = (_times(environment, each) for each in (scale / 10, scale))
    ratios = {number: median(large[number]) / median(small[number]) for number in large}
    last = sorted(ratios, key=lambda number: ratios[number])[-1 - EXCEPTIONS]
    counted = len(ratios) - EXCEPTIONS
    yield Result(
        f"stream tables, the same change at scale {scale:g}, {counted} of {len(ratios)} queries at most",
        f"at scale {scale / 10:g}",
        large[last],
        small[last],
        TWICE,
    )
    for number in ratios:
        yield Result(f"… query {number}", f"at scale {scale / 10:g}", large[number], small[number])


def _times(environment: Environment, scale: float) -> dict[int, tuple[float, ...]]:
    environment.say(f"scale {scale:g}: data and stream tables …")
    place = environment.place()
    session = generated(place, scale)
    queries = dict(session.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    lake = place.lake()
    times: dict[int, list[float]] = {number: [] for number in queries}
    with spark_session(environment) as spark:
        connector = LakeSpark(lake, spark)
        streams = Streams(lake, lambda: connector)
        for number, text in queries.items():
            # Not what is quicker: at a small scale that may be computing everything anew.
            streams.create(Definition(name_of(number), spark_text(text), mode=Mode.INCREMENTAL))
        changes = Changes(place, session)
        refresh_all(streams, queries)
        for counted in [False, *[True] * environment.rounds(3)]:
            environment.say(f"scale {scale:g}: a round{'' if counted else ' that does not count'} …")
            changes.apply(min(0.1, SHARE / scale))
            for number, text in queries.items():
                name = str(name_of(number))
                taken = seconds(lambda: streams.refresh([name]))  # noqa: B023
                check(session, name, number, text)
                if counted:
                    times[number].append(taken)
    session.close()
    lake.close()
    return {number: tuple(taken) for number, taken in times.items()}


__all__ = ["run"]
