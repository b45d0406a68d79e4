"""A game's leaderboard: one stream table, read by the game from PostgreSQL and by analysts from the lake."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.engine.demos.latency import Latencies, Seen, Writer
from headwater.engine.demos.running import running_service
from headwater.errors import HeadwaterError
from headwater.lake.connection import Connection, Database
from headwater.lake.scratch import fresh_database

if TYPE_CHECKING:
    from headwater.engine.headwater import Headwater

SOURCE, STREAM, PUBLISHED = "game", "leaderboard", "public.leaderboard"
QUERY = """SELECT player, count(*) AS games, sum(points) AS score, max(points) AS best, max(id) AS newest
FROM game.results GROUP BY player"""
PLAYERS = tuple(f"player {number:02}" for number in range(1, 41))
BEFORE = 500
WARM_UP = 5.0
_PATIENCE = 30.0
_LOOK = 0.05

_CREATE = """CREATE TABLE results (
    id bigint PRIMARY KEY, player text NOT NULL, points int NOT NULL, played_at timestamptz DEFAULT now())"""
_FILL = """INSERT INTO results (id, player, points)
    SELECT n, 'player ' || lpad((1 + n %% 40)::text, 2, '0'), n * 31 %% 100
    FROM generate_series(1, %s) AS n"""
_BOARD = "SELECT player, games, score, best FROM {} ORDER BY score DESC, player"

Row = tuple[str, int, int, int]


@dataclass(frozen=True)
class Standing:
    """The board at one moment, as the game sees it."""

    top: tuple[Row, ...]
    written: int
    in_postgres: int
    in_lake: int
    seconds_left: float


@dataclass(frozen=True)
class LeaderboardStory:
    """What happened."""

    games_written: int
    per_second: float
    in_postgres: Latencies
    in_lake: Latencies
    warm_up_seconds: float
    #: The board as both read it at the end, and whether it is the same, and PostgreSQL's own answer.
    game: tuple[Row, ...]
    analysts: tuple[Row, ...]
    agree: bool
    problems: tuple[str, ...] = ()


def tell(
    hw: Headwater,
    *,
    seconds: float = 20.0,
    per_second: float = 10.0,
    news: Callable[[str], None] = lambda text: None,
    show: Callable[[Standing], None] = lambda standing: None,
) -> LeaderboardStory:
    """Run the whole story."""
    warm_up = min(WARM_UP, seconds / 3)
    news("creating a game in PostgreSQL")
    game = fresh_database(hw.lake.dsn, "game")
    database = Database(game)
    try:
        with database.connection() as connection:
            connection.execute(_CREATE)
            connection.execute(_FILL, (BEFORE,))
            news("copying its results into the lake, and starting Spark")
            hw.add_postgres_source(game, ["results"], name=SOURCE, schema=SOURCE)
            hw.create_stream_table(
                STREAM,
                QUERY,
                schedule="on change",
                sink="ducklake, postgres",
                postgres_sink_dsn=game,
                postgres_sink_table=PUBLISHED,
            )
            writer = Writer(game, _Games().write, per_second, first=BEFORE + 1)
            backend, analysts = Seen(writer), Seen(writer)
            until = time.monotonic() + seconds
            with hw.duckdb() as session, running_service(hw) as reports:
                news("games are being played")
                writer.start()
                try:
                    while (now := time.monotonic()) < until or min(backend.last, analysts.last) < writer.last:
                        if now > until:
                            writer.stop()
                        if now > until + _PATIENCE:
                            raise HeadwaterError(
                                f"The last games were not seen by both within {_PATIENCE:.0f} seconds.",
                                hint="`headwater history` and SHOW SINKS say what went wrong.",
                            )
                        backend.look(_newest(connection))
                        found = session.execute(f"SELECT max(newest) FROM {STREAM}").fetchone()
                        analysts.look(None if found is None else found[0])
                        show(
                            Standing(
                                _board(connection)[:10],
                                len(writer.committed),
                                len(backend.times),
                                len(analysts.times),
                                max(0.0, until - now),
                            )
                        )
                        time.sleep(_LOOK)
                finally:
                    writer.stop()
                of_game = _board(connection)
                of_analysts = tuple(session.execute(_BOARD.format(STREAM)).fetchall())
            truth = tuple(
                connection.execute(
                    "SELECT player, count(*), sum(points), max(points) FROM results "
                    "GROUP BY player ORDER BY sum(points) DESC, player"
                ).fetchall()
            )
        failed = [f"{report.name}: {report.message}" for report in reports if not report.ok]
        return LeaderboardStory(
            games_written=len(writer.committed),
            per_second=per_second,
            in_postgres=backend.latencies(warm_up),
            in_lake=analysts.latencies(warm_up),
            warm_up_seconds=warm_up,
            game=of_game,
            analysts=of_analysts,
            agree=of_game == of_analysts == truth,
            problems=tuple(dict.fromkeys(failed)),
        )
    finally:
        database.close()


class _Games:
    """One result at a time."""

    def __init__(self) -> None:
        self.dice = random.Random(11)  # noqa: S311

    def write(self, connection: Connection, number: int) -> None:
        """Write a result; now and then one is taken back."""
        connection.execute(
            "INSERT INTO results (id, player, points) VALUES (%s, %s, %s)",
            (number, self.dice.choice(PLAYERS), self.dice.randrange(0, 150)),
        )
        if number % 13 == 0:
            connection.execute("DELETE FROM results WHERE id = %s", (self.dice.randrange(1, BEFORE),))


def _board(connection: Connection) -> tuple[Row, ...]:
    return tuple(connection.execute(_BOARD.format(PUBLISHED).encode()).fetchall())


def _newest(connection: Connection) -> int | None:
    row = connection.execute(f"SELECT max(newest) FROM {PUBLISHED}".encode()).fetchone()
    return None if row is None else row[0]
