"""The part of the connector that must run inside Spark's JVM.

Spark asks a scan for its files, and offers the conditions it pushed down, through a Scala interface that
Python cannot implement. The small Java classes beside this file do; Janino, which Spark ships to
compile its own generated code, compiles them when they are first needed. They run in the driver alone.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from importlib import resources
from os import cpu_count
from tempfile import NamedTemporaryFile
from typing import IO, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import UnknownException, convert_exception
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from headwater.errors import UnsupportedError

#: More bytes than these reach the JVM by a file: on the wire to it they are text, letter by letter.
_BY_WIRE = 32 << 10
#: So many rows are in a batch on the way there.
_AT_ONCE = 1 << 16
#: In the order in which they need each other.
_SOURCES = ("Filters", "LakeFiles", "Plans", "Deletes", "Merges", "Packed", "Rows", "Large", "Programs")


class Jvm:
    """The compiled classes of one Spark session's JVM."""

    def __init__(self, spark: SparkSession):
        gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
        if gateway is None:
            raise UnsupportedError(
                "Headwater needs a Spark session whose driver runs in this process.",
                detail="Spark Connect sessions hide the planner that the connector works with.",
                hint='Use SparkSession.builder.master(…), or spark.read.format("ducklake").',
            )
        self._gateway = gateway
        self._jvm = gateway.jvm
        self._classes = _compiled(gateway)

    @cached_property
    def memory(self) -> int:
        """How many bytes the JVM may hold."""
        return int(self._jvm.java.lang.Runtime.getRuntime().maxMemory())

    def files(
        self,
        spark: SparkSession,
        name: str,
        columns: StructType,
        constants: StructType,
        listing: str,
        prune: Callable[[str], str | None] | None,
        share: float = 1.0,
    ) -> DataFrame:
        """A DataFrame over Parquet files, of which it reads a share; see `LakeFiles`."""
        ensure_callback_server_started(self._gateway)  # type: ignore[no-untyped-call]
        session = spark._jsparkSession
        jdf = self._call(
            "LakeFiles",
            "dataFrame",
            session,
            name,
            session.parseDataType(columns.json()),
            session.parseDataType(constants.json()),
            listing,
            None if prune is None else _Function(prune),
            share,
        )
        return DataFrame(jdf, spark)

    def empty(self, spark: SparkSession, fields: Sequence[StructField]) -> DataFrame:
        """A scan of no files."""
        return self.files(spark, "nothing", StructType(list(fields)), StructType([]), "[]", None)

    def selected(self, frame: DataFrame, texts: Sequence[str]) -> DataFrame:
        """Expressions of Spark's SQL over the rows of a DataFrame, in a single call."""
        return DataFrame(self._call("Plans", "selected", frame._jdf, json.dumps(texts)), frame.sparkSession)

    def words_condition(self, spark: SparkSession, text: str, name: str, words: bytes) -> Column:
        """A condition in which the column `name` stands for an array of words of 64 bits; see `Deletes`."""
        return Column(self._call("Deletes", "condition", spark._jsparkSession, text, name, words))

    def conditions(self, frame: DataFrame) -> str:
        """The conditions of a filtered scan, as `Filters` writes them."""
        return str(self._call("Plans", "conditions", frame._jdf.queryExecution().optimizedPlan()))

    def without_named_queries(self, plan: Any) -> Any:
        """A parsed plan with its WITH clauses put in place."""
        return self._call("Plans", "withoutNamedQueries", plan)

    def unknown_relations(self, plan: Any) -> list[Any]:
        """The relations of a parsed plan that are still to be looked up."""
        return list(self._call("Plans", "unknown", plan))

    def replaced(self, plan: Any, nodes: Sequence[Any], replacements: Sequence[Any]) -> Any:
        """The plan with some of its relations replaced."""
        return self._call("Plans", "replaced", plan, self.list_of(nodes), self.list_of(replacements))

    def over(self, plan: Any, frames: Mapping[str, DataFrame]) -> Any:
        """The plan with the relations of certain names replaced by the rows of DataFrames."""
        known = self._map({name: frame._jdf for name, frame in frames.items()})
        return self._call("Plans", "over", plan, known)

    def local(self, spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
        """A few rows as a DataFrame that holds them itself.

        (`createDataFrame` has a server of sockets between: several times as long for a handful of rows.)
        """
        found = self._call("Plans", "local", spark._jsparkSession, _batch(rows, schema), schema.json())
        return DataFrame(found, spark)

    def place(self, spark: SparkSession, name: str, schema: StructType, parts: int = 1) -> DataFrame:
        """A relation whose rows are put in its place when a plan over it is run; see `Programs`."""
        found = self._call("Programs", "place", spark._jsparkSession, name, schema.json(), parts)
        return DataFrame(found, spark)

    def planned(self, frame: DataFrame) -> Any | None:
        """How Spark computes a query over places, in one task; None if that cannot be run again."""
        return self._call("Programs", "planned", frame._jdf)

    def planned_for_many(
        self, frame: DataFrame, limit: int, sizes: Mapping[str, int], *, spread: bool
    ) -> Any | None:
        """The same for the first rows over places of so many, in one task or spread over several.

        There may be more rows than the limit then, as each task keeps to it by itself.
        """
        return self._call("Programs", "plannedForMany", frame._jdf, limit, self._map(sizes), spread)

    def held(self, rows: pa.Table, schema: StructType) -> Any:
        """Rows that the JVM holds, for the places of a plan."""
        if rows.nbytes <= _BY_WIRE:
            sink = pa.BufferOutputStream()
            if rows.num_rows:
                _write(rows, schema, sink)
            return self._call("Programs", "rows", bytearray(sink.getvalue()), schema.json())
        with NamedTemporaryFile(prefix="headwater-rows-") as file:
            _write(rows, schema, file)
            file.flush()
            return self._call("Programs", "rowsOfFile", file.name, schema.json(), cpu_count())

    def run(self, spark: SparkSession, plan: Any, places: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
        """The rows that a plan makes of those in its places."""
        with NamedTemporaryFile(prefix="headwater-rows-") as file:
            found = self._call("Programs", "run", spark._jsparkSession, plan, self._map(places), file.name)
            if found is None:
                return _left(file, schema)
        if not found:
            return schema.empty_table()
        batch = pa.ipc.read_record_batch(pa.py_buffer(b64decode(found)), schema)
        return pa.Table.from_batches([batch])

    def run_for_many(
        self, frame: DataFrame, plan: Any, places: Mapping[str, Any], schema: pa.Schema
    ) -> pa.Table:
        """The same by several tasks; the frame is that which was planned."""
        session = frame.sparkSession._jsparkSession
        with NamedTemporaryFile(prefix="headwater-rows-") as file:
            self._call("Programs", "runForMany", session, plan, self._map(places), frame._jdf, file.name)
            return _left(file, schema)

    def _map(self, items: Mapping[str, Any]) -> Any:
        made = self._jvm.java.util.HashMap()
        for name, item in items.items():
            made.put(name, item)
        return made

    def without_subqueries(self, condition: Any) -> Any | None:
        """The parts of a condition that ask no other table; None where there are none."""
        return self._call("Plans", "withoutSubqueries", condition)

    def qualified(
        self, expression: Any, alias: str, *, prefix: Sequence[str] = (), columns: Sequence[str] = ()
    ) -> Any:
        """An expression whose columns are named by `alias`; see `Plans`."""
        lowered = self.list_of([name.lower() for name in columns])
        return self._call("Plans", "qualified", expression, alias, self.list_of(prefix), lowered)

    def with_defaults(self, query: Any, defaults: Sequence[Any]) -> Any:
        """The rows of an INSERT with the word DEFAULT replaced."""
        return self._call("Plans", "withDefaults", query, self.list_of(defaults))

    def is_default(self, expression: Any) -> bool:
        """Whether an expression is the bare word DEFAULT."""
        return bool(self._call("Plans", "isDefault", expression))

    def asks_in_projection(self, plan: Any) -> bool:
        """Whether a SELECT list of an analysed plan asks EXISTS or IN of another table."""
        return bool(self._call("Plans", "asksInProjection", plan))

    def computed_otherwise(self, plan: Any) -> list[str]:
        """Expressions of an analysed view that DuckDB computes otherwise, as SQL; see `Plans`."""
        return [str(text) for text in self._call("Plans", "computedOtherwise", plan)]

    def equalities(self, joined: DataFrame) -> tuple[list[tuple[int, int]], bool]:
        """The places of columns that a join wants to be equal, and whether it wants nothing else."""
        found = json.loads(self._call("Merges", "equalities", joined._jdf.queryExecution().analyzed()))
        return [(mine, theirs) for mine, theirs in found["equal"]], found["whole"]

    def needed(self, selected: DataFrame) -> list[int] | None:
        """The places of the columns on a join's left that a selection from it needs; None if unknown."""
        found = self._call("Merges", "needed", selected._jdf.queryExecution().analyzed())
        return None if found is None else list(json.loads(found))

    def as_joined(
        self, rows: DataFrame, names: Sequence[str], count: int, aliases: tuple[str, str]
    ) -> DataFrame:
        """The rows under other names: the first `count` columns of one alias, the others of another."""
        session, plan = rows.sparkSession, rows._jdf.queryExecution().analyzed()
        jdf = self._call("Merges", "joined", session._jsparkSession, plan, json.dumps(names), count, *aliases)
        return DataFrame(jdf, session)

    def list_of(self, items: Sequence[Any]) -> Any:
        """A Java list."""
        made = self._jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made

    def _call(self, class_name: str, method: str, *arguments: Any) -> Any:
        try:
            return self._classes[class_name, method].invoke(None, self.list_of(arguments).toArray())
        except Py4JJavaError as error:
            cause = error.java_exception.getCause()
            if cause is None:
                raise
            known = convert_exception(cause)
            if isinstance(known, UnknownException):
                raise
            raise known from None  # the error of Spark's own, as it shows its others


class _Function:
    """A Python function that Java can call."""

    def __init__(self, function: Callable[[str], str | None]):
        self._function = function

    def apply(self, argument: str) -> str | None:
        return self._function(argument)

    class Java:
        implements = ("java.util.function.Function",)


def _left(file: IO[bytes], schema: pa.Schema) -> pa.Table:
    """The rows of batches that were left in a file, each after its length."""
    found = pa.py_buffer(file.read())
    batches = []
    place = 0
    while place < found.size:
        size = int.from_bytes(found.slice(place, 4), "big")
        batches.append(pa.ipc.read_record_batch(found.slice(place + 4, size), schema))
        place += 4 + size
    return pa.Table.from_batches(batches, schema)


def _write(rows: pa.Table, schema: StructType, sink: Any) -> None:
    """Write rows as a file of Arrow batches."""
    alike = rows.cast(to_arrow_schema(schema, timezone="UTC"))
    with pa.ipc.new_file(sink, alike.schema) as file:
        file.write_table(alike, max_chunksize=_AT_ONCE)


def _batch(rows: pa.Table, schema: StructType) -> bytearray:
    """Rows as one Arrow batch; without any bytes if there are none."""
    alike = rows.cast(to_arrow_schema(schema, timezone="UTC")).combine_chunks().to_batches()
    return bytearray(alike[0].serialize().to_pybytes() if alike and rows.num_rows else b"")


@cache
def _compiled(gateway: Any) -> dict[tuple[str, str], Any]:
    """The static methods of our classes by class and name, compiled once in a JVM."""
    jvm = gateway.jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    methods = {}
    for name in _SOURCES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(resources.files(__package__).joinpath(f"{name}.java").read_text())
        loader = compiler.getClassLoader()
        for method in loader.loadClass(f"headwater.{name}").getDeclaredMethods():
            if jvm.java.lang.reflect.Modifier.isPublic(method.getModifiers()):
                methods[name, method.getName()] = method
    return methods
