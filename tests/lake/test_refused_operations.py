"""What cannot be done is refused in words, and leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import AlreadyExistsError, HeadwaterError, InvalidInputError, NotFoundError
from headwater.lake.lake import Lake
from headwater.lake.writing.columns import SqlExpression
from headwater.lake.writing.transaction import Transaction
from tests.lake.places import Place, Work, make

# --- refused, in words ------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Work, type[HeadwaterError], str]] = {
    "unknown table": (
        lambda tx, s: tx.append(f"{s}.smal", [{"a": 1}]),
        NotFoundError,
        r"Did you mean s\d+\.small",
    ),
    "unknown table to drop": (
        lambda tx, s: tx.drop_table(f"{s}.tt"),
        NotFoundError,
        r"Did you mean s\d+\.t\b",
    ),
    "unknown schema": (
        lambda tx, s: tx.create_table(f"{s}x.a", {"a": "int32"}),
        NotFoundError,
        r"Did you mean s\d+",
    ),
    "unknown view": (lambda tx, s: tx.drop_view(f"{s}.vv"), NotFoundError, r"Did you mean s\d+\.v\b"),
    "a view is no table": (lambda tx, s: tx.append(f"{s}.v", [{"a": 1}]), NotFoundError, "is a view"),
    "a table is no view": (lambda tx, s: tx.drop_view(f"{s}.t"), NotFoundError, "is a table"),
    "unknown column": (lambda tx, s: tx.drop_column(f"{s}.t", "bb"), NotFoundError, "Did you mean 'b'"),
    "unknown field": (
        lambda tx, s: tx.drop_column(f"{s}.t", ("s", "yy")),
        NotFoundError,
        "Did you mean 's.y'",
    ),
    "field of no struct": (lambda tx, s: tx.add_column(f"{s}.t", ("a", "x"), "int32"), NotFoundError, "'a'"),
    "unknown column to update": (
        lambda tx, s: tx.update(f"{s}.t", {"bb": 1}),
        NotFoundError,
        "Did you mean 'b'",
    ),
    "unknown column to partition by": (
        lambda tx, s: tx.set_partition_by(f"{s}.t", ["bb"]),
        NotFoundError,
        "Did you mean 'b'",
    ),
    "unknown column to sort by": (
        lambda tx, s: tx.set_sort_by(f"{s}.t", ["bb"]),
        NotFoundError,
        "Did you mean 'b'",
    ),
    "unknown column for a default": (
        lambda tx, s: tx.create_table(f"{s}.x", {"alpha": "int32"}, defaults={"alpa": 1}),
        NotFoundError,
        "Did you mean 'alpha'",
    ),
    "unknown type": (
        lambda tx, s: tx.create_table(f"{s}.x", {"a": "intt32"}),
        InvalidInputError,
        "did you mean 'int32'",
    ),
    "unsupported type": (
        lambda tx, s: tx.add_column(f"{s}.t", "x", "enum('a')"),
        InvalidInputError,
        "supported",
    ),
    "no type at all": (lambda tx, s: tx.create_table(f"{s}.x", {"a": 5}), InvalidInputError, "is not a type"),
    "a table without columns": (
        lambda tx, s: tx.create_table(f"{s}.x", {}),
        InvalidInputError,
        "at least one column",
    ),
    "a reserved column name": (
        lambda tx, s: tx.create_table(f"{s}.x", {"Row_Id": "int32"}),
        InvalidInputError,
        "reserved",
    ),
    "an internal column name": (
        lambda tx, s: tx.rename_column(f"{s}.t", "a", "_ducklake_internal_x"),
        InvalidInputError,
        "reserved",
    ),
    "an empty name": (lambda tx, s: tx.create_table(f'{s}.""', {"a": "int32"}), InvalidInputError, "name"),
    "a name of three parts": (
        lambda tx, s: tx.create_table(f"{s}.a.b", {"a": "int32"}),
        InvalidInputError,
        "not a table name",
    ),
    "a name with NUL": (lambda tx, s: tx.create_schema("a\0b"), InvalidInputError, "name"),
    "a table that is there": (
        lambda tx, s: tx.create_table(f"{s}.t", {"a": "int32"}),
        AlreadyExistsError,
        "already a table",
    ),
    "a view where a table is": (
        lambda tx, s: tx.create_view(f"{s}.t", "SELECT 1", or_replace=True),
        AlreadyExistsError,
        "already a table",
    ),
    "a table where a view is": (
        lambda tx, s: tx.create_table(f"{s}.v", {"a": "int32"}, or_replace=True),
        AlreadyExistsError,
        "already a view",
    ),
    "renamed to what is there": (
        lambda tx, s: tx.rename_table(f"{s}.t", "v"),
        AlreadyExistsError,
        "already a view",
    ),
    "a column renamed to what is there": (
        lambda tx, s: tx.rename_column(f"{s}.t", "a", "B"),
        AlreadyExistsError,
        "already has a column",
    ),
    "the only column": (
        lambda tx, s: (tx.drop_column(f"{s}.small", "a"), tx.drop_column(f"{s}.small", "b")),
        InvalidInputError,
        "only column",
    ),
    "a schema with something in it": (lambda tx, s: tx.drop_schema(s), InvalidInputError, "cascade"),
    "a partition column": (
        lambda tx, s: (tx.set_partition_by(f"{s}.t", ["b"]), tx.drop_column(f"{s}.t", "b")),
        InvalidInputError,
        "partitioned by 'b'",
    ),
    "a sort column": (
        lambda tx, s: (tx.set_sort_by(f"{s}.t", ["b"]), tx.drop_column(f"{s}.t", "b")),
        InvalidInputError,
        "sorted by 'b'",
    ),
    "a sort column inside an expression": (
        lambda tx, s: (tx.set_sort_by(f"{s}.t", ["lower(b)"]), tx.drop_column(f"{s}.t", "b")),
        InvalidInputError,
        "sorted by 'b'",
    ),
    "partitions by a struct": (
        lambda tx, s: tx.set_partition_by(f"{s}.t", ["s"]),
        InvalidInputError,
        "struct",
    ),
    "a year of no date": (
        lambda tx, s: tx.set_partition_by(f"{s}.t", ["year(a)"]),
        InvalidInputError,
        "date or timestamp",
    ),
    "an unknown transform": (
        lambda tx, s: tx.set_partition_by(f"{s}.t", ["truncate(4, a)"]),
        InvalidInputError,
        r"bucket\(N, c\)",
    ),
    "no buckets": (
        lambda tx, s: tx.set_partition_by(f"{s}.t", ["bucket(0, a)"]),
        InvalidInputError,
        r"bucket\(N, c\)",
    ),
    "NOT NULL on NULLs": (lambda tx, s: tx.set_not_null(f"{s}.small", "b"), InvalidInputError, "holds NULL"),
    "a new NOT NULL column without a default": (
        lambda tx, s: tx.add_column(f"{s}.t", "c", "int32", not_null=True),
        InvalidInputError,
        "needs a default",
    ),
    "a new column with a computed default": (
        lambda tx, s: tx.add_column(f"{s}.t", "c", "double", default=SqlExpression("random()")),
        InvalidInputError,
        "literal",
    ),
    "a default of another type": (
        lambda tx, s: tx.set_default(f"{s}.t", "a", "x"),
        InvalidInputError,
        "no default for the type",
    ),
    "a default that is no SQL": (
        lambda tx, s: tx.set_default(f"{s}.t", "a", SqlExpression("1 +")),
        InvalidInputError,
        "1 \\+",
    ),
    "a default of a struct": (
        lambda tx, s: tx.set_default(f"{s}.t", "s", {"x": 1}),
        InvalidInputError,
        "cannot have a default",
    ),
    "a default of a field": (
        lambda tx, s: tx.set_default(f"{s}.t", ("s", "x"), 1),
        InvalidInputError,
        "whole columns",
    ),
    "a default with NUL": (
        lambda tx, s: tx.set_default(f"{s}.t", "b", "a\0b"),
        InvalidInputError,
        "NUL",
    ),
    "a default that cannot be computed": (
        lambda tx, s: tx.set_default(f"{s}.t", "a", SqlExpression("nosuch(1)")),
        InvalidInputError,
        "nosuch",
    ),
    "a default that names a column": (
        lambda tx, s: tx.set_default(f"{s}.t", "a", SqlExpression("b")),
        InvalidInputError,
        "cannot be computed",
    ),
    "a default of a geometry": (
        lambda tx, s: tx.create_table(f"{s}.x", {"g": "geometry"}, defaults={"g": "POINT(0 0)"}),
        InvalidInputError,
        "cannot have a default",
    ),
    "sorted by a field": (lambda tx, s: tx.set_sort_by(f"{s}.t", ["s.x"]), InvalidInputError, "fields"),
    "sorted by what does not fit": (
        lambda tx, s: tx.set_sort_by(f"{s}.t", ["a + b"]),
        InvalidInputError,
        "does not fit",
    ),
    "sorted by an unknown function": (
        lambda tx, s: tx.set_sort_by(f"{s}.t", ["nosuch(a)"]),
        InvalidInputError,
        "nosuch",
    ),
    "sorted by no SQL": (lambda tx, s: tx.set_sort_by(f"{s}.t", ["a +"]), InvalidInputError, "not an SQL"),
    "a tag of a column": (
        lambda tx, s: tx.set_tag(f"{s}.t", "owner", "me", column="a"),
        InvalidInputError,
        "no tags but its comment",
    ),
    "a tag without a name": (lambda tx, s: tx.set_tag(f"{s}.t", "", "me"), InvalidInputError, "a name"),
    "a comment with NUL": (lambda tx, s: tx.set_comment(f"{s}.t", "a\0b"), InvalidInputError, "NUL"),
    "a comment with half a character": (
        lambda tx, s: tx.set_comment(f"{s}.t", "\ud800"),
        InvalidInputError,
        "surrogates",
    ),
    "a comment that is a number": (lambda tx, s: tx.set_comment(f"{s}.t", 5), InvalidInputError, "text"),
    "a table name that is none": (
        lambda tx, s: tx.create_table(None, {"a": "int32"}),  # type: ignore[arg-type]
        InvalidInputError,
        "not a table name",
    ),
    "a column name that is none": (
        lambda tx, s: tx.create_table(f"{s}.x", {5: "int32"}),  # type: ignore[dict-item]
        InvalidInputError,
        "not a name",
    ),
    "the schema of names without one": (
        lambda tx, s: tx.drop_schema("MAIN", cascade=True),
        InvalidInputError,
        "cannot be dropped",
    ),
    "partitioned in two ways at once": (
        lambda tx, s: (
            tx.set_partition_by(f"{s}.t", ["b"]),
            tx.append(f"{s}.t", pa.table({"a": range(20)})),
            tx.set_partition_by(f"{s}.t", ["bucket(2, a)"]),
        ),
        InvalidInputError,
        "Commit them first",
    ),
    "a narrower type": (
        lambda tx, s: tx.widen_column(f"{s}.t", "a", "int16"),
        InvalidInputError,
        "cannot change from int32",
    ),
    "text for a number": (
        lambda tx, s: tx.widen_column(f"{s}.t", "a", "varchar"),
        InvalidInputError,
        "cannot change",
    ),
    "a view that is no SQL": (
        lambda tx, s: tx.create_view(f"{s}.w", "SELEC 1"),
        InvalidInputError,
        "syntax error",
    ),
    "a view that is no SELECT": (
        lambda tx, s: tx.create_view(f"{s}.w", "DROP TABLE t"),
        InvalidInputError,
        "exactly one SELECT",
    ),
    "a view of two statements": (
        lambda tx, s: tx.create_view(f"{s}.w", "SELECT 1; SELECT 2"),
        InvalidInputError,
        "exactly one SELECT",
    ),
    "a view of nothing": (
        lambda tx, s: tx.create_view(f"{s}.w", "  "),
        InvalidInputError,
        "exactly one SELECT",
    ),
    "an unknown option": (
        lambda tx, s: tx.set_option("parquet_compresion", "zstd"),
        InvalidInputError,
        "Did you mean 'parquet_compression'",
    ),
    "an option's bad number": (
        lambda tx, s: tx.set_option("data_inlining_row_limit", -1),
        InvalidInputError,
        "whole number",
    ),
    "an option's bad word": (
        lambda tx, s: tx.set_option("parquet_compression", "zip"),
        InvalidInputError,
        "zstd",
    ),
    "an option's bad size": (
        lambda tx, s: tx.set_option("target_file_size", "big"),
        InvalidInputError,
        "512MB",
    ),
    "an option's bad flag": (
        lambda tx, s: tx.set_option("auto_compact", "maybe"),
        InvalidInputError,
        "true or false",
    ),
    "an option's bad interval": (
        lambda tx, s: tx.set_option("expire_older_than", "soon"),
        InvalidInputError,
        "interval",
    ),
    "an option of an unknown table": (
        lambda tx, s: tx.set_option("auto_compact", True, table=f"{s}.tt"),
        NotFoundError,
        "Did you mean",
    ),
}


@pytest.fixture(scope="module")
def untouched(shared: tuple[Lake, Any]) -> tuple[Place, int]:
    """A place that every refused operation leaves as it is."""
    with shared[0].transaction() as tx:
        tx.create_schema("s1000")
    place = Place(*shared, "s1000")
    return place, make(place)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_words(untouched: tuple[Place, int], name: str) -> None:
    place, before = untouched
    work, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        place.run(work)
    assert place.lake.snapshot().id == before, "nothing of it was applied"
    assert place.sql("SELECT count(*) FROM {s}.t") == [(20,)]


# --- whole or not at all ----------------------------------------------------------------------------------


def _stream(tx: Transaction, s: str) -> None:
    batches = [pa.record_batch({"a": pa.array([i] * 1000, pa.int64())}) for i in (1, 2, 1 << 40)]
    tx.append(f"{s}.t", pa.RecordBatchReader.from_batches(batches[0].schema, batches))


@pytest.mark.parametrize(
    "fails",
    [
        lambda tx, s: tx.update(f"{s}.t", {"a": "if(a = 99, error('no'), a + 1000)"}),
        lambda tx, s: tx.update(f"{s}.t", {"a": "2147483647 + (100 - a::BIGINT)"}),
        lambda tx, s: tx.delete(f"{s}.t", "if(a = 99, error('no'), true)"),
        lambda tx, s: tx.create_table(f"{s}.t", {"a": "intt"}, or_replace=True),
        lambda tx, s: tx.create_table(f"{s}.t", {"a": "int32"}, or_replace=True, partition_by=["nosuch"]),
        lambda tx, s: tx.create_table(f"{s}.new", {"a": "int32"}, sort_by=["nosuch"]),
        lambda tx, s: tx.create_view(f"{s}.v", "SELEC", or_replace=True),
        lambda tx, s: tx.rename_column(f"{s}.t", "a", "row_id"),
        _stream,
    ],
    ids=["update", "overflow", "delete", "type", "partition", "sort", "view", "name", "stream"],
)
def test_an_operation_that_fails_midway_leaves_nothing_of_itself(place: Place, fails: Work) -> None:
    s = place.schema
    with place.lake.transaction() as tx:
        tx.create_table(f"{s}.t", {"a": "int32"})
        tx.append(f"{s}.t", pa.table({"a": range(100)}))
        tx.create_view(f"{s}.v", "SELECT 1 AS one")
        tx.set_option("target_file_size", "1kB", schema=s)  # streams are stored in small pieces
    with place.lake.transaction() as tx:
        tx.append(f"{s}.t", pa.table({"a": range(100, 200)}))
        tx.append(f"{s}.t", [{"a": 200}])
        tx.delete(f"{s}.t", "a = 50 OR a = 150")
        before = dict(tx.state.tables), dict(tx.state.views)
        with pytest.raises(HeadwaterError):
            fails(tx, s)
        assert (tx.state.tables, tx.state.views) == before
    expected = sorted({*range(201)} - {50, 150})
    assert sorted(row["a"] for row in place.rows()) == expected
    assert place.sql("SELECT count(*), sum(a) FROM {s}.t") == [(199, sum(expected))]
    assert place.sql("FROM {s}.v") == [(1,)]
    stored = [f for f in Path(place.lake.table(f"{s}.t").path).rglob("*.parquet") if "delete" not in f.name]
    assert len(stored) == 2, "files of the failed operation are gone"


@pytest.mark.parametrize("text", ["a\0b", "\ud800", 5])
def test_a_message_is_text_that_can_be_stored(place: Place, text: Any) -> None:
    for what in ("author", "message", "extra_info"):
        with pytest.raises(InvalidInputError, match=what):
            place.lake.transaction(**{what: text})
