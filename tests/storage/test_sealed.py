"""The cipher that opens encrypted footers, against the published test vectors."""

from __future__ import annotations

import numpy as np
import pytest

from headwater.errors import CorruptFileError, UnsupportedError
from headwater.storage.sealed import _decrypt, _encrypt_blocks, _round_keys


def test_aes_gives_the_published_ciphertext() -> None:
    # FIPS 197, appendix C.1
    key = bytes(range(16))
    blocks = np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff") * 3, np.uint8).reshape(3, 16)

    sealed = _encrypt_blocks(blocks, _round_keys(key))

    assert sealed.tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a" * 3


@pytest.mark.parametrize(
    ("key", "nonce", "plain", "sealed", "tag"),
    [
        # McGrew and Viega, "The Galois/Counter Mode of Operation", test cases 2 and 3 (no additional data)
        (
            "00" * 16,
            "00" * 12,
            "00" * 16,
            "0388dace60b6a392f328c2b971b2fe78",
            "ab6e47d42cec13bdf53a67b21257bddf",
        ),
        (
            "feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
            "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
            "4d5c2af327cd64a62cf35abd2ba6fab4",
        ),
    ],
)
def test_gcm_opens_the_published_messages_and_nothing_else(
    key: str, nonce: str, plain: str, sealed: str, tag: str
) -> None:
    module = bytes.fromhex(nonce + sealed + tag)

    assert _decrypt(module, bytes.fromhex(key), "x").hex() == plain
    for place in (0, 12, len(module) - 1):
        changed = module[:place] + bytes([module[place] ^ 1]) + module[place + 1 :]
        with pytest.raises(CorruptFileError):
            _decrypt(changed, bytes.fromhex(key), "x")


def test_keys_of_another_length_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="16 bytes"):
        _decrypt(bytes(64), bytes(32), "x")
