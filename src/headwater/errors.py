"""Every error that Headwater raises on purpose.

An error says what happened, why, and what to do. It carries its facts as attributes, has a stable
`code` that scripts can match on, and knows whether trying again can help.
"""

from __future__ import annotations

from typing import Any


class HeadwaterError(Exception):
    """Root of all errors raised by Headwater.

    `message` says what happened, `detail` why, `hint` what to do; any further keyword becomes a fact
    that can be read as an attribute (`error.table`) and is part of `as_dict()`.
    """

    code = "headwater"
    retryable = False

    def __init__(self, message: str, *, detail: str | None = None, hint: str | None = None, **facts: Any):
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"  why: {self.detail}")
        if self.hint:
            lines.append(f"  do:  {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.message, self.detail, self.hint, self.facts)

    def as_dict(self) -> dict[str, Any]:
        """The error as plain data, for `--output json` and for logs."""
        return {
            "code": self.code,
            "message": self.message,
            "detail": self.detail,
            "hint": self.hint,
            "retryable": self.retryable,
            **{name: value for name, value in self.facts.items() if value is not None},
        }


def _rebuild(
    kind: type[HeadwaterError], message: str, detail: str | None, hint: str | None, facts: dict[str, Any]
) -> HeadwaterError:
    return kind(message, detail=detail, hint=hint, **facts)


class SettingsError(HeadwaterError):
    """A setting, an option or an argument has a value that cannot be used."""

    code = "settings"


class InvalidInputError(HeadwaterError):
    """The data or the call does not fit the table: wrong type, NULL in NOT NULL, overflow, bad name."""

    code = "invalid_input"


class UnsupportedError(HeadwaterError):
    """Something valid that Headwater (or the format) does not do; the message names what it does."""

    code = "unsupported"


class QueryError(HeadwaterError):
    """A query that cannot be understood, or not be kept; the detail shows the place in its text.

    Attributes: `line`, `column` (both from 1) and `fragment`, the piece of SQL it is about.
    """

    code = "query"


class NotFoundError(HeadwaterError):
    """A schema, table, column, view or snapshot that does not exist."""

    code = "not_found"


class AlreadyExistsError(HeadwaterError):
    """A schema, table, column or view of that name is already there."""

    code = "already_exists"


class SnapshotError(HeadwaterError):
    """A snapshot that expired, is in the future, or predates the table."""

    code = "snapshot"


class CatalogError(HeadwaterError):
    """The catalog cannot be used: unreachable, refused, or of another format version."""

    code = "catalog"


class CatalogUnavailableError(CatalogError):
    """PostgreSQL does not answer right now."""

    code = "catalog_unavailable"
    retryable = True


class ConflictError(HeadwaterError):
    """Another writer committed a change that this transaction cannot be ordered after.

    Attributes: `table`, `snapshot_id` (of the other commit), `other_change` (its `changes_made` token).
    Running the whole transaction again, on the new state, can succeed.
    """

    code = "conflict"
    retryable = True


class CommitOutcomeUnknownError(HeadwaterError):
    """The connection broke during COMMIT and PostgreSQL could not be asked what became of it.

    Run the transaction again with the same `operation_id`: it never applies twice.
    """

    code = "commit_outcome_unknown"
    retryable = True


class StorageError(HeadwaterError):
    """Reading or writing a file failed."""

    code = "storage"


class StorageUnavailableError(StorageError):
    """The object store does not answer right now, or the disk is full."""

    code = "storage_unavailable"
    retryable = True


class FileMissingError(StorageError):
    """A file that should be in the store is not there."""

    code = "file_missing"


class CorruptFileError(StorageError):
    """What is stored is not what was written: wrong size, no Parquet footer, wrong row count."""

    code = "corrupt_file"


class EmbeddedServerError(HeadwaterError):
    """The embedded PostgreSQL could not be started."""

    code = "embedded_server"


class StreamTableError(HeadwaterError):
    """A stream table cannot be made, changed or refreshed."""

    code = "stream_table"


class InvariantError(StreamTableError):
    """A refresh would have corrupted its result, and was stopped."""

    code = "refresh_invariant"


class SourceError(HeadwaterError):
    """A PostgreSQL source cannot be added, captured or removed."""

    code = "source"


class SourceUnavailableError(SourceError):
    """The source does not answer right now, or somebody holds a lock that is needed."""

    code = "source_unavailable"
    retryable = True


class SourceChangedError(SourceError):
    """A table of a source is not any more what was mirrored; it needs a resync."""

    code = "source_changed"


class SinkError(StreamTableError):
    """A place that a stream table is published to does not take its result."""

    code = "sink"


class OutboxError(HeadwaterError):
    """An outbox cannot be attached, or its changes can no longer be told."""

    code = "outbox"


class DeliveryError(OutboxError):
    """The consumer of an outbox did not take a batch; it is sent again."""

    code = "delivery"
    retryable = True


class PlaybookError(HeadwaterError):
    """A playbook that cannot be run as it is written.

    Attributes: `file`, `line`, `column`; `findings`, where all of its mistakes are known.
    """

    code = "playbook"


class TemplateError(PlaybookError):
    """A template that cannot be understood or evaluated, with its place."""

    code = "template"


class PlaybookRunError(PlaybookError):
    """A run that is not there, is still alive, or cannot be resumed as it was asked."""

    code = "playbook_run"


class CredentialError(HeadwaterError):
    """A credential that is not there, or is not what it should be. Its secrets are in no message."""

    code = "credential"


class DeltaError(HeadwaterError):
    """A delta, a tombstone or a dataset of the delta store cannot be used as asked."""

    code = "delta"


class CompactionError(DeltaError):
    """What a compaction stored is not what it meant to store; nothing of it was committed."""

    code = "compaction"
    retryable = True
