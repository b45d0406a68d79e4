"""One behaviour, on a local disk and on a real S3 server."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptFileError, FileMissingError, SettingsError
from headwater.storage.store import Store
from tests.storage.places import Place, local_place, s3_place


def make_place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if kind == "s3":
        return s3_place(request.getfixturevalue("s3"))
    return local_place(tmp_path, "file://" if kind == "file-uri" else "")


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return make_place(request.param, request, tmp_path)


@pytest.fixture(params=["local", "file-uri", pytest.param("s3", marks=pytest.mark.s3)])
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Also a local folder written as a URI: for tests about how locations are written."""
    return make_place(request.param, request, tmp_path)


NAMES = [
    "plain.parquet",
    "deep/er/and/deeper/x.parquet",
    "b=a%20b/c=1%2F2/x.parquet",
    "with space.parquet",
    "per%cent.parquet",
    "ünï/cødé 漢字 😀.parquet",
    "quo'te\"s.parquet",
    "a+b&c=d,e;f@g:h!i$j(k)[l]{m}^n`o|p~q#r.parquet",
    "star*.parquet",
    "x" * 200,
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_literally(any_place: Place, name: str) -> None:
    place = any_place
    location = place.folder + name
    data = name.encode() * 3

    place.store.write(location, data)

    assert place.names() == [name]
    assert place.store.read(location) == data
    assert place.store.size(location) == len(data)
    assert place.store.exists(location)
    assert [file[:2] for file in place.store.list(place.folder)] == [(location, len(data))]
    place.store.delete(location)
    assert not place.store.exists(location)
    assert place.names() == []


# A slash makes a folder, a question mark means settings to DuckDB, and SeaweedFS reads "\" as "/".
name_text = st.text(
    st.characters(exclude_characters="/\0?\\", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30
).filter(lambda name: name not in (".", ".."))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(folder=name_text, name=name_text)
def test_any_name_is_found_again(any_place: Place, folder: str, name: str) -> None:
    place = any_place
    location = f"{place.folder}{folder}=1/{name}"
    place.store.write(location, name.encode())
    try:
        assert place.store.read(location) == name.encode()
        assert [file.location for file in place.store.list(place.folder)] == [location]
    finally:
        place.store.delete(location)
    assert list(place.store.list(place.folder)) == []


@pytest.mark.parametrize("data", [b"", b"x", memoryview(b"abc"), pa.py_buffer(b"arrow"), bytearray(b"\0\1")])
def test_any_kind_of_bytes_is_stored(place: Place, data: bytes) -> None:
    place.store.write(place.folder + "x", data)

    assert place.store.read(place.folder + "x") == bytes(memoryview(data))


def test_a_missing_file_is_reported_as_missing(place: Place) -> None:
    location = place.folder + "nothing.parquet"

    assert not place.store.exists(location)
    for call in (place.store.read, place.store.size, place.store.open_input):
        with pytest.raises(FileMissingError, match=r"nothing\.parquet"):
            call(location)
    with pytest.raises(CorruptFileError, match="there is no file"):
        place.store.verify(location, 3)


def test_a_folder_is_not_a_file(place: Place) -> None:
    place.store.write(place.folder + "folder/x", b"1")

    assert not place.store.exists(place.folder + "folder")
    with pytest.raises(FileMissingError):
        place.store.size(place.folder + "folder")


def test_deleting_what_is_not_there_is_fine(place: Place) -> None:
    place.store.write(place.folder + "a/there", b"1")

    place.store.delete(place.folder + "a/gone")
    place.store.delete_many([place.folder + "a/there", place.folder + "b/gone", place.folder + "a/gone"])

    assert place.names() == []


def test_thousands_of_files_are_deleted(place: Place) -> None:
    locations = [f"{place.folder}p={n % 7}/<{n}>&amp;.parquet" for n in range(60)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda location: place.store.write(location, b"x"), locations))
    assert len(place.names()) == 60

    place.store.delete_many([*locations, *(f"{place.folder}gone-{n}" for n in range(1500))])

    assert place.names() == []


def test_a_listing_gives_locations_sizes_and_times(any_place: Place) -> None:
    place = any_place
    before = datetime.now(UTC) - timedelta(seconds=5)
    for name, size in {"a": 1, "d/b": 2, "d/e/c": 3}.items():
        place.store.write(place.folder + name, b"x" * size)

    everything = sorted(place.store.list(place.folder))
    without_slash = sorted(place.store.list(place.folder.removesuffix("/")))
    top = list(place.store.list(place.folder, recursive=False))

    assert [(f.location.removeprefix(place.folder), f.size) for f in everything] == [
        ("a", 1),
        ("d/b", 2),
        ("d/e/c", 3),
    ]
    assert all(before <= f.modified <= datetime.now(UTC) + timedelta(seconds=5) for f in everything)
    assert without_slash == everything
    assert [f.location for f in top] == [place.folder + "a"]
    assert list(place.store.list(place.folder + "no/such/folder/")) == []


def test_a_listing_does_not_leave_its_folder(place: Place) -> None:
    place.store.write(place.folder + "sales/x", b"1")
    place.store.write(place.folder + "sales2/y", b"1")

    assert [f.location for f in place.store.list(place.folder + "sales")] == [place.folder + "sales/x"]


def test_a_wrong_size_is_found_before_it_is_committed(place: Place) -> None:
    location = place.folder + "x"
    place.store.write(location, b"0123456789")

    place.store.verify(location, 10)
    with pytest.raises(CorruptFileError, match="10 bytes instead of 11") as caught:
        place.store.verify(location, 11)
    assert (caught.value.expected_size, caught.value.found_size) == (11, 10)
    assert place.store.read_tail(location, 10, 4) == b"6789"
    assert place.store.read_tail(location, 10, 99) == b"0123456789"
    with pytest.raises(CorruptFileError, match="10 bytes instead of 9"):
        place.store.read_tail(location, 9, 4)


def test_parquet_is_written_and_read_at_any_position(place: Place) -> None:
    table = pa.table({"n": range(100_000), "t": [f"row {n}" for n in range(100_000)]})
    location = place.folder + "t.parquet"

    with place.store.open_output(location) as sink, pq.ParquetWriter(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=10_000):
            writer.write_batch(batch)
        assert sink.tell() > 0

    with place.store.open_input(location) as file:
        assert pq.ParquetFile(file).read_row_group(3).equals(table.slice(30_000, 10_000))
        assert file.size() == place.store.size(location)


def test_nothing_is_visible_before_the_end(place: Place) -> None:
    location = place.folder + "d/x"
    with place.store.open_output(location) as sink:
        sink.write(b"half")
        assert not place.store.exists(location)
        sink.write(b" and half")
        sink.flush()
        sink.close()
        assert not place.store.exists(location)

    assert place.store.read(location) == b"half and half"
    assert place.names() == ["d/x"]


class Interrupted(BaseException):
    """Neither an `Exception` nor an I/O error, like `KeyboardInterrupt`."""


def write_and_fail(place: Place, location: str, size: int, error: BaseException) -> None:
    with place.store.open_output(location) as sink:
        for _ in range(0, size, 1 << 20):
            sink.write(b"x" * min(size, 1 << 20))
        raise error


@pytest.mark.parametrize("error", [ValueError("no"), OSError("other file"), Interrupted()], ids=type)
@pytest.mark.parametrize("size", [0, 10, 30 << 20], ids=["nothing", "little", "much"])
def test_an_exception_leaves_nothing(place: Place, size: int, error: BaseException) -> None:
    location = place.folder + "x"

    with pytest.raises(type(error)) as caught:
        write_and_fail(place, location, size, error)

    assert caught.value is error
    assert place.names() == []


def test_an_exception_inside_a_parquet_writer_leaves_nothing(place: Place) -> None:
    table = pa.table({"n": range(1000)})

    def fail_half_way() -> None:
        with (
            place.store.open_output(place.folder + "x.parquet") as sink,
            pq.ParquetWriter(sink, table.schema) as writer,  # ends the file with a valid footer even then
        ):
            writer.write_table(table)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()

    assert place.names() == []


def test_an_exception_keeps_the_file_that_was_there(place: Place) -> None:
    place.store.write(place.folder + "x", b"old")

    with pytest.raises(ValueError):
        write_and_fail(place, place.folder + "x", 20 << 20, ValueError())

    assert place.store.read(place.folder + "x") == b"old"
    place.store.write(place.folder + "x", b"new")
    assert place.store.read(place.folder + "x") == b"new"


def test_an_abandoned_file_never_appears(place: Place) -> None:
    context = place.store.open_output(place.folder + "x")
    context.__enter__().write(b"half")

    del context

    assert place.names() == []


def test_many_threads_share_a_store(place: Place) -> None:
    def round_trip(n: int) -> bool:
        data = os.urandom(50_000)
        place.store.write(f"{place.folder}{n % 5}/{n}", data)
        return place.store.read(f"{place.folder}{n % 5}/{n}") == data

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(round_trip, range(100)))
    assert len(place.names()) == 100


def test_a_pickled_store_works(place: Place) -> None:
    place.store.write(place.folder + "x", b"1")

    copy = pickle.loads(pickle.dumps(place.store))

    assert copy.read(place.folder + "x") == b"1"
    assert copy.options == place.store.options


def _in_child(store: Store, folder: str) -> None:
    assert store.read(folder + "parent") == b"p" * (20 << 20)
    store.write(folder + "child", b"c" * (20 << 20))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_uses_the_same_store(place: Place, method: str) -> None:
    place.store.write(place.folder + "parent", b"p" * (20 << 20))
    assert place.store.exists(place.folder + "parent")

    child = multiprocessing.get_context(method).Process(target=_in_child, args=(place.store, place.folder))
    child.start()
    child.join(60)

    assert child.exitcode == 0
    assert place.store.read(place.folder + "child") == b"c" * (20 << 20)
    assert place.store.read(place.folder + "parent")[:1] == b"p"


def test_a_location_that_names_no_file_is_refused_before_anything_happens(any_place: Place) -> None:
    place = any_place
    for location in ("", place.folder, place.folder + "x/", "s3://bucket"):
        with pytest.raises(SettingsError):
            place.store.write(location, b"")
    assert place.names() == []
