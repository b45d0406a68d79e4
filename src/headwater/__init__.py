"""Headwater: stream tables for the lakehouse."""

from headwater._version import __version__
from headwater.errors import HeadwaterError

__all__ = ["HeadwaterError", "__version__"]
