"""Stream tables in the catalog: what is written comes back, with the snapshot it belongs to or not at all."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.errors import AlreadyExistsError, CatalogError, ConflictError, NotFoundError
from headwater.lake.lake import Lake
from headwater.refresh.catalog_rows import THIS_COMMIT
from headwater.refresh.model import (
    Action,
    Definition,
    Frontier,
    Mode,
    Prediction,
    RefreshResult,
    SourcePosition,
    StageReport,
    Status,
    StoredStage,
    StreamTable,
)
from headwater.refresh.store import Refreshed, StreamStore, new_stream_id
from headwater.typedefs import TableName

NAME = TableName("main", "Totals")
MOMENT = datetime(2026, 3, 1, 12, 30, 0, 123457, tzinfo=timezone(timedelta(hours=2)))
ROWS = pa.table({"a": [1, 2]})


@pytest.fixture
def store(lake: Lake) -> StreamStore:
    return StreamStore(lake)


def stream(**given: Any) -> StreamTable:
    """A stream table over a table that the same transaction creates."""
    definition = Definition(
        NAME,
        "SELECT 'ü', \"x\" FROM t",
        mode=Mode.STRICT,
        schedule="5s",
        inputs={"t": "main.t"},
        options={"max_failures": "2"},
    )
    made = StreamTable(
        id=new_stream_id(),
        definition=definition,
        status=Status.ACTIVE,
        stages=(StoredStage("@", -1, TableName("main", "stored"), ("a",)),),
        columns=(("a", "bigint"), ("b c", "decimal(10,2)")),
        upstream=(new_stream_id(),),
        frontier=None,
        depends_on_time=True,
    )
    return replace(made, **given)


def frontier(snapshot: int = THIS_COMMIT, data: int = 1) -> Frontier:
    return Frontier(data, snapshot, MOMENT, (SourcePosition(7, "main.t", data),))


def result(action: Action = Action.INCREMENTAL, **given: Any) -> RefreshResult:
    made = RefreshResult(str(NAME), action, "sums", "changed", "Two rows changed.", mode=Mode.STRICT)
    return replace(made, **given)


def created(lake: Lake, store: StreamStore, **given: Any) -> StreamTable:
    """A stream table in the catalog, with a storage table of its own."""
    with lake.transaction() as tx:
        tx.create_table("stored", ROWS.schema)
        tx.join(store.insert(stream(**given)))
    found = store.get(NAME)
    assert found is not None
    return found


def count(lake: Lake, table: str) -> int:
    with psycopg.connect(lake.dsn) as connection:
        row = connection.execute(f"SELECT count(*) FROM headwater.{table}").fetchone()
    assert row is not None
    return int(row[0])


def test_reading_before_first_use_finds_nothing_and_creates_nothing(lake: Lake, store: StreamStore) -> None:
    assert not [*store.all(), *store.history(), *store.provenance()]
    assert store.get(NAME) is None
    with psycopg.connect(lake.dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('headwater')").fetchone() == (None,)


def test_first_use_by_many_at_once_creates_the_tables_once(lake: Lake) -> None:
    with ThreadPoolExecutor(6) as pool:
        ids = set(pool.map(lambda _: StreamStore(lake).ensure(), range(6)))

    assert len(ids) == 1
    assert count(lake, "stream_table") == 0


def test_tables_of_a_later_version_are_refused(lake: Lake, store: StreamStore) -> None:
    store.ensure()
    with psycopg.connect(lake.dsn, autocommit=True) as connection:
        connection.execute("UPDATE headwater.component SET version = 99")

    for action in (StreamStore(lake).ensure, StreamStore(lake).all):
        with pytest.raises(CatalogError, match="version 99"):
            action()


def test_a_stream_table_comes_back_as_it_was_with_the_ids_of_tables_made_by_the_same_commit(
    lake: Lake, store: StreamStore
) -> None:
    given = stream(
        frontier=Frontier(THIS_COMMIT, THIS_COMMIT, MOMENT, (SourcePosition(-5, "stored", THIS_COMMIT),)),
        last_error="gone\0 wrong \ud800",
        failures=2,
    )
    with lake.transaction() as tx:
        tx.create_table("stored", ROWS.schema)
        tx.join(store.insert(given))

    found = store.get(TableName("MAIN", "totals"))

    assert found is not None
    stored, snapshot = lake.table("stored").id, tx.snapshot_id
    assert snapshot is not None
    assert found == replace(
        given,
        stages=(replace(given.stages[0], table_id=stored),),
        frontier=Frontier(snapshot, snapshot, MOMENT, (SourcePosition(stored, "stored", snapshot),)),
        last_error="gone\ufffd wrong ?",
        created_at=found.created_at,
    )
    assert store.all() == StreamStore(lake).all() == [found]


def test_a_name_is_taken_once_whatever_its_case(lake: Lake, store: StreamStore) -> None:
    created(lake, store)
    other = stream(definition=Definition(TableName("main", "TOTALS"), "SELECT 1"), stages=())

    with pytest.raises(AlreadyExistsError), lake.transaction() as tx:
        tx.append("stored", ROWS)
        tx.join(store.insert(other))

    assert lake.read("stored").num_rows == 0


def test_lakes_of_one_database_do_not_see_each_other(lake: Lake, store: StreamStore, tmp_path: Any) -> None:
    created(lake, store)
    other = Lake.open(lake.dsn, data_path=tmp_path / "other", metadata_schema="other")

    assert StreamStore(other).all() == []
    created(other, StreamStore(other))

    assert len(store.all()) == len(StreamStore(other).all()) == 1
    other.close()


def test_a_replaced_stream_table_keeps_id_name_and_birth(lake: Lake, store: StreamStore) -> None:
    old = created(lake, store, frontier=frontier())
    changed = replace(old, definition=Definition(NAME, "SELECT 2"), columns=(("z", "int"),), frontier=None)

    with lake.transaction() as tx:
        tx.append("stored", ROWS)
        tx.join(store.replace(changed))

    assert store.get(NAME) == changed


def test_a_dropped_stream_table_leaves_history_and_provenance(lake: Lake, store: StreamStore) -> None:
    made = created(lake, store)
    with lake.transaction() as tx:
        tx.append("stored", ROWS)
        tx.join(store.commit_refresh(made.id, frontier(), result()))

    with lake.transaction() as tx:
        tx.drop_table("stored")
        tx.join(store.delete(made.id))

    assert store.all() == []
    assert count(lake, "stream_frontier") == 0
    assert len(store.history(NAME)) == len(store.provenance(NAME)) == 1
    for join in (store.delete(made.id), store.replace(made)):
        with pytest.raises(NotFoundError), lake.transaction() as tx:
            tx.join(join)


def test_a_refresh_commits_frontier_history_and_provenance_with_its_snapshot(
    lake: Lake, store: StreamStore
) -> None:
    made = created(lake, store)
    store.record(result(Action.FAILED, error={"message": "no"}), made.id)
    done = result(
        rows_inserted=2,
        rows_deleted=1,
        rows_in=3,
        files_read=4,
        bytes_read=2**40,
        snapshot_id=THIS_COMMIT,
        data_snapshot_id=1,
        seconds=0.1 + 0.2,
        stages=(StageReport("@", "sums", 1 / 3, 2, 1),),
        prediction=Prediction(1e-9, math.inf),
        refresh_id="r1",
        wave_id="w1",
        started_at=MOMENT,
    )

    with lake.transaction() as tx:
        tx.append("stored", ROWS)
        tx.join(store.commit_refresh(made.id, frontier(), done))

    assert tx.snapshot_id is not None
    found = store.get(NAME)
    assert found is not None
    assert found.frontier == frontier(tx.snapshot_id)
    assert (found.failures, found.last_error) == (0, None)
    newest = store.history(NAME, limit=1)[0]
    assert newest.as_dict() == replace(done, snapshot_id=tx.snapshot_id).as_dict() | {
        "times": 1,
        "recorded_at": newest.recorded_at,
    }
    (source,) = store.provenance(NAME)
    assert (source.stream_id, source.name, source.snapshot_id) == (made.id, str(NAME), tx.snapshot_id)
    assert (source.refresh_id, source.rows_inserted, source.rows_deleted) == ("r1", 2, 1)
    assert source.sources == frontier().sources
    assert abs(datetime.now(UTC) - source.written_at) < timedelta(minutes=1)


def test_a_commit_that_fails_leaves_no_trace_of_the_refresh(lake: Lake, store: StreamStore) -> None:
    made = created(lake, store)

    def fail(cursor: Any, snapshot_id: int) -> None:
        raise ConflictError("no")

    with pytest.raises(ConflictError), lake.transaction() as tx:
        tx.append("stored", ROWS)
        tx.join(store.commit_refresh(made.id, frontier(), result()))
        tx.join(fail)

    assert store.get(NAME) == made
    assert not [*store.history(), *store.provenance()]


def test_two_refreshes_that_began_at_the_same_frontier_cannot_both_commit(
    lake: Lake, store: StreamStore
) -> None:
    made = created(lake, store)
    for before in (made.frontier, frontier(99)):
        with lake.transaction() as tx:
            tx.append("stored", ROWS)
            tx.join(store.commit_refresh(made.id, frontier(99), result(), before=before, checked=True))

    for join in (
        store.commit_refresh(made.id, frontier(), result(), before=None, checked=True),
        store.commit_refresh(made.id, frontier(), result(), before=frontier(98), checked=True),
        store.commit_refresh(new_stream_id(), frontier(), result()),
    ):
        with pytest.raises(ConflictError), lake.transaction() as tx:
            tx.append("stored", ROWS)
            tx.join(join)

    assert lake.read("stored").num_rows == 2 * ROWS.num_rows
    assert len(store.history()) == 2


def test_a_wave_commits_in_one_statement(lake: Lake, store: StreamStore) -> None:
    names = [TableName("main", f"s{number}") for number in range(5)]
    made = [stream(definition=Definition(name, "SELECT 1"), stages=()) for name in names]
    with lake.transaction() as tx:
        tx.create_table("stored", ROWS.schema)
        for each in made:
            tx.join(store.insert(each))

    with lake.transaction() as tx:
        tx.append("stored", ROWS)
        tx.join(
            store.commit_refreshes(
                [Refreshed(each.id, frontier(), replace(result(), name=str(each.name))) for each in made]
            )
        )

    assert [each.frontier for each in store.all()] == [frontier(tx.snapshot_id or 0)] * 5
    assert {each.name for each in store.history()} == {str(name) for name in names}
    assert {each.snapshot_id for each in store.provenance()} == {tx.snapshot_id}


def test_a_refresh_that_changes_no_row_has_no_provenance(lake: Lake, store: StreamStore) -> None:
    made = created(lake, store)
    newest = lake.snapshot().id

    with lake.transaction() as tx:
        tx.join(store.commit_refresh(made.id, frontier(), result(Action.FULL)))

    found = store.get(NAME)
    assert found is not None
    assert found.frontier == frontier(newest)
    assert lake.snapshot().id == newest
    assert store.provenance() == []


def test_refreshes_in_a_row_that_find_nothing_are_one_row(lake: Lake, store: StreamStore) -> None:
    made = created(lake, store)
    nothing = result(Action.NO_DATA, reason_code="unchanged", reason="No input changed.")
    for number in range(3):
        store.record(replace(nothing, started_at=MOMENT + timedelta(seconds=number)), made.id)
    with lake.transaction() as tx:
        tx.append("stored", ROWS)
        tx.join(store.commit_refresh(made.id, frontier(), result()))
    store.record(replace(nothing, refresh_id="same"), made.id)
    store.record(replace(nothing, refresh_id="same"), made.id)

    found = store.history(NAME)

    assert [(each.action, each.times) for each in found] == [
        (Action.NO_DATA, 1),
        (Action.INCREMENTAL, 1),
        (Action.NO_DATA, 3),
    ]
    assert found[-1].started_at == MOMENT
    assert found[-1].recorded_at is not None


def test_failures_in_a_row_are_counted_and_forgotten_by_success_or_on_request(
    lake: Lake, store: StreamStore
) -> None:
    made = created(lake, store)
    failed = result(Action.FAILED, error={"message": "Column x is gone.", "at": MOMENT, "where": {1}})

    assert [store.record(failed, made.id) for _ in range(3)] == [1, 2, 3]
    store.set_status(made.id, Status.SUSPENDED)
    found = store.get(NAME)
    assert found is not None
    assert (found.status, found.failures, found.last_error) == (Status.SUSPENDED, 3, "Column x is gone.")
    assert store.history(limit=1)[0].error == {
        "message": "Column x is gone.",
        "at": MOMENT.isoformat(),
        "where": [1],
    }

    store.set_status(made.id, Status.ACTIVE)
    assert store.get(NAME) == made

    store.record(failed, made.id)
    assert store.record(result(Action.NO_DATA), made.id) == 0
    assert store.get(NAME) == made


def test_a_definition_changes_without_a_snapshot(lake: Lake, store: StreamStore) -> None:
    made = created(lake, store)
    wanted = replace(made.definition, schedule="1h", mode=Mode.FULL, options={})
    newest = lake.snapshot().id

    store.update_definition(made.id, wanted)

    assert store.get(NAME) == replace(made, definition=wanted)
    assert lake.snapshot().id == newest
    with pytest.raises(NotFoundError):
        store.update_definition(new_stream_id(), wanted)


def test_a_frontier_moves_on_unless_somebody_refreshed_meanwhile(lake: Lake, store: StreamStore) -> None:
    before = Frontier(3, 2, MOMENT, (SourcePosition(7, "t", 3), SourcePosition(8, "u", 3)))
    made = created(lake, store, frontier=before)
    later = replace(
        before, data_snapshot_id=9, sources=(SourcePosition(7, "t", 9), SourcePosition(8, "u", 9))
    )
    store.move_on([(made, later)])
    moved = store.get(NAME)
    assert moved is not None
    assert moved.frontier == later
    store.move_on([(made, replace(later, data_snapshot_id=5))])  # told by who saw it before that
    store.move_on([(replace(moved, frontier=replace(later, snapshot_id=1)), replace(later, snapshot_id=1))])
    store.move_on([])
    assert store.get(NAME) == moved
