"""The embedded PostgreSQL: a real server in a folder, shared by every process that opens it."""

from headwater.lake.embedded.server import EmbeddedServer, open_server

__all__ = ["EmbeddedServer", "open_server"]
