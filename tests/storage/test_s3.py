"""What only an object store does: multipart uploads, credentials, buckets, and being away."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from headwater.errors import HeadwaterError, StorageError, StorageUnavailableError
from headwater.storage.options import StorageOptions
from headwater.storage.store import Store
from tests.servers import Proxy, S3Server
from tests.storage.places import Place, s3_options, s3_place

pytestmark = pytest.mark.s3

MB = 1 << 20

Operation = Callable[[Store, str], object]
OPERATIONS: dict[str, Operation] = {
    "write": lambda store, folder: store.write(folder + "x", b"1"),
    "write much": lambda store, folder: store.write(folder + "x", bytes(20 * MB)),
    "read": lambda store, folder: store.read(folder + "x"),
    "size": lambda store, folder: store.size(folder + "x"),
    "exists": lambda store, folder: store.exists(folder + "x"),
    "verify": lambda store, folder: store.verify(folder + "x", 1),
    "list": lambda store, folder: list(store.list(folder)),
    "delete": lambda store, folder: store.delete(folder + "x"),
    "abort uploads": lambda store, folder: store.abort_uploads(folder, datetime.now(UTC)),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@pytest.fixture
def place(s3: S3Server) -> Place:
    return s3_place(s3)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", s3.ports["s3"]) as proxy:
        yield proxy


def through(proxy: Proxy, place: Place, **changes: object) -> Store:
    """The place's store, reached through the proxy."""
    options = {name: getattr(place.store.options, name) for name in StorageOptions.__slots__}
    return Store(StorageOptions(**{**options, "s3_endpoint": proxy.endpoint, **changes}))


def pending(place: Place) -> int:
    return place.store.abort_uploads(place.folder, datetime.now(UTC) + timedelta(hours=1))


def test_a_small_object_is_one_request(place: Place, proxy: Proxy) -> None:
    through(proxy, place).write(place.folder + "x", bytes(5 * MB))

    assert len(proxy.requests) == 1
    assert proxy.requests[0].startswith("PUT ")


def test_a_large_object_is_sent_in_parts_while_it_is_written(place: Place, proxy: Proxy) -> None:
    block = os.urandom(3 * MB + 17)
    count = 30
    seen_before_the_end = 0

    with through(proxy, place).open_output(place.folder + "x") as sink:
        for _ in range(count):
            sink.write(block)
        seen_before_the_end = len(proxy.seen("partNumber="))

    assert len(block) * count > 64 * MB
    assert seen_before_the_end >= 6
    assert len(proxy.seen(r"^POST .*\?uploads$")) == 1
    assert len(proxy.seen(r"^PUT .*partNumber=")) >= 8
    assert len(proxy.seen(r"^POST .*uploadId=")) == 1
    with place.store.open_input(place.folder + "x") as stored:
        assert stored.size() == len(block) * count
        assert all(stored.read(len(block)) == block for _ in range(count))
    assert pending(place) == 0


def test_a_large_object_in_one_piece_is_sent_in_parts(place: Place, proxy: Proxy) -> None:
    data = os.urandom(70 * MB)

    through(proxy, place).write(place.folder + "x", data)

    assert place.store.read(place.folder + "x") == data
    assert len(proxy.seen("partNumber=")) >= 7


def test_memory_stays_bounded_when_the_store_is_slow(place: Place, proxy: Proxy) -> None:
    proxy.rate = 20e6
    block = os.urandom(MB)
    start = peak = resident()

    with through(proxy, place).open_output(place.folder + "x") as sink:
        for _ in range(250):
            sink.write(block)
            peak = max(peak, resident())

    assert place.store.size(place.folder + "x") == 250 * MB
    assert peak - start < 150 * MB


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def write_then_raise(store: Store, location: str, megabytes: int) -> None:
    with store.open_output(location) as sink:
        for _ in range(megabytes):
            sink.write(bytes(MB))
        raise ValueError("the reason")


@pytest.mark.parametrize("megabytes", [70, 73], ids=["whole parts", "an open part"])
def test_an_aborted_upload_is_never_completed(place: Place, proxy: Proxy, megabytes: int) -> None:
    with pytest.raises(ValueError, match="the reason"):
        write_then_raise(through(proxy, place), place.folder + "x", megabytes)

    assert proxy.seen("partNumber=")
    assert proxy.seen(r"^DELETE .*uploadId=")
    assert proxy.seen(r"^DELETE (?!.*uploadId=)") == []  # there was no object to take back
    assert place.names() == []
    assert pending(place) == 0


def test_nothing_is_sent_for_a_small_file_that_fails(place: Place, proxy: Proxy) -> None:
    with pytest.raises(ValueError, match="the reason"):
        write_then_raise(through(proxy, place), place.folder + "x", 10)

    assert proxy.requests == []


def test_an_upload_that_cannot_be_ended_is_removed(place: Place, proxy: Proxy) -> None:
    proxy.cut = rb"GET \S*uploads="  # not allowed to list uploads, say

    with pytest.raises(ValueError, match="the reason"):
        write_then_raise(through(proxy, place), place.folder + "x", 40)

    assert place.names() == []
    assert pending(place) == 0


def test_an_aborted_upload_leaves_those_of_others_alone(place: Place) -> None:
    with place.store.open_output(place.folder + "x2") as other:
        other.write(bytes(20 * MB))
        with pytest.raises(ValueError, match="the reason"):
            write_then_raise(place.store, place.folder + "x", 20)

    assert place.names() == ["x2"]


def test_a_lost_part_fails_the_write_and_leaves_nothing(place: Place, proxy: Proxy) -> None:
    proxy.cut = rb"partNumber=2&"

    with pytest.raises(StorageUnavailableError) as caught:
        through(proxy, place).write(place.folder + "x", bytes(40 * MB))

    assert caught.value.retryable
    assert proxy.seen(r"^POST .*uploadId=") == []
    assert place.names() == []
    assert pending(place) == 0


def test_a_lost_completion_fails_the_write(place: Place, proxy: Proxy) -> None:
    proxy.cut = rb"POST \S*uploadId="

    with pytest.raises(StorageUnavailableError):
        through(proxy, place).write(place.folder + "x", bytes(40 * MB))

    assert place.names() == []
    assert pending(place) == 0


def test_a_network_that_breaks_during_the_upload_leaves_nothing(place: Place, proxy: Proxy) -> None:
    store = through(proxy, place)

    def break_half_way() -> None:
        with store.open_output(place.folder + "x") as sink:
            sink.write(bytes(30 * MB))
            proxy.broken = True
            for _ in range(100):
                sink.write(bytes(MB))

    with pytest.raises(StorageUnavailableError):
        break_half_way()
    proxy.broken = False

    assert place.names() == []
    assert pending(place) == 1  # nobody could be told; a clean-up finds it
    assert pending(place) == 0
    store.write(place.folder + "x", bytes(30 * MB))
    assert place.names() == ["x"]


def test_a_killed_writer_leaves_nothing_visible(place: Place, s3: S3Server) -> None:
    script = """
        import sys
        from headwater.storage.options import StorageOptions
        from headwater.storage.store import Store

        endpoint, key, secret, location = sys.argv[1:]
        store = Store(StorageOptions(s3_endpoint=endpoint, s3_access_key_id=key, s3_secret_access_key=secret))
        with store.open_output(location) as sink:
            sink.write(bytes(80 << 20))
            print("sent", flush=True)
            sys.stdin.read()
    """
    arguments = [s3.endpoint, s3.access_key, s3.secret_key, place.folder + "x"]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"sent\n"
        child.send_signal(signal.SIGKILL)

    assert place.names() == []
    assert place.store.abort_uploads(place.folder, datetime.now(UTC) - timedelta(hours=1)) == 0
    assert pending(place) == 1
    assert pending(place) == 0


def test_the_server_goes_and_comes_back(place: Place, s3: S3Server) -> None:
    place.store.write(place.folder + "before", b"1")
    s3.stop(kill=True)

    for name, operation in OPERATIONS.items():
        started = time.monotonic()
        with pytest.raises(StorageUnavailableError) as caught:
            operation(place.store, place.folder)
        assert time.monotonic() - started < 20, name
        assert place.folder in str(caught.value)
        assert caught.value.retryable

    s3.start()
    place.store.write(place.folder + "after", b"2")
    assert place.names() == ["after", "before"]


def test_the_server_goes_during_an_upload_and_comes_back(place: Place, s3: S3Server) -> None:
    def lose_the_server() -> None:
        with place.store.open_output(place.folder + "x") as sink:
            sink.write(bytes(30 * MB))
            s3.stop(kill=True)
            sink.write(bytes(30 * MB))

    with pytest.raises(StorageUnavailableError):
        lose_the_server()
    s3.start()

    assert place.names() == []
    place.store.write(place.folder + "x", bytes(30 * MB))
    assert place.names() == ["x"]


def test_a_server_that_never_answers_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = StorageOptions(
            s3_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}",
            s3_access_key_id="key",
            s3_secret_access_key="secret",
            request_timeout=1,
            max_attempts=1,
        )
        started = time.monotonic()
        with pytest.raises(StorageUnavailableError):
            Store(options).exists("s3://lake/x")
        assert time.monotonic() - started < 5


@every_operation
@pytest.mark.parametrize("wrong", ["s3_access_key_id", "s3_secret_access_key"])
def test_wrong_credentials_are_an_error_that_keeps_the_secret(
    place: Place, s3: S3Server, operation: Operation, wrong: str
) -> None:
    secret = "WRONGSECRET/abc+123"
    changes = {wrong: "WRONGKEY"} if wrong == "s3_access_key_id" else {wrong: secret}
    store = Store(s3_options(s3, **changes))
    place.store.write(place.folder + "x", b"1")

    with pytest.raises(StorageError) as caught:
        operation(store, place.folder)

    assert not caught.value.retryable
    assert "s3_secret_access_key" in str(caught.value.hint)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.as_dict()) + repr(store)
    assert secret not in shown
    assert s3.secret_key not in shown
    assert place.names() == ["x"]


@every_operation
def test_a_missing_bucket_is_named(s3: S3Server, operation: Operation) -> None:
    with pytest.raises(StorageError, match="There is no bucket 'no-such-bucket'") as caught:
        operation(Store(s3_options(s3)), "s3://no-such-bucket/folder/")

    assert caught.value.bucket == "no-such-bucket"
    assert not caught.value.retryable


def test_tls_to_a_server_without_it_is_explained(s3: S3Server) -> None:
    store = Store(s3_options(s3, s3_endpoint=s3.address, s3_use_ssl=True))

    with pytest.raises(StorageUnavailableError, match="s3_use_ssl"):
        store.exists("s3://lake/x")


def test_a_store_without_keys_spools_and_sends_whole_files(
    place: Place, proxy: Proxy, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Keys that only the driver's own chain can find: this is how the machine's identity is used.
    monkeypatch.setattr(StorageOptions, "resolved", lambda self: without_keys)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    without_keys = StorageOptions(
        s3_region="us-east-1", s3_endpoint=proxy.address, s3_use_ssl=False, s3_url_style="path"
    )
    store = Store()

    with pytest.raises(ValueError, match="the reason"):
        write_then_raise(store, place.folder + "x", 30)
    assert proxy.requests == []

    data = os.urandom(70 * MB)
    store.write(place.folder + "x", data)
    assert store.read(place.folder + "x") == data
    proxy.cut = rb"partNumber=2&"
    with pytest.raises(StorageUnavailableError):
        store.write(place.folder + "y", data)
    proxy.cut = None
    assert place.names() == ["x"]
    store.delete_many([place.folder + "x", place.folder + "gone"])
    assert place.names() == []
    assert store.abort_uploads(place.folder, datetime.now(UTC)) == 0


def test_errors_survive_pickling(s3: S3Server) -> None:
    import pickle

    with pytest.raises(HeadwaterError) as caught:
        Store(s3_options(s3)).read("s3://no-such-bucket/x")

    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
