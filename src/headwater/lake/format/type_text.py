"""Types written as text: DuckLake's own names and DuckDB's SQL names, with their aliases."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace

from headwater.errors import InvalidInputError, UnsupportedError
from headwater.lake.format.types import SCALARS, supported_types
from headwater.lake.model import Column

_ALIASES = {
    "bool": "boolean", "logical": "boolean",
    "tinyint": "int8", "int1": "int8",
    "smallint": "int16", "int2": "int16", "short": "int16",
    "integer": "int32", "int": "int32", "int4": "int32", "signed": "int32", "integral": "int32",
    "bigint": "int64", "long": "int64", "oid": "int64",
    "hugeint": "int128", "uhugeint": "uint128",
    "utinyint": "uint8", "usmallint": "uint16", "uinteger": "uint32", "ubigint": "uint64",
    "float": "float32", "float4": "float32", "real": "float32",
    "double": "float64", "double precision": "float64", "float8": "float64",
    "time without time zone": "time", "time with time zone": "timetz",
    "datetime": "timestamp", "timestamp_us": "timestamp", "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "string": "varchar", "text": "varchar", "char": "varchar", "bpchar": "varchar", "nvarchar": "varchar",
    "character varying": "varchar",
    "bytea": "blob", "binary": "blob", "varbinary": "blob",
    "guid": "uuid",
    "dec": "decimal", "numeric": "decimal",
    "row": "struct",
}  # fmt: skip

_REFUSED = {
    "enum": "use varchar",
    "bit": "use varchar or blob",
    "bitstring": "use varchar or blob",
    "union": "use struct, or variant",
    "time_ns": "use time",
    "null": "use the type the values should have",
    "bignum": "use decimal(38,0) or varchar",
    "varint": "use decimal(38,0) or varchar",
}

_TOKEN = re.compile(r"""\s*(?:(?P<word>\w+)|"(?P<quoted>(?:[^"]|"")+)"|(?P<mark>[(),\[\]]))""")
#: Words that may follow the first word of a type's name, so that `a DOUBLE PRECISION` parses.
_TAILS = {"precision", "varying", "with", "without", "time", "zone"}
_STARTS = {"double", "time", "timestamp", "character"}


def column_from_text(name: str, text: str, first_id: int = 1, *, nulls_allowed: bool = True) -> Column:
    """A column of the type that `text` names; ids count depth first from `first_id`.

    >>> column_from_text("p", "DECIMAL(10, 2)").type
    'decimal(10,2)'
    >>> [c.name for c in column_from_text("s", 'struct(a int32, "b c" varchar[])').walk()]
    ['s', 'a', 'b c', 'element']
    """
    parser = _Parser(name, text)
    column = parser.type(name)
    parser.end()
    numbered, _ = _number(column, first_id)
    return replace(numbered, nulls_allowed=nulls_allowed)


def _number(column: Column, next_id: int) -> tuple[Column, int]:
    own_id, next_id = next_id, next_id + 1
    children = []
    for child in column.children:
        numbered, next_id = _number(child, next_id)
        children.append(numbered)
    return replace(column, id=own_id, children=tuple(children)), next_id


class _Parser:
    """Recursive descent over the few marks a type can have."""

    def __init__(self, column: str, text: str):
        self.column = column
        self.text = text
        self.tokens = self._split()
        self.at = 0

    def _split(self) -> list[tuple[str, str]]:
        tokens, at, text = [], 0, self.text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.bad(f"unexpected {text[at:].strip()[:20]!r}")
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind].replace('""', '"') if kind == "quoted" else match[kind]))
            at = match.end()
        return tokens

    def bad(self, why: str) -> InvalidInputError:
        return InvalidInputError(
            f"column {self.column!r}: {self.text!r} is not a type",
            detail=why,
            hint="supported: " + ", ".join(supported_types()),
            column=self.column,
            type=self.text,
        )

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, mark: str) -> bool:
        if self.peek() == ("mark", mark):
            self.at += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise self.bad(f"expected {mark!r} but found {self.peek()[1] or 'the end'!r}")

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self.bad(f"unexpected {self.peek()[1]!r}")

    def word(self) -> str:
        kind, text = self.peek()
        if kind not in ("word", "quoted"):
            raise self.bad(f"expected a name but found {text or 'the end'!r}")
        self.at += 1
        return text

    def number(self) -> int:
        text = self.word()
        if not text.isdecimal():
            raise self.bad(f"expected a number but found {text!r}")
        return int(text)

    def type(self, name: str) -> Column:
        column = self._base(name)
        while self.take("["):
            if not self.take("]"):
                raise UnsupportedError(
                    f"column {self.column!r}: DuckLake has no arrays of fixed length",
                    hint="use a list: write [] without a number",
                    column=self.column,
                    type=self.text,
                )
            column = Column(0, name, "list", children=(replace(column, name="element"),))
        return column

    def _base(self, name: str) -> Column:
        word = self.word().lower()
        if word in _STARTS:
            while self.peek()[0] == "word" and self.peek()[1].lower() in _TAILS:
                word += " " + self.word().lower()
        word = _ALIASES.get(word, word)
        if word in _REFUSED:
            raise UnsupportedError(
                f"column {self.column!r}: DuckLake has no type {word!r}",
                hint=f"{_REFUSED[word]}; supported: {', '.join(supported_types())}",
                column=self.column,
                type=self.text,
            )
        if word == "decimal":
            return Column(0, name, self._decimal())
        if word in ("struct", "list", "map"):
            self.expect("(")
            children = getattr(self, "_" + word)()
            self.expect(")")
            return Column(0, name, word, children=children)
        if word not in SCALARS:
            raise self._unknown(word)
        if word == "varchar" and self.take("("):
            # DuckDB takes a length and ignores it.
            self.number()
            self.expect(")")
        return Column(0, name, word)

    def _decimal(self) -> str:
        precision, scale = 18, 3
        if self.take("("):
            precision, scale = self.number(), 0
            if self.take(","):
                scale = self.number()
            self.expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self.bad("a decimal has 1 to 38 digits and a scale of at most that")
        return f"decimal({precision},{scale})"

    def _list(self) -> tuple[Column, ...]:
        return (self.type("element"),)

    def _map(self) -> tuple[Column, ...]:
        key = self.type("key")
        self.expect(",")
        return key, self.type("value")

    def _struct(self) -> tuple[Column, ...]:
        children: list[Column] = []
        while not children or self.take(","):
            child = self.type(self.word())
            if any(child.name.lower() == other.name.lower() for other in children):
                raise self.bad(f"the field {child.name!r} is there twice")
            children.append(child)
        return tuple(children)

    def _unknown(self, word: str) -> InvalidInputError:
        known = [*SCALARS, *_ALIASES, "decimal", "list", "struct", "map"]
        near = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return InvalidInputError(
            f"column {self.column!r}: unknown type {word!r}",
            hint=hint + "supported: " + ", ".join(supported_types()),
            column=self.column,
            type=self.text,
        )
