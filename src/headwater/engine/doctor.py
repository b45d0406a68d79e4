"""`headwater doctor`: is everything here that Headwater needs, does it answer, and is the lake sound?

Each check is a function that returns one line. Where a check fails, those that need it are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Literal

import duckdb

from headwater.engine.connecting import Target, open_target, resolve
from headwater.engine.headwater import Headwater
from headwater.errors import CatalogError, HeadwaterError, NotFoundError
from headwater.lake.health.check import HealthReport, examine
from headwater.lake.health.findings import Finding, Progress
from headwater.lake.health.probe import OLDEST_POSTGRESQL, server_version, try_own_schema, try_store
from headwater.settings import Settings, load_settings
from headwater.storage.duckdb_engine import extension_file

Status = Literal["ok", "warn", "fail", "skip"]

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
SPARK = "4.3"
EXTENSIONS = ("ducklake", "postgres_scanner", "httpfs")
JAVA_HINT = (
    f"Install Java {OLDEST_JAVA} or newer (Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@21), or point JAVA_HOME at one."
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    name: str
    status: Status
    message: str
    hint: str | None = None


@dataclass
class Diagnosis:
    """All lines, and what is wrong with the lake itself."""

    checks: list[Check] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return all(check.status != "fail" for check in self.checks)


def diagnose(
    config: str | Path | None = None, *, deep: bool = False, progress: Progress | None = None
) -> Diagnosis:
    """Check the machine, then the connections, then the lake. Nothing is created."""
    found = Diagnosis([check_python(), check_java(), *check_versions()])
    try:
        settings = load_settings(config)
        target = resolve(settings)
    except HeadwaterError as error:
        found.checks.append(_failed("settings", error))
        return found
    shown = "defaults (no headwater.yaml here)" if settings.file is None else str(settings.file)
    found.checks.append(Check("settings", "ok", shown))
    hw = _open(target, settings, found)
    if hw is not None:
        with hw:
            _check_lake(hw, found, deep, progress)
    return found


# -- the machine ------------------------------------------------------------------------------------


def check_python() -> Check:
    """Python is new enough."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= OLDEST_PYTHON:
        return Check("python", "ok", version)
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return Check("python", "fail", f"{version} is too old", f"Install Python {wanted} or newer.")


def check_java() -> Check:
    """The Java that Spark would start is there and new enough."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return Check("java", "fail", "no Java runtime on the PATH, and JAVA_HOME is not set", JAVA_HINT)
    origin = "JAVA_HOME" if home else "PATH"
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("java", "fail", f"{java} (from {origin}) cannot be run: {error}", JAVA_HINT)
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', shown.stderr + shown.stdout)
    if match is None:
        return Check("java", "fail", f"{java} (from {origin}) does not tell its version", JAVA_HINT)
    if int(match[2]) < OLDEST_JAVA:
        return Check("java", "fail", f"{match[1]} at {java} (from {origin}) is too old", JAVA_HINT)
    return Check("java", "ok", f"{match[1]} at {java}")


def check_versions() -> Iterator[Check]:
    """Packages that must fit each other do."""
    wrong = [
        name
        for name in EXTENSIONS
        if _version(f"duckdb-extension-{name.replace('_', '-')}") != duckdb.__version__ or not _has_file(name)
    ]
    if wrong:
        packages = " ".join(
            f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}" for name in wrong
        )
        yield Check(
            "duckdb",
            "fail",
            f"{duckdb.__version__}, but not with extensions of the same version: {', '.join(wrong)}",
            f"pip install {packages}",
        )
    else:
        yield Check("duckdb", "ok", f"{duckdb.__version__}, extensions {', '.join(EXTENSIONS)}")
    spark = _version("pyspark")
    if spark is not None and (spark == SPARK or spark.startswith(SPARK + ".")):
        yield Check("spark", "ok", f"pyspark {spark}")
    else:
        what = "pyspark is not installed" if spark is None else f"pyspark {spark}"
        yield Check(
            "spark", "fail", f"{what}; Headwater is made for {SPARK}", f"pip install pyspark~={SPARK}.0"
        )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _has_file(extension: str) -> bool:
    try:
        return extension_file(extension).exists()
    except HeadwaterError:
        return False


# -- the lake ---------------------------------------------------------------------------------------


def _open(target: Target, settings: Settings, found: Diagnosis) -> Headwater | None:
    try:
        return open_target(target, settings, create=False)
    except NotFoundError as error:
        found.checks.append(Check("catalog", "warn", error.message, "Create one with `headwater init`."))
    except HeadwaterError as error:
        found.checks.append(_failed("catalog", error))
    return None


def _check_lake(hw: Headwater, found: Diagnosis, deep: bool, progress: Progress | None) -> None:
    def tell(what: str) -> None:
        if progress is not None:
            progress(what, 0, None)

    tell("asking PostgreSQL")
    found.checks.append(_tried("postgresql", lambda: _postgresql(hw)))
    found.checks.append(_tried("own schema", lambda: _own_schema(hw)))
    tell("trying the storage")
    storage = _tried("storage", lambda: _storage(hw))
    found.checks.append(storage)
    tell("attaching the lake with DuckDB")
    found.checks.append(_tried("attach", lambda: _attach(hw)))
    if storage.status == "fail":
        found.checks.append(Check("health", "skip", "the storage does not answer"))
        return
    try:
        report = examine(hw.lake, deep=deep, progress=progress)
    except HeadwaterError as error:
        found.checks.append(_failed("health", error))
        return
    found.findings = report.findings
    found.checks.append(_health(report))


def _postgresql(hw: Headwater) -> Check:
    major, version = server_version(hw.lake.db)
    where = "embedded" if hw.embedded else hw.lake.db.shown
    if major < OLDEST_POSTGRESQL:
        return Check(
            "postgresql",
            "fail",
            f"{version} ({where}) is too old",
            f"Use PostgreSQL {OLDEST_POSTGRESQL} or newer.",
        )
    return Check("postgresql", "ok", f"{version} ({where}), catalog in schema {hw.lake.metadata_schema}")


def _own_schema(hw: Headwater) -> Check:
    try_own_schema(hw.lake.db)
    return Check("own schema", "ok", "schema headwater can be written")


def _storage(hw: Headwater) -> Check:
    try_store(hw.lake.store, hw.lake.data_path)
    return Check("storage", "ok", f"written, read and deleted in {hw.lake.data_path}")


def _attach(hw: Headwater) -> Check:
    ours = hw.lake.snapshot().id
    try:
        with hw.duckdb() as session:
            row = session.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchone()
            # Loads every table and view: what is broken in one of them shows here.
            session.execute("SELECT count(*) FROM duckdb_tables()")
    except duckdb.Error as error:
        raise CatalogError(
            "DuckDB attaches the lake but cannot read its catalog.", detail=str(error).splitlines()[0]
        ) from None
    theirs = None if row is None else row[0]
    if theirs is None or theirs < ours:
        return Check("attach", "fail", f"DuckDB sees snapshot {theirs}, but {ours} is the newest")
    return Check("attach", "ok", f"DuckDB attached the lake at snapshot {theirs}")


def _health(report: HealthReport) -> Check:
    looked = f"{report.tables:,} tables, {report.files:,} files, {report.footers:,} of them read"
    if not report.deep and report.footers < report.files:
        looked += " (all with --deep)"
    faults = sum(finding.severity == "fail" for finding in report.findings)
    if faults:
        return Check("health", "fail", f"{faults} fault(s) in {looked}", "Each is explained below.")
    if report.findings:
        return Check("health", "warn", f"{len(report.findings)} remark(s) on {looked}")
    return Check("health", "ok", looked)


def _tried(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except HeadwaterError as error:
        return _failed(name, error)


def _failed(name: str, error: HeadwaterError) -> Check:
    message = error.message if not error.detail else f"{error.message} {error.detail}"
    return Check(name, "fail", message, error.hint)
