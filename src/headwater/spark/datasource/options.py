"""The options of `format("ducklake")`, read and checked.

Names are compared without regard to case, and are Delta's where Delta has one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from headwater.errors import SettingsError
from headwater.lake.catalog import as_time, table_name
from headwater.lake.reading.row_filter import HIDDEN
from headwater.spark.datasource.place import Place
from headwater.storage.options import StorageOptions
from headwater.typedefs import TableName

#: Every option there is, as documents write it.
NAMES = (
    "catalog", "dataPath", "metadataSchema", "path", "table", "dbtable",
    "versionAsOf", "timestampAsOf", "where", "columns", "hidden", "maxPartitionBytes",
    "readChangeFeed", "startingVersion", "endingVersion", "startingTimestamp", "endingTimestamp",
    "mergeSchema", "overwriteSchema", "replaceWhere", "partitionOverwriteMode", "partitionedBy",
    "userMetadata", "txnAppId", "txnVersion",
    "maxFilesPerTrigger", "maxBytesPerTrigger", "ignoreDeletes", "ignoreChanges", "skipChangeCommits",
    "failOnDataLoss", "checkpointLocation",
)  # fmt: skip
_KNOWN = {name.lower(): name for name in NAMES}
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_STORES = ("s3", "gcs", "azure", "local")


class SourceOptions:
    """What the user said with `.option(…)`; every question is answered with a checked value or an error."""

    def __init__(self, given: Mapping[str, str]):
        self._given = {name.lower(): value for name, value in given.items() if value is not None}
        for name in self._given:
            self._refuse_slip(name)

    def _refuse_slip(self, name: str) -> None:
        """Spark hands on options of its own; one that is nearly ours was meant to be ours."""
        if name in _KNOWN or _storage_field(name) is not None:
            return
        close = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.85)
        if close:
            raise SettingsError(
                f"There is no option {name!r}.", hint=f"Did you mean {_KNOWN[close[0]]!r}?", option=name
            )

    def text(self, name: str) -> str | None:
        """The value as it was given; None if it was not, or is empty."""
        return self._given.get(name.lower()) or None

    def flag(self, name: str, default: bool = False) -> bool:
        """The value as true or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise self._refused(name, value, "true or false")
        return value.lower() == "true"

    def number(self, name: str) -> int | None:
        """The value as a whole number from 0 on."""
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"\d+", value):
            raise self._refused(name, value, "a whole number")
        return int(value)

    def size(self, name: str) -> int | None:
        """The value in bytes; `64m` and `1g` are understood."""
        value = self.text(name)
        if value is None:
            return None
        match = re.fullmatch(r"(\d+)\s*([bkmgt]?)b?", value.strip().lower())
        if match is None or int(match[1]) == 0:
            raise self._refused(name, value, "a size such as 64m or 1g")
        return int(match[1]) * _UNITS[match[2]]

    def time(self, name: str) -> datetime | None:
        """The value as a moment."""
        value = self.text(name)
        return None if value is None else as_time(value)

    def names(self, name: str) -> tuple[str, ...]:
        """The value as a list of names, separated by commas."""
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def expressions(self, name: str) -> tuple[str, ...]:
        """The value as a list of expressions; commas inside parentheses do not separate: `bucket(8, id)`."""
        parts = re.split(r",(?![^()]*\))", self.text(name) or "")
        return tuple(part.strip() for part in parts if part.strip())

    def refuse_both(self, one: str, other: str) -> None:
        """Two options that exclude each other."""
        if self.text(one) is not None and self.text(other) is not None:
            raise SettingsError(f"The options {one!r} and {other!r} exclude each other.")

    def _refused(self, name: str, value: str, wanted: str) -> SettingsError:
        return SettingsError(f"The option {name!r} must be {wanted}, not {value!r}.", option=name)

    @property
    def table(self) -> TableName:
        """The table that is read or written."""
        given = {name: value for name in ("path", "table", "dbtable") if (value := self.text(name))}
        if not given:
            raise SettingsError(
                "It is not said which table is meant.",
                hint='Name it: .load("sales.orders"), or .option("table", "sales.orders").',
            )
        names = {table_name(value) for value in given.values()}
        if len(names) > 1:
            raise SettingsError(
                f"Several tables are named: {', '.join(map(str, sorted(names)))}.",
                detail="Given as " + " and ".join(f"option {name!r}" for name in given) + ".",
            )
        return names.pop()

    @property
    def hidden(self) -> tuple[str, ...]:
        """Hidden columns that are asked for."""
        found = tuple(name.lower() for name in self.names("hidden"))
        for name in found:
            if name not in HIDDEN:
                raise SettingsError(
                    f"There is no hidden column {name!r}.", hint=f"There are: {', '.join(HIDDEN)}."
                )
        return found

    @property
    def place(self) -> Place:
        """Where the lake is, as far as options say it."""
        return Place(
            dsn=self.text("catalog"),
            data_path=self.text("dataPath"),
            metadata_schema=self.text("metadataSchema"),
            storage={
                field: _storage_value(name, field, value)
                for name, value in self._given.items()
                if (field := _storage_field(name)) is not None
            },
        )


def _plain(name: str) -> str:
    return re.sub(r"[._-]", "", name.lower())


_STORAGE = {_plain(field.name): field for field in fields(StorageOptions)}


def _storage_field(name: str) -> str | None:
    """The storage option that is meant: `s3.accessKeyId`, `s3.access-key-id` and `s3_access_key_id` alike."""
    if not name.startswith(tuple(f"{store}{mark}" for store in _STORES for mark in "._")):
        return None
    known = _STORAGE.get(_plain(name))
    if known is None:
        close = difflib.get_close_matches(_plain(name), _STORAGE, n=1)
        raise SettingsError(
            f"There is no option {name!r}.",
            hint=f"Did you mean {_STORAGE[close[0]].name!r}?" if close else None,
            option=name,
        )
    return known.name


def _storage_value(name: str, field: str, value: str) -> Any:
    kind = str(_STORAGE[_plain(field)].type)
    if "bool" in kind:
        if value.lower() not in ("true", "false"):
            raise SettingsError(f"The option {name!r} must be true or false.", option=name)
        return value.lower() == "true"
    return as_time(value) if "datetime" in kind else value
