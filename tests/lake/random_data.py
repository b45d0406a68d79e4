"""Random tables over every type, with the values that hurt."""

from __future__ import annotations

import decimal
import random
import struct
from typing import Any
from uuid import UUID

import pyarrow as pa

from headwater.lake.format.texts import TICKS, plain_array
from headwater.lake.format.type_text import column_from_text
from headwater.lake.format.types import arrow_schema, decimal_parts
from headwater.lake.model import Column

SCALAR_TEXTS = (
    "boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int128", "uint128",
    "float32", "float64", "decimal(4,2)", "decimal(9,0)", "decimal(18,3)", "decimal(38,10)", "date", "time",
    "timetz", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "varchar", "json",
    "blob", "uuid",
)  # fmt: skip
NESTED_TEXTS = (
    "int32[]", "varchar[]", "struct(a int32, b varchar)", "map(varchar, int64)", "struct(x double, y date[])",
    "timestamptz[]", "map(int32, struct(q varchar))", "uuid[]", "struct(j json, u uuid, d decimal(20,4))[]",
    "float32[][]", "struct(x double, m map(varchar, json), u struct(v uuid)[])",
)  # fmt: skip

_WORDS = (
    "",
    "a",
    "Z",
    "é",
    "😀",
    "it's",
    '"q"',
    "NULL",
    "null",
    "a,b",
    "{x}",
    "[y]",
    "a=b",
    "x\\y",
    " sp ",
    "\t\n",
    "ß" * 40,
    "y" * 300,
)


def plain(rng: random.Random, type_: str, *, nan: bool = True) -> Any:
    """One random plain value of a scalar type."""
    parts = decimal_parts(type_)
    if parts is not None:
        digits = rng.randint(1, parts[0])
        return decimal.Decimal(
            (rng.randint(0, 1), tuple(rng.randint(0, 9) for _ in range(digits)), -parts[1])
        )
    if type_ == "boolean":
        return rng.random() < 0.5
    if type_ in ("int128", "uint128"):
        return rng.randint(0 if type_[0] == "u" else -(10**38) + 1, 10**38 - 1) // 10 ** rng.randint(0, 37)
    if type_.startswith(("int", "uint")) and type_ != "interval":
        bits = int(type_.lstrip("uint"))
        low, high = (0, 2**bits - 1) if type_[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return rng.choice([low, high, rng.randint(low, high), rng.randint(0, 100)])
    if type_ in ("float32", "float64"):
        special = [0.0, -0.0, 0.1, 1e-5, 1e15, 1e16, 1e17, -1.5, 123456.7, float("inf"), float("-inf")]
        if nan:
            special.append(float("nan"))
        value = rng.choice(
            [*special, rng.uniform(-1e6, 1e6), rng.uniform(-1, 1) * 10.0 ** rng.randint(-30, 30)]
        )
        return struct.unpack("<f", struct.pack("<f", value))[0] if type_ == "float32" else value
    if type_ == "date":
        return rng.choice([0, -1, -719162, -719163, -800000, 2932896, 6000000, rng.randint(-30000, 30000)])
    if type_ in ("time", "timetz"):
        return rng.choice([0, 1, 500000, 86399999999, rng.randrange(86400 * 10**6)])
    if type_ in TICKS:
        span = 4 * 10**9 if type_ != "timestamp_ns" else 9 * 10**9
        seconds = rng.choice([0, -1, rng.randint(-span, span)])
        return seconds * TICKS[type_] + (rng.choice([0, TICKS[type_] // 2, rng.randrange(TICKS[type_])]))
    if type_ == "interval":
        return rng.randint(0, 30), rng.randint(0, 40), rng.randrange(10**8) * 1000
    if type_ == "json":
        return rng.choice(['{"a": [1, null]}', "1", '"x"', "null", '{"it\'s": "é"}'])
    if type_ == "blob":
        return rng.choice(
            [b"", b"\x00", b"ab'\"\\", bytes(rng.randrange(256) for _ in range(rng.randint(0, 20)))]
        )
    if type_ == "uuid":
        return UUID(int=rng.getrandbits(128))
    return rng.choice([*_WORDS, "".join(chr(rng.randint(32, 0x2FF)) for _ in range(rng.randint(0, 12)))])


def array(rng: random.Random, column: Column, length: int, nulls: float = 0.2, *, nan: bool = True) -> Any:
    """A random Arrow array of a column's type."""
    from headwater.lake.format.types import arrow_type

    empty = [rng.random() < nulls for _ in range(length)]
    if not column.is_nested:
        values = [None if e else plain(rng, column.type, nan=nan) for e in empty]
        return plain_array(values, column)
    mask = pa.array(empty, pa.bool_())
    if column.type == "struct":
        children = [array(rng, child, length, nulls, nan=nan) for child in column.children]
        target = arrow_type(column)
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    sizes = [0 if e else rng.randint(0, 3) for e in empty]
    offsets = pa.array([sum(sizes[:i]) for i in range(length + 1)], pa.int32())
    if column.type == "list":
        values = array(rng, column.children[0], sum(sizes), nulls, nan=nan)
        return pa.ListArray.from_arrays(offsets, values, type=arrow_type(column), mask=mask)
    key, value = column.children
    keys: list[Any] = []
    for size in sizes:  # keys of one map are distinct
        own: list[Any] = []
        while len(own) < size:
            one = plain(rng, key.type, nan=False)
            if one not in own:
                own.append(one)
        keys += own
    items = array(rng, value, sum(sizes), nulls, nan=nan)
    return pa.MapArray.from_arrays(offsets, plain_array(keys, key), items, type=arrow_type(column), mask=mask)


def columns(texts: tuple[str, ...] | list[str]) -> tuple[Column, ...]:
    """Columns named c0, c1, … of these types, with ids as DuckDB gives them."""
    found: list[Column] = []
    next_id = 1
    for i, text in enumerate(texts):
        column = column_from_text(f"c{i}", text, next_id)
        next_id += sum(1 for _ in column.walk())
        found.append(column)
    return tuple(found)


def table(
    rng: random.Random, of: tuple[Column, ...], length: int, nulls: float = 0.2, *, nan: bool = True
) -> pa.Table:
    """A random table of these columns."""
    return pa.Table.from_arrays([array(rng, c, length, nulls, nan=nan) for c in of], schema=arrow_schema(of))
