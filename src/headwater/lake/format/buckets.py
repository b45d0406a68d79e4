"""The hash behind `bucket(N)`: murmur3 (x86, 32 bits, seed 0), over the bytes DuckDB hashes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.lake.format.texts import FLOATS, TICKS, plain_values, to_text
from headwater.lake.format.types import AnyArray, decimal_parts
from headwater.lake.model import Column

_U32 = npt.NDArray[np.uint32]
_SIGNED = frozenset({"int8", "int16", "int32", "int64"})
#: DuckDB packs a TIMETZ into 64 bits: microseconds, then 15:59:59 minus the offset in seconds.
_TIMETZ_UTC = 16 * 3600 - 1


def bucket_numbers(array: AnyArray, column: Column, buckets: int) -> AnyArray:
    """The bucket of every value; NULL where the value is NULL."""
    if array.null_count:
        place = pa.array(np.cumsum(array.is_valid().to_numpy(zero_copy_only=False)) - 1, pa.int64())
        kept = bucket_numbers(array.drop_null(), column, buckets)
        places = pa.compute.if_else(array.is_null(), pa.scalar(None, pa.int64()), place)
        return kept.take(places)
    hashes = _hash_words(*_words(array, column)) if _is_fixed(column) else _hash_bytes(_bytes(array, column))
    return pa.array((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(buckets), pa.uint32())


def _is_fixed(column: Column) -> bool:
    """Hashed as eight bytes; everything else as its bytes or its text."""
    decimal = decimal_parts(column.type)
    return (
        column.type in _SIGNED
        or column.type in FLOATS
        or column.type in TICKS
        or column.type in ("boolean", "date")
        or (decimal is not None and decimal[0] <= 18)
    )


def _words(array: AnyArray, column: Column) -> tuple[_U32, _U32]:
    """The low and the high half of the eight bytes."""
    if column.type in FLOATS:
        doubles = array.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # no minus zero
        doubles[np.isnan(doubles)] = np.nan
        bits = doubles.view(np.int64)
    elif column.type in ("boolean", "date"):
        bits = array.cast(pa.int32()).to_numpy(zero_copy_only=False).astype(np.int64)
    elif decimal_parts(column.type) is not None:
        # The unscaled value is the first half of Arrow's sixteen bytes: it has at most 18 digits.
        whole = np.frombuffer(array.buffers()[1], np.int64)
        bits = whole[array.offset * 2 : (array.offset + len(array)) * 2 : 2]
    else:
        bits = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if column.type == "timetz":
            bits = (bits << np.int64(24)) | np.int64(_TIMETZ_UTC)
    halves = np.ascontiguousarray(bits, np.dtype("<i8")).view(np.dtype("<u4")).reshape(-1, 2)
    return halves[:, 0].astype(np.uint32), halves[:, 1].astype(np.uint32)


def _bytes(array: AnyArray, column: Column) -> AnyArray:
    if column.type in ("blob", "geometry"):
        return array.cast(pa.binary())
    if column.type in ("varchar", "json"):
        return array.cast(pa.string()).cast(pa.binary())
    return pa.array([to_text(v, column.type).encode() for v in plain_values(array, column)], pa.binary())


def _rotate(x: _U32, by: int) -> _U32:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def _mixed(k: _U32) -> _U32:
    return _rotate(k * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _absorbed(h: _U32, k: _U32) -> _U32:
    return _rotate(h ^ _mixed(k), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(h: _U32, length: _U32) -> _U32:
    h = h ^ length
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _hash_words(low: _U32, high: _U32) -> _U32:
    h = _absorbed(_absorbed(np.zeros(len(low), np.uint32), low), high)
    return _finished(h, np.full(len(low), 8, np.uint32))


def _hash_bytes(array: AnyArray) -> _U32:
    """All strings at once, four bytes of each at a time."""
    _, offsets_buffer, data_buffer = array.buffers()
    count = len(array)
    if count == 0:
        return np.zeros(0, np.uint32)
    offsets = np.frombuffer(offsets_buffer, np.int32)[array.offset : array.offset + count + 1].astype(
        np.int64
    )
    # Three bytes more, so that the last, shorter block of the last string can be read like any other.
    data = np.concatenate(
        [
            np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(0, np.uint8),
            np.zeros(3, np.uint8),
        ]
    )
    starts, lengths = offsets[:-1], offsets[1:] - offsets[:-1]
    h = np.zeros(count, np.uint32)
    for at in range(0, int(lengths.max()) // 4 * 4, 4):
        rows = np.nonzero(lengths >= at + 4)[0]
        h[rows] = _absorbed(h[rows], _block(data, starts[rows] + at))
    tails = lengths % 4
    rows = np.nonzero(tails)[0]
    if len(rows):
        block = _block(data, starts[rows] + lengths[rows] - tails[rows])
        kept = (np.uint32(1) << (tails[rows].astype(np.uint32) * np.uint32(8))) - np.uint32(1)
        h[rows] ^= _mixed(block & kept)
    return _finished(h, lengths.astype(np.uint32))


def _block(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> _U32:
    found: _U32 = data[at].astype(np.uint32)
    for i in (1, 2, 3):
        found |= data[at + i].astype(np.uint32) << np.uint32(8 * i)
    return found
