"""Is the lake what its catalog says it is?

    for finding in check_health(lake):
        print(finding.code, finding.table, finding.message, finding.hint)

Nothing is ever changed. The catalog is read in one transaction, so writers at work are no fault; what lies in
the store is compared with it afterwards, and what looks wrong then is asked for once more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from headwater.lake.connection import Connection
from headwater.lake.health.catalog_checks import CHECKS as CATALOG_CHECKS
from headwater.lake.health.file_checks import (
    FileCheck,
    FileReport,
    ListedFile,
    listed_files,
    locations,
    scheduled_files,
)
from headwater.lake.health.findings import PROBLEMS, CatalogView, Finding, Progress
from headwater.lake.health.statistics_checks import bounds_cover_files, row_ids_are_free, tables_have_stats
from headwater.lake.lake import Lake
from headwater.lake.options import load_options
from headwater.typedefs import TableId, TableName

CHECKS = (*CATALOG_CHECKS, tables_have_stats, row_ids_are_free, bounds_cover_files)
DEFAULT_GRACE = timedelta(days=1)
DEFAULT_SAMPLE = 100


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What was looked at, and what is wrong."""

    findings: tuple[Finding, ...]
    tables: int
    files: int
    footers: int
    """Of how many files the end was read."""
    deep: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is broken; files left behind break nothing."""
        return all(finding.severity != "fail" for finding in self.findings)


def check_health(
    lake: Lake,
    *,
    deep: bool = False,
    sample: int = DEFAULT_SAMPLE,
    grace: timedelta = DEFAULT_GRACE,
    progress: Progress | None = None,
) -> list[Finding]:
    """Everything that is wrong with the lake; see `examine`."""
    return list(examine(lake, deep=deep, sample=sample, grace=grace, progress=progress).findings)


def examine(
    lake: Lake,
    *,
    deep: bool = False,
    sample: int = DEFAULT_SAMPLE,
    grace: timedelta = DEFAULT_GRACE,
    progress: Progress | None = None,
) -> HealthReport:
    """Check the catalog, and the files against it.

    The end of `sample` files is read, with `deep` that of all, and every delete file as a whole. Files that
    nobody names count as left behind when they are older than `grace`; younger ones may be about to be
    committed.
    """
    if progress is not None:
        progress("reading the catalog", 0, None)
    findings, files, scheduled, names, tables = lake.db.read(lambda connection: _catalog(lake, connection))

    def refresh() -> tuple[set[str], set[str]]:
        def work(connection: Connection) -> tuple[set[str], set[str]]:
            view = _view(lake, connection)
            return locations(listed_files(view)), scheduled_files(view)

        return lake.db.read(work)

    report: FileReport = FileCheck(
        store=lake.store,
        data_path=lake.data_path,
        files=files,
        scheduled=scheduled,
        name=lambda table_id: names.get(table_id, f"table id {table_id}"),
        refresh=refresh,
        deep=deep,
        sample=sample,
        grace=grace,
        progress=progress,
    ).run()
    return HealthReport((*findings, *report.findings), tables, report.files, report.footers, deep)


def _catalog(
    lake: Lake, connection: Connection
) -> tuple[list[Finding], list[ListedFile], set[str], Mapping[TableId, str], int]:
    view = _view(lake, connection)
    findings = [finding for check in CHECKS for finding in check(view)]
    return findings, listed_files(view), scheduled_files(view), view.names, len(view.live)


def _view(lake: Lake, connection: Connection) -> CatalogView:
    options = load_options(lake.db, connection)
    view = CatalogView(lake.db, connection, {}, frozenset(), {}, lake.data_path, options)
    rows = view.rows(
        "SELECT t.table_id, s.schema_name, t.table_name, t.end_snapshot IS NULL, t.schema_id "
        "FROM {ducklake_table} t JOIN {ducklake_schema} s USING (schema_id) ORDER BY t.begin_snapshot"
    )
    view.names = {table_id: str(TableName(schema, name)) for table_id, schema, name, _, _ in rows}
    view.live = frozenset(table_id for table_id, _, _, live, _ in rows if live)
    view.schemas = {table_id: schema_id for table_id, _, _, _, schema_id in rows}
    return view


__all__ = ["CHECKS", "PROBLEMS", "Finding", "HealthReport", "check_health", "examine"]
