"""PostgreSQL's logical replication messages (pgoutput, protocol version 1), taken apart.

(Messages are named tuples: a batch has one for each changed row.)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headwater.errors import SourceError
from headwater.sources.batches import UNCHANGED, Unchanged

_TEXT, _NULL = b"tn"
_LENGTH = struct.Struct(">I")
Values = Mapping[str, str | Unchanged | None]


class Begin(NamedTuple):
    """A transaction begins."""

    xid: int
    """Without the number of times that ids have wrapped around."""


class Commit(NamedTuple):
    """It ends; everything up to `end` belongs to it or was before it."""

    end: int


class Relation(NamedTuple):
    """What the rows that follow look like."""

    oid: int
    columns: tuple[str, ...]


class Insert(NamedTuple):
    """A new row."""

    oid: int
    new: Values


class Update(NamedTuple):
    """A changed row; `old` is all of it, or its key if that changed (`whole` says which), or nothing."""

    oid: int
    old: Values | None
    whole: bool
    new: Values


class Delete(NamedTuple):
    """A row that is gone."""

    oid: int
    old: Values


class Truncate(NamedTuple):
    """Tables that were emptied."""

    oids: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


class Decoder:
    """Takes messages apart; it remembers what tables look like."""

    def __init__(self) -> None:
        self._columns: dict[int, tuple[str, ...]] = {}

    def decode(self, data: bytes) -> Message | None:
        """One message; None for those that say nothing about rows."""
        reader = _Reader(data)
        kind = reader.byte()
        match kind:
            case b"I":
                oid = reader.int32()
                reader.skip(1)
                return Insert(oid, reader.values(self._columns[oid]))
            case b"U":
                return self._update(reader)
            case b"D":
                oid = reader.int32()
                whole = reader.byte() == b"O"
                return Delete(oid, self._old(reader, oid, whole))
            case b"B":
                reader.skip(16)
                return Begin(reader.int32())
            case b"C":
                reader.skip(9)
                return Commit(reader.int64())
            case b"R":
                return self._relation(reader)
            case b"T":
                count = reader.int32()
                reader.skip(1)
                return Truncate(tuple(reader.int32() for _ in range(count)))
            case b"Y" | b"O" | b"M":
                return None
        raise SourceError(f"PostgreSQL sent a message of a kind that is not known: {kind!r}.")

    def _relation(self, reader: _Reader) -> Relation:
        oid = reader.int32()
        reader.text()
        reader.text()
        reader.skip(1)
        names = []
        for _ in range(reader.int16()):
            reader.skip(1)
            names.append(reader.text())
            reader.skip(8)
        self._columns[oid] = tuple(names)
        return Relation(oid, tuple(names))

    def _update(self, reader: _Reader) -> Update:
        oid = reader.int32()
        mark = reader.byte()
        old = None
        if mark in (b"K", b"O"):
            old = self._old(reader, oid, mark == b"O")
            reader.skip(1)
        return Update(oid, old, mark == b"O", reader.values(self._columns[oid]))

    def _old(self, reader: _Reader, oid: int, whole: bool) -> Values:
        values = reader.values(self._columns[oid])
        # Of a key the other columns are sent as NULL, which they need not be.
        return values if whole else {name: value for name, value in values.items() if value is not None}


class _Reader:
    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def skip(self, count: int) -> None:
        self._at += count

    def byte(self) -> bytes:
        return self.take(1)

    def int16(self) -> int:
        return int(struct.unpack(">h", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def int64(self) -> int:
        return int(struct.unpack(">Q", self.take(8))[0])

    def values(self, names: tuple[str, ...]) -> Values:
        """A row. (Without a call for each of its bytes: most of a batch is rows.)"""
        data, at = self._data, self._at + 2
        found: dict[str, str | Unchanged | None] = {}
        for place in range(self.int16()):
            kind = data[at]
            at += 1
            if kind == _TEXT:
                end = at + 4 + _LENGTH.unpack_from(data, at)[0]
                found[names[place]] = data[at + 4 : end].decode()
                at = end
            else:
                found[names[place]] = None if kind == _NULL else UNCHANGED
        self._at = at
        return found

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found


def lsn_number(text: str) -> int:
    """A position in the write-ahead log as a number.

    >>> lsn_number("1/A0")
    4294967456
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(number: int) -> str:
    """The same as PostgreSQL writes it.

    >>> lsn_text(4294967456)
    '1/A0'
    """
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def array_json(text: str) -> str:
    """An array as PostgreSQL prints it, as a JSON array of texts.

    >>> array_json('{1,NULL,"a,\\\\"b",{x}}')
    '["1", null, "a,\\\\"b", ["x"]]'
    """
    body = text[text.index("=") + 1 :] if text.startswith("[") else text
    letters = iter(body)
    next(letters)
    return json.dumps(_elements(letters), ensure_ascii=False)


def _elements(letters: Iterator[str]) -> list[object]:
    found: list[object] = []
    word, quoted, ended = "", False, False
    for letter in letters:
        if letter == "{":
            found.append(_elements(letters))
            ended = True
        elif letter == '"':
            quoted = True
            for inner in letters:
                if inner == '"':
                    break
                word += next(letters) if inner == "\\" else inner
        elif letter in ",}":
            if not ended and (word or quoted):
                found.append(word if quoted or word.upper() != "NULL" else None)
            word, quoted, ended = "", False, False
            if letter == "}":
                break
        else:
            word += next(letters) if letter == "\\" else letter
    return found
