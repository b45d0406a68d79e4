"""What only a local disk does: folders, permissions, and being full."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headwater.errors import FileMissingError, StorageError, StorageUnavailableError
from headwater.storage.options import StorageOptions
from headwater.storage.sinks import TEMPORARY_PREFIX, TEMPORARY_SUFFIX
from headwater.storage.store import Store


def run(script: str, *arguments: object, before: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    code = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run([*(before or []), *code], capture_output=True, text=True, timeout=60)


def test_a_relative_path_is_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    Store().write("data/main/x", b"1")

    assert (tmp_path / "data/main/x").read_bytes() == b"1"
    assert [f.location for f in Store().list("data/")] == ["data/main/x"]


def test_folders_and_files_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        Store().write(f"{tmp_path}/a/b/x", b"1")
    finally:
        os.umask(old)

    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/x")]
    assert modes == [0o750, 0o750, 0o640]


def test_a_data_path_that_is_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("not a folder")

    for location in (f"{tmp_path}/lake/x", f"{tmp_path}/lake/main/t/x"):
        with pytest.raises(StorageError, match="is a file, not a folder") as caught:
            Store().write(location, b"1")
        assert caught.value.location == location
    with pytest.raises(StorageError, match="is a file, not a folder"):
        list(Store().list(f"{tmp_path}/lake/"))
    assert not Store().exists(f"{tmp_path}/lake/x")
    Store().delete(f"{tmp_path}/lake/x")
    assert (tmp_path / "lake").read_text() == "not a folder"


def test_a_name_that_is_a_folder_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()

    with pytest.raises(StorageError, match="is a folder"):
        Store().write(f"{tmp_path}/x", b"1")
    assert os.listdir(tmp_path) == ["x"]


def test_a_name_too_long_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="File name too long"):
        Store().write(f"{tmp_path}/{'x' * 300}", b"1")
    assert os.listdir(tmp_path) == []


def test_without_permission_the_path_is_named(tmp_path: Path) -> None:
    # As another user when the tests run as root, for whom permissions do not count.
    os.chmod(tmp_path, 0o755)
    locked = tmp_path / "locked"
    locked.mkdir()
    (locked / "x").write_text("secret")
    locked.chmod(0o500 if os.getuid() else 0o700)
    script = """
        import os, sys
        from headwater.errors import StorageError, StorageUnavailableError
        from headwater.storage.store import Store

        if os.getuid() == 0:
            os.setuid(65534)
        for call in (lambda x: Store().write(x, b"1"), lambda x: Store().write(x + "/d/e", b"1")):
            try:
                call(sys.argv[1] + "/new")
            except StorageError as error:
                assert not isinstance(error, StorageUnavailableError)
                print(error.message)
    """
    # The folders above are the test user's own.
    for folder in tmp_path.parents:
        if folder.name.startswith("pytest-") and os.getuid() == 0:
            folder.chmod(0o755)

    result = run(script, locked)
    locked.chmod(0o700)

    assert result.stderr == ""
    assert result.stdout.count("no permission") == 2
    assert str(locked) in result.stdout
    assert os.listdir(locked) == ["x"]


FULL_DISK = """
    import os, subprocess, sys
    from headwater.errors import StorageUnavailableError
    from headwater.storage.store import Store

    folder = sys.argv[1]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    store = Store()
    store.write(folder + "/old", b"o" * 500_000)
    for _ in range(2):
        try:
            with store.open_output(folder + "/d/new") as sink:
                for _ in range(100):
                    sink.write(b"n" * 100_000)
        except StorageUnavailableError as error:
            print(error)
            assert error.retryable and error.location == folder + "/d/new"
    found = sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    assert found == [folder + "/old"], found
    os.unlink(folder + "/old")
    store.write(folder + "/d/new", b"n" * 900_000)
    assert store.size(folder + "/d/new") == 900_000
"""


def test_a_full_disk_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    isolate = ["unshare", "--user", "--map-root-user", "--mount"]
    probe = [*isolate, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("this machine does not let the tests mount a small disk")

    result = run(FULL_DISK, tmp_path, before=isolate)

    assert result.stderr == ""
    assert result.returncode == 0
    assert result.stdout.count("the disk is full") == 2
    assert result.stdout.count(f"{tmp_path}/d/new") >= 2


def test_a_file_size_limit_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    script = """
        import resource, sys
        from headwater.errors import StorageError
        from headwater.storage.store import Store

        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            Store().write(sys.argv[1], b"x" * 200_000)
        except StorageError as error:
            print(error)
    """

    result = run(script, tmp_path / "x")

    assert "File too large" in result.stdout
    assert os.listdir(tmp_path) == []


def test_a_killed_writer_leaves_only_a_temporary_file(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from headwater.storage.store import Store

        with Store().open_output(sys.argv[1]) as sink:
            sink.write(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    """

    run(script, tmp_path / "x.parquet")

    assert not Store().exists(f"{tmp_path}/x.parquet")
    (left,) = Store().list(f"{tmp_path}/")
    name = left.location.rpartition("/")[2]
    assert name.startswith(TEMPORARY_PREFIX)
    assert name.endswith(TEMPORARY_SUFFIX)
    assert left.size == 4


def test_without_waiting_for_the_disk_the_result_is_the_same(tmp_path: Path) -> None:
    Store(StorageOptions(local_fsync=False)).write(f"{tmp_path}/d/x", b"1")

    assert Store().read(f"{tmp_path}/d/x") == b"1"


def test_links_to_nowhere_do_not_break_a_listing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "x").write_text("1")

    assert [f.location for f in Store().list(f"{tmp_path}/")] == [f"{tmp_path}/x"]
    with pytest.raises(FileMissingError):
        Store().read(f"{tmp_path}/link")


def test_full_disk_is_the_only_local_fault_worth_a_retry(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")

    with pytest.raises(StorageError) as caught:
        Store().write(f"{tmp_path}/lake/x", b"1")

    assert not isinstance(caught.value, StorageUnavailableError)
