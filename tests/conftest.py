"""Servers that tests share. Each starts when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import S3Server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[S3Server]:
    """The S3 server, running; a test may stop it, the next one finds it running again."""
    s3_server.start()
    yield s3_server
    s3_server.start()
