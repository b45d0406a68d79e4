"""Headwater: stream tables for the lakehouse.

import headwater

with headwater.connect() as hw:
    hw.lake.snapshots()
"""

from typing import TYPE_CHECKING, Any

from headwater._version import __version__
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.engine import Headwater, connect

__all__ = ["Headwater", "HeadwaterError", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    # Late, because the engine brings DuckDB, Arrow and PostgreSQL's client along.
    if name in ("Headwater", "connect"):
        from headwater import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "Headwater", "connect"])
