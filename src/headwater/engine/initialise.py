"""Creating a lake together with the settings file that names it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path

from headwater.engine.connecting import Target, open_target, resolve
from headwater.engine.example import write_example
from headwater.engine.headwater import Headwater
from headwater.errors import NotFoundError, SettingsError
from headwater.lake.lake import normal_data_path
from headwater.settings import CONFIG_FILE, DEFAULT_FOLDER, environment_settings, find_file, load_settings
from headwater.settings.model import Settings

_TEMPLATE = """\
# Settings of this Headwater project.
# The environment wins over this file: HEADWATER_LAKE__CATALOG, HEADWATER_STORAGE__S3_REGION, …
# ${{NAME}} in a value is the environment variable NAME. Local paths are relative to this file.

lake:
  # The catalog: a PostgreSQL of yours, or without `catalog` an embedded one in `folder`.
{catalog}
{folder}
{metadata_schema}

  # The data files: a folder, s3://bucket/prefix, gs://… or az://… (default: `data` in `folder`).
{data_path}

  # Every data file with a key of its own; decided when the lake is created.
{encrypted}

# How object stores are reached. For S3 the AWS_… variables and profiles work too.
storage:
  # s3_region: us-east-1
  # s3_endpoint: http://localhost:8333
  # s3_access_key_id: ${{AWS_ACCESS_KEY_ID}}
  # s3_secret_access_key: ${{AWS_SECRET_ACCESS_KEY}}

# Where Spark runs.
spark:
  # master: local[*]
  # conf:
  #   spark.sql.shuffle.partitions: 8

# What `headwater run` does by itself to keep the lake healthy: compaction of tables that need it, and with
# `expire_after` or `keep_last` the end of old snapshots; those that stream tables and sinks need are kept.
maintenance:
  # enabled: true
  # expire_after: 30d
  # keep_last: 100
  # quiet_hours: 22:00-06:00
"""
_EXAMPLES = {
    "catalog": "postgresql://user:${PGPASSWORD}@host:5432/database",
    "folder": DEFAULT_FOLDER,
    "metadata_schema": "public",
    "data_path": "s3://bucket/lake",
    "encrypted": "true",
}


@dataclass(frozen=True, slots=True)
class LakeChoice:
    """What was asked for; None leaves it to the settings or the default."""

    catalog: str | None = None
    metadata_schema: str | None = None
    data_path: str | None = None
    folder: str | None = None
    encrypted: bool | None = None


@dataclass(frozen=True, slots=True)
class Initialised:
    """What is there now, and what of it is new."""

    config: Path
    config_created: bool
    lake_created: bool
    catalog: str
    embedded: bool
    metadata_schema: str
    data_path: str
    encrypted: bool
    password_left_out: bool
    example: Path | None = None
    """The stream table of the example, if it was written."""


def initialise(
    here: Path, config: Path | None, choice: LakeChoice, *, example: bool | None = None
) -> Initialised:
    """Create the lake that was asked for, and the settings file if there is none.

    A new lake gets an example to begin with: where it is embedded, or if it is asked for.
    A file that is there is followed and never changed; a choice that contradicts it is an error.
    """
    path = find_file(config) or here / CONFIG_FILE
    exists = path.exists()
    settings = load_settings(path) if exists else environment_settings()
    if exists:
        _refuse_contradiction(path, settings, choice)
    target = resolve(
        settings,
        dsn=choice.catalog,
        data_path=choice.data_path,
        metadata_schema=choice.metadata_schema or settings.lake.metadata_schema,
        encrypted=choice.encrypted,
        folder=choice.folder,
    )
    hw, created = _open_or_create(target, settings)
    with hw:
        written = False if exists else _write(path, _file_text(here, path, choice, hw.lake.uri))
        wanted = created and (hw.embedded if example is None else example)
        return Initialised(
            config=path,
            config_created=written,
            lake_created=created,
            catalog=hw.lake.uri,
            embedded=hw.embedded,
            metadata_schema=hw.lake.metadata_schema,
            data_path=hw.lake.data_path,
            encrypted=hw.lake.options().encrypted,
            password_left_out=written and choice.catalog is not None and "password=" in hw.lake.dsn,
            example=write_example(hw.lake, path.absolute().parent) if wanted else None,
        )


def _open_or_create(target: Target, settings: Settings) -> tuple[Headwater, bool]:
    try:
        return open_target(target, settings, create=False), False
    except NotFoundError:
        if target.dsn is not None and target.data_path is None:
            raise SettingsError(
                "A new lake needs a place for its data files.",
                hint="Add --data-path: a folder, or s3://bucket/prefix.",
            ) from None
        return open_target(target, settings, create=True), True


def _refuse_contradiction(path: Path, settings: Settings, choice: LakeChoice) -> None:
    said = settings.lake
    for field in fields(choice):
        wanted = getattr(choice, field.name)
        found = getattr(said, field.name)
        if wanted is None or wanted == found:
            continue
        if field.name in ("data_path", "folder") and found and _place(wanted) == _place(found):
            continue
        # An address may hold a password: neither is shown.
        shown = "" if field.name == "catalog" else f" ({found!r}, not {wanted!r})"
        raise SettingsError(
            f"{path} is there already and says otherwise about lake.{field.name}{shown}.",
            hint="Change that file, or name another with --config.",
            setting=f"lake.{field.name}",
            file=str(path),
        )


def _place(text: str) -> str:
    return normal_data_path(text)


def _file_text(here: Path, path: Path, choice: LakeChoice, uri: str) -> str:
    elsewhere = path.absolute().parent != here.absolute()
    values: dict[str, str | bool | None] = {
        "catalog": None if choice.catalog is None else uri,
        "folder": choice.folder or (DEFAULT_FOLDER if choice.catalog is None else None),
        "metadata_schema": choice.metadata_schema,
        "data_path": choice.data_path,
        "encrypted": choice.encrypted,
    }
    for name in ("folder", "data_path"):
        value = values[name]
        if elsewhere and isinstance(value, str) and "://" not in value:
            values[name] = str(here.absolute() / value)
    lines = {name: _line(name, value) for name, value in values.items()}
    return _TEMPLATE.format(**lines)


def _line(name: str, value: str | bool | None) -> str:
    if value is None:
        return f"  # {name}: {_EXAMPLES[name]}"
    text = json.dumps(value, ensure_ascii=False)
    return f"  {name}: {text.replace('${', '$${')}"


def _write(path: Path, text: str) -> bool:
    """Write the file whole, unless somebody else did meanwhile."""
    waiting = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        waiting.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"The settings file {path} cannot be written: {error.strerror}.",
            hint="The lake itself is there; name another file with --config.",
            file=str(path),
        ) from None
    try:
        os.link(waiting, path)
    except FileExistsError:
        waiting.unlink()
        return False
    except OSError:  # a file system without links
        waiting.replace(path)
        return True
    waiting.unlink()
    return True
