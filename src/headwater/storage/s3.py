"""The few S3 requests that pyarrow does not offer: take back an upload, delete many objects at once.

pyarrow's upload stream has no abort, and closing it makes visible whatever was sent so far. Ending the
upload from beside it is what keeps half-written files out of the store. Requests are signed with AWS
Signature Version 4; that takes keys, so stores reached with the machine's own identity do without.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from headwater.storage.options import DEFAULT_REGION, StorageOptions, amazon_host

#: S3 takes at most this many keys in one delete request.
DELETE_BATCH: Final = 1000


class PendingUpload(NamedTuple):
    """A multipart upload that was begun and neither completed nor aborted."""

    key: str
    upload_id: str
    started: datetime


class S3Requests:
    """Signed requests to one S3 endpoint. Failures are `OSError`s worded as pyarrow words them."""

    def __init__(self, options: StorageOptions):
        """Take `options` that are resolved and hold keys."""
        self._options = options
        self._region = options.s3_region or DEFAULT_REGION
        self._host = options.s3_endpoint or amazon_host(self._region)
        self._tls = ssl.create_default_context(cafile=options.s3_ca_file) if options.s3_use_ssl else None

    @staticmethod
    def possible(options: StorageOptions) -> bool:
        """Whether these (resolved) options hold the keys that signing takes."""
        return bool(options.s3_access_key_id and options.s3_secret_access_key)

    def pending_uploads(self, bucket: str, prefix: str) -> Iterator[PendingUpload]:
        """Uploads in progress whose key starts with `prefix`, of this and of every other process."""
        marker: dict[str, str] = {}
        while True:
            query = {"uploads": "", "prefix": prefix, "encoding-type": "url", **marker}
            answer = _parse(self._send("GET", bucket, "", query, "ListMultipartUploads"))
            encoded = answer.findtext("{*}EncodingType") == "url"
            for item in answer.iterfind("{*}Upload"):
                key = item.findtext("{*}Key") or ""
                started = datetime.fromisoformat(item.findtext("{*}Initiated") or "1970-01-01T00:00:00Z")
                yield PendingUpload(
                    unquote(key) if encoded else key,
                    item.findtext("{*}UploadId") or "",
                    started if started.tzinfo else started.replace(tzinfo=UTC),
                )
            if answer.findtext("{*}IsTruncated") != "true":
                return
            last = answer.findtext("{*}NextKeyMarker") or ""
            marker = {
                "key-marker": unquote(last) if encoded else last,
                "upload-id-marker": answer.findtext("{*}NextUploadIdMarker") or "",
            }

    def abort_upload(self, bucket: str, upload: PendingUpload) -> None:
        """End an upload and drop its parts. One that is gone already is fine."""
        query = {"uploadId": upload.upload_id}
        self._send("DELETE", bucket, upload.key, query, "AbortMultipartUpload", missing_ok=True)

    def delete_objects(self, bucket: str, keys: Sequence[str]) -> None:
        """Delete up to `DELETE_BATCH` objects in one request. Missing ones are fine."""
        objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f"<Delete><Quiet>true</Quiet>{objects}</Delete>".encode()
        answer = _parse(self._send("POST", bucket, "", {"delete": ""}, "DeleteObjects", body))
        for failed in answer.iterfind("{*}Error"):
            code = failed.findtext("{*}Code") or "UNKNOWN"
            if code != "NoSuchKey":
                raise OSError(
                    f"AWS Error {code} during DeleteObjects operation: {failed.findtext('{*}Message')} "
                    f"(key {failed.findtext('{*}Key')!r})"
                )

    def _send(
        self,
        method: str,
        bucket: str,
        key: str,
        query: dict[str, str],
        operation: str,
        body: bytes = b"",
        *,
        missing_ok: bool = False,
    ) -> bytes:
        vhost = self._options.s3_url_style == "vhost"
        host = f"{bucket}.{self._host}" if vhost else self._host
        path = quote("/" + "/".join(part for part in ("" if vhost else bucket, key) if part), safe="/-_.~")
        arguments = "&".join(
            f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(query.items())
        )
        headers = self._signed(method, host, path, arguments, body)
        patience = self._options.connect_timeout
        connection = (
            http.client.HTTPSConnection(host, timeout=patience, context=self._tls)
            if self._tls
            else http.client.HTTPConnection(host, timeout=patience)
        )
        try:
            connection.connect()
            connection.sock.settimeout(self._options.request_timeout)
            connection.request(method, f"{path}?{arguments}", body or None, headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise OSError(f"AWS Error NETWORK_CONNECTION during {operation} operation: {error}") from error
        finally:
            connection.close()
        if response.status < 300 or (missing_ok and response.status == 404):
            return answer
        code, message = _reason(answer)
        raise OSError(
            f"AWS Error {code} (HTTP status {response.status}) during {operation} operation: {message}"
        )

    def _signed(self, method: str, host: str, path: str, arguments: str, body: bytes) -> dict[str, str]:
        now = datetime.now(UTC)
        day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": moment}
        if body:
            checksum = hashlib.md5(body, usedforsecurity=False).digest()
            headers["content-md5"] = base64.b64encode(checksum).decode()
        if self._options.s3_session_token:
            headers["x-amz-security-token"] = self._options.s3_session_token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        request = "\n".join((method, path, arguments, lines, names, digest))
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()))
        signing = f"AWS4{self._options.s3_secret_access_key}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            signing = hmac.digest(signing, part.encode(), "sha256")
        signature = hmac.digest(signing, text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._options.s3_access_key_id}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return headers


def _parse(answer: bytes) -> ElementTree.Element:
    """The XML of an answer. (expat itself refuses entity bombs; external entities are never loaded.)"""
    try:
        return ElementTree.fromstring(answer)  # noqa: S314
    except ElementTree.ParseError as error:
        raise OSError(f"AWS Error UNKNOWN: the answer is not XML: {error}") from error


def _reason(answer: bytes) -> tuple[str, str]:
    """Code and message of an error answer; proxies answer with anything."""
    try:
        error = ElementTree.fromstring(answer)  # noqa: S314
    except ElementTree.ParseError:
        return "UNKNOWN", "no reason given"
    return error.findtext("{*}Code") or "UNKNOWN", error.findtext("{*}Message") or "no reason given"
