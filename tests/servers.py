"""Real servers for the tests. Nothing here starts before a test asks for it."""

from __future__ import annotations

import ctypes
import json
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow.fs import S3FileSystem

from headwater.lake.embedded.accounts import Programs, find_programs

_PORTS = ("master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc", "s3", "s3_grpc", "admin")
_PR_SET_PDEATHSIG = 1


def free_ports(count: int) -> list[int]:
    """Port numbers nobody listens on, all different (held together while they are picked)."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def _die_with_parent() -> Any:
    """What a child runs before exec so that it ends even when the test run is killed (Linux only)."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def weed_binary() -> str:
    """The SeaweedFS program of this environment."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("weed not found; install the development extras: pip install -e '.[dev]'")
    return found


@dataclass
class OtherPostgres:
    """A PostgreSQL of another version than the embedded one, made by the programs in `bin`."""

    bin: Path
    _folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="headwater-pg-")))

    @property
    def dsn(self) -> str:
        """The libpq address of its first database."""
        return f"host={self._folder} port=5432 user=postgres dbname=postgres"

    def start(self) -> None:
        """Make it and wait until it answers."""
        programs = self._programs
        programs.account.own(self._folder)
        self._run("initdb", "-U", "postgres", "--encoding=UTF8", "--locale=C", "--auth=trust", "--no-sync")
        options = (
            f"-c unix_socket_directories={self._folder} -c listen_addresses= -c port=5432 "
            "-c wal_level=logical -c fsync=off"
        )
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop it and remove everything."""
        self._run("pg_ctl", "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    @property
    def _programs(self) -> Programs:
        return Programs(self.bin, find_programs().account)

    def _run(self, program: str, *arguments: str) -> None:
        done = self._programs.run(program, "-D", str(self._folder / "data"), *arguments, timeout=60)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"


@dataclass
class S3Server:
    """A SeaweedFS S3 server on 127.0.0.1 that can be taken away and brought back on the same port.

    `start` and `stop` may be called in any state. Data survives a restart.
    """

    folder: Path
    region: str = "us-east-1"
    buckets: tuple[str, ...] = ("lake", "other-lake")
    access_key: str = "HEADWATERTESTKEY"
    # Characters that break careless quoting and URL building belong in the secret.
    secret_key: str = field(default_factory=lambda: "s3cr'et/+=" + secrets.token_hex(12))
    ports: dict[str, int] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def bucket(self) -> str:
        """The bucket most tests use."""
        return self.buckets[0]

    @property
    def address(self) -> str:
        """host:port of the S3 interface."""
        return f"127.0.0.1:{self.ports['s3']}"

    @property
    def endpoint(self) -> str:
        """URL of the S3 interface."""
        return f"http://{self.address}"

    @property
    def running(self) -> bool:
        """Whether the server process lives."""
        return self.process is not None and self.process.poll() is None

    def filesystem(self, **options: Any) -> S3FileSystem:
        """A pyarrow filesystem of its own, to look at the server past the code under test."""
        return S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=self.region,
            scheme="http",
            endpoint_override=self.address,
            **options,
        )

    def start(self) -> None:
        """Start and wait until the buckets answer. Nothing happens if it runs."""
        if self.running:
            return
        for attempt in range(3):
            # A restart keeps the ports; the first start may lose one to somebody else and picks again.
            if not self.ports or (attempt and self.process is None):
                self.ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
            if self._launch():
                return
        raise RuntimeError(f"SeaweedFS did not start:\n{self.log()}")

    def stop(self, *, kill: bool = False) -> None:
        """Stop, gently or at once (`kill`)."""
        process, self.process = self.process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self, *, kill: bool = False) -> None:
        """Stop and start again on the same port."""
        self.stop(kill=kill)
        self.start()

    def log(self) -> str:
        """The end of what the server printed."""
        path = self.folder / "weed.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else "(nothing)"

    def _launch(self) -> bool:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        identities = self.folder / "identities.json"
        keys = {"accessKey": self.access_key, "secretKey": self.secret_key}
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identities.write_text(
            json.dumps({"identities": [{"name": "lake", "credentials": [keys], "actions": actions}]})
        )
        port = self.ports
        with (self.folder / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    weed_binary(),
                    f"-logdir={self.folder}",
                    "mini",
                    f"-dir={data}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    f"-master.port={port['master']}",
                    f"-master.port.grpc={port['master_grpc']}",
                    f"-volume.port={port['volume']}",
                    f"-volume.port.grpc={port['volume_grpc']}",
                    f"-filer.port={port['filer']}",
                    f"-filer.port.grpc={port['filer_grpc']}",
                    f"-s3.port={port['s3']}",
                    f"-s3.port.grpc={port['s3_grpc']}",
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    f"-admin.port={port['admin']}",
                    "-admin.ui=false",
                    "-webdav=false",
                    "-master.telemetry=false",
                    f"-s3.config={identities}",
                    "-s3.autoCreateBucket=false",
                    f"-s3.localSocket={self.folder}/s3.sock",
                    f"-filer.localSocket={self.folder}/filer.sock",
                    f"-bucket={','.join(self.buckets)}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C reaches the test run alone, which then stops the server
                preexec_fn=_die_with_parent(),
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.running:
            if self._ready():
                return True
            time.sleep(0.05)
        self.stop(kill=True)
        return False

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=1):
                pass
        except (urllib.error.URLError, OSError):
            return False
        filesystem = self.filesystem(connect_timeout=1)
        try:
            for bucket in self.buckets:
                path = f"{bucket}/.ready"
                with filesystem.open_output_stream(path) as sink:
                    sink.write(b"ready")
                filesystem.delete_file(path)
        except OSError:
            return False
        return True


class Proxy:
    """Stands between a client and a server, sees the requests, and is slow or breaks on demand.

    `requests` holds the HTTP request lines seen. While `broken`, nobody gets through; a client whose
    data matches `cut` loses its connection; `rate` limits upstream bytes per second and connection.
    """

    _REQUEST = re.compile(rb"^(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP", re.MULTILINE)

    def __init__(self, host: str, port: int):
        self.requests: list[str] = []
        self.broken = False
        self.cut: bytes | None = None
        self.rate: float | None = None
        self._target = (host, port)
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.endpoint = f"http://{self.address}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for sock in self._sockets:
            _hang_up(sock)
        for thread in self._threads:
            thread.join(10)
        for sock in (self._listener, *self._sockets):
            sock.close()

    def seen(self, pattern: str) -> list[str]:
        """The requests that match a regular expression."""
        return [request for request in self.requests if re.search(pattern, request)]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            if self.broken:
                _hang_up(client)
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                _hang_up(client)
                continue
            self._sockets.append(server)
            for source, target, upstream in ((client, server, True), (server, client, False)):
                thread = threading.Thread(target=self._pass_on, args=(source, target, upstream))
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, upstream: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if upstream:
                    self.requests += [b" ".join(found).decode() for found in self._REQUEST.findall(data)]
                    if self.broken or (self.cut and re.search(self.cut, data)):
                        break
                    if self.rate:
                        time.sleep(len(data) / self.rate)
                target.sendall(data)
        except OSError:
            pass
        _hang_up(source)
        _hang_up(target)


def _hang_up(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
