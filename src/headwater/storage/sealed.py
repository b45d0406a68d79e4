"""The footer of an encrypted Parquet file, opened with its key.

DuckDB reads the rows of such a file, but tells nobody the field ids in its footer. So the footer is
decrypted here: AES-128 in GCM mode, as Parquet's modular encryption has it, but with empty additional data,
which is DuckDB's dialect and the reason why pyarrow cannot do it. A footer of some kilobytes takes
milliseconds. The authentication tag is checked, so a wrong key or a changed footer never passes.
"""

from __future__ import annotations

import hmac
import io
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import CorruptFileError, UnsupportedError

_Bytes = npt.NDArray[np.uint8]
_NONCE, _TAG = 12, 16
#: The plaintext structure before the encrypted footer names the algorithm and is a few bytes long.
_LONGEST_HEADER = 512
_REDUCTION = 0xE1 << 120


def open_footer(tail: bytes, key: bytes, location: str) -> pq.FileMetaData:
    """The footer of the file that ends in `tail`; `tail` must hold all of it (see `footer_length`)."""
    length = footer_length(tail, location)
    if length + 8 > len(tail):
        raise CorruptFileError(f"the encrypted footer of {location} is cut off", location=location)
    module = _module(tail[-8 - length : -8], location)
    plain = _decrypt(module, key, location)
    whole = b"PAR1" + plain + len(plain).to_bytes(4, "little") + b"PAR1"
    try:
        return pq.read_metadata(io.BytesIO(whole))
    except (pa.ArrowException, OSError) as error:
        raise CorruptFileError(
            f"the footer of {location} cannot be read", detail=str(error), location=location
        ) from error


def footer_length(tail: bytes, location: str) -> int:
    """Bytes of the encrypted footer, from the last eight bytes of the file."""
    if tail[-4:] != b"PARE":
        raise CorruptFileError(
            f"{location} does not end as an encrypted Parquet file does",
            detail="it is not encrypted" if tail[-4:] == b"PAR1" else None,
            location=location,
        )
    return int.from_bytes(tail[-8:-4], "little")


def _module(footer: bytes, location: str) -> bytes:
    """The encrypted part: it begins with its own length, which fits in exactly one place."""
    for start in range(min(len(footer), _LONGEST_HEADER)):
        size = int.from_bytes(footer[start : start + 4], "little")
        if size == len(footer) - start - 4 and size > _NONCE + _TAG:
            return footer[start + 4 :]
    raise CorruptFileError(f"the encrypted footer of {location} is damaged", location=location)


def _decrypt(module: bytes, key: bytes, location: str) -> bytes:
    if len(key) != 16:
        raise UnsupportedError(
            f"{location} has a key of {len(key)} bytes",
            hint="DuckLake's keys have 16 bytes",
            location=location,
        )
    nonce, sealed, tag = module[:_NONCE], module[_NONCE:-_TAG], module[-_TAG:]
    round_keys = _round_keys(key)
    counters = np.zeros((1 + -(-len(sealed) // 16), 16), np.uint8)
    counters[:, :12] = np.frombuffer(nonce, np.uint8)
    counters[:, 12:] = np.arange(1, len(counters) + 1, dtype=">u4").view(np.uint8).reshape(-1, 4)
    pads = _encrypt_blocks(counters, round_keys)
    hash_key = _encrypt_blocks(np.zeros((1, 16), np.uint8), round_keys)[0].tobytes()
    expected = _ghash(hash_key, sealed) ^ int.from_bytes(pads[0].tobytes(), "big")
    if not hmac.compare_digest(expected.to_bytes(16, "big"), tag):
        raise CorruptFileError(
            f"{location} cannot be opened with the key the catalog has for it",
            detail="the authentication tag of its footer differs",
            hint="the file was replaced or damaged, or the catalog is another lake's",
            location=location,
        )
    plain: _Bytes = np.frombuffer(sealed, np.uint8) ^ pads[1:].reshape(-1)[: len(sealed)]
    return plain.tobytes()


# --- AES-128, all blocks at once --------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _tables() -> tuple[_Bytes, _Bytes]:
    """The S-box, and multiplication by two in AES's field."""
    double = [(x << 1) ^ (0x11B if x & 0x80 else 0) for x in range(256)]
    box = [0] * 256
    p = q = 1
    while True:
        p = p ^ double[p]  # times three, which reaches every value
        for shift in (1, 2, 4):
            q ^= q << shift & 0xFF
        if q & 0x80:
            q ^= 0x09  # and q its inverse
        rotated = (q << s & 0xFF | q >> (8 - s) for s in range(5))
        value = 0x63
        for part in rotated:
            value ^= part
        box[p] = value
        if p == 1:
            break
    box[0] = 0x63
    return np.array(box, np.uint8), np.array(double, np.uint8)


def _round_keys(key: bytes) -> _Bytes:
    box, double = _tables()
    words = [list(key[i : i + 4]) for i in range(0, 16, 4)]
    constant = 1
    for i in range(4, 44):
        word = list(words[i - 1])
        if i % 4 == 0:
            word = [int(box[b]) for b in (*word[1:], word[0])]
            word[0] ^= constant
            constant = int(double[constant])
        words.append([a ^ b for a, b in zip(words[i - 4], word, strict=True)])
    return np.array(words, np.uint8).reshape(11, 16)


def _encrypt_blocks(blocks: _Bytes, round_keys: _Bytes) -> _Bytes:
    box, double = _tables()
    shifted = [(i + 4 * (i % 4)) % 16 for i in range(16)]
    state: _Bytes = blocks ^ round_keys[0]
    for round_ in range(1, 11):
        state = box[state][:, shifted]
        if round_ < 10:
            columns = state.reshape(-1, 4, 4)
            whole = np.bitwise_xor.reduce(columns, axis=2, keepdims=True)
            pairs = columns ^ np.roll(columns, -1, axis=2)
            state = (columns ^ whole ^ double[pairs]).reshape(-1, 16)
        state = state ^ round_keys[round_]
    return state


# --- GCM's hash -------------------------------------------------------------------------------------------


def _ghash(hash_key: bytes, sealed: bytes) -> int:
    """The hash over the sealed bytes and their length (there is no additional data)."""
    by_byte, fold = _ghash_tables(int.from_bytes(hash_key, "big"))
    padded = sealed + bytes(-len(sealed) % 16) + (8 * len(sealed)).to_bytes(16, "big")
    total = 0
    for start in range(0, len(padded), 16):
        block = total ^ int.from_bytes(padded[start : start + 16], "big")
        total = 0
        for _ in range(16):
            total = (total >> 8) ^ fold[total & 0xFF] ^ by_byte[block & 0xFF]
            block >>= 8
    return total


def _ghash_tables(key: int) -> tuple[list[int], list[int]]:
    """A byte times the key, and what eight shifted-out bits are worth."""

    def halved(x: int) -> int:
        return (x >> 1) ^ (_REDUCTION if x & 1 else 0)

    by_byte, power = [0] * 256, key
    for bit in range(7, -1, -1):
        by_byte[1 << bit] = power
        power = halved(power)
    for byte in range(1, 256):
        low = byte & -byte
        by_byte[byte] = by_byte[low] ^ by_byte[byte ^ low] if byte != low else by_byte[byte]
    fold = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = halved(value)
        fold.append(value)
    return by_byte, fold
