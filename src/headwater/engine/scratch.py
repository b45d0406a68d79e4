"""A folder for an embedded lake that is made anew each time it is used."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.engine.connecting import DATA_FOLDER, SERVER_FOLDER, prepare_folder
from headwater.errors import SettingsError
from headwater.lake.embedded.locks import release, try_lock
from headwater.lake.scratch import open_emptied

#: Says that everything in a folder may be thrown away.
MARKER = ".scratch"


@contextmanager
def fresh_folder(folder: Path) -> Iterator[None]:
    """Empty the lake of `folder`, and keep its server running until the block ends.

    Only a folder that was made by this function is ever emptied, and by one process at a time.
    """
    prepare_folder(folder)
    marker = folder / MARKER
    strangers = {entry.name for entry in folder.iterdir()} - {".gitignore"}
    if strangers and not marker.exists():
        raise SettingsError(
            f"{folder} is in use by something else, and the demo starts with an empty folder.",
            detail=f"It contains {', '.join(sorted(strangers)[:5])}.",
            hint="Name another folder with --folder.",
            folder=str(folder),
        )
    lock = try_lock(marker)
    if lock is None:
        raise SettingsError(
            f"Another demo is running in {folder}.",
            hint="Wait for its end (or press Ctrl-C there), or name another folder with --folder.",
            folder=str(folder),
        )
    try:
        server = open_emptied(folder / SERVER_FOLDER)
        try:
            shutil.rmtree(folder / DATA_FOLDER, ignore_errors=True)
            yield
        finally:
            server.stop_if_unused()
    finally:
        release(lock)
