"""The health endpoint: `/health` and `/metrics` over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headwater.errors import SettingsError
from headwater.scheduler.metrics import Metrics
from headwater.scheduler.state import ServiceState

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HealthServer:
    """Answers on one address, from a thread of its own, whatever the service is doing."""

    def __init__(
        self,
        host: str,
        port: int,
        state: Callable[[], ServiceState],
        metrics: Metrics,
        patience: float,
    ):
        handler = _handler(state, metrics, patience)
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise SettingsError(
                f"The health endpoint cannot listen on {host}:{port}: {error.strerror or error}.",
                hint="Choose another port (service.port, --port); 0 takes a free one.",
                setting="service.port",
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="headwater-health", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self._server.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(timeout=2)
        self._server.server_close()


def _handler(
    state: Callable[[], ServiceState], metrics: Metrics, patience: float
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "headwater"
        sys_version = ""
        timeout = 10

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/health":
                well, told = state().health(time.monotonic(), patience)
                body = json.dumps(told, ensure_ascii=False, default=str).encode()
                self._answer(200 if well else 503, "application/json", body)
            elif path == "/metrics":
                self._answer(200, _METRICS_TYPE, metrics.text())
            else:
                self._answer(404, "text/plain", b"There are /health and /metrics.\n")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Being asked how one is, is no news."""

    return Handler
