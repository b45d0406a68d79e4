"""Values, rows and conditions for the two actors, as SQL text, so that every engine gets the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import type_text
from tests.support import literal

#: Few values for each type, so that duplicates, equal keys and matching conditions are common; among them
#: the ends of the range and whatever needs quoting. (No -0.0: in a file DuckDB makes it 0.0.)
DOMAINS: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "int8": ("-128", "127", "0", "1"),
    "int16": ("-32768", "32767", "0", "5"),
    "int32": ("-2147483648", "2147483647", "0", "7", "8"),
    "int64": ("-9223372036854775808", "9223372036854775807", "0", "7", "10"),
    "uint8": ("0", "255", "9", "10"),
    "uint16": ("0", "65535", "9"),
    "uint32": ("0", "4294967295", "9"),
    "uint64": ("0", "18446744073709551615", "9", "10"),
    "float32": ("0", "1.5", "nan", "inf", "-inf", "0.1", "-3e30"),
    "float64": ("0", "2.5", "nan", "inf", "-inf", "0.1", "1e300", "9", "10"),
    "decimal(4,2)": ("-99.99", "99.99", "0", "9.5", "10"),
    "decimal(18,3)": ("-999999999999999.999", "0.001", "9", "10"),
    "decimal(38,10)": ("9999999999999999999999999999.9999999999", "-0.0000000001", "9", "10"),
    "date": ("1970-01-01", "1969-12-31", "2024-02-29", "9999-12-31", "0001-01-01", "0044-03-15 (BC)"),
    "time": ("00:00:00", "23:59:59.999999", "12:30:00.5"),
    "timestamp": ("1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00.5", "2023-07-01"),
    "timestamp_s": ("1970-01-01 00:00:00", "1969-12-31 23:59:59", "2024-02-29 12:00:00"),
    "timestamp_ms": ("1970-01-01 00:00:00", "1969-12-31 23:59:59.999", "2024-02-29 12:00:00.5"),
    "timestamp_ns": ("1970-01-01 00:00:00", "1969-12-31 23:59:59.999999999", "2024-02-29 12:00:00.000000001"),
    "timestamptz": ("1970-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00", "2024-02-29 12:00:00.5+00"),
    "varchar": ("", "a", "b", "it's", '"q"', "NULL", "é😀", "a,b=c/d", "y" * 200, " sp ", "\\x41"),
    "json": ('"' + "y" * 300 + '"', '{"a": [1, null]}', "1", '"x"', "null"),
    "blob": ("", "\\x00\\xFF", "ab", "it''s"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff"),
    "interval": ("1 month 2 days 00:00:03", "0 seconds", "5 days"),
    "int32[]": ("[]", "[1, NULL, 3]", "[7]"),
    "struct(a int32, b varchar)": ("{'a': 1, 'b': x}", "{'a': NULL, 'b': yy}"),
    "map(varchar, int64)": ("{}", "{k=1}", "{k=2, l=NULL}"),
}
SCALARS = tuple(t for t in DOMAINS if not t.startswith(("struct", "map")) and not t.endswith("[]"))
NESTED = tuple(t for t in DOMAINS if t not in SCALARS)
#: float32 to float64 is left out: DuckDB 1.5.5 then skips rows of older files that a condition should find.
WIDER = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "uint8": ("uint16", "uint32", "uint64"),
    "uint16": ("uint32", "uint64"),
    "uint32": ("uint64",),
}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def sql_type(type_: str) -> str:
    return type_text(column_from_text("c", type_))


def is_nested(type_: str) -> bool:
    return type_ in NESTED


def value(rng: random.Random, type_: str, nulls: float = 0.0) -> str:
    """One value as an SQL expression."""
    if rng.random() < nulls:
        return f"CAST(NULL AS {sql_type(type_)})"
    return f"CAST({literal(rng.choice(DOMAINS[type_]))} AS {sql_type(type_)})"


def rows(rng: random.Random, columns: Sequence[tuple[str, str, bool]], count: int) -> str:
    """A query for so many rows; a column is its name, its type and whether it may be NULL."""
    heads = [f"{value(rng, type_)} AS {quoted(name)}" for name, type_, _ in columns]
    if not count:
        return f"SELECT {', '.join(heads)} WHERE false"
    wide = rng.random() < 0.5  # else many rows are equal
    lines = []
    for _ in range(count):
        values = []
        for name, type_, nullable in columns:
            if name == "k":
                values.append(f"CAST({rng.randrange(60 if wide else 5)} AS {sql_type(type_)})")
            else:
                values.append(value(rng, type_, 0.2 if nullable else 0))
        lines.append(f"({', '.join(values)})")
    names = ", ".join(quoted(name) for name, _, _ in columns)
    return f"SELECT * FROM (VALUES {', '.join(lines)}) incoming({names})"


def condition(rng: random.Random, columns: Sequence[tuple[str, str]]) -> str:
    """A condition on a row; about one in two names nothing but `k`."""
    if rng.random() < 0.15:
        parts = [_simple(rng, columns) for _ in range(2)]
        return f"({parts[0]} {rng.choice(['AND', 'OR'])} {parts[1]})"
    return _simple(rng, columns)


def _simple(rng: random.Random, columns: Sequence[tuple[str, str]]) -> str:
    if rng.random() < 0.5 and any(name == "k" for name, _ in columns):
        low = rng.randrange(60)
        return rng.choice(
            [
                f"k = {low}",
                f"k % {rng.randint(2, 7)} = 1",
                f"k BETWEEN {low} AND {low + rng.randrange(20)}",
                f"k IN ({low}, {rng.randrange(60)}, 1)",
                f"k < {low}",
            ]
        )
    name, type_ = rng.choice(list(columns))
    if is_nested(type_):
        test = rng.choice(["IS NULL", "IS NOT NULL", f"= {value(rng, type_)}"])
    else:
        compared = [f"{op} {value(rng, type_)}" for op in ("=", "<>", "<", "<=", ">", ">=")]
        within = f"IN ({value(rng, type_)}, {value(rng, type_)})"
        test = rng.choice(["IS NULL", "IS NOT NULL", within, *compared, compared[0]])
    return f"{quoted(name)} {test}"
