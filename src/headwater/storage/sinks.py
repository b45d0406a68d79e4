"""Files being written: nothing is visible under the final name until `commit`, and never after `abort`.

Each kind of store has its own way there. A local file gets a temporary name and is renamed. S3 streams a
multipart upload that is ended from outside when it must not be completed. Stores whose uploads cannot be
taken back collect the data on local disk and send it when it is whole.
"""

from __future__ import annotations

import errno
import io
import os
import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from headwater.storage.faults import not_a_folder, translated
from headwater.storage.locations import Location
from headwater.storage.s3 import S3Requests

#: Names of local files that are being written, and of those a killed process left behind.
TEMPORARY_PREFIX: Final = ".headwater-"
TEMPORARY_SUFFIX: Final = ".tmp"

_MEMORY: Final = 16 << 20
"""Objects up to this size wait in memory and are sent when they are whole."""
_WINDOW: Final = 64 << 20
"""So much may be on its way to S3; pyarrow alone would queue a whole file in memory."""
_CHUNK: Final = 8 << 20


class Sink(io.RawIOBase):
    """A writable binary file as pyarrow's `PythonFile` wants it, plus `commit` and `abort`."""

    def __init__(self, location: Location, secrets: Sequence[str] = ()):
        super().__init__()
        self.location = location
        self._secrets = secrets
        self._size = 0
        self._ended = False

    def write(self, data: Any) -> int:
        """Take the next bytes."""
        view = memoryview(data).cast("B")
        with translated(self.location, "write", self._secrets):
            self._write(view)
        self._size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes taken so far."""
        return self._size

    def writable(self) -> bool:
        """Always true."""
        return True

    def close(self) -> None:
        """Nothing: whoever opened the sink decides between `commit` and `abort`."""

    def commit(self) -> None:
        """Make the file visible under its name, whole; or raise, and leave nothing."""
        try:
            with translated(self.location, "write", self._secrets):
                self._commit()
        except BaseException:
            self.abort()
            raise
        self._ended = True

    def abort(self) -> None:
        """Leave nothing behind. What goes wrong here is kept quiet: the reason for aborting matters."""
        if not self._ended:
            self._ended = True
            self._abort()

    @abstractmethod
    def _write(self, data: memoryview) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _abort(self) -> None: ...


class LocalSink(Sink):
    """A local file, written under a temporary name in its folder and renamed when it is on disk."""

    def __init__(self, location: Location, *, fsync: bool):
        super().__init__(location)
        self._fsync = fsync
        self._final = Path(location.path)
        folder = self._final.parent
        with translated(location, "write"):
            self._created = _make_folder(folder, location)
            if self._final.is_dir():
                raise IsADirectoryError(errno.EISDIR, "that name is a folder", str(self._final))
            self._temporary = folder / f"{TEMPORARY_PREFIX}{uuid4().hex}{TEMPORARY_SUFFIX}"
            self._file = self._temporary.open("xb", buffering=0)

    def _write(self, data: memoryview) -> None:
        while data:  # an unbuffered write may take only a part
            data = data[self._file.write(data) :]

    def _commit(self) -> None:
        if self._fsync:
            os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._final)
        if self._fsync:
            # The name is safe when its folder is, and a new folder when the one above it is.
            for folder in (self._final.parent, *(made.parent for made in self._created)):
                _sync_folder(folder)

    def _abort(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._temporary.unlink()


class ObjectSink(Sink):
    """What the object stores have in common: closing pyarrow's stream is what makes an object visible."""

    def __init__(self, location: Location, filesystem: fs.FileSystem, secrets: Sequence[str]):
        super().__init__(location, secrets)
        self._filesystem = filesystem
        self._stream: pa.NativeFile | None = None
        self._close_failed = False
        self._in_flight = 0

    def _open(self) -> pa.NativeFile:
        self._stream = self._filesystem.open_output_stream(self.location.path)
        return self._stream

    def _send(self, stream: pa.NativeFile, data: memoryview) -> None:
        for start in range(0, data.nbytes, _CHUNK):
            chunk = data[start : start + _CHUNK]
            stream.write(chunk)
            self._in_flight += chunk.nbytes
            # The other stores would make visible what is flushed.
            if self._in_flight >= _WINDOW and self.location.kind == "s3":
                stream.flush()  # waits for the parts on their way
                self._in_flight = 0

    def _publish(self, stream: pa.NativeFile) -> None:
        try:
            stream.close()
        except (OSError, pa.ArrowException):
            self._close_failed = True
            raise

    def _take_back(self) -> None:
        """Close a stream without an object coming of it, or remove the object again."""
        if self._stream is None:
            return
        if not self._stream.closed:
            with suppress(OSError, pa.ArrowException):
                self._publish(self._stream)
        if not self._close_failed:
            with suppress(OSError, pa.ArrowException):
                self._filesystem.delete_file(self.location.path)


class MultipartSink(ObjectSink):
    """An S3 object: one request when it is small, otherwise parts that are sent while more is written."""

    def __init__(
        self, location: Location, filesystem: fs.FileSystem, requests: S3Requests, secrets: Sequence[str]
    ):
        super().__init__(location, filesystem, secrets)
        self._requests = requests
        self._waiting = bytearray()

    def _write(self, data: memoryview) -> None:
        if self._stream is None and len(self._waiting) + data.nbytes <= _MEMORY:
            self._waiting += data
        else:
            self._send(self._begun(), data)

    def _begun(self) -> pa.NativeFile:
        if self._stream is not None:
            return self._stream
        stream = self._open()
        waiting, self._waiting = self._waiting, bytearray()
        self._send(stream, memoryview(waiting))
        return stream

    def _commit(self) -> None:
        self._publish(self._begun())

    def _abort(self) -> None:
        self._waiting = bytearray()
        if self._stream is None:
            return
        if not self._stream.closed:
            # A part still on its way could arrive after the end of its upload, and would stay there.
            with suppress(OSError):
                self._stream.flush()
        self._end_uploads()
        self._take_back()  # fails to complete what was ended, which is the point

    def _end_uploads(self) -> None:
        bucket, key = self.location.bucket, self.location.key
        with suppress(OSError):
            for upload in self._requests.pending_uploads(bucket, key):
                if upload.key == key:
                    self._requests.abort_upload(bucket, upload)


class SpooledSink(ObjectSink):
    """An object of a store without abort: collected in memory, then on disk, and sent when it is whole."""

    def __init__(self, location: Location, filesystem: fs.FileSystem, secrets: Sequence[str]):
        super().__init__(location, filesystem, secrets)
        self._spool = tempfile.SpooledTemporaryFile(max_size=_MEMORY, prefix=TEMPORARY_PREFIX)  # noqa: SIM115

    def _write(self, data: memoryview) -> None:
        self._spool.write(data)

    def _commit(self) -> None:
        self._spool.seek(0)
        stream = self._open()
        while chunk := self._spool.read(_CHUNK):
            self._send(stream, memoryview(chunk))
        self._publish(stream)
        self._spool.close()

    def _abort(self) -> None:
        self._spool.close()
        self._take_back()


def _make_folder(folder: Path, location: Location) -> list[Path]:
    """Create a folder with those above it; returns the new ones."""
    missing = []
    for path in (folder, *folder.parents):
        if path.is_dir():
            break
        # Asked twice: between the two questions another writer may have created the folder.
        if path.exists() and not path.is_dir():
            raise not_a_folder(location, f"{path} is a file")
        missing.append(path)
    # Another writer may create the same folders at the same time.
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
