"""Identifiers that sort by time of creation, as DuckDB's do."""

from __future__ import annotations

import os
import time
from uuid import UUID


def new_uuid() -> UUID:
    """A version 7 UUID: 48 bits of milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | (random >> 68 & 0xFFF) << 64
    value |= 0b10 << 62 | random & (1 << 62) - 1
    return UUID(int=value)


def data_file_name() -> str:
    """A name no other file has."""
    return f"ducklake-{new_uuid()}.parquet"


def delete_file_name() -> str:
    """A name no other delete file has."""
    return f"ducklake-{new_uuid()}-delete.parquet"
