"""A sound lake has no findings, whoever wrote it; every fault is found and says what to do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import conninfo, sql

from headwater.lake.embedded import EmbeddedServer
from headwater.lake.health.check import PROBLEMS, Finding, check_health, examine
from headwater.lake.lake import Lake
from tests.servers import S3Server
from tests.storage.places import s3_options
from tests.support import create_database, duck

NO_GRACE = timedelta(seconds=-5)  # what was written just now counts as old


def fill(lake: Lake) -> None:
    """Files, delete files, inlined rows and deletes, partitions, a view."""
    numbers = pa.table({"id": pa.array(range(1000), pa.int64()), "name": [f"n{i}" for i in range(1000)]})
    with lake.transaction() as tx:
        tx.create_table("t", numbers.schema)
        tx.create_table("p", {"id": "int64", "k": "varchar"}, partition_by=["k"])
        tx.create_view("v", "SELECT id FROM main.t")
        tx.append("t", numbers)
        tx.append("p", [{"id": i, "k": f"k{i % 3}"} for i in range(60)])
    with lake.transaction() as tx:
        tx.delete("t", "id < 100")
    with lake.transaction() as tx:
        tx.delete("t", "id = 500")
        tx.append("t", [{"id": 2000, "name": "small"}])


@pytest.fixture(scope="module")
def filled(pg_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The database of a filled lake that nobody is connected to, and its files."""
    dsn, data = create_database(pg_server.dsn), tmp_path_factory.mktemp("health")
    lake = Lake.open(dsn, data_path=data)
    fill(lake)
    lake.close()
    return dsn, data


@pytest.fixture
def catalog(filled: tuple[str, Path], pg_server: EmbeddedServer) -> Iterator[Lake]:
    """A copy of the filled lake's catalog; the files are shared and not to be changed."""
    name = f"copy_{time.monotonic_ns()}"
    template = str(conninfo.conninfo_to_dict(filled[0])["dbname"])
    with psycopg.connect(pg_server.dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
    lake = Lake.open(conninfo.make_conninfo(pg_server.dsn, dbname=name))
    yield lake
    lake.close()


def damage(lake: Lake, *statements: str) -> None:
    with psycopg.connect(lake.dsn) as connection:
        for statement in statements:
            connection.execute(statement)


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_a_sound_lake_has_no_findings(catalog: Lake) -> None:
    report = examine(catalog, deep=True, grace=NO_GRACE)
    assert report.findings == ()
    assert (report.tables, report.files, report.footers) == (2, 5, 5)
    assert report.ok


def test_a_lake_that_duckdb_wrote_has_no_findings(new_database: str, tmp_path: Path) -> None:
    session = duck(new_database, tmp_path)
    for statement in (
        "CREATE TABLE t (a INT, b VARCHAR, l INT[], s STRUCT(x INT), f DOUBLE)",
        "INSERT INTO t SELECT i, 'b' || i, [i], {x: i}, i FROM range(500) r(i)",
        "INSERT INTO t VALUES (1, NULL, NULL, NULL, 'nan')",
        "DELETE FROM t WHERE a < 50",
        "DELETE FROM t WHERE a = 60",
        "UPDATE t SET b = 'u' WHERE a > 400",
        "ALTER TABLE t ADD COLUMN z INT DEFAULT 1",
        "INSERT INTO t (a) VALUES (7)",
        "ALTER TABLE t RENAME COLUMN b TO c",
        "CALL ducklake_flush_inlined_data('lake')",
        "CREATE TABLE p (k VARCHAR, a INT)",
        "ALTER TABLE p SET PARTITIONED BY (k)",
        "INSERT INTO p SELECT 'k' || i % 3, i FROM range(90) r(i)",
        "CALL ducklake_merge_adjacent_files('lake')",
        "DROP TABLE p",
        "CALL ducklake_expire_snapshots('lake', versions => [2, 3])",
    ):
        session.execute(statement)
    lake = Lake.open(new_database)
    assert check_health(lake, deep=True, grace=NO_GRACE) == []
    lake.close()
    session.close()


def test_an_encrypted_lake_is_checked_to_the_last_row(new_database: str, tmp_path: Path) -> None:
    lake = Lake.open(new_database, data_path=tmp_path / "data", encrypted=True)
    fill(lake)
    assert examine(lake, deep=True, grace=NO_GRACE).findings == ()
    damage(lake, "UPDATE ducklake_data_file SET record_count = 1001 WHERE record_count = 1000")
    assert codes(check_health(lake)) == []
    assert codes(check_health(lake, deep=True)) == ["record_count"]
    damage(lake, "UPDATE ducklake_data_file SET encryption_key = NULL WHERE record_count = 1001")
    assert "encryption_key_missing" in codes(check_health(lake))
    lake.close()


DOUBLED = """
INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,
  path_is_relative, format, delete_count, file_size_bytes, footer_size)
SELECT delete_file_id + 1000, table_id, begin_snapshot, data_file_id, path, path_is_relative, format,
  delete_count, file_size_bytes, footer_size FROM ducklake_delete_file
"""
RAISED = "UPDATE ducklake_snapshot SET next_file_id = 100000"
TABLE = "(SELECT table_id FROM ducklake_table WHERE table_name = 't')"


@pytest.mark.parametrize(
    ("code", "statements", "table"),
    [
        ("delete_files_doubled", [DOUBLED, RAISED], "main.t"),
        ("snapshot_changes", ["UPDATE ducklake_snapshot_changes SET changes_made = 'made_coffee:1'"], None),
        ("snapshot_changes", ["UPDATE ducklake_snapshot_changes SET changes_made = ''"], None),
        ("snapshot_changes", ["UPDATE ducklake_snapshot_changes SET changes_made = 'nonsense'"], None),
        ("snapshot_counters", ["UPDATE ducklake_snapshot SET next_file_id = 1"], None),
        ("snapshot_counters", ["UPDATE ducklake_snapshot SET next_catalog_id = 1"], None),
        ("table_without_columns", [f"DELETE FROM ducklake_column WHERE table_id = {TABLE}"], "main.t"),
        ("column_nullability", ["UPDATE ducklake_column SET nulls_allowed = NULL"], "main.t"),
        ("view_aliases", ["UPDATE ducklake_view SET column_aliases = NULL"], None),
        ("schema_version_missing", ["DELETE FROM ducklake_schema_versions"], "main.t"),
        ("table_stats_missing", ["DELETE FROM ducklake_table_stats"], "main.t"),
        ("row_ids_reused", ["UPDATE ducklake_table_stats SET next_row_id = 999"], "main.t"),
        ("row_ids_reused", ["UPDATE ducklake_table_stats SET next_row_id = 1000"], "main.t"),  # inlined
        ("column_bounds", ["UPDATE ducklake_table_column_stats SET max_value = '17'"], "main.t"),
        (
            "column_bounds",
            ["UPDATE ducklake_table_column_stats SET min_value = NULL, max_value = NULL"],
            "main.t",
        ),
        (
            "column_bounds",
            [
                "UPDATE ducklake_table_column_stats SET contains_null = false",
                "UPDATE ducklake_file_column_stats SET null_count = 1",
            ],
            "main.t",
        ),
        ("partition_values_missing", ["DELETE FROM ducklake_file_partition_value"], "main.p"),
        ("table_unknown", ["UPDATE ducklake_data_file SET table_id = 99 WHERE record_count = 20"], None),
        ("inlined_table_missing", ["DROP TABLE {inlined}"], "main.t"),
        ("inlined_table_columns", ["ALTER TABLE {inlined} DROP COLUMN name"], "main.t"),
        (
            "inlined_table_columns_unused",
            [
                "ALTER TABLE {inlined} DROP COLUMN name",
                "INSERT INTO ducklake_metadata (key, value) VALUES ('data_inlining_row_limit', '0')",
            ],
            "main.t",
        ),
        ("file_size", ["UPDATE ducklake_data_file SET file_size_bytes = 5"], "main.t"),
        ("record_count", ["UPDATE ducklake_data_file SET record_count = 5"], "main.t"),
        ("footer_size", ["UPDATE ducklake_data_file SET footer_size = 5"], "main.t"),
        ("delete_count", ["UPDATE ducklake_delete_file SET delete_count = 5"], "main.t"),
        ("file_missing", ["UPDATE ducklake_data_file SET path = 'gone.parquet'"], "main.t"),
        ("file_missing", ["UPDATE ducklake_delete_file SET path = 'gone.parquet'"], "main.t"),
        (
            "file_missing",
            ["UPDATE ducklake_data_file SET path = '/elsewhere/x.parquet', path_is_relative = false"],
            "main.t",
        ),
        ("file_orphaned", ["DELETE FROM ducklake_data_file"], None),
    ],
)
def test_every_fault_is_found(catalog: Lake, code: str, statements: list[str], table: str | None) -> None:
    with psycopg.connect(catalog.dsn) as connection:
        row = connection.execute(
            f"SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = {TABLE}"
        ).fetchone()
        assert row is not None
    damage(catalog, *(statement.replace("{inlined}", row[0]) for statement in statements))
    found = [f for f in check_health(catalog, grace=NO_GRACE) if f.code == code]
    assert found, code
    assert table is None or table in [f.table for f in found]
    for finding in found:
        assert finding.severity == PROBLEMS[code].severity
        assert finding.message
        assert finding.meaning
        assert finding.hint
        assert finding.count >= 1


def test_every_kind_of_problem_has_a_test() -> None:
    (mark,) = [m for m in test_every_fault_is_found.pytestmark if m.name == "parametrize"]  # type: ignore[attr-defined]
    tested = {case[0] for case in mark.args[1]}
    elsewhere = {
        "encryption_key_missing",
        "column_bounds_history",
        "file_unreadable",
        "delete_positions",
        "delete_files_doubled_history",
    }
    assert tested | elsewhere == set(PROBLEMS)


def test_bounds_that_only_older_snapshots_need_are_a_warning(lake: Lake) -> None:
    fill(lake)
    with lake.transaction() as tx:
        tx.delete("t", "id < 2000")
    damage(lake, "UPDATE ducklake_table_column_stats SET min_value = '1999' WHERE min_value = '0'")
    (finding,) = [f for f in check_health(lake) if f.table == "main.t"]
    assert (finding.code, finding.severity) == ("column_bounds_history", "warn")
    assert "id" in finding.examples[0]


def data_file(lake: Lake) -> Path:
    return Path(lake.scan("t").files[0].file.path)


def test_a_file_that_was_cut_off_is_found_without_reading_it(lake: Lake) -> None:
    fill(lake)
    path = data_file(lake)
    path.write_bytes(path.read_bytes()[:-100])
    (finding,) = check_health(lake, sample=0)
    assert (finding.code, finding.table, finding.count) == ("file_size", "main.t", 1)
    assert str(path) in finding.examples[0]


@pytest.mark.parametrize("cut", [4, 12])
def test_a_file_whose_end_is_damaged_is_found(lake: Lake, cut: int) -> None:
    fill(lake)
    path = data_file(lake)
    content = path.read_bytes()
    path.write_bytes(content[:-cut] + b"\xff" * cut)
    assert codes(check_health(lake)) == ["file_unreadable"]


@pytest.mark.parametrize("positions", [[3, 2], [5, 5], [1, 1000]])
def test_delete_positions_that_cannot_be_are_found_by_a_deep_check(lake: Lake, positions: list[int]) -> None:
    fill(lake)
    path = Path(lake.scan("t").files[0].deletes[0].path)
    table = pq.read_table(path).slice(0, 2)
    fields = list(table.schema.remove_metadata())
    wrong = [pa.array([1, 1]) if f.type == pa.int64() else pa.array(["", ""]) for f in fields]
    wrong[1] = pa.array(positions)
    pq.write_table(pa.Table.from_arrays(wrong, schema=table.schema), path)
    size = path.stat().st_size
    damage(
        lake,
        f"UPDATE ducklake_delete_file SET file_size_bytes = {size}, footer_size = NULL, delete_count = 2",
    )
    assert codes(check_health(lake)) == []
    assert codes(check_health(lake, deep=True)) == ["delete_positions"]


def test_files_left_behind_are_named_once_they_are_old(lake: Lake, tmp_path: Path) -> None:
    fill(lake)
    left = tmp_path / "data" / "main" / "t" / "ducklake-left.parquet"
    left.write_bytes(b"x")
    (tmp_path / "data" / "notes.txt").write_text("not ours")
    assert check_health(lake) == []
    os.utime(left, (0, 0))
    os.utime(tmp_path / "data" / "notes.txt", (0, 0))
    (finding,) = check_health(lake)
    assert (finding.code, finding.severity, finding.examples) == ("file_orphaned", "warn", (str(left),))


def test_files_scheduled_for_deletion_are_not_left_behind(lake: Lake) -> None:
    fill(lake)
    with lake.transaction() as tx:
        tx.delete("t", "id < 200")  # replaces the delete file
    with psycopg.connect(lake.dsn) as connection:
        row = connection.execute("SELECT count(*) FROM ducklake_files_scheduled_for_deletion").fetchone()
    assert row == (1,)
    assert check_health(lake, grace=NO_GRACE) == []


def test_many_faults_of_one_kind_are_one_finding_with_a_few_examples(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("p", {"id": "int64", "k": "int64"}, partition_by=["k"])
        tx.append("p", pa.table({"id": range(30), "k": range(30)}))
    for path in Path(lake.data_path).rglob("*.parquet"):
        path.unlink()
    (finding,) = check_health(lake)
    assert (finding.code, finding.count, len(finding.examples)) == ("file_missing", 30, 5)


def test_only_a_sample_of_the_footers_is_read_unless_deep(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("p", {"id": "int64", "k": "int64"}, partition_by=["k"])
        tx.append("p", pa.table({"id": range(30), "k": range(30)}))
    assert examine(lake, sample=7).footers == 7
    assert examine(lake, sample=7, deep=True).footers == 30


def test_progress_is_told(lake: Lake) -> None:
    fill(lake)
    told: list[str] = []
    examine(lake, progress=lambda what, done, total: told.append(what))
    assert told[0] == "reading the catalog"
    assert "reading footers" in told


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        ("schema_version_missing", f"DELETE FROM ducklake_schema_versions WHERE table_id = {TABLE}"),
        ("inlined_table_columns", "ALTER TABLE {inlined} DROP COLUMN name"),
    ],
)
def test_a_rename_and_back_heals_what_its_hint_says(lake: Lake, code: str, statement: str) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "name": "varchar"})
    with psycopg.connect(lake.dsn) as connection:
        row = connection.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchone()
        assert row is not None
    damage(lake, statement.replace("{inlined}", row[0]))
    assert code in codes(check_health(lake))
    for old, new in (("id", "id2"), ("id2", "id")):
        with lake.transaction() as tx:
            tx.rename_column("t", old, new)
    assert check_health(lake) == []


def test_a_table_written_anew_heals_doubled_deletes(lake: Lake) -> None:
    fill(lake)
    damage(lake, DOUBLED, RAISED)
    assert codes(check_health(lake)) == ["delete_files_doubled"]
    rows = lake.read("t")
    with lake.transaction() as tx:
        tx.truncate("t")
        tx.append("t", rows)
    assert lake.read("t").num_rows == rows.num_rows == 900
    assert codes(check_health(lake)) == ["delete_files_doubled_history"]


def test_duckdb_flushing_rows_from_before_a_type_change_is_noticed(new_database: str, tmp_path: Path) -> None:
    """DuckDB 1.5.5 then loses the column's bounds, and its filters miss rows after the next insert."""
    session = duck(new_database, tmp_path)
    for statement in (
        "CREATE TABLE t (a INT)",
        "INSERT INTO t SELECT i FROM range(100) r(i)",
        "INSERT INTO t VALUES (5000)",
        "ALTER TABLE t ALTER COLUMN a SET DATA TYPE BIGINT",
        "INSERT INTO t VALUES (10000000000)",
        "CALL ducklake_flush_inlined_data('lake')",
    ):
        session.execute(statement)
    lake = Lake.open(new_database)
    assert codes(check_health(lake)) == ["column_bounds"]
    lake.close()
    session.close()


@pytest.mark.s3
def test_a_lake_in_an_object_store_is_checked_alike(new_database: str, s3: S3Server) -> None:
    data_path = f"s3://{s3.bucket}/health-{time.monotonic_ns()}"
    lake = Lake.open(new_database, data_path=data_path, storage=s3_options(s3))
    fill(lake)
    report = examine(lake, deep=True, grace=NO_GRACE)
    assert report.findings == ()
    assert (report.files, report.footers) == (5, 5)
    gone = lake.scan("t").files[0].file.path
    lake.store.delete(gone)
    lake.store.write(f"{data_path}/main/t/left.parquet", b"x")
    found = check_health(lake, grace=NO_GRACE)
    assert [(f.code, f.examples) for f in found] == [
        ("file_missing", (gone,)),
        ("file_orphaned", (f"{data_path}/main/t/left.parquet",)),
    ]
    lake.close()
