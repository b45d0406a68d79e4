"""The Spark session that Headwater works with: its own, or one that the caller already has."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import IO, Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headwater.errors import SettingsError, UnsupportedError
from headwater.settings.model import SparkSettings
from headwater.spark.jvm import Jvm

#: What correct results depend on; a session that has another value is given this one.
REQUIRED: Mapping[str, str] = {
    # Columns are matched by field id, as DuckLake does it; and a file without any is an error, not NULLs.
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    # DuckDB reads Spark's default (INT96) as shifted by the session's time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    # Days before 1582 are the same days in DuckDB.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
#: What a session of ours has besides, unless the settings say otherwise.
_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "headwater",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Each column made in Python would first look for the line of the caller's code, and for a notebook.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Small parts are united also where rows are held to be stored: each becomes a file.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # Code that was compiled for one query is still there when its turn comes again. (A plan over many changes
    # of many tables has hundreds of pieces, and compiling them takes longer than running them.)
    "spark.sql.codegen.cache.maxEntries": "10000",
}
#: Lines that a JVM prints whenever Spark starts, and that say nothing.
_NOISE = (
    "WARNING: Using incubator modules",
    "WARNING: package sun.security.action not in",
    "Setting default log level",
    "To adjust logging level",
    "Using Spark's default log4j",
)
#: Loggers by which PySpark prints an exception, with all of Java's frames, that it raises as well.
_ECHOES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_MIB = 1 << 20


def open_session(settings: SparkSettings) -> SparkSession:
    """The session that the settings describe; the one this process has already, if it has one."""
    _refuse(settings.conf)
    active = SparkSession.getActiveSession() or _default_session()
    if active is not None:
        return attach_session(active)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Under spark-submit, which has said where to run and how.
        submitted = SparkSession.builder.config(map={**REQUIRED, **settings.conf})
        return (submitted.master(settings.master) if settings.master else submitted).getOrCreate()
    master = settings.master or os.environ.get("SPARK_MASTER") or "local[*]"
    conf = {**_DEFAULTS, **_for_master(master, settings.conf), **REQUIRED, **settings.conf}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for logger in _ECHOES:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)
    spark_conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(conf.items()))
    try:
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=_quiet_gateway(spark_conf), conf=spark_conf)
        return SparkSession.builder.config(conf=spark_conf).getOrCreate()
    except (RuntimeError, OSError) as error:
        raise UnsupportedError(
            "Spark could not be started.",
            detail=str(error).splitlines()[0],
            hint="It needs Java 17 or newer (JAVA_HOME): run `headwater doctor`.",
        ) from error


def _refuse(conf: Mapping[str, str]) -> None:
    """Raise for settings that would make results wrong."""
    for name, value in conf.items():
        if REQUIRED.get(name, value) == value:
            continue
        raise SettingsError(
            f"`spark.conf` sets {name} to {value!r}; Headwater needs {REQUIRED[name]!r}.",
            hint="Leave it out.",
            setting=f"spark.conf.{name}",
        )


def attach_session(spark: SparkSession) -> SparkSession:
    """Check a session that is there already, and give it the settings it lacks."""
    if not isinstance(spark, SparkSession):
        raise SettingsError(
            f"`spark` must be a SparkSession, not {type(spark).__name__}.",
            hint="Pass what SparkSession.builder.getOrCreate() returned.",
        )
    Jvm(spark)  # a session over Spark Connect is refused here
    if spark.sparkContext._jsc is None:
        raise SettingsError("The Spark session has been stopped.", hint="Start a new one.")
    for name, value in REQUIRED.items():
        if spark.conf.get(name, None) != value:
            spark.conf.set(name, value)
    return spark


def _default_session() -> SparkSession | None:
    session: Any = SparkSession._instantiatedSession
    alive = session is not None and session.sparkContext._jsc is not None
    return session if alive else None


def _for_master(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Defaults that suit where Spark runs, beside the settings that are given."""
    if not master.startswith("local"):
        return {}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // _MIB
    cores = os.cpu_count() or 1
    defaults = {
        "spark.driver.memory": f"{min(8192, max(1024, memory // 4))}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Each operator of a task takes a page, however little it holds, and a task may have dozens of them.
        "spark.buffer.pageSize": "4m",
    }
    if "spark.sql.shuffle.partitions" not in given:
        # On one machine the stages of a small refresh are mostly the overhead of their tasks.
        defaults["spark.sql.shuffle.partitions"] = str(2 * cores)
        # What is large is divided further, so that each part can be sorted in memory; small parts are united.
        defaults["spark.sql.adaptive.coalescePartitions.initialPartitionNum"] = str(32 * cores)
        defaults["spark.sql.adaptive.advisoryPartitionSizeInBytes"] = "16m"
    return defaults


def _quiet_gateway(conf: SparkConf) -> Any:
    """Start the JVM without its greetings; whatever else it says reaches standard error."""
    rules = resources.files(__package__).joinpath("log4j2.properties")
    given = conf.get("spark.driver.extraJavaOptions") or ""
    conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{rules} {given}".strip())
    read_end, write_end = os.pipe()
    try:
        gateway = launch_gateway(conf, {"stderr": write_end})  # type: ignore[no-untyped-call]
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    log = os.fdopen(read_end, errors="replace")
    threading.Thread(target=_pass_on, args=(log,), name="headwater-spark-log", daemon=True).start()
    return gateway


def _pass_on(lines: IO[str]) -> None:
    with lines:
        for line in _without_noise(lines):
            sys.stderr.write(line)


def _without_noise(lines: Iterable[str]) -> Iterable[str]:
    return (line for line in lines if not line.startswith(_NOISE))
