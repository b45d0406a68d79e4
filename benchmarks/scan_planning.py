"""Planning a scan over 10,000 data files, against the SQL query that lists them.

The catalog rows are made by SQL on a lake that Headwater created: 8 columns of statistics for each file, and
in the second table delete files for every fifth file and a partition value for each. A condition that one
file meets must cost much less than the list of all: the pruning happens in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

from benchmarks.environment import Environment, Place
from benchmarks.measure import Result, in_turns
from headwater.lake.lake import Lake
from headwater.lake.model import Table

FILES = 10_000
ROWS_PER_FILE = 100_000
BEST_OF = 7
TARGET = 2.0
PRUNED_TARGET = 1 / 3
COLUMNS = {
    "id": "int64",
    "customer": "int32",
    "name": "varchar",
    "city": "varchar",
    "day": "date",
    "amount": "decimal(12,2)",
    "quantity": "int32",
    "updated": "timestamp",
}
#: Least and greatest value of each column in file `n`, as the catalog holds them.
BOUNDS = {
    "id": ("(n * %(rows)s)::text", "(n * %(rows)s + %(rows)s - 1)::text"),
    "customer": ("(n %% 97)::text", "(90000 + n %% 89)::text"),
    "name": ("'Aaron ' || n %% 1000", "'Zoe ' || n %% 1000"),
    "city": ("'Aachen'", "'Zwolle'"),
    "day": ("(date '2000-01-01' + n)::text", "(date '2000-01-01' + n)::text"),
    "amount": ("((n %% 500) / 100.0)::decimal(12,2)::text", "(10000 + n %% 500)::decimal(12,2)::text"),
    "quantity": ("'1'", "(20 + n %% 7)::text"),
    "updated": (
        "(timestamp '2000-01-01 00:00:00' + n * interval '1 day')::text",
        "(timestamp '2000-01-01 23:59:59' + n * interval '1 day')::text",
    ),
}

_FILE_COLUMNS = (
    "f.data_file_id, f.path, f.path_is_relative, f.record_count, f.file_size_bytes, f.footer_size, "
    "f.row_id_start, f.begin_snapshot, f.end_snapshot, f.partition_id, f.encryption_key, f.mapping_id, "
    "f.partial_max"
)
_LIVE = "{0}.begin_snapshot <= %(at)s AND ({0}.end_snapshot IS NULL OR %(at)s < {0}.end_snapshot)"
LIST_FILES = f"SELECT {_FILE_COLUMNS} FROM ducklake_data_file f WHERE f.table_id = %(table)s AND " + (
    _LIVE.format("f")
)
LIST_FILES_WITH_DETAILS = (
    f"SELECT {_FILE_COLUMNS}, v.partition_value, d.delete_file_id, d.path, d.path_is_relative, d.format, "
    "d.delete_count, d.file_size_bytes, d.footer_size, d.encryption_key, d.begin_snapshot, d.partial_max "
    "FROM ducklake_data_file f LEFT JOIN ducklake_file_partition_value v USING (table_id, data_file_id) "
    "LEFT JOIN ducklake_delete_file d ON d.table_id = f.table_id AND d.data_file_id = f.data_file_id "
    f"AND {_LIVE.format('d')} WHERE f.table_id = %(table)s AND {_LIVE.format('f')}"
)


def _fill(place: Place, table: Table, first_id: int, *, detailed: bool) -> None:
    """Rows of 10,000 files, as if each had come with a snapshot of its own, long ago."""
    values = {
        "table": table.id,
        "first": first_id,
        "files": FILES,
        "rows": ROWS_PER_FILE,
        "partition": table.partition.id if table.partition else None,
    }
    with psycopg.connect(place.dsn) as connection:
        at = connection.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchall()[0][0]
        values["at"] = at
        connection.execute(
            "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, "
            "file_format, record_count, file_size_bytes, footer_size, row_id_start, partition_id) "
            "SELECT %(first)s + n, %(table)s, %(at)s, 'ducklake-' || gen_random_uuid() || '.parquet', true, "
            "'parquet', %(rows)s, 4000000 + n * 7 %% 100000, 2000 + n %% 100, n * %(rows)s::bigint, "
            "%(partition)s::bigint FROM generate_series(0, %(files)s - 1) n",
            values,
        )
        bounds = ", ".join("({}, {}, {})".format(column.id, *BOUNDS[column.name]) for column in table.columns)
        connection.execute(
            # In the order of commits: all columns of a file, then the next file.
            "INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, "
            "value_count, null_count, min_value, max_value) "
            "SELECT %(first)s + n, %(table)s, b.id, 500000 + n %% 1000, %(rows)s, 0, b.low, b.high "
            "FROM generate_series(0, %(files)s - 1) n, "
            f"LATERAL (VALUES {bounds}) b (id, low, high) ORDER BY n",
            values,
        )
        if detailed:
            connection.execute(
                "INSERT INTO ducklake_file_partition_value (data_file_id, table_id, partition_key_index, "
                "partition_value) SELECT %(first)s + n, %(table)s, 0, (date '2000-01-01' + n)::text "
                "FROM generate_series(0, %(files)s - 1) n",
                values,
            )
            connection.execute(
                "INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, "
                "path, path_is_relative, format, delete_count, file_size_bytes, footer_size) "
                "SELECT %(first)s + %(files)s + n, %(table)s, %(at)s, %(first)s + n * 5, "
                "'ducklake-' || gen_random_uuid() || '-delete.parquet', true, 'parquet', 17, 900, 300 "
                "FROM generate_series(0, %(files)s / 5 - 1) n",
                values,
            )
        connection.execute("UPDATE ducklake_snapshot SET next_file_id = %s WHERE snapshot_id = %s", (
            first_id + 2 * FILES, at,
        ))  # fmt: skip


def _prepare(environment: Environment) -> tuple[Place, Lake]:
    place = environment.place()
    lake = place.lake()
    with lake.transaction() as tx:
        tx.create_table("plain", COLUMNS)
        tx.create_table("detailed", COLUMNS, partition_by=["day"])
    _fill(place, lake.table("plain"), 0, detailed=False)
    _fill(place, lake.table("detailed"), 2 * FILES, detailed=True)
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        # What PostgreSQL does by itself a minute later, in the middle of the measurement.
        connection.execute("VACUUM ANALYZE")
    return place, lake


def run(environment: Environment) -> Iterator[Result]:
    place, lake = _prepare(environment)
    rounds = environment.rounds(15)
    yield from _measured(place, lake, "plain", LIST_FILES, rounds)
    yield from _measured(place, lake, "detailed", LIST_FILES_WITH_DETAILS, rounds)
    yield from _by_partition(lake, rounds)
    lake.close()


def _measured(place: Place, lake: Lake, name: str, query: str, rounds: int) -> Iterator[Result]:
    one = f"id = {FILES // 2 * ROWS_PER_FILE + 17}"
    _check(lake, name, one)
    parameters = {"table": lake.table(name).id, "at": lake.snapshot().id}
    session = place.duckdb()
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        everything, pruned, listed, theirs = in_turns(
            [
                lambda: lake.scan(name),
                lambda: lake.scan(name, where=one),
                lambda: connection.execute(query.encode(), parameters).fetchall(),
                lambda: session.execute("FROM ducklake_list_files('lake', ?)", [name]).fetchall(),
            ],
            rounds,
            warm_up=3,
            best_of=BEST_OF,
        )
    session.close()
    what = f"plan a scan of {FILES:,} files"
    if name == "detailed":
        what += ", with deletes and partition values"
    yield Result(what, "the SQL query that lists them", everything, listed, TARGET)
    yield Result(f"{what}: one file left", "our own plan of all", pruned, everything, PRUNED_TARGET)
    yield Result(what, "DuckDB, ducklake_list_files", everything, theirs)


def _by_partition(lake: Lake, rounds: int) -> Iterator[Result]:
    where = "day = DATE '2010-03-04'"
    _check(lake, "detailed", where)
    pruned, alone = in_turns(
        [lambda: lake.scan("detailed", where=where), lambda: lake.scan("detailed")], rounds, best_of=BEST_OF
    )
    yield Result(
        f"plan a scan of {FILES:,} files: one left, by its partition value",
        "our own plan of all",
        pruned,
        alone,
        PRUNED_TARGET,
    )


def _check(lake: Lake, name: str, where: str) -> None:
    """What is measured must be right: all files, and one of them."""
    everything, one = lake.scan(name), lake.scan(name, where=where)
    deletes = sum(len(scan.deletes) for scan in everything.files)
    assert len(everything.files) == FILES
    assert deletes == (FILES // 5 if name == "detailed" else 0)
    assert len(one.files) == 1
