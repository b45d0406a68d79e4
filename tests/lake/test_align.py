from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidInputError
from headwater.lake.format.conform import align_input
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import arrow_schema
from headwater.lake.model import Column
from tests.lake.random_data import NESTED_TEXTS, SCALAR_TEXTS, columns, table


def one(type_: str, **more: Any) -> tuple[Column, ...]:
    return (replace(column_from_text("v", type_), **more),)


def test_data_that_fits_is_returned_as_it_is() -> None:
    cols = columns(SCALAR_TEXTS + NESTED_TEXTS)
    data = table(random.Random(1), cols, 20)

    assert align_input(data, cols) is data


def test_columns_are_found_by_name_in_any_order_and_case() -> None:
    cols = (column_from_text("Id", "int32", 1), column_from_text("name", "varchar", 2))

    found = align_input(pa.table({"NAME": ["x"], "id": [1]}), cols)

    assert found.schema.equals(arrow_schema(cols), check_metadata=True)
    assert found.to_pylist() == [{"Id": 1, "name": "x"}]


def test_fields_of_structs_are_found_by_name_too() -> None:
    cols = one("struct(a int32, b struct(c varchar))")
    data = pa.table({"v": pa.array([{"B": {"C": "x"}, "A": 1}, {"B": None, "A": 2}])})

    assert align_input(data, cols).to_pylist() == [
        {"v": {"a": 1, "b": {"c": "x"}}},
        {"v": {"a": 2, "b": None}},
    ]


@pytest.mark.parametrize(
    ("values", "kind", "type_", "expected"),
    [
        ([1], pa.int64(), "int8", 1),
        ([2.0], pa.float64(), "int32", 2),
        ([7], pa.int32(), "decimal(10,2)", Decimal("7.00")),
        ([7], pa.int64(), "int128", Decimal(7)),
        ([Decimal("1.50")], pa.decimal128(20, 4), "decimal(5,2)", Decimal("1.50")),
        (["x"], pa.large_string(), "varchar", "x"),
        (["x"], pa.string_view(), "varchar", "x"),
        (["x"], pa.dictionary(pa.int8(), pa.string()), "varchar", "x"),
        ([b"x"], pa.binary(1), "blob", b"x"),
        ([dt.date(2024, 2, 29)], pa.date64(), "date", dt.date(2024, 2, 29)),
        ([dt.date(2024, 2, 29)], pa.date32(), "timestamp", dt.datetime(2024, 2, 29)),  # noqa: DTZ001
        (["2024-02-29"], pa.string(), "date", dt.date(2024, 2, 29)),
        ([[1, 2]], pa.list_(pa.int64(), 2), "int32[]", [1, 2]),
        ([[1, None]], pa.large_list(pa.int64()), "int32[]", [1, None]),
        ([[1], None, [2, 3]], pa.list_view(pa.int64()), "int32[]", [1]),
        ([None], pa.null(), "int32[]", None),
        ([[{"k": "a", "v": 1}]], pa.list_(pa.struct({"k": pa.string(), "v": pa.int64()})),
         "map(varchar,int32)", [("a", 1)]),
    ],
)  # fmt: skip
def test_values_are_converted_where_nothing_is_lost(
    values: list[Any], kind: Any, type_: str, expected: Any
) -> None:
    found = align_input(pa.table({"v": pa.array(values, kind)}), one(type_))

    assert found.column("v").to_pylist()[0] == expected


def test_any_time_zone_becomes_the_same_instant() -> None:
    kind = pa.timestamp("ms", tz="Europe/Berlin")
    data = pa.table({"v": pa.array([dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)], kind)})

    found = align_input(data, one("timestamptz"))

    assert found.column("v").to_pylist() == [dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)]


@pytest.mark.parametrize(
    ("values", "kind", "type_", "row"),
    [
        ([1, 2, 300], pa.int64(), "int8", 2),
        ([1, None, -1], pa.int64(), "uint64", 2),
        ([1.0, 1.5], pa.float64(), "int32", 1),
        ([1, 1000], pa.int64(), "decimal(4,2)", 1),
        ([Decimal("1.00"), Decimal("12345.00")], pa.decimal128(20, 2), "decimal(4,2)", 1),
        ([Decimal("1.00"), Decimal("1.005")], pa.decimal128(20, 3), "decimal(5,2)", 1),
        ([1.0, 1e300], pa.float64(), "float32", 1),
        (["1", "x"], pa.string(), "int32", 1),
        (["2024-01-01", "2024-13-01"], pa.string(), "date", 1),
        ([Decimal(5), Decimal(-5)], pa.decimal128(38, 0), "uint128", 1),
        (['{"a": 1}', "{"], pa.string(), "json", 1),
        (["e8b4a1b0-0000-0000-0000-000000000001", "zz"], pa.string(), "uuid", 1),
        ([[1], [2, 2**40]], pa.list_(pa.int64()), "int32[]", 1),
        ([{"a": 1}, {"a": 2**40}], pa.struct({"a": pa.int64()}), "struct(a int32)", 1),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row(
    values: list[Any], kind: Any, type_: str, row: int
) -> None:
    data = pa.table({"v": pa.chunked_array([pa.array(values[:1], kind), pa.array(values[1:], kind)])})

    with pytest.raises(InvalidInputError, match=f"row {row + 100}") as caught:
        align_input(data, one(type_), first_row=100)

    assert caught.value.column == "v"
    assert caught.value.row == row + 100


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        (pa.int64(), "timestamp"),
        (pa.int64(), "date"),
        (pa.timestamp("us"), "int64"),
        (pa.bool_(), "int32"),
        (pa.int32(), "boolean"),
        (pa.int32(), "varchar"),
        (pa.timestamp("us", tz="UTC"), "timestamp"),
        (pa.list_(pa.int64()), "timestamp[]"),
        (pa.struct({"a": pa.int64()}), "struct(a date)"),
        (pa.int32(), "int32[]"),
        (pa.binary(), "varchar"),
        (pa.duration("us"), "interval"),
    ],
)
def test_a_conversion_that_would_change_the_meaning_is_refused(kind: Any, type_: str) -> None:
    with pytest.raises(InvalidInputError, match="v"):
        align_input(pa.table({"v": pa.nulls(1, kind)}), one(type_))


def test_columns_the_table_has_not_are_named() -> None:
    with pytest.raises(InvalidInputError, match=r"'nam'") as caught:
        align_input(
            pa.table({"name": ["x"], "nam": ["y"]}), (*one("int32"), column_from_text("name", "varchar", 2))
        )

    assert caught.value.columns == ["nam"]
    assert "did you mean 'name'" in str(caught.value)
    with pytest.raises(InvalidInputError, match=r"v\.b"):
        align_input(pa.table({"v": pa.array([{"a": 1, "b": 2}])}), one("struct(a int64)"))


def test_the_same_name_twice_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        align_input(pa.table([pa.array([1]), pa.array([2])], names=["v", "V"]), one("int64"))


def test_missing_columns_get_their_default() -> None:
    cols = (
        column_from_text("a", "int32", 1),
        replace(column_from_text("literal", "decimal(10,2)", 2), default_value="1.5"),
        replace(column_from_text("rounded", "int32", 3), default_value="1.7"),
        replace(column_from_text("text", "varchar", 4), default_value="it's"),
        replace(
            column_from_text("computed", "varchar", 5), default_value="upper('x')", default_type="expression"
        ),
        replace(column_from_text("each", "uuid", 6), default_value="uuid()", default_type="expression"),
        column_from_text("none", "int32[]", 7),
    )

    found = align_input(pa.table({"a": [1, 2]}), cols).to_pylist()

    assert len({row.pop("each") for row in found}) == 2
    expected = {"literal": Decimal("1.50"), "rounded": 2, "text": "it's", "computed": "X", "none": None}
    assert found == [{"a": 1, **expected}, {"a": 2, **expected}]


def test_a_default_cannot_reach_files() -> None:
    cols = (
        column_from_text("a", "int32", 1),
        replace(
            column_from_text("b", "varchar", 2),
            default_value="(SELECT content FROM read_text('/etc/hostname'))",
            default_type="expression",
        ),
    )

    with pytest.raises(InvalidInputError, match="default of column 'b'"):
        align_input(pa.table({"a": [1]}), cols)


def test_a_map_that_may_not_be_null_is_checked_to_its_values() -> None:
    plain = column_from_text("v", "map(varchar, int64)")
    key, value = plain.children
    cols = (replace(plain, nulls_allowed=False, children=(key, replace(value, nulls_allowed=False))),)
    kind = pa.map_(pa.string(), pa.int64())

    assert align_input(pa.table({"v": pa.array([[("a", 1)], []], kind)}), cols).num_rows == 2
    with pytest.raises(InvalidInputError, match=r"'v.value' is NOT NULL, and row 1 has NULL"):
        align_input(pa.table({"v": pa.array([[("a", 1)], [("b", 2), ("c", None)]], kind)}), cols)
    with pytest.raises(InvalidInputError, match="'v' is NOT NULL, and row 0 has NULL"):
        align_input(pa.table({"v": pa.array([None, []], kind)}), cols)


def test_null_in_a_not_null_column_is_named_with_its_row() -> None:
    cols = one("int32", nulls_allowed=False)
    data = pa.table({"v": pa.chunked_array([[1, 2], [3, None]], pa.int32())})

    with pytest.raises(InvalidInputError, match="'v' is NOT NULL, and row 3") as caught:
        align_input(data, cols)

    assert caught.value.row == 3
    with pytest.raises(InvalidInputError, match="has no default"):
        align_input(pa.table({"w": [1]}), (*cols, column_from_text("w", "int64", 2)))


@pytest.mark.parametrize(
    ("values", "bad", "path"),
    [
        ([{"a": 1, "l": [1]}, None, {"a": None, "l": []}], 2, "v.a"),
        ([None, {"a": 1, "l": None}, {"a": 1, "l": [1]}, {"a": 1, "l": [2, None]}], 3, "v.l.element"),
    ],
)
def test_null_inside_nested_values(values: list[Any], bad: int, path: str) -> None:
    [top] = one("struct(a int32, l int32[])")
    a, listed = top.children
    strict = (
        replace(top, children=(
            replace(a, nulls_allowed=False),
            replace(listed, children=(replace(listed.children[0], nulls_allowed=False),)),
        )),
    )  # fmt: skip
    kind = pa.struct({"a": pa.int32(), "l": pa.list_(pa.int32())})

    with pytest.raises(InvalidInputError, match=f"row {bad}") as caught:
        align_input(pa.table({"v": pa.array(values, kind)}), strict)

    assert caught.value.column == path
    fine = [v for i, v in enumerate(values) if i != bad]
    assert align_input(pa.table({"v": pa.array(fine, kind)}), strict).to_pylist() == [{"v": v} for v in fine]


def test_batches_readers_and_other_arrow_producers_are_taken() -> None:
    cols = one("int64")
    data = pa.table({"v": [1, 2]})

    class Foreign:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return data.__arrow_c_stream__(requested_schema)

    for given in (data.to_batches()[0], data.to_reader(), Foreign()):
        assert align_input(given, cols).to_pylist() == [{"v": 1}, {"v": 2}]
    with pytest.raises(InvalidInputError, match="cannot be read as Arrow"):
        align_input(5, cols)
