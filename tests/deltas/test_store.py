"""Random histories of datasets, compactions that die, and lakes elsewhere."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from headwater.deltas.dataset import DeltaDataset
from headwater.deltas.model import bind
from headwater.lake.catalog import table_name
from headwater.lake.lake import Lake
from headwater.storage.options import StorageOptions
from tests.deltas.conftest import Opened, no_spark
from tests.deltas.killed_compactor import QUICK, STEPS
from tests.deltas.test_faults import age, many, people, read, seen
from tests.servers import S3Server

_KEYS = st.sampled_from([None, 0, 1, 2, 3, 40])
_STEPS = st.one_of(
    st.tuples(st.just("write"), st.lists(st.tuples(_KEYS, st.sampled_from("abc")), min_size=1, max_size=14)),
    st.tuples(st.just("tombstone"), st.lists(_KEYS, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["compact", "compact", "flush", "merge", "rewrite"]), st.none()),
)
_numbers = iter(range(1_000_000))


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(_STEPS, min_size=4, max_size=12))
def test_random_histories_are_shown_as_a_dictionary_is(
    lake: Lake, con: Any, steps: list[tuple[str, Any]]
) -> None:
    name = f"random.d{next(_numbers)}"
    one = DeltaDataset(lake, no_spark, table_name(name), ("id",))
    one.write_delta(many(12))
    model: dict[Any, str] = dict.fromkeys(range(12), "old")
    shown = {lake.snapshot().id: dict(model)}
    for what, given_ in steps:
        if what == "write":
            one.write_delta(people(*given_))
            model.update(given_)
        elif what == "tombstone":
            one.tombstone(given_, actor="a", reason="r")
            for key in given_:
                model.pop(key, None)
        elif what == "compact":
            done = one.compact()
            assert done.final_rows == len(model)
            assert one.compact().outcome == "nothing"
        else:
            call = {
                "flush": "ducklake_flush_inlined_data('lake')",
                "merge": "ducklake_merge_adjacent_files('lake')",
                "rewrite": "ducklake_rewrite_data_files('lake', delete_threshold => 0.01)",
            }[what]
            con.execute(f"CALL {call}")
        shown[lake.snapshot().id] = dict(model)
    for at, expected in shown.items():
        rows = sorted(expected.items(), key=repr)
        assert seen(con, name, at) == rows, f"DuckDB at {at}"
        assert read(one, at) == rows, f"read_arrow at {at}"


@pytest.mark.parametrize(
    "step", [step if step in QUICK else pytest.param(step, marks=pytest.mark.slow) for step in STEPS]
)
def test_a_compaction_killed_at_any_step_changes_nothing(
    dataset: Opened, lake: Lake, con: Any, tmp_path: Path, step: str
) -> None:
    one = dataset(key=["id"])
    one.write_delta(many(20))
    one.compact()
    one.write_delta(people((1, "new"), (99, "new")))
    one.tombstone([2, 777], actor="a", reason="r")
    before, rows = lake.snapshot().id, seen(con)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.deltas.killed_compactor", lake.dsn, step], check=False, timeout=120
    )
    assert ran.returncode == -signal.SIGKILL
    assert lake.snapshot().id == before
    assert (seen(con), read(one)) == (rows, rows)
    assert [record.matched for record in one.audit()] == [None, None]
    done = one.compact(operation_id="killed")
    assert (done.outcome, done.base_rows, done.final_rows) == ("compacted", 20, 20)
    assert (seen(con), read(one)) == (rows, rows)
    age(*tmp_path.rglob("*.parquet"))
    left = lake.remove_orphans(dry_run=False)
    assert left.files == (0 if step == "while storing" else 2)
    assert (seen(con), read(one)) == (rows, rows)


def test_datasets_in_an_encrypted_lake_leave_nothing_to_read(new_database: str, tmp_path: Path) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=True)
    _lived(lake)
    for path in tmp_path.rglob("*.parquet"):
        assert b"PAR1" not in path.read_bytes()[:4] or b"secret" not in path.read_bytes()
    lake.close()


@pytest.mark.s3
def test_datasets_on_s3(new_database: str, s3: S3Server) -> None:
    options = StorageOptions(
        s3_endpoint=s3.endpoint, s3_access_key_id=s3.access_key, s3_secret_access_key=s3.secret_key
    )
    lake = Lake.open(new_database, data_path=f"s3://{s3.bucket}/deltas", storage=options)
    _lived(lake)
    lake.close()


def _lived(lake: Lake) -> None:
    """A dataset's whole life, judged by DuckDB."""
    one = DeltaDataset(lake, no_spark, table_name("crm.people"), ("id",))
    one.write_delta(many(40, "secret"))
    one.compact()
    one.write_delta(people((1, "new"), (99, "new")))
    one.tombstone([2, 3], actor="a", reason="r")
    session = lake.duckdb()
    before = sorted(session.execute("FROM crm.people").fetchall(), key=repr)
    assert read(one) == before
    assert one.compact().rows_dropped_by_tombstones == 2
    assert sorted(session.execute("FROM crm.people").fetchall(), key=repr) == read(one) == before
    assert not one.erasure_report(2).erased
    lake.expire(keep_last=1)
    lake.cleanup(older_than=None)
    assert one.erasure_report(2).erased
    assert bind(one.definition, lake.state()).base.columns[0].name == "id"
    session.close()
