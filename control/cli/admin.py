"""Client for the admin API: several addresses, a token, and retries of changes under idempotency keys."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from ringfence.common.address import with_scheme
from ringfence.common.token import token_of
from ringfence.control.cli.connection import single_endpoint, token_option
from ringfence.control.cli.retry_until import wait_notice
from ringfence.control.model.names import full_topic_name
from ringfence.native import errors
from ringfence.native.errors import InvalidArgumentError, RingfenceError, refusal
from ringfence.native.wire import Code

DEFAULT: Final = "http://127.0.0.1:7412"
TOPICS_PATH: Final = "/admin/topics/"
ADDRESS_VARIABLE: Final = "RINGFENCE_ADMIN"
# Limit of one answer. A thousand topics with properties of 8 KiB fit.
ANSWER_BYTES_MAX: Final = 64 << 20
RETRY_S: Final = 0.3
NO_ANSWER: Final = (
    "start a node with `serve --http HOST:PORT`, or name the admin API of a running node with --http or in "
    f"{ADDRESS_VARIABLE}"
)
LATE: Final = (
    "the node accepts connections but did not answer in time, for example because half of the voters are "
    "down; ask another node, or start them"
)
RETRIED: Final = frozenset({429, 503, 504})
# Problem type of a node that reaches no majority for a linearizable read.
NO_MAJORITY: Final = "no-majority"
_ERRORS: Final[dict[int, type[RingfenceError]]] = {
    400: errors.InvalidArgumentError,
    401: errors.UnauthorizedError,
    403: errors.UnauthorizedError,
    404: errors.NotFoundError,
    409: errors.AlreadyExistsError,
    412: errors.RefusedError,
    413: errors.InvalidArgumentError,
    422: errors.InvalidArgumentError,
    429: errors.OverloadedError,
    503: errors.RetriableError,
    504: errors.UnknownOutcomeError,
    507: errors.DiskFullError,
}


def http_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--http` and `--token-file` to a command."""
    function = token_option(function)
    return click.option(
        "--http",
        "http",
        envvar=ADDRESS_VARIABLE,
        show_envvar=True,
        metavar="ADDRESS[,ADDRESS]",
        callback=single_endpoint,
        help="Admin API of any node, http://HOST:PORT or HOST:PORT; if one does not answer, the next is "
        f"tried. [default: {DEFAULT}]",
    )(function)


def topic_path(name: str) -> str:
    """Return the path of a topic in the admin API. InvalidArgumentError if the name is not valid."""
    try:
        return TOPICS_PATH + full_topic_name(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from error


class Admin:
    """Sends requests to the first address that answers."""

    def __init__(
        self,
        http: str | None,
        token_file: Path | None = None,
        timeout_s: float = 30.0,
        *,
        quiet: bool = False,
    ) -> None:
        """ConfigError if an address is not valid. `quiet`: print no notice when an answer takes long."""
        self._quiet = quiet
        self._addresses = [
            _check_address(text.strip()) for text in (http or DEFAULT).split(",") if text.strip()
        ]
        self._timeout_s = timeout_s
        self._token = token_of(None, token_file, os.environ).current()

    def get(self, path: str) -> Any:
        """Return the body of the answer. Raises RingfenceError."""
        return self._send("GET", path, None, {})

    def get_if_majority(self, path: str) -> Any:
        """Like `get`, but raise NoMajority after one try of each address if no majority answers."""
        return self._send("GET", path, None, {}, waits_for_majority=False)

    def change(self, method: str, path: str, values: Any = None, *, condition: str | None = None) -> Any:
        """Send a change. Retries use the same key at any address, until an answer or the timeout."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        if condition is not None:
            headers["If-Match"] = condition
        return self._send(method, path, values, headers)

    def _send(
        self, method: str, path: str, values: Any, headers: dict[str, str], *, waits_for_majority: bool = True
    ) -> Any:
        body = None if values is None else json.dumps(values).encode()
        all_headers = {"Accept": "application/json", **headers}
        if body is not None:
            all_headers["Content-Type"] = "application/json"
        if self._token:
            all_headers["Authorization"] = f"Bearer {self._token}"
        failures: deque[RingfenceError] = deque(maxlen=1)
        if self._quiet:
            return self._try_all(method, path, body, all_headers, failures, waits_for_majority)
        target = ", ".join(self._addresses)
        with wait_notice(target, self._timeout_s, lambda: str(failures[0]) if failures else ""):
            return self._try_all(method, path, body, all_headers, failures, waits_for_majority)

    def _try_all(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        failures: deque[RingfenceError],
        waits_for_majority: bool,  # noqa: FBT001
    ) -> Any:
        """Return the first answer of any address. `failures` gets the error of the last try."""
        end = time.monotonic() + self._timeout_s
        while True:
            no_majority = ""
            for address in self._addresses:
                left = end - time.monotonic()
                try:
                    return _request(address, method, path, body, headers, max(left, 0.1))
                except errors.ConnectError as error:
                    failures.append(error)
                except _Retry as retry:
                    failures.append(retry.error)
                    if retry.slug == NO_MAJORITY:
                        no_majority = retry.error.message
            if no_majority and not waits_for_majority:
                raise NoMajority(no_majority)
            assert failures, "no address"
            if time.monotonic() + RETRY_S >= end:
                raise failures[0]
            time.sleep(RETRY_S)


class NoMajority(Exception):  # noqa: N818 - the caller continues with the state of one node
    """A node reaches no majority. The text is the detail of the node's answer."""


class _Retry(Exception):  # noqa: N818 - ends in another try or in `error`
    def __init__(self, error: RingfenceError, slug: str) -> None:
        super().__init__(str(error))
        self.error, self.slug = error, slug


def _reason(error: OSError | http.client.HTTPException) -> str:
    # A connection that is closed without an answer is a BadStatusLine, too, but also an OSError.
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
        return f"the server does not speak HTTP ({type(error).__name__})"
    return str(error) or type(error).__name__


def _request(
    address: str, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float
) -> Any:
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        way_out = LATE if isinstance(error, TimeoutError) else NO_ANSWER
        raise errors.ConnectError(f"{address}: no answer: {_reason(error)}; {way_out}") from error
    finally:
        connection.close()
    if len(data) > ANSWER_BYTES_MAX:
        raise errors.ProtocolError(f"{address}: the answer exceeds {ANSWER_BYTES_MAX} bytes")
    try:
        values = json.loads(data) if data else None
    except ValueError as error:
        raise errors.ProtocolError(
            f"{address}: status {answer.status} without JSON; check that --http names an admin API"
        ) from error
    if answer.status < 400:
        return values
    refused = _error(answer.status, values)
    if answer.status in RETRIED:
        raise _Retry(refused, _slug(values))
    raise refused


def _error(status: int, problem: Any) -> RingfenceError:
    """Return the error of a problem document, of the same class as on the data socket."""
    fields = problem if isinstance(problem, dict) else {}
    detail = str(fields.get("detail", f"status {status}"))
    name = _slug(problem).upper().replace("-", "_")
    if name in Code.__members__:
        return refusal(Code[name], detail)
    return _ERRORS.get(status, errors.RetriableError if status >= 500 else errors.RefusedError)(detail)


def _slug(problem: Any) -> str:
    """Return the last part of a problem's type; empty if the body is not a problem document."""
    fields = problem if isinstance(problem, dict) else {}
    return str(fields.get("type", "")).rpartition(":")[2]


def _check_address(text: str) -> str:
    """Return the address as a URL. ConfigError if it is neither a URL nor HOST:PORT."""
    url = with_scheme(text, "http")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.path.strip("/")
        parts.port  # noqa: B018 - raises if the port is not valid
    except ValueError:
        is_valid = False
    if not is_valid:
        raise errors.ConfigError(f"--http {text!r}: expected http://HOST:PORT or HOST:PORT", key="http")
    return url
