"""The command line."""

from headwater.cli.main import main

__all__ = ["main"]
