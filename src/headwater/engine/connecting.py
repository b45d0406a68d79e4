"""`headwater.connect`: from arguments, settings file and defaults to an open lake."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.engine.headwater import Headwater
from headwater.errors import NotFoundError, SettingsError
from headwater.lake.embedded import EmbeddedServer, open_server
from headwater.lake.lake import Lake
from headwater.settings import Settings, load_settings
from headwater.storage.options import StorageOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVER_FOLDER = "postgres"
DATA_FOLDER = "data"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the lake is, decided: a PostgreSQL address, or the folder of an embedded server."""

    dsn: str | None
    folder: Path
    data_path: str | None
    metadata_schema: str
    encrypted: bool
    storage: StorageOptions

    @property
    def server_folder(self) -> Path:
        """Where the embedded PostgreSQL is."""
        return self.folder / SERVER_FOLDER


def connect(
    dsn: str | None = None,
    *,
    data_path: str | Path | None = None,
    metadata_schema: str | None = None,
    storage: StorageOptions | Mapping[str, Any] | None = None,
    encrypted: bool | None = None,
    folder: str | Path | None = None,
    config: str | Path | None = None,
    create: bool = True,
    override_data_path: bool = False,
    spark: SparkSession | None = None,
) -> Headwater:
    """Open a lake, or create it.

    Without arguments: the lake of `./headwater.yaml` (or of the file that `config` or `HEADWATER_CONFIG`
    names), and where there is no such file the embedded one in `./.headwater`, made if it is not there.

    With `dsn` or `folder` the `lake:` section of the settings says nothing, because it is about another
    lake; the other sections hold. Any other argument wins over its setting. A Spark session that is there
    already can be passed as `spark`; it is given the settings that it lacks.

    >>> hw = headwater.connect("postgresql://app@db/lake", data_path="s3://bucket/lake")  # doctest: +SKIP
    """
    settings = load_settings(config)
    target = resolve(
        settings,
        dsn=dsn,
        data_path=data_path,
        metadata_schema=metadata_schema,
        storage=storage,
        encrypted=encrypted,
        folder=folder,
    )
    return open_target(target, settings, create=create, override_data_path=override_data_path, spark=spark)


def resolve(
    settings: Settings,
    *,
    dsn: str | None = None,
    data_path: str | Path | None = None,
    metadata_schema: str | None = None,
    storage: StorageOptions | Mapping[str, Any] | None = None,
    encrypted: bool | None = None,
    folder: str | Path | None = None,
) -> Target:
    """Decide which lake is meant, without opening anything."""
    if dsn is not None and folder is not None:
        raise SettingsError(
            "A lake has its catalog in a PostgreSQL of yours (dsn) or in an embedded one (folder), not both."
        )
    said = settings.lake if dsn is None and folder is None else Settings().lake
    return Target(
        dsn=said.catalog if dsn is None else dsn,
        folder=Path(said.folder if folder is None else folder).expanduser(),
        data_path=said.data_path if data_path is None else str(data_path),
        metadata_schema=metadata_schema or said.metadata_schema,
        encrypted=said.encrypted if encrypted is None else encrypted,
        storage=_storage(settings, storage),
    )


def _storage(settings: Settings, given: StorageOptions | Mapping[str, Any] | None) -> StorageOptions:
    if isinstance(given, StorageOptions):
        return given
    if given is not None:
        return StorageOptions(**given)
    try:
        return StorageOptions(**settings.storage)
    except SettingsError as error:
        setting = f"storage.{error.facts.get('setting', '')}"
        place = settings.places.get(setting) or settings.places.get("storage") or "storage"
        raise SettingsError(
            f"{place}: {error.message}.", detail=error.detail, hint=error.hint, setting=setting, place=place
        ) from None


def open_target(
    target: Target,
    settings: Settings,
    *,
    create: bool = True,
    override_data_path: bool = False,
    spark: SparkSession | None = None,
) -> Headwater:
    """Open the lake that was decided on."""
    if target.dsn is not None:
        lake = _open(target, target.dsn, target.data_path, create, override_data_path)
        return Headwater(lake, settings, spark=spark)
    if not create and not target.server_folder.exists():
        raise NotFoundError(
            f"There is no lake in {target.folder}.",
            hint="Create one with `headwater init`, or go to the folder that has one.",
            folder=str(target.folder),
        )
    prepare_folder(target.folder)
    server = open_server(target.server_folder)
    try:
        lake = _open_embedded(target, server, create, override_data_path)
        return Headwater(lake, settings, server, spark)
    except BaseException:
        server.stop_if_unused()
        raise


def _open(target: Target, dsn: str, data_path: str | None, create: bool, override: bool) -> Lake:
    return Lake.open(
        dsn,
        data_path=data_path,
        metadata_schema=target.metadata_schema,
        storage=target.storage,
        create=create,
        encrypted=target.encrypted,
        override_data_path=override,
    )


def _open_embedded(target: Target, server: EmbeddedServer, create: bool, override: bool) -> Lake:
    if target.data_path is not None:
        return _open(target, server.dsn, target.data_path, create, override)
    default = (target.folder / DATA_FOLDER).absolute()
    try:
        lake = _open(target, server.dsn, None, False, False)
    except NotFoundError:
        if not create:
            raise
        # Even while it is empty: it is how a folder that was moved as a whole is recognised.
        default.mkdir(parents=True, exist_ok=True)
        return _open(target, server.dsn, str(default), True, False)
    if _moved(lake.data_path, default):
        lake.close()
        return _open(target, server.dsn, str(default), False, True)
    return lake


def _moved(stated: str, default: Path) -> bool:
    """Whether the folder was moved or copied as a whole, data and all, since the lake was made.

    The catalog states where the data was then; a copy must not go on using the data of its original.
    """
    before = Path(stated)
    if "://" in stated or before == default or not default.is_dir():
        return False
    return before.parts[-2:] == default.parts[-2:] or not before.exists()


def prepare_folder(folder: Path) -> None:
    """Make the folder of an embedded lake, and keep it out of version control."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise SettingsError(
            f"{folder} is a file, and the embedded lake needs a folder of that name.",
            hint="Move the file away, or name another folder (lake.folder in headwater.yaml).",
            folder=str(folder),
        ) from None
    except OSError as error:
        raise SettingsError(
            f"The folder {folder} cannot be made: {error.strerror}.",
            hint=_HINTS.get(error.errno or 0, "Name another folder (lake.folder in headwater.yaml)."),
            folder=str(folder),
        ) from None
    ignore = folder / ".gitignore"
    if not ignore.exists():
        try:
            ignore.write_text("*\n")
        except OSError:
            pass  # the server's own folder says more clearly what cannot be written


_HINTS = {
    errno.EACCES: "Go to a folder that you may write to, or name another (lake.folder in headwater.yaml).",
    errno.EROFS: "The file system is read-only: name another folder (lake.folder in headwater.yaml).",
    errno.ENOSPC: "The disk is full: free some space, then try again.",
    errno.ENOTDIR: "Part of that path is a file: name another folder (lake.folder in headwater.yaml).",
}
