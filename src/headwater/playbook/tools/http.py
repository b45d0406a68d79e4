"""`tool: http`: one request to a web service.

Secrets come from a credential only. A generic one with `token` (or a single `value`) is sent as a bearer
token, with `username` and `password` as basic authentication, with `header` and `value` as a header of that
name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import httpx

from headwater._version import __version__
from headwater.playbook.credentials.types import PLAIN_FIELD, credential_for
from headwater.playbook.task import Task, TaskError, TaskFailed, Worker

#: Bytes of an answer; more belongs into a file.
MAX_BODY: Final = 16 << 20
_SECONDS = 30.0
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Methods that change nothing more when they are repeated.
_HARMLESS = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_HIDDEN_HEADERS = frozenset({"set-cookie", "set-cookie2", "www-authenticate", "proxy-authenticate"})


class HttpTool:
    """Sends a request and gives the answer."""

    kind = "http"
    where: Literal["worker", "driver"] = "worker"

    def run(self, task: Task, worker: Worker) -> Mapping[str, Any]:
        """The envelope's result has `status_code`, `headers` and `body`: JSON where the answer is JSON."""
        fields = task.fields
        method = str(fields.get("method", "GET")).upper()
        client: httpx.Client = worker.kept(("http",), _client)
        try:
            request = client.build_request(
                method,
                str(fields["url"]),
                headers={**_texts(fields.get("headers")), **_authorization(fields.get("auth"), worker)},
                params=fields.get("params"),
                **_body(fields),
            )
            request.extensions["timeout"] = httpx.Timeout(task.timeout or _SECONDS).as_dict()
            answer = client.send(request, stream=True)
            try:
                content = _content(answer)
            finally:
                answer.close()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _failed("connection", error, retryable=True) from None
        except httpx.TimeoutException as error:
            raise _failed("timeout", error, retryable=method in _HARMLESS) from None
        except httpx.TransportError as error:
            raise _failed("connection", error, retryable=method in _HARMLESS) from None
        except (httpx.InvalidURL, httpx.DecodingError, ValueError, TypeError) as error:
            raise _failed("http", error, retryable=False) from None
        body = _parsed(answer, content)
        _check_status(answer, body, fields.get("expected_status"), method)
        headers = {name: value for name, value in answer.headers.items() if name not in _HIDDEN_HEADERS}
        return {
            "status": "ok",
            "result": {"status_code": answer.status_code, "headers": headers, "body": body},
        }


def _client() -> httpx.Client:
    # No redirects: a credential is meant for one address alone.
    return httpx.Client(headers={"User-Agent": f"headwater/{__version__}"}, follow_redirects=False)


def _texts(headers: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in (headers or {}).items() if value is not None}


def _authorization(auth: Any, worker: Worker) -> dict[str, str]:
    if not auth:
        return {}
    credential = credential_for(auth, worker)
    fields = credential.fields
    if fields.get("header") and fields.get(PLAIN_FIELD):
        return {fields["header"]: fields[PLAIN_FIELD]}
    token = fields.get("token") or fields.get(PLAIN_FIELD)
    if token:
        return {"Authorization": f"Bearer {token}"}
    user = fields.get("username") or fields.get("user")
    if credential.type == "generic" and user is not None:
        pair = f"{user}:{fields.get('password', '')}".encode()
        return {"Authorization": "Basic " + base64.b64encode(pair).decode()}
    raise TaskFailed(
        TaskError("credential", "credential", f"Credential {credential.name} is not one for HTTP."),
        hint="A generic credential with token, with username and password, or with header and value.",
    )


def _body(fields: Mapping[str, Any]) -> dict[str, Any]:
    if "json" in fields:
        return {"json": fields["json"]}
    data = fields.get("data")
    if isinstance(data, Mapping):
        return {"data": _texts(data)}
    return {} if data is None else {"content": str(data)}


def _content(answer: httpx.Response) -> bytes:
    pieces, length = [], 0
    for piece in answer.iter_bytes():
        length += len(piece)
        if length > MAX_BODY:
            raise TaskFailed(
                TaskError("http", "too_large", f"The answer has more than {MAX_BODY >> 20} MiB.")
            )
        pieces.append(piece)
    return b"".join(pieces)


def _parsed(answer: httpx.Response, content: bytes) -> Any:
    if not content:
        return None
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = content.decode(answer.charset_encoding or "utf-8")
    except (UnicodeDecodeError, LookupError):
        return base64.b64encode(content).decode()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            return text
    return text


def _check_status(answer: httpx.Response, body: Any, expected: Any, method: str) -> None:
    code = answer.status_code
    if expected is None:
        fine = 200 <= code < 300
    else:
        listed = expected if isinstance(expected, Sequence) and not isinstance(expected, str) else [expected]
        fine = str(code) in {str(each).strip() for each in listed}
    if not fine:
        said = body if isinstance(body, str) else json.dumps(body)
        message = f"{method} {_shown(answer.request.url)} was answered with {code} {answer.reason_phrase}"
        raise TaskFailed(
            TaskError("http", str(code), f"{message}: {said[:300]}" if body else message, code in _LATER)
        )


def _shown(url: httpx.URL) -> str:
    """An address without what may be secret in it."""
    return str(url.copy_with(username=None, password=None, query=None, fragment=None))


def _failed(kind: str, error: Exception, *, retryable: bool) -> TaskFailed:
    return TaskFailed(TaskError(kind, type(error).__name__, str(error) or type(error).__name__, retryable))


TOOL = HttpTool()
