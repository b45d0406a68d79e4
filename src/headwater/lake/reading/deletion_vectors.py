"""Deletion vectors: the positions of deleted rows as a roaring bitmap, as DuckDB writes them.

Iceberg's `deletion-vector-v1` blob without the Puffin container around it: length, magic number, bitmaps of
32 bits, each with the upper half of its positions in front, checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from headwater.errors import CorruptFileError

Positions = npt.NDArray[np.int64]

_MAGIC = b"\xd1\xd3\x39\x64"
_NO_RUNS, _RUNS = 12346, 12347
#: From this many containers on, a bitmap with runs also has a table of offsets.
_OFFSETS_FROM = 4
_ARRAY_MAX = 4096
_BITMAP_BYTES = 8192


def decode_deletion_vector(data: bytes, location: str) -> Positions:
    """The deleted positions, ascending."""
    if len(data) < 20 or data[4:8] != _MAGIC:
        raise _corrupt(location, "it does not begin as a deletion vector does")
    (length,) = struct.unpack_from(">I", data)
    if length + 8 != len(data):
        raise _corrupt(location, f"it has {len(data)} bytes, and says {length + 8}")
    body = data[4 : 4 + length]
    (checksum,) = struct.unpack_from(">I", data, 4 + length)
    if zlib.crc32(body) != checksum:
        raise _corrupt(location, "the checksum is wrong")
    try:
        parts = list(_bitmaps(memoryview(body), 4))
    except (struct.error, ValueError) as error:
        raise _corrupt(location, str(error)) from None
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _bitmaps(data: memoryview, at: int) -> Iterator[Positions]:
    (count,) = struct.unpack_from("<Q", data, at)
    at += 8
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        low, at = _bitmap(data, at + 4)
        yield low + (np.int64(high) << np.int64(32))


def _bitmap(data: memoryview, at: int) -> tuple[Positions, int]:
    """A 32-bit roaring bitmap in its portable form, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    runs = np.zeros(0, np.uint8)
    if cookie & 0xFFFF == _RUNS:
        containers = (cookie >> 16) + 1
        size = (containers + 7) // 8
        runs = np.unpackbits(np.frombuffer(data, np.uint8, size, at), bitorder="little")
        at += size
    elif cookie == _NO_RUNS:
        (containers,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise ValueError(f"unknown form of bitmap {cookie}")
    described = np.frombuffer(data, "<u2", containers * 2, at).astype(np.int64).reshape(-1, 2)
    at += containers * 4
    if not len(runs) or containers >= _OFFSETS_FROM:
        at += containers * 4
    parts = []
    for number, (key, cardinality_less_one) in enumerate(described.tolist()):
        if len(runs) and runs[number]:
            values, at = _run_container(data, at)
        elif cardinality_less_one < _ARRAY_MAX:
            values = np.frombuffer(data, "<u2", cardinality_less_one + 1, at).astype(np.int64)
            at += 2 * (cardinality_less_one + 1)
        else:
            bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITMAP_BYTES, at), bitorder="little")
            values = np.flatnonzero(bits).astype(np.int64)
            at += _BITMAP_BYTES
        parts.append(values + (key << 16))
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), at


def _run_container(data: memoryview, at: int) -> tuple[Positions, int]:
    (count,) = struct.unpack_from("<H", data, at)
    pairs = np.frombuffer(data, "<u2", count * 2, at + 2).astype(np.int64).reshape(-1, 2)
    runs = [np.arange(start, start + more + 1) for start, more in pairs.tolist()]
    return (np.concatenate(runs) if runs else np.empty(0, np.int64)), at + 2 + count * 4


def _corrupt(location: str, why: str) -> CorruptFileError:
    return CorruptFileError(
        f"The deletion vector {location!r} cannot be read.", detail=why, location=location
    )
