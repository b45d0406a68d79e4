"""What went wrong in a store, said so that a person can act on it.

pyarrow reports object stores' answers as the text of an `OSError`. This is the one place that reads them.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from headwater.errors import FileMissingError, SettingsError, StorageError, StorageUnavailableError
from headwater.storage.locations import Location

_AWAY: Final = re.compile(
    r"NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING|SlowDown"
    r"|HTTP status 5\d\d|Status\(UNAVAILABLE|Status\(DEADLINE_EXCEEDED|Status\(RESOURCE_EXHAUSTED"
    r"|Fail to get a new connection|Couldn't resolve|curlCode|CURL error"
)
_TLS: Final = re.compile(r"curlCode: (35|51|58|60|77|83|90|91)|CURL error \[(35|51|58|60|77)\]")
_CREDENTIALS: Final = re.compile(
    r"INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|ACCESS_DENIED|INVALID_CLIENT_TOKEN|UNRECOGNIZED_CLIENT"
    r"|MISSING_AUTHENTICATION|INVALID_TOKEN|EXPIRED_TOKEN|ExpiredToken|InvalidToken|REQUEST_EXPIRED"
    r"|REQUEST_TIME_TOO_SKEWED|HTTP status 40[13]|Status\((UNAUTHENTICATED|PERMISSION_DENIED)"
    r"|OAuth2 access token"
    r"|AuthenticationFailed|AuthorizationFailure|AuthorizationPermissionMismatch|AuthenticationException"
)
_NO_BUCKET: Final = re.compile(
    r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound|The specified bucket does not exist"
)
_REGION: Final = re.compile(
    r"HTTP status 301|PERMANENT_REDIRECT|PermanentRedirect|AuthorizationHeaderMalformed"
    r"|IllegalLocationConstraint"
)
_MISSING: Final = re.compile(r"NO_SUCH_KEY|RESOURCE_NOT_FOUND|Status\(NOT_FOUND")

_SAYS: Final = ("AWS Error", "google::cloud::Status", "Azure Error")

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_PASSING: Final = (
    errno.ETIMEDOUT,
    errno.ESTALE,
    errno.EMFILE,
    errno.ENFILE,
    errno.ECONNRESET,
    errno.EPIPE,
    errno.EAGAIN,
)
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def translated(location: Location, doing: str, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Turn what the store raises inside the block into a `StorageError` that names the location.

    `doing` is the verb of the message: "write", "read", "list" …
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, pa.ArrowCancelled):
            raise
        text = str(error)
        if hidden := any(secret in text for secret in secrets):
            for secret in secrets:
                text = text.replace(secret, "***")
        # A cause is printed with the error, so one that shows a secret is left out.
        raise explain(error, text, location, doing) from (None if hidden else error)


def explain(error: BaseException, text: str, location: Location, doing: str) -> StorageError | SettingsError:
    """The error to raise for what pyarrow or the operating system reported."""
    where = location.text
    if isinstance(error, OSError) and error.errno is not None:
        return _local_fault(error, text, location, doing)
    if isinstance(error, pa.ArrowInvalid):
        return SettingsError(f"Cannot {doing} {where!r}: not a usable location", detail=text, location=where)
    # What stands before it quotes names, in which any word may occur.
    said = text[max(0, *(text.rfind(mark) for mark in _SAYS)) :]
    if _NO_BUCKET.search(said):
        return missing_bucket(location)
    if _REGION.search(said):
        return StorageError(
            f"Cannot {doing} {where!r}: the bucket belongs to another region",
            detail=text,
            hint="set s3_region (or AWS_REGION) to the bucket's region",
            location=where,
        )
    if _CREDENTIALS.search(said):
        return StorageError(
            f"Cannot {doing} {where!r}: the store refuses the credentials",
            detail=text,
            hint=_credentials_hint(location),
            location=where,
        )
    if _MISSING.search(said):
        return missing_file(location)
    if _AWAY.search(said):
        return StorageUnavailableError(
            f"Cannot {doing} {where!r}: the store does not answer",
            detail=text,
            hint=(
                "TLS failed: check s3_use_ssl, or name the signing authorities in s3_ca_file"
                if _TLS.search(said)
                else "check the endpoint and the network; running it again can succeed"
            ),
            location=where,
        )
    return StorageError(f"Cannot {doing} {where!r}", detail=text, location=where)


def missing_file(location: Location) -> FileMissingError:
    """The error for a file that is not there."""
    return FileMissingError(f"There is no file {location.text!r}", location=location.text)


def missing_bucket(location: Location) -> StorageError:
    """The error for a bucket or container that is not there."""
    return StorageError(
        f"There is no bucket {location.bucket!r}",
        detail=f"needed for {location.text!r}",
        hint="create it first, or check name, endpoint and region; Headwater never creates buckets",
        location=location.text,
        bucket=location.bucket,
    )


def not_a_folder(location: Location, detail: str | None = None) -> StorageError:
    """The error for a path that needs a folder where a file is."""
    return StorageError(
        f"Cannot store files under {location.text!r}: a part of the path is a file, not a folder",
        detail=detail,
        hint="choose another data path, or move the file away",
        location=location.text,
    )


def _local_fault(error: OSError, text: str, location: Location, doing: str) -> StorageError:
    where = location.text
    if error.errno == errno.ENOENT:
        return missing_file(location)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return not_a_folder(location, text)
    if error.errno in _FULL:
        return StorageUnavailableError(
            f"Cannot {doing} {where!r}: the disk is full",
            detail=text,
            hint="free some space (or raise the quota) and run it again",
            location=where,
        )
    if error.errno in _FORBIDDEN:
        return StorageError(
            f"Cannot {doing} {where!r}: no permission",
            detail=text,
            hint="give this user the right to read and write there, or choose another data path",
            location=where,
        )
    kind = StorageUnavailableError if error.errno in _PASSING else StorageError
    return kind(f"Cannot {doing} {where!r}", detail=text, location=where)


def _credentials_hint(location: Location) -> str:
    return {
        "s3": "check s3_access_key_id and s3_secret_access_key (or the AWS_… variables, or the profile), the "
        "rights of that key on the bucket, and this machine's clock",
        "gcs": "check GOOGLE_APPLICATION_CREDENTIALS or gcs_access_token, and the rights on the bucket",
        "azure": "check azure_account_name with azure_account_key or azure_sas_token, and the rights on the "
        "container",
    }.get(location.kind, "check the credentials")
