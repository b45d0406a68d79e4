"""Checks of the catalog's own rows: what DuckDB or the next commit would trip over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from headwater.errors import CatalogError
from headwater.lake.format.changes import TOKENS, read_changes
from headwater.lake.health.findings import CatalogView, Finding, finding

Check = Callable[[CatalogView], Iterator[Finding]]


def doubled_delete_files(catalog: CatalogView) -> Iterator[Finding]:
    """At most one live delete file per data file."""
    rows = catalog.rows(
        "SELECT d.table_id, d.data_file_id, count(*), bool_or(f.end_snapshot IS NULL) "
        "FROM {ducklake_delete_file} d LEFT JOIN {ducklake_data_file} f USING (data_file_id) "
        "WHERE d.end_snapshot IS NULL GROUP BY 1, 2 HAVING count(*) > 1 ORDER BY 1, 2"
    )
    for table_id, group in _by_table(rows):
        for current, code in ((True, "delete_files_doubled"), (False, "delete_files_doubled_history")):
            files = [f"data file {id_}: {n} delete files" for _, id_, n, live in group if live is current]
            if files:
                message = f"{len(files)} data file(s) have more than one live delete file"
                yield finding(code, catalog.name(table_id), message, files)


def readable_changes(catalog: CatalogView) -> Iterator[Finding]:
    """Every snapshot says what it changed in words that DuckDB knows."""
    bad = []
    with catalog.stream("SELECT snapshot_id, changes_made FROM {ducklake_snapshot_changes}") as rows:
        for snapshot_id, text in rows:
            if text is not None and not _is_readable(text):
                bad.append(f"snapshot {snapshot_id}: {text!r}")
    if bad:
        yield finding(
            "snapshot_changes", None, f"{len(bad)} snapshot(s) with an unreadable changes_made", bad
        )


def _is_readable(text: str) -> bool:
    try:
        changes = read_changes(text)
    except CatalogError:
        return False
    return bool(changes) and all(change.token in TOKENS for change in changes)


_COUNTERS = """
SELECT s.snapshot_id, s.next_catalog_id, s.next_file_id,
  (SELECT max(id) FROM (SELECT max(schema_id) AS id FROM {ducklake_schema}
    UNION ALL SELECT max(table_id) FROM {ducklake_table} UNION ALL SELECT max(view_id) FROM {ducklake_view}
    UNION ALL SELECT max(macro_id) FROM {ducklake_macro}
    UNION ALL SELECT max(partition_id) FROM {ducklake_partition_info}
    UNION ALL SELECT max(sort_id) FROM {ducklake_sort_info}) c),
  (SELECT max(id) FROM (SELECT max(data_file_id) AS id FROM {ducklake_data_file}
    UNION ALL SELECT max(delete_file_id) FROM {ducklake_delete_file}
    UNION ALL SELECT max(mapping_id) FROM {ducklake_column_mapping}) f)
FROM {ducklake_snapshot} s ORDER BY s.snapshot_id DESC LIMIT 1
"""


def free_counters(catalog: CatalogView) -> Iterator[Finding]:
    """The ids that the next commit takes are free."""
    for snapshot_id, next_catalog, next_file, catalog_id, file_id in catalog.rows(_COUNTERS):
        taken = [
            f"{counter} is {following}, and {largest} is in use"
            for counter, following, largest in (
                ("next_catalog_id", next_catalog, catalog_id),
                ("next_file_id", next_file, file_id),
            )
            if largest is not None and largest >= following
        ]
        if taken:
            message = f"snapshot {snapshot_id}: {'; '.join(taken)}"
            yield finding("snapshot_counters", None, message, taken)


def tables_have_columns(catalog: CatalogView) -> Iterator[Finding]:
    """A table has at least one column, and each says whether it may be NULL."""
    rows = catalog.rows(
        "SELECT table_id FROM {ducklake_table} t WHERE end_snapshot IS NULL AND NOT EXISTS (SELECT FROM "
        "{ducklake_column} c WHERE c.table_id = t.table_id AND c.end_snapshot IS NULL) ORDER BY 1"
    )
    for (table_id,) in rows:
        yield finding("table_without_columns", catalog.name(table_id), "the table has no columns")
    rows = catalog.rows(
        "SELECT table_id, column_name FROM {ducklake_column} "
        "WHERE nulls_allowed IS NULL AND end_snapshot IS NULL ORDER BY 1, column_order"
    )
    for table_id, group in _by_table(rows):
        columns = [name for _, name in group]
        message = f"{len(columns)} column(s) say neither NULL nor NOT NULL"
        yield finding("column_nullability", catalog.name(table_id), message, columns)


def views_have_aliases(catalog: CatalogView) -> Iterator[Finding]:
    """A view's column_aliases may be empty, but not NULL."""
    rows = catalog.rows(
        "SELECT view_name FROM {ducklake_view} WHERE column_aliases IS NULL AND end_snapshot IS NULL"
    )
    if rows:
        names = [name for (name,) in rows]
        yield finding("view_aliases", None, f"{len(names)} view(s) without column_aliases", names)


def tables_have_versions(catalog: CatalogView) -> Iterator[Finding]:
    """Each table has a row that says since when its schema is what it is."""
    rows = catalog.rows(
        "SELECT DISTINCT table_id FROM {ducklake_table} t WHERE end_snapshot IS NULL AND NOT EXISTS "
        "(SELECT FROM {ducklake_schema_versions} v WHERE v.table_id = t.table_id) ORDER BY 1"
    )
    for (table_id,) in rows:
        yield finding("schema_version_missing", catalog.name(table_id), "the table has no schema version")


def partitioned_files_have_values(catalog: CatalogView) -> Iterator[Finding]:
    """A file that belongs to a partition spec has a value for each of its keys."""
    rows = catalog.rows(
        "SELECT f.table_id, f.data_file_id FROM {ducklake_data_file} f "
        "JOIN (SELECT partition_id, count(*) AS keys FROM {ducklake_partition_column} GROUP BY 1) c "
        "USING (partition_id) "
        "LEFT JOIN (SELECT data_file_id, count(*) AS given FROM {ducklake_file_partition_value} "
        "GROUP BY 1) v USING (data_file_id) WHERE c.keys > coalesce(v.given, 0) ORDER BY 1, 2"
    )
    for table_id, group in _by_table(rows):
        files = [f"data file {file_id}" for _, file_id in group]
        message = f"{len(files)} file(s) lack partition values"
        yield finding("partition_values_missing", catalog.name(table_id), message, files)


def files_have_keys(catalog: CatalogView) -> Iterator[Finding]:
    """In an encrypted lake every file has a key."""
    if not catalog.encrypted:
        return
    rows = catalog.rows(
        "SELECT table_id, path FROM {ducklake_data_file} WHERE encryption_key IS NULL UNION ALL "
        "SELECT table_id, path FROM {ducklake_delete_file} WHERE encryption_key IS NULL ORDER BY 1"
    )
    for table_id, group in _by_table(rows):
        files = [path for _, path in group]
        message = f"{len(files)} file(s) of an encrypted lake have no key"
        yield finding("encryption_key_missing", catalog.name(table_id), message, files)


def files_have_tables(catalog: CatalogView) -> Iterator[Finding]:
    """No file belongs to a table that never was."""
    rows = catalog.rows(
        "SELECT table_id, count(*) FROM (SELECT table_id FROM {ducklake_data_file} UNION ALL "
        "SELECT table_id FROM {ducklake_delete_file}) f WHERE NOT EXISTS "
        "(SELECT FROM {ducklake_table} t WHERE t.table_id = f.table_id) GROUP BY 1 ORDER BY 1"
    )
    for table_id, number in rows:
        message = f"{number} file(s) of a table that does not exist"
        yield finding("table_unknown", catalog.name(table_id), message, count=number)


def inlined_tables_fit(catalog: CatalogView) -> Iterator[Finding]:
    """Registered tables of inlined rows are there, and the newest can take the rows to come."""
    registered = catalog.rows(
        "SELECT i.table_id, i.table_name, to_regclass(format('%%I.%%I', %(schema)s::text, i.table_name)) "
        "IS NOT NULL, ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = "
        "to_regclass(format('%%I.%%I', %(schema)s::text, i.table_name)) AND a.attnum > 3 "
        "AND NOT a.attisdropped ORDER BY a.attnum), "
        "(SELECT max(v.begin_snapshot) FROM {ducklake_schema_versions} v WHERE v.table_id = i.table_id "
        "AND v.schema_version <= i.schema_version) "
        "FROM {ducklake_inlined_data_tables} i ORDER BY i.table_id, i.schema_version",
        schema=catalog.db.schema,
    )
    history = _column_history(catalog) if registered else {}
    for table_id, group in _by_table(registered):
        if table_id not in catalog.live:
            continue
        for _, name, there, _, _ in group:
            if not there:
                message = f"{name} is registered, but does not exist"
                yield finding("inlined_table_missing", catalog.name(table_id), message)
        _, name, there, found, since = group[-1]
        columns = history.get(table_id, [])
        today = _columns_at(columns, None)
        expected = [column for column, _ in today]
        if not there or [n.lower() for n in found] == [n.lower() for n in expected]:
            continue
        # DuckDB fills it by position, so columns that were only renamed still fit.
        before = _columns_at(columns, since)
        if len(found) == len(today) and [id_ for _, id_ in before] == [id_ for _, id_ in today]:
            continue
        message = f"{name} has the columns {', '.join(found)} instead of {', '.join(expected)}"
        code = "inlined_table_columns" if catalog.inlines(table_id) else "inlined_table_columns_unused"
        yield finding(code, catalog.name(table_id), message)


def _column_history(catalog: CatalogView) -> dict[int, list[tuple[Any, ...]]]:
    rows = catalog.rows(
        "SELECT table_id, column_name, column_id, begin_snapshot, end_snapshot FROM {ducklake_column} "
        "WHERE parent_column IS NULL ORDER BY table_id, column_order"
    )
    return {table_id: [row[1:] for row in group] for table_id, group in _by_table(rows)}


def _columns_at(history: list[tuple[Any, ...]], snapshot: int | None) -> list[tuple[str, int]]:
    """Names and ids at a snapshot; today's for None. (Expiry may have taken away some of the past.)"""
    if snapshot is None:
        return [(name, id_) for name, id_, _, end in history if end is None]
    return [
        (name, id_)
        for name, id_, begin, end in history
        if begin <= snapshot and (end is None or snapshot < end)
    ]


#: In the order in which they are shown.
CHECKS: tuple[Check, ...] = (
    doubled_delete_files,
    readable_changes,
    free_counters,
    tables_have_columns,
    views_have_aliases,
    tables_have_versions,
    partitioned_files_have_values,
    files_have_keys,
    files_have_tables,
    inlined_tables_fit,
)


def _by_table(rows: list[tuple[Any, ...]]) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    for table_id, group in groupby(rows, key=itemgetter(0)):
        yield table_id, list(group)
