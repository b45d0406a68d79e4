"""PostgreSQL's types in the lake. docs/sources.md states the same for users.

| PostgreSQL | lake | note |
|---|---|---|
| boolean, smallint, integer, bigint, real, double precision | the same | NaN and infinity are kept |
| oid | int64 | |
| numeric(p,s) up to 38 digits | decimal(p,s) | NaN and infinity have no form: the table stops |
| other numeric | varchar | every digit as PostgreSQL prints it |
| date, timestamp, timestamptz | the same | infinity and BC are kept; out of DuckDB's range: the table stops |
| time | time | |
| text, varchar, char, name, enums | varchar | char(n) with its blanks |
| uuid, bytea, json, jsonb | uuid, blob, json, json | json exactly as it was written |
| T[] | list of T | lower bounds are dropped; two dimensions in one value: the table stops |
| T[][], composite | json | as PostgreSQL's to_json writes it |
| interval | varchar | ISO 8601: Parquet has milliseconds only |
| timetz, bit, inet, money, xml, ranges, … | varchar | as PostgreSQL prints it |
| domains | their base type | |
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.sources.model import Form

#: Settings that the texts of values depend on, with which every value is printed.
PRINTING = {
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
}
_SCALARS = {
    "bool": "boolean",
    "int2": "int16",
    "int4": "int32",
    "int8": "int64",
    "oid": "int64",
    "float4": "float32",
    "float8": "float64",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "uuid": "uuid",
    "bytea": "blob",
}
_MOST_DIGITS = 38
#: Types from here on are not PostgreSQL's own; JSON shows them in ways of their own (hstore).
_FIRST_FOREIGN_OID = 16384


@dataclass(frozen=True)
class PgType:
    """A column's type with every domain taken off."""

    oid: int
    name: str
    kind: str
    """`pg_type.typtype`: b(ase), c(omposite), e(num), r(ange), m(ultirange)."""
    modifier: int
    """`atttypmod`, or that of the domain."""
    dimensions: int = 0
    element: PgType | None = None
    """What an array holds."""


def lake_type(type_: PgType) -> tuple[str, Form]:
    """The type in the lake, and how the text of a value is to be read.

    >>> lake_type(PgType(1700, "numeric", "b", (10 << 16 | 2) + 4))
    ('decimal(10,2)', <Form.PLAIN: 'plain'>)
    """
    if type_.element is not None:
        element, form = lake_type(type_.element)
        # What JSON shows as an object, and rows and columns of numbers, have no list to go to.
        if type_.dimensions > 1 or form is not Form.PLAIN:
            return "json", Form.DOCUMENT
        return f"{element}[]", Form.LIST
    if type_.kind == "c":
        return "json", Form.DOCUMENT
    if type_.kind == "d":  # inside an array, where its base is not known
        return "varchar", Form.ANY
    if type_.kind != "b":
        return "varchar", Form.PLAIN
    if type_.name in ("json", "jsonb"):
        return "json", Form.DOCUMENT
    if type_.name == "numeric":
        return _numeric(type_.modifier), Form.PLAIN
    if type_.oid >= _FIRST_FOREIGN_OID:
        return "varchar", Form.ANY
    return _SCALARS.get(type_.name, "varchar"), Form.PLAIN


def _numeric(modifier: int) -> str:
    if modifier < 4:
        return "varchar"
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    scale = scale - 0x800 if scale >= 0x400 else scale  # eleven bits with a sign, since PostgreSQL 15
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale, 1)
    return f"decimal({precision},{scale})" if precision <= _MOST_DIGITS else "varchar"
