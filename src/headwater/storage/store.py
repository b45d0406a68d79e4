"""Files by their full location, the same way on a local disk and in every object store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from headwater.errors import CorruptFileError, SettingsError, StorageError
from headwater.storage.faults import missing_bucket, missing_file, not_a_folder, translated
from headwater.storage.filesystems import open_filesystem
from headwater.storage.locations import Location, as_folder, parse_location
from headwater.storage.options import StorageOptions
from headwater.storage.s3 import DELETE_BATCH, S3Requests
from headwater.storage.sinks import LocalSink, MultipartSink, Sink, SpooledSink

_DELETE_THREADS = 16


class StoredFile(NamedTuple):
    """One entry of a listing; `location` starts with the text that was listed."""

    location: str
    size: int
    modified: datetime


class Store:
    """Reads and writes files named by full location: `/data/x`, `file:///data/x`, `s3://bucket/x` …

    A store holds only its options; connections are opened when they are first needed and belong to the
    process that opened them, so a store can be pickled, inherited by a fork and used by many threads.

    >>> store = Store()
    >>> store.exists("/no/such/file")
    False
    """

    def __init__(self, options: StorageOptions | None = None):
        self.options = options or StorageOptions()
        self._open: dict[tuple[int, str, str | None], _Connection] = {}

    def __repr__(self) -> str:
        return f"Store({self.options!r})"

    def __reduce__(self) -> tuple[type[Store], tuple[StorageOptions]]:
        return Store, (self.options,)

    # Writing

    def write(self, location: str, data: bytes | memoryview | pa.Buffer) -> None:
        """Store `data` under a name: all of it, or nothing."""
        with self.open_output(location) as sink:
            sink.write(data)

    @contextmanager
    def open_output(self, location: str) -> Iterator[pa.NativeFile]:
        """Write a file piece by piece; it appears under its name, whole, when the block ends.

        If the block raises, nothing appears. Large objects are sent in parts while they are written, and
        memory stays bounded whatever the size.
        """
        sink = self._sink(parse_location(location))
        try:
            yield pa.PythonFile(sink, mode="w")
        except BaseException:
            sink.abort()
            raise
        sink.commit()

    # Reading

    def open_input(self, location: str) -> pa.NativeFile:
        """A file to read from at any position.

        Reads from it raise what pyarrow raises; wrap them in `reading` to get Headwater's errors.
        """
        place = parse_location(location)
        connection = self._connect(place)
        with self._translated(place, "read"):
            try:
                return connection.filesystem.open_input_file(place.path)
            except FileNotFoundError:
                self._require_bucket(place, connection)
                raise missing_file(place) from None

    def reading(self, location: str) -> AbstractContextManager[None]:
        """A block in which everything that pyarrow raises is about reading `location`."""
        return self._translated(parse_location(location), "read")

    def read(self, location: str) -> bytes:
        """The whole content."""
        with self.reading(location), self.open_input(location) as file:
            return bytes(file.read())

    def read_tail(self, location: str, size: int, n: int) -> bytes:
        """The last `n` bytes of a file that must be `size` bytes long."""
        with self.reading(location), self.open_input(location) as file:
            if (found := file.size()) != size:
                raise _wrong_size(location, size, found)
            n = min(n, size)
            file.seek(size - n)
            return bytes(file.read(n))

    def size(self, location: str) -> int:
        """Bytes stored."""
        place = parse_location(location)
        info = self._info(place)
        if info.type is not fs.FileType.File:
            raise missing_file(place)
        return int(info.size)

    def exists(self, location: str) -> bool:
        """Whether a file (not a folder) is there. A missing bucket is an error, not False."""
        return self._info(parse_location(location)).type is fs.FileType.File

    def verify(self, location: str, expected_size: int) -> None:
        """Raise `CorruptFileError` unless a file of exactly that size is stored."""
        info = self._info(parse_location(location))
        found = int(info.size) if info.type is fs.FileType.File else None
        if found != expected_size:
            raise _wrong_size(location, expected_size, found)

    def list(self, prefix: str, *, recursive: bool = True) -> Iterator[StoredFile]:
        """The files in a folder, in no particular order. A folder that does not exist is empty.

        Names that start with `.headwater-` and end in `.tmp` are local files still being written, or
        left by a process that was killed.
        """
        place = parse_location(prefix)
        base = as_folder(prefix)
        if place.is_local:
            yield from self._list_local(place, Path(place.path), base, recursive)
            return
        connection = self._connect(place)
        with self._translated(place, "list"):
            selector = fs.FileSelector(place.path, allow_not_found=True, recursive=recursive)
            found = connection.filesystem.get_file_info(selector)
            if not found:
                self._require_bucket(place, connection)
        for info in found:
            if info.type is fs.FileType.File:
                name = info.path[len(place.path) + 1 :]
                yield StoredFile(base + name, int(info.size), _utc(info.mtime))

    # Deleting

    def delete(self, location: str) -> None:
        """Remove a file. One that is not there is fine."""
        self.delete_many([location])

    def delete_many(self, locations: Iterable[str]) -> None:
        """Remove many files, where the store can in few requests. Those not there are fine.

        When one cannot be removed the rest may or may not be; running it again is safe.
        """
        single: list[Location] = []
        buckets: dict[str, list[Location]] = {}
        for place in map(parse_location, locations):
            # XML cannot carry control characters, so such keys are deleted one by one.
            if place.kind == "s3" and place.key.isprintable():
                buckets.setdefault(place.bucket, []).append(place)
            else:
                single.append(place)
        for places in buckets.values():
            if (requests := self._connect(places[0]).requests) is None:
                single.extend(places)
                continue
            for start in range(0, len(places), DELETE_BATCH):
                self._delete_batch(requests, places[start : start + DELETE_BATCH])
        if all(place.is_local for place in single):
            for place in single:
                self._delete_one(place)
        else:
            with ThreadPoolExecutor(_DELETE_THREADS, thread_name_prefix="headwater-delete") as pool:
                for _ in pool.map(self._delete_one, single):
                    pass

    def abort_uploads(self, prefix: str, older_than: datetime) -> int:
        """End S3 uploads under a folder that were begun before a time and never finished.

        They are invisible and cost storage: what a killed writer leaves. Returns how many there were;
        always 0 for stores that have no such thing or cannot be asked.
        """
        place = parse_location(prefix)
        requests = self._connect(place).requests if place.kind == "s3" else None
        if requests is None:
            return 0
        with self._translated(place, "clean up"):
            stale = [
                upload
                for upload in requests.pending_uploads(
                    place.bucket, as_folder(place.key) if place.key else ""
                )
                if upload.started < older_than
            ]
            for upload in stale:
                requests.abort_upload(place.bucket, upload)
        return len(stale)

    # How

    def _connect(self, place: Location) -> _Connection:
        # A connection must not be shared with a parent process. Two threads may both open one; one wins.
        key = (os.getpid(), place.kind, place.account)
        connection = self._open.get(key)
        if connection is None:
            connection = self._open.setdefault(key, _Connection(place, self.options))
        return connection

    def _translated(self, place: Location, doing: str) -> AbstractContextManager[None]:
        connection = self._connect(place)
        return translated(place, doing, connection.secrets)

    def _sink(self, place: Location) -> Sink:
        if place.text.endswith("/") or not place.key:
            raise SettingsError(
                f"Cannot write {place.text!r}: it names a folder, not a file", location=place.text
            )
        if place.is_local:
            return LocalSink(place, fsync=self.options.local_fsync)
        connection = self._connect(place)
        if connection.requests is not None:
            return MultipartSink(place, connection.filesystem, connection.requests, connection.secrets)
        return SpooledSink(place, connection.filesystem, connection.secrets)

    def _info(self, place: Location) -> Any:
        connection = self._connect(place)
        with self._translated(place, "look at"):
            info = connection.filesystem.get_file_info(place.path)
            if info.type is fs.FileType.NotFound:
                self._require_bucket(place, connection)
        return info

    def _require_bucket(self, place: Location, connection: _Connection) -> None:
        """Tell a missing bucket from a missing file; pyarrow reports both alike."""
        if (
            not place.is_local
            and connection.filesystem.get_file_info(place.bucket).type is fs.FileType.NotFound
        ):
            raise missing_bucket(place)

    def _list_local(self, place: Location, folder: Path, base: str, recursive: bool) -> Iterator[StoredFile]:
        folders = []
        with translated(place, "list"):
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except FileNotFoundError:
                return
            except NotADirectoryError as error:
                raise not_a_folder(place, str(error)) from None
            files = []
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.name)
                    continue
                try:
                    stat = entry.stat()
                except FileNotFoundError:
                    continue  # removed meanwhile, or a link to nowhere
                modified = datetime.fromtimestamp(stat.st_mtime, UTC)
                files.append(StoredFile(base + entry.name, stat.st_size, modified))
        yield from files
        if recursive:
            for name in folders:
                yield from self._list_local(place, folder / name, f"{base}{name}/", recursive)

    def _delete_one(self, place: Location) -> None:
        connection = self._connect(place)
        with self._translated(place, "delete"):
            try:
                if place.is_local:
                    Path(place.path).unlink()
                else:
                    connection.filesystem.delete_file(place.path)
            except (FileNotFoundError, NotADirectoryError):
                pass

    def _delete_batch(self, requests: S3Requests, batch: Sequence[Location]) -> None:
        with self._translated(batch[0], "delete"):
            requests.delete_objects(batch[0].bucket, [place.key for place in batch])


class _Connection:
    """What one process holds open to one store."""

    def __init__(self, place: Location, options: StorageOptions):
        if place.kind == "s3":
            options = options.resolved()
        self.secrets = options.secrets()
        self.filesystem = open_filesystem(place, options)
        self.requests = S3Requests(options) if place.kind == "s3" and S3Requests.possible(options) else None


def _utc(moment: datetime | None) -> datetime:
    return moment.astimezone(UTC) if moment else datetime.fromtimestamp(0, UTC)


def _wrong_size(location: str, expected: int, found: int | None) -> StorageError:
    return CorruptFileError(
        f"What is stored at {location!r} is not what was written",
        detail="there is no file" if found is None else f"{found} bytes instead of {expected}",
        location=location,
        expected_size=expected,
        found_size=found,
    )
