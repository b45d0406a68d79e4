"""Opening lakes, time travel, encryption, object stores, and data that does not fit."""

from __future__ import annotations

import base64
import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import (
    CatalogError,
    CatalogUnavailableError,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    SettingsError,
    SnapshotError,
    StorageError,
    UnsupportedError,
)
from headwater.lake.lake import Lake
from headwater.lake.options import parse_size
from headwater.storage.options import StorageOptions
from tests.lake.test_transactions import ids, make, numbers
from tests.servers import S3Server
from tests.support import catalog_rows, duck

SECRET = "p@ss'w/rd"


# --- opening ---------------------------------------------------------------------------------------------


def test_a_lake_that_duckdb_created_opens_here_and_the_other_way_round(
    new_database: str, tmp_path: Path
) -> None:
    theirs = duck(new_database, tmp_path / "data")
    theirs.execute("CREATE TABLE t AS SELECT i AS id FROM range(50) r(i)")
    lake = Lake.open(new_database, data_path=tmp_path / "data")
    assert ids(lake) == list(range(50))
    with lake.transaction() as tx:
        tx.append("t", pa.table({"id": [1000]}))
    assert theirs.execute("SELECT max(id) FROM t").fetchone() == (1000,)
    assert Lake.open(new_database).read("t").num_rows == 51, "the catalog knows its data path"


def test_a_new_lake_needs_a_data_path(new_database: str) -> None:
    with pytest.raises(SettingsError, match="data path"):
        Lake.open(new_database)


def test_nothing_is_created_when_that_is_not_wanted(new_database: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no DuckLake catalog"):
        Lake.open(new_database, data_path=tmp_path, create=False)


def test_another_data_path_is_refused_unless_the_files_were_moved(lake: Lake, tmp_path: Path) -> None:
    make(lake)
    moved = tmp_path / "moved"
    with pytest.raises(SettingsError, match="override_data_path"):
        Lake.open(lake.dsn, data_path=moved)
    Path(lake.data_path).rename(moved)
    again = Lake.open(lake.dsn, data_path=moved, override_data_path=True)
    assert again.read("t").num_rows == 100
    assert again.duckdb().execute("SELECT count(*) FROM t").fetchone() == (100,)


@pytest.mark.parametrize(
    ("version", "advice"), [("0.3", "AUTOMATIC_MIGRATION"), ("1.1-dev1", "release"), ("9", "release")]
)
def test_a_catalog_of_another_version_is_refused_with_what_to_do(
    lake: Lake, version: str, advice: str
) -> None:
    with psycopg.connect(lake.dsn) as connection:
        connection.execute("UPDATE ducklake_metadata SET value = %s WHERE key = 'version'", (version,))
    with pytest.raises(CatalogError, match=version.replace(".", r"\.")) as caught:
        Lake.open(lake.dsn)
    assert advice in str(caught.value.hint)


def test_a_data_path_that_is_a_file_is_refused(new_database: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(SettingsError, match="is a file"):
        Lake.open(new_database, data_path=tmp_path / "file")


def test_an_unsupported_scheme_names_the_supported_ones(new_database: str) -> None:
    with pytest.raises(UnsupportedError, match="s3") as caught:
        Lake.open(new_database, data_path="ftp://host/lake")
    assert "ftp" in str(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        f"host=/nowhere user=me password={SECRET!r} dbname=x".replace('"', "'").replace("p@ss'w", r"p@ss\'w"),
        "postgresql://me:p%40ss'w%2Frd@127.0.0.1:1/x",
    ],
)
def test_an_unreachable_server_is_named_and_the_password_is_not(dsn: str) -> None:
    with pytest.raises(CatalogUnavailableError) as caught:
        Lake.open(dsn, data_path="/tmp/never")
    assert SECRET not in str(caught.value) + repr(caught.value.as_dict())
    assert caught.value.retryable


def test_an_address_that_cannot_be_parsed_does_not_leak(tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as caught:
        Lake.open(f"postgresql://me:{SECRET}@ho st:x/db", data_path=tmp_path)
    assert "w/rd" not in str(caught.value)


def test_a_wrong_password_is_said_without_showing_it(lake: Lake) -> None:
    with psycopg.connect(lake.dsn, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS nobody_here")
    with pytest.raises(CatalogError) as caught:
        Lake.open(psycopg.conninfo.make_conninfo(lake.dsn, user="nobody_here", password=SECRET))
    assert SECRET not in str(caught.value)
    assert "nobody_here" in str(caught.value)


def test_a_handle_travels_to_other_processes(lake: Lake) -> None:
    make(lake)
    copy = pickle.loads(pickle.dumps(lake))
    assert copy.read("t").num_rows == 100
    copy.close()


def test_addresses_show_no_password(lake: Lake) -> None:
    assert lake.uri.startswith("postgresql://postgres@/lake_")
    assert psycopg.connect(lake.uri).close() is None


# --- time travel -----------------------------------------------------------------------------------------


def test_snapshots_by_number_and_by_time(lake: Lake) -> None:
    make(lake, rows=10)
    with lake.transaction() as tx:
        tx.append("t", numbers(100, 20))
    first, second = (lake.snapshot(n) for n in (1, 2))
    assert lake.read("t", 1).num_rows == 10
    assert lake.read("t", second.time).num_rows == 30
    assert lake.read("t", second.time - timedelta(microseconds=1)).num_rows == 10
    assert lake.read("t", first.time.isoformat()).num_rows == 10
    assert lake.read("t", datetime.now(UTC) + timedelta(days=1)).num_rows == 30


def test_a_snapshot_in_the_future_is_an_error(lake: Lake) -> None:
    make(lake)
    with pytest.raises(SnapshotError, match="future") as caught:
        lake.read("t", 99)
    assert caught.value.newest == 1


def test_an_expired_snapshot_is_an_error(lake: Lake) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.append("t", numbers(100, 1))
    lake.duckdb().execute("CALL ducklake_expire_snapshots('lake', versions => [0, 1])")
    with pytest.raises(SnapshotError, match="expired"):
        lake.read("t", 1)
    with pytest.raises(SnapshotError, match="as old as"):
        lake.read("t", datetime(2020, 1, 1, tzinfo=UTC))
    assert lake.read("t").num_rows == 101


def test_a_snapshot_that_predates_the_table_is_an_error(lake: Lake) -> None:
    make(lake)
    with pytest.raises(SnapshotError, match="created at 1"):
        lake.read("t", 0)
    with lake.transaction() as tx:
        tx.drop_table("t")
    assert lake.read("t", 1).num_rows == 100
    with pytest.raises(NotFoundError):
        lake.read("t")
    with pytest.raises(SnapshotError, match="gone at 2"):
        lake.read("t", 2)


@pytest.mark.parametrize("bad", ["yesterday", True, 1.5, "2026-13-01"])
def test_what_is_no_snapshot_is_an_error(lake: Lake, bad: Any) -> None:
    make(lake)
    with pytest.raises(InvalidInputError):
        lake.read("t", bad)


# --- encryption and object stores ---


def mixed_work(lake: Lake) -> None:
    """Inserts, deletes and updates from both sides."""
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "name": "varchar", "list": "struct(x int32)[]"})
        tx.append(
            "t", pa.table({"id": range(100), "name": ["secret words"] * 100, "list": [[{"x": 1}]] * 100})
        )
    with lake.transaction() as tx:
        tx.delete("t", "id < 20")
    with lake.transaction() as tx:
        tx.delete("t", "id < 40")
        tx.update("t", {"name": "name || '!'"}, "id > 80")
    session = lake.duckdb()
    session.execute("INSERT INTO t SELECT 1000 + i, 'theirs', NULL FROM range(50) r(i)")
    session.execute("DELETE FROM t WHERE id BETWEEN 1010 AND 1030")
    session.execute("UPDATE t SET name = 'both' WHERE id BETWEEN 50 AND 65")
    session.close()
    with lake.transaction() as tx:
        tx.delete("t", "id BETWEEN 55 AND 1005")


def judge_all_snapshots(lake: Lake) -> None:
    session = lake.duckdb()
    for snapshot in lake.snapshots():
        if snapshot.id == 0:
            continue
        ours = lake.read("t", snapshot.id, hidden=["rowid"]).to_pylist()
        theirs = session.execute(f"SELECT rowid, id, name FROM t AT (VERSION => {snapshot.id})").fetchall()
        assert sorted((r["rowid"], r["id"], r["name"]) for r in ours) == sorted(theirs)


def test_files_of_an_encrypted_lake_need_their_own_keys(new_database: str, tmp_path: Path) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=True)
    mixed_work(lake)
    judge_all_snapshots(lake)
    files = list((tmp_path / "data").rglob("*.parquet"))
    assert len(files) >= 6
    for file in files:
        content = file.read_bytes()
        assert content[-4:] == b"PARE"
        assert b"secret words" not in content
        assert "=" not in str(file.relative_to(tmp_path / "data"))
        with pytest.raises((OSError, pa.ArrowException)):
            pq.read_table(file)
    rows = catalog_rows(lake.dsn, "ducklake_data_file") + catalog_rows(lake.dsn, "ducklake_delete_file")
    keys = [row["encryption_key"] for row in rows]
    assert all(len(base64.b64decode(k)) == 16 for k in keys)
    ours = [row["encryption_key"] for row in rows if row["begin_snapshot"] in (1, 2, 3)]
    assert len(ours) == len(set(ours))
    with psycopg.connect(lake.dsn) as connection:
        wrong = base64.b64encode(b"0" * 16).decode()
        connection.execute("UPDATE ducklake_data_file SET encryption_key = %s", (wrong,))
    with pytest.raises(StorageError) as caught:
        lake.read("t")
    assert not any(key in str(caught.value) for key in [*keys, wrong])


def s3_options(s3: S3Server, **changes: Any) -> StorageOptions:
    known: dict[str, Any] = {
        "s3_endpoint": s3.endpoint,
        "s3_access_key_id": s3.access_key,
        "s3_secret_access_key": s3.secret_key,
        **changes,
    }
    return StorageOptions(**known)


@pytest.mark.s3
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_lake_on_s3(new_database: str, s3: S3Server, encrypted: bool) -> None:
    path = f"s3://{s3.bucket}/lakes/{'e' if encrypted else 'p'}"
    lake = Lake.open(new_database, data_path=path, storage=s3_options(s3), encrypted=encrypted)
    mixed_work(lake)
    judge_all_snapshots(lake)
    with lake.transaction() as tx:
        tx.create_table("p", {"id": "int64", "region": "varchar"}, partition_by=["region", "bucket(3, id)"])
        tx.append("p", pa.table({"id": range(60), "region": [f"r {i % 2}/é" for i in range(60)]}))
    assert lake.duckdb().execute("SELECT count(*) FROM p WHERE region = 'r 1/é'").fetchone() == (30,)
    assert lake.read("p", where="region = 'r 1/é'").num_rows == 30


@pytest.mark.s3
def test_wrong_s3_credentials_are_said_without_showing_them(new_database: str, s3: S3Server) -> None:
    wrong = s3_options(s3, s3_secret_access_key="wrong-secret-0123456789")
    lake = Lake.open(new_database, data_path=f"s3://{s3.bucket}/denied", storage=wrong)
    with pytest.raises(StorageError) as caught:
        make(lake)
    text = f"{caught.value} {caught.value.as_dict()}"
    assert "wrong-secret" not in text
    assert s3.secret_key not in text
    assert len(lake.snapshots()) == 1


# --- data that does not fit ---

BAD_DATA = [
    ({"id": [1, None]}, "NULL"),
    ({"id": [1], "price": [Decimal("123456789.12")]}, "price"),
    ({"id": [1], "small": [300]}, "small"),
    ({"id": [1], "small": ["x"]}, "small"),
    ({"id": [1], "nosuch": [1]}, "nosuch"),
    ({"ID": [1], "id": [1]}, "twice"),
    ({"id": ["abc"]}, "id"),
    ({"id": [2**63 - 1], "day": [5]}, "day"),
    ({"name": ["no id"]}, "id"),
]


@pytest.mark.parametrize(("data", "word"), BAD_DATA, ids=[w + str(i) for i, (_, w) in enumerate(BAD_DATA)])
@pytest.mark.parametrize("times", [1, 50], ids=["inlined", "file"])
def test_data_that_does_not_fit_is_refused_by_name(
    lake: Lake, data: dict[str, Any], word: str, times: int
) -> None:
    with lake.transaction() as tx:
        tx.create_table(
            "t",
            {"id": "int64", "name": "varchar", "price": "decimal(8,2)", "small": "uint8", "day": "date"},
            not_null=["id"],
        )
    rows = pa.table({name: values * times for name, values in data.items()})
    with pytest.raises(InvalidInputError, match=word), lake.transaction() as tx:
        tx.append("t", rows)
    assert lake.read("t").num_rows == 0
    assert len(lake.snapshots()) == 2


def test_an_update_to_null_in_not_null_is_refused(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "small": "uint8"}, not_null=["id"])
        tx.append("t", pa.table({"id": range(30), "small": range(30)}))
    for change in ({"id": "NULL"}, {"small": "small + 250"}, {"small": "nosuch"}, {"id": "id +"}):
        with pytest.raises(InvalidInputError), lake.transaction() as tx:
            tx.update("t", change)
    with pytest.raises(NotFoundError, match="no column"), lake.transaction() as tx:
        tx.update("t", {"other": 1})


@pytest.mark.parametrize(
    "where", ["id =", "nosuch = 1", "id = 1; DROP TABLE t", "(SELECT 1)", "id; --", "1 = 1) OR ("]
)
def test_a_condition_that_is_none_is_refused(lake: Lake, where: str) -> None:
    make(lake)
    with pytest.raises(HeadwaterError), lake.transaction() as tx:
        tx.delete("t", where)
    assert lake.read("t").num_rows == 100


@pytest.mark.parametrize(("text", "size"), [("512MB", "512000000"), ("1GiB", str(1 << 30)), (100, "100")])
def test_sizes_are_read_as_duckdb_reads_them(text: Any, size: str) -> None:
    assert parse_size(text) == size


def test_large_appends_are_split_at_the_target_file_size(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "name": "varchar"})
        tx.set_option("target_file_size", "100KB")
    table = numbers(0, 20_000)
    with lake.transaction() as tx:
        tx.append("t", table)
    assert 3 <= len(lake.scan("t").files) <= 10
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1000))
    with lake.transaction() as tx:
        assert tx.append("t", reader) == 20_000
    assert lake.duckdb().execute("SELECT count(*), count(DISTINCT rowid) FROM t").fetchone() == (
        40_000,
        40_000,
    )


def test_an_unknown_codec_is_a_warning_and_snappy(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    make(lake, rows=0)
    for codec, stored in [
        ("zstd", "ZSTD"),
        ("nonsense", "SNAPPY"),
        ("none", "UNCOMPRESSED"),
        (None, "SNAPPY"),
    ]:
        with lake.transaction(compression=codec) as tx:
            tx.append("t", numbers(0, 50))
        newest = max(Path(lake.data_path).rglob("*.parquet"), key=lambda p: p.stat().st_mtime_ns)
        assert pq.read_metadata(newest).row_group(0).column(0).compression == stored
    assert "nonsense" in caplog.text


def test_floats_that_became_doubles_are_still_found(lake: Lake) -> None:
    """DuckDB 1.5.5 compares them as floats inside files and loses rows; we do not."""
    with lake.transaction() as tx:
        tx.create_table("t", {"f": "float32"})
        tx.append("t", pa.table({"f": [1.1] * 20}))
    with lake.transaction() as tx:
        tx.widen_column("t", "f", "float64")
    assert lake.read("t", where="f > 1.1000000001").num_rows == 20
    assert lake.read("t", where="f = 1.1").num_rows == 0
    assert lake.read("t", 1, where="f = 1.1::FLOAT").num_rows == 20


def test_duckdb_finds_the_nan_of_a_file_that_is_ours(lake):
    kinds = pa.schema([("x", pa.float64()), ("l", pa.list_(pa.float32()))])
    nan = float("nan")
    rows = pa.table({"x": [1.0, nan, None] * 10, "l": [[nan, 2.0], [], None] * 10}, kinds)
    with lake.transaction() as tx:
        tx.create_table("t", kinds)
        tx.append("t", rows)
    con = duck(lake.dsn)
    # NaN is greater than every number.
    assert con.execute("SELECT count(*) FROM t WHERE x > 100").fetchone() == (10,)
    assert con.execute("SELECT count(*) FROM t WHERE x < 1").fetchone() == (0,)
    assert con.execute("SELECT count(*) FROM t WHERE x = 1").fetchone() == (10,)
    assert con.execute("SELECT count(*), min(x) FROM t WHERE x IS NOT NULL").fetchone() == (20, 1.0)
    con.close()
