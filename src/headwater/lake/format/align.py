"""A user's data, made to fit a table: columns by name, defaults, safe casts, NOT NULL.

Nothing is bent silently. What does not fit is an error that names the column, the row and the value.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError
from headwater.lake.format.casting import by_name, cast_array, cast_column
from headwater.lake.format.leaves import elements
from headwater.lake.format.texts import FLOATS, INTEGERS
from headwater.lake.format.types import AnyArray, AnyType, arrow_schema, arrow_type, decimal_parts, type_text
from headwater.lake.format.values import literal_array
from headwater.lake.model import Column
from headwater.storage.duckdb_codec import sandbox


def align_input(data: Any, columns: Sequence[Column], *, first_row: int = 0) -> pa.Table:
    """The data as a table of exactly these columns; the same object where it already is.

    `data` is an Arrow table, a record batch, a reader, or anything that exports Arrow. Columns are matched by
    name without regard to case; missing ones get their default. `first_row` is the number of the first row
    in messages, for callers that pass a stream in pieces.
    """
    table = _as_table(data)
    places = _match(table.schema, columns)
    target = arrow_schema(columns)
    arrays: list[AnyArray] = []
    for column, place in zip(columns, places, strict=True):
        if place is None:
            arrays.append(_missing(column, table.num_rows))
        else:
            arrays.append(_fitted(table.column(place), column, first_row))
        _check_nulls(arrays[-1], column, first_row)
    if table.schema.equals(target, check_metadata=True) and places == list(range(len(columns))):
        return table
    return pa.Table.from_arrays(arrays, schema=target)


def _as_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    try:
        return pa.table(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"data of type {type(data).__name__} cannot be read as Arrow",
            detail=str(error),
            hint="pass a pyarrow Table, RecordBatch or RecordBatchReader",
        ) from error


def _match(schema: pa.Schema, columns: Sequence[Column]) -> list[int | None]:
    given: dict[str, int] = {}
    for place, name in enumerate(schema.names):
        if name.lower() in given:
            raise InvalidInputError(
                f"the data has the column {name!r} twice",
                detail="names are compared without regard to case",
                column=name,
            )
        given[name.lower()] = place
    known = {column.name.lower() for column in columns}
    extra = [name for name in schema.names if name.lower() not in known]
    if extra:
        names = [column.name for column in columns]
        near = difflib.get_close_matches(extra[0], names, n=1)
        raise InvalidInputError(
            f"the data has {'columns' if len(extra) > 1 else 'a column'} that the table has not: "
            + ", ".join(repr(name) for name in extra),
            hint=(f"did you mean {near[0]!r}? " if near else "") + "the table has " + ", ".join(names),
            column=extra[0],
            columns=extra,
        )
    return [given.get(column.name.lower()) for column in columns]


# --- values -----------------------------------------------------------------------------------------------


def _fitted(data: AnyArray, column: Column, first_row: int) -> AnyArray:
    _check_conversion(data.type, column, column.name)
    _check_fields(data.type, column, column.name)
    try:
        fitted = cast_column(data, column, by_name)
    except (pa.ArrowException, ValueError) as error:
        raise _bad_value(
            data, column, first_row, lambda part: cast_array(part, column, by_name), error
        ) from error
    _check_values(data, fitted, column, first_row)
    return fitted


def _check_conversion(kind: AnyType, column: Column, path: str) -> None:
    """Refuse casts that Arrow would do but that change what a value means (numbers to dates, and so on)."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if column.is_nested:
        return
    have, want = _family(kind), _family_of(column.type)
    if have in ("null", want) or (have, want) in _CONVERTIBLE:
        if (
            want == "timestamp"
            and have == "timestamp"
            and kind.tz is not None
            and column.type != "timestamptz"
        ):
            raise _wrong_type(
                kind, path, column, "an instant has no date and time of its own until a zone is chosen"
            )
        return
    raise _wrong_type(kind, path, column, None)


def _wrong_type(kind: AnyType, path: str, column: Column, why: str | None) -> InvalidInputError:
    return InvalidInputError(
        f"column {path!r} is {column.type}, and the data has {kind}",
        detail=why,
        hint=f"cast it to {arrow_type(column)} first",
        column=path,
        type=str(kind),
    )


#: From a family of types to another without a change of meaning; text is parsed, and must parse.
_CONVERTIBLE = frozenset(
    {("text", want) for want in ("number", "bool", "date", "time", "timestamp", "uuid", "json", "variant")}
    | {("date", "timestamp"), ("timestamp", "date"), ("json", "text"), ("uuid", "text"), ("json", "variant")}
    | {("binary", "uuid"), ("binary", "geometry"), ("text", "binary"), ("variant", "text")}
)


def _family(kind: AnyType) -> str:
    checks: tuple[tuple[str, Callable[[AnyType], bool]], ...] = (
        ("null", pa.types.is_null),
        ("bool", pa.types.is_boolean),
        ("number", lambda k: pa.types.is_integer(k) or pa.types.is_floating(k) or pa.types.is_decimal(k)),
        (
            "text",
            lambda k: pa.types.is_string(k) or pa.types.is_large_string(k) or pa.types.is_string_view(k),
        ),
        ("date", pa.types.is_date),
        ("time", pa.types.is_time),
        ("timestamp", pa.types.is_timestamp),
        ("interval", lambda k: k.equals(pa.month_day_nano_interval())),
        ("uuid", lambda k: isinstance(k, pa.UuidType)),
        ("json", lambda k: isinstance(k, pa.JsonType)),
        (
            "binary",
            lambda k: (
                pa.types.is_binary(k)
                or pa.types.is_large_binary(k)
                or pa.types.is_binary_view(k)
                or pa.types.is_fixed_size_binary(k)
            ),
        ),
    )
    return next((name for name, check in checks if check(kind)), "other")


def _family_of(type_: str) -> str:
    if type_ in INTEGERS or type_ in FLOATS or decimal_parts(type_) is not None:
        return "number"
    families = {"boolean": "bool", "varchar": "text", "blob": "binary", "timetz": "time", "time_ns": "time"}
    return families.get(type_, "timestamp" if type_.startswith("timestamp") else type_)


def _check_fields(kind: AnyType, column: Column, path: str) -> None:
    """Structs: no field that the table has not; children's types as at the top."""
    if column.type == "struct" and pa.types.is_struct(kind):
        known = {child.name.lower(): child for child in column.children}
        for i in range(kind.num_fields):
            field = kind.field(i)
            child = known.get(field.name.lower())
            inner = f"{path}.{field.name}"
            if child is None:
                raise InvalidInputError(
                    f"the data has a field that the table has not: {inner!r}",
                    hint=f"{path!r} has " + ", ".join(child.name for child in column.children),
                    column=inner,
                )
            _check_conversion(field.type, child, inner)
            _check_fields(field.type, child, inner)
    elif column.type == "map" and pa.types.is_map(kind):
        for child, inner_type in zip(column.children, (kind.key_type, kind.item_type), strict=True):
            _check_conversion(inner_type, child, f"{path}.{child.name}")
            _check_fields(inner_type, child, f"{path}.{child.name}")
    elif column.type == "list" and hasattr(kind, "value_type") and not pa.types.is_dictionary(kind):
        _check_conversion(kind.value_type, column.children[0], f"{path}.element")
        _check_fields(kind.value_type, column.children[0], f"{path}.element")


def _bad_value(
    data: AnyArray, column: Column, first_row: int, attempt: Callable[[AnyArray], Any], error: Exception
) -> InvalidInputError:
    row, value = _first_bad(data, attempt)
    return InvalidInputError(
        f"column {column.name!r}, row {first_row + row}: {value} does not fit {column.type}",
        detail=str(error),
        column=column.name,
        row=first_row + row,
        value=value,
        type=column.type,
    )


def _first_bad(data: AnyArray, attempt: Callable[[AnyArray], Any]) -> tuple[int, str]:
    """The first row for which `attempt` fails, by halving; only ever called when one does."""

    def fails(start: int, length: int) -> bool:
        try:
            for chunk in data.slice(start, length).chunks:
                attempt(chunk)
        except (pa.ArrowException, ValueError):
            return True
        return False

    low, high = 0, len(data)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(low, middle - low) else (middle, high)
    text = repr(data[low].as_py()) if high > low else "?"
    return low, text if len(text) <= 100 else text[:97] + "..."


def _check_values(data: AnyArray, fitted: AnyArray, column: Column, first_row: int) -> None:
    """What a cast does not notice: floats that became infinite, negative uint128, text that is no JSON."""
    bad: AnyArray
    if column.type == "float32" and data.type.equals(pa.float64()):
        bad = pc.and_(pc.is_inf(fitted), pc.invert(pc.is_inf(data)))
    elif column.type == "uint128":
        bad = pc.less(fitted, pa.scalar(0).cast(pa.decimal128(38, 0)))
    elif column.type in ("json", "variant") and data is not fitted:
        bad = _not_json(fitted)
    else:
        return
    first = pc.index(bad, True).as_py()
    if first >= 0:
        text = repr(data[first].as_py())
        raise InvalidInputError(
            f"column {column.name!r}, row {first_row + first}: {text[:100]} does not fit {column.type}",
            column=column.name,
            row=first_row + first,
            value=text[:100],
            type=column.type,
        )


def _not_json(data: AnyArray) -> AnyArray:
    texts = pa.table({"v": data.cast(pa.string())})
    with sandbox() as duck:
        duck.register("given", texts)
        found = duck.execute("SELECT NOT json_valid(v) AS bad FROM given").to_arrow_table().column(0)
        duck.unregister("given")
    return found


# --- missing columns and NULLs ----------------------------------------------------------------------------


def _missing(column: Column, length: int) -> AnyArray:
    if column.default_value is None:
        if not column.nulls_allowed and length:
            raise InvalidInputError(
                f"column {column.name!r} is NOT NULL, has no default, and is not in the data",
                hint="add the column to the data",
                column=column.name,
            )
        return pa.nulls(length, arrow_type(column))
    if column.default_type == "literal":
        return literal_array(column.default_value, column, length)
    return _evaluated(column, length)


def _evaluated(column: Column, length: int) -> AnyArray:
    """A default that is an expression: DuckDB's own, so DuckDB computes it, once for every row."""
    query = f"SELECT CAST(({column.default_value}) AS {type_text(column)}) AS v FROM range(?)"
    try:
        with sandbox() as duck:
            found = duck.execute(query, [length]).to_arrow_table().column(0)
    except duckdb.Error as error:
        raise InvalidInputError(
            f"the default of column {column.name!r} cannot be computed: {column.default_value}",
            detail=str(error).split("\n")[0],
            hint="give the column a value in every row",
            column=column.name,
        ) from error
    return cast_column(found, column)


def _check_nulls(data: AnyArray, column: Column, first_row: int) -> None:
    """NOT NULL at every level: a field inside a struct may be NULL only where the struct is."""
    required = [inner for inner in column.walk() if not inner.nulls_allowed]
    if not required:
        return
    start = 0
    for chunk in data.chunks if isinstance(data, pa.ChunkedArray) else [data]:
        for path, row in _null_violations(chunk, column, column.name):
            raise InvalidInputError(
                f"column {path!r} is NOT NULL, and row {first_row + start + row} has NULL",
                hint="fill the value, or allow NULL in the column",
                column=path,
                row=first_row + start + row,
            )
        start += len(chunk)


def _null_violations(array: AnyArray, column: Column, path: str) -> Iterator[tuple[str, int]]:
    if not column.nulls_allowed and array.null_count:
        yield path, pc.index(array.is_null(), True).as_py()
    if column.type == "struct":
        rows: AnyArray = pc.indices_nonzero(array.is_valid())
        for i, child in enumerate(column.children):
            for inner, row in _null_violations(array.field(i).take(rows), child, f"{path}.{child.name}"):
                yield inner, rows[row].as_py()
    elif column.type in ("list", "map"):
        # Arrow ends the process when it is asked for the parents of a map's entries.
        lists = array.cast(pa.list_(array.type.field(0))) if column.type == "map" else array
        parents: AnyArray = pc.list_parent_indices(lists)
        entries = elements(lists)
        parts = [entries.field(0), entries.field(1)] if column.type == "map" else [entries]
        for child, part in zip(column.children, parts, strict=True):
            for inner, row in _null_violations(part, child, f"{path}.{child.name}"):
                yield inner, parents[row].as_py()
