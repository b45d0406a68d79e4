"""How a stream reads: limits, and what becomes of snapshots that do more than insert."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import InvalidInputError, SettingsError
from headwater.spark.datasource.history import Commit
from headwater.spark.datasource.options import SourceOptions
from headwater.typedefs import TableName

#: As much as Delta takes at once.
_DEFAULT_MAX_FILES = 1000


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream reads."""

    starting_version: str | None
    starting_timestamp: str | None
    max_files: int | None
    max_bytes: int | None
    change_feed: bool
    ignore_deletes: bool
    ignore_changes: bool
    skip_changes: bool
    fail_on_data_loss: bool
    max_partition_bytes: int

    @classmethod
    def of(cls, said: SourceOptions, max_partition_bytes: int) -> StreamOptions:
        """From the user's options; refuses those that only a batch read knows."""
        said.refuse_both("startingVersion", "startingTimestamp")
        for name in ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp", "where", "columns"):
            if said.text(name) is not None:
                raise SettingsError(f"A stream has no option {name!r}.", hint="Filter the stream instead.")
        version = said.text("startingVersion")
        if version is not None and version.lower() != "latest":
            said.number("startingVersion")
        files, size = said.number("maxFilesPerTrigger"), said.size("maxBytesPerTrigger")
        if files == 0:
            raise SettingsError("maxFilesPerTrigger must be at least 1.")
        return cls(
            version,
            said.text("startingTimestamp"),
            _DEFAULT_MAX_FILES if files is None and size is None else files,
            size,
            said.flag("readChangeFeed"),
            said.flag("ignoreDeletes"),
            said.flag("ignoreChanges"),
            said.flag("skipChangeCommits"),
            said.flag("failOnDataLoss", True),
            said.size("maxPartitionBytes") or max_partition_bytes,
        )

    def is_read(self, commit: Commit) -> bool:
        """Whether what a commit inserts is read."""
        if self.change_feed or not commit.deletes:
            return True
        return commit.inserts and self.ignore_changes and not self.skip_changes

    def is_refused(self, commit: Commit) -> bool:
        """Whether a commit ends the stream."""
        if not commit.deletes or self.change_feed or self.ignore_changes or self.skip_changes:
            return False
        return commit.inserts or not self.ignore_deletes

    def refusal(self, commit: Commit, table: TableName) -> InvalidInputError:
        """The error that it ends with."""
        what = "changed rows" if commit.inserts else "deleted rows"
        only_deletes = "" if commit.inserts else "ignoreDeletes (deletes are not noticed), "
        return InvalidInputError(
            f"Snapshot {commit.snapshot.id} {what} of {table}, and a stream of insertions cannot tell.",
            detail=f"It says of itself: {commit.snapshot.changes}.",
            hint=f"Choose one of the options {only_deletes}skipChangeCommits (such snapshots are left out), "
            "ignoreChanges (rows that they wrote are read, again if they only changed), readChangeFeed.",
            snapshot_id=commit.snapshot.id,
            table=str(table),
        )


@dataclass
class Budget:
    """What a batch may still take; the first file always fits."""

    files: int | None
    size: int | None
    taken: int = 0

    def take(self, size: int) -> bool:
        """Whether one more file fits."""
        if self.taken and (
            (self.files is not None and self.files < 1) or (self.size is not None and self.size < size)
        ):
            return False
        self.taken += 1
        self.files = None if self.files is None else self.files - 1
        self.size = None if self.size is None else self.size - size
        return True
