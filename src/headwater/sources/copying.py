"""Rows of a source table, read with COPY at one moment: in the driver, or in parallel by Spark's tasks."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import psycopg
import pyarrow as pa
import pyarrow.csv as pc
from psycopg import sql

from headwater.errors import HeadwaterError, SourceError, SourceUnavailableError
from headwater.lake.connection import Connection
from headwater.lake.format.align import align_input
from headwater.lake.model import StagedFile, Table
from headwater.lake.writing.staging import Stager
from headwater.sources.connecting import begin
from headwater.sources.describing import Described
from headwater.sources.model import Form, SourceColumn, SourceTable
from headwater.sources.values import rows_to_arrow

if TYPE_CHECKING:
    from headwater.spark.connector import LakeSpark

#: Text that is taken from PostgreSQL before it becomes a record batch.
_BYTES_AT_ONCE = 8 << 20
#: Blocks of 8 kB that one task reads.
_LEAST_BLOCKS, _MOST_BLOCKS = 64, 8192
_PARSE = pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


@dataclass(frozen=True)
class Piece:
    """Some blocks of one file of PostgreSQL's; `after` is where they end, None for the rest."""

    schema: str
    table: str
    first: int = 0
    after: int | None = None


def read_piece(
    connection: Connection, piece: Piece, table: SourceTable, columns: Sequence[SourceColumn]
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece in the lake's types, at the moment that the connection's transaction reads."""
    names = [column.name for column in columns]
    # Strings all: what they mean is decided in one place, for copies and for changes.
    convert = pc.ConvertOptions(
        column_types={name: pa.string() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    read = pc.ReadOptions(column_names=names, block_size=4 * _BYTES_AT_ONCE, use_threads=False)
    with connection.cursor() as cursor, cursor.copy(_statement(piece, table, columns)) as copy:
        for text in _in_parts(copy):
            found = pc.read_csv(
                io.BytesIO(text), read_options=read, parse_options=_PARSE, convert_options=convert
            )
            rows = rows_to_arrow([_whole(found.column(name)) for name in names], columns)
            yield from rows.to_batches()


def _whole(column: pa.ChunkedArray) -> pa.Array:  # type: ignore[type-arg]
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else found.chunk(0)


def _in_parts(copy: psycopg.Copy) -> Iterator[bytes]:
    """What COPY sends, cut between rows."""
    waiting: list[bytes] = []
    size = 0
    for row in copy:
        waiting.append(bytes(row))
        size += len(row)
        if size >= _BYTES_AT_ONCE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _statement(piece: Piece, table: SourceTable, columns: Sequence[SourceColumn]) -> sql.Composed:
    conditions: list[sql.Composable] = []
    if table.where is not None:
        conditions.append(sql.SQL("({}\n)").format(sql.SQL(table.where)))
    if piece.first:
        conditions.append(sql.SQL("{}.ctid >= {}::tid").format(_alias(table), f"({piece.first},0)"))
    if piece.after is not None:
        conditions.append(sql.SQL("{}.ctid < {}::tid").format(_alias(table), f"({piece.after},0)"))
    return sql.SQL("COPY (SELECT {} FROM ONLY {} AS {} WHERE {}) TO STDOUT (FORMAT csv)").format(
        sql.SQL(", ").join(_value(table, column) for column in columns),
        sql.Identifier(piece.schema, piece.table),
        _alias(table),
        sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("true"),
    )


def _alias(table: SourceTable) -> sql.Identifier:
    return sql.Identifier(table.name)


def _value(table: SourceTable, column: SourceColumn) -> sql.Composable:
    value = sql.SQL("{}.{}").format(_alias(table), sql.Identifier(column.name))
    if column.form is Form.PLAIN:
        return value
    # As in a row's image, where JSON's null cannot be told from SQL's.
    return sql.SQL("nullif(btrim(to_json({})::text, E' \\n\\r\\t'), 'null')").format(value)


def pieces(connection: Connection, described: Described, tasks: int | None = None) -> list[Piece]:
    """A table cut into pieces, two for each of so many tasks if it is large enough; else by partitions."""
    leaves = (
        "pg_partition_tree(%s) p JOIN pg_class c ON c.oid = p.relid AND p.isleaf"
        if described.partitioned
        else "pg_class c"
    )
    found = connection.execute(
        (
            "SELECT n.nspname::text, c.relname::text, "
            "(pg_relation_size(c.oid) / current_setting('block_size')::int)::int "
            f"FROM {leaves} JOIN pg_namespace n ON n.oid = c.relnamespace"
            + ("" if described.partitioned else " WHERE c.oid = %s")
        ).encode(),
        (described.layout.oid,),
    ).fetchall()
    total = sum(blocks for _, _, blocks in found)
    size = total + 1 if tasks is None else min(_MOST_BLOCKS, max(_LEAST_BLOCKS, total // (2 * tasks)))
    cut = []
    for schema, name, blocks in found:
        starts = list(range(0, max(1, blocks), size))
        # Rows of the last block's end and after it belong to the last piece.
        cut += [Piece(schema, name, *ends) for ends in zip(starts, [*starts[1:], None], strict=True)]
    return cut


def read_all(connection: Connection, table: SourceTable, described: Described) -> Iterator[pa.RecordBatch]:
    """All rows, one after the other."""
    for piece in pieces(connection, described):
        yield from read_piece(connection, piece, table, described.layout.columns)


def estimated_rows(connection: Connection, described: Described) -> float:
    """What PostgreSQL believes, or what its files have room for."""
    found = connection.execute(
        "SELECT sum(greatest(c.reltuples, pg_relation_size(c.oid) / 200))::float8 FROM pg_class c "
        "WHERE c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s))",
        {"oid": described.layout.oid},
    ).fetchall()
    return float(found[0][0] or 0)


class OpenMoment(Protocol):
    """A moment of the source that is kept open."""

    @property
    def connection(self) -> Connection:
        """A transaction that reads it."""

    @property
    def dsn(self) -> str:
        """Where others can read it, too,"""

    @property
    def exported(self) -> str:
        """under this name."""


def stage_with_spark(
    spark: LakeSpark,
    opened: OpenMoment,
    table: SourceTable,
    described: Described,
    target: Table,
    stager: Stager,
) -> list[StagedFile]:
    """Have Spark's tasks read a table in parallel at an exported moment, and store it in files."""
    tasks = max(1, spark.spark.sparkContext.defaultParallelism)
    whole = pieces(opened.connection, described, tasks)
    context = pickle.dumps(
        (opened.dsn, opened.exported, table, described.layout.columns, target, stager, whole)
    )

    def store(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = pickle.dumps(_stage_or_explain(context, int(str(number))))
                yield pa.record_batch({"files": pa.array([found], pa.binary())})

    frame = spark.spark.range(0, len(whole), 1, len(whole))
    results = frame.mapInArrow(store, "files binary").toArrow().column(0).to_pylist()
    stored = [pickle.loads(result or b"") for result in results]  # noqa: S301 - our own
    files = [file for result in stored if not isinstance(result, HeadwaterError) for file in result]
    for result in stored:
        if isinstance(result, HeadwaterError):
            stager.discard(target, files)
            raise result
    return files


def _stage_or_explain(context: bytes, number: int) -> list[StagedFile] | HeadwaterError:
    """What was stored, or why not: an exception would reach the driver as a text of Spark's."""
    try:
        return _stage_piece(context, number)
    except HeadwaterError as error:
        return error
    except psycopg.Error as error:
        kind = SourceUnavailableError if isinstance(error, psycopg.OperationalError) else SourceError
        said = (error.diag.message_primary if error.diag else None) or type(error).__name__
        return kind("A part of the source could not be copied.", detail=said)


def _stage_piece(context: bytes, number: int) -> list[StagedFile]:
    dsn, snapshot, table, columns, target, stager, whole = pickle.loads(context)  # noqa: S301 - our own
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        begin(connection)
        rows = (
            batch
            for found in read_piece(connection, whole[number], table, columns)
            for batch in align_input(pa.Table.from_batches([found]), target.columns).to_batches()
        )
        return list(stager.stage_stream(target, rows))
