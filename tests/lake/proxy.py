"""A man in the middle between psycopg and PostgreSQL, to break connections at the worst moment."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

from psycopg import conninfo


class Proxy:
    """Forwards a Unix socket. `arm` breaks the next connection that sends COMMIT.

    `before`: the COMMIT never reaches the server. `after`: the server commits, the client never hears of it.
    """

    def __init__(self, dsn: str, folder: Path):
        parameters = conninfo.conninfo_to_dict(dsn)
        port = parameters.get("port") or "5432"
        self._server = str(Path(str(parameters["host"])) / f".s.PGSQL.{port}")
        self.dsn = conninfo.make_conninfo(dsn, host=str(folder))
        self._mode: str | None = None
        self.refusing = False
        self.broken = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / f".s.PGSQL.{port}"))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, mode: str) -> None:
        self._mode = mode

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            threading.Thread(target=self._upstream, args=(client, server), daemon=True).start()
            threading.Thread(target=self._downstream, args=(client, server), daemon=True).start()

    def _upstream(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                if self._mode is not None and b"COMMIT\0" in data:
                    if self._mode.startswith("before"):
                        self._break(client, server)
                        return
                    self._mode = self._mode.replace("after", "sent")
                server.sendall(data)
        _end(client, server)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                if self._mode is not None and self._mode.startswith("sent") and b"COMMIT\0" in data:
                    self._break(client, server)
                    return
                client.sendall(data)
        _end(client, server)

    def _break(self, client: socket.socket, server: socket.socket) -> None:
        mode, self._mode = self._mode, None
        self.refusing = bool(mode and "refuse" in mode)
        self.broken += 1
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
