"""The admin API as the command line uses it: any of several addresses, a token, changes under keys."""

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

from ringfence.common.token import token_of
from ringfence.control.cli.connection import one_door, token_option
from ringfence.control.cli.retry_until import patience
from ringfence.control.model.names import full_topic_name
from ringfence.native import errors
from ringfence.native.errors import InvalidArgumentError, RingfenceError, refusal
from ringfence.native.wire import Code

DEFAULT: Final = "http://127.0.0.1:7412"
TOPICS_PATH: Final = "/admin/topics/"
ADDRESS_VARIABLE: Final = "RINGFENCE_ADMIN"
# Of one answer: a thousand topics of 8 KiB properties, with room.
ANSWER_BYTES_MAX: Final = 64 << 20
AGAIN_S: Final = 0.3
NO_ANSWER: Final = (
    "the admin API is there while a node runs that was started with `serve --http HOST:PORT`; start it, or "
    f"name another one's with --http or in {ADDRESS_VARIABLE}"
)
LATE: Final = (
    "it is there and has not answered in time, as where half of the nodes that vote are down; ask another "
    "one, or start those again"
)
RETRIED: Final = frozenset({429, 503, 504})
# The problem of a node that would have to ask one.
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
    """`--http` and `--token-file`."""
    function = token_option(function)
    return click.option(
        "--http",
        "http",
        envvar=ADDRESS_VARIABLE,
        show_envvar=True,
        metavar="URL[,URL]",
        callback=one_door,
        help=f"Admin API of any node; the next one is asked when one does not answer. [default: {DEFAULT}]",
    )(function)


def topic_path(name: str) -> str:
    """Where the admin API has a topic. InvalidArgumentError when the name can be none."""
    try:
        return TOPICS_PATH + full_topic_name(name)
    except ValueError as error:
        raise InvalidArgumentError(str(error)) from error


class Admin:
    """Requests to the first address that answers."""

    def __init__(
        self,
        http: str | None,
        token_file: Path | None = None,
        timeout_s: float = 30.0,
        *,
        quiet: bool = False,
    ) -> None:
        """ConfigError when an address is none. `quiet`: nobody is told that an answer takes long."""
        self._quiet = quiet
        self._addresses = [_checked(text.strip()) for text in (http or DEFAULT).split(",") if text.strip()]
        self._timeout_s = timeout_s
        self._token = token_of(None, token_file, os.environ).current()

    def get(self, path: str) -> Any:
        """The body of an answer. Raises RingfenceError."""
        return self._sent("GET", path, None, {})

    def get_if_majority(self, path: str) -> Any:
        """As `get`, for who can do without: NoMajority as soon as each address has been asked once."""
        return self._sent("GET", path, None, {}, waits_for_majority=False)

    def change(self, method: str, path: str, given: Any = None, *, condition: str | None = None) -> Any:
        """A change; sent again under its key, at any address, until it is answered or the time is over."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        if condition is not None:
            headers["If-Match"] = condition
        return self._sent(method, path, given, headers)

    def _sent(
        self, method: str, path: str, given: Any, headers: dict[str, str], *, waits_for_majority: bool = True
    ) -> Any:
        body = None if given is None else json.dumps(given).encode()
        sent = {"Accept": "application/json", **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        failures: deque[RingfenceError] = deque(maxlen=1)
        whom = ", ".join(self._addresses)
        if self._quiet:
            return self._answer(method, path, body, sent, failures, waits_for_majority)
        with patience(whom, self._timeout_s, lambda: str(failures[0]) if failures else ""):
            return self._answer(method, path, body, sent, failures, waits_for_majority)

    def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None,
        sent: dict[str, str],
        failures: deque[RingfenceError],
        waits_for_majority: bool,  # noqa: FBT001
    ) -> Any:
        """Of the first that gives one; `failures` has why the last one did not."""
        end = time.monotonic() + self._timeout_s
        while True:
            alone = ""
            for address in self._addresses:
                left = end - time.monotonic()
                try:
                    return _one(address, method, path, body, sent, max(left, 0.1))
                except errors.ConnectError as error:
                    failures.append(error)
                except _Again as again:
                    failures.append(again.error)
                    alone = again.error.message if again.slug == NO_MAJORITY else alone
            if alone and not waits_for_majority:
                raise NoMajority(alone)
            assert failures, "no address"
            if time.monotonic() + AGAIN_S >= end:
                raise failures[0]
            time.sleep(AGAIN_S)


class NoMajority(Exception):  # noqa: N818 - who gets it goes on with what one node knows
    """Its text is what the node said."""


class _Again(Exception):  # noqa: N818 - it ends in another try or in `error`
    def __init__(self, error: RingfenceError, slug: str) -> None:
        super().__init__(str(error))
        self.error, self.slug = error, slug


def _why(error: OSError | http.client.HTTPException) -> str:
    # A connection that is closed without an answer is a BadStatusLine, too, and nothing to quote.
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
        return f"it does not speak HTTP ({type(error).__name__})"
    return str(error) or type(error).__name__


def _one(
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
        raise errors.ConnectError(f"{address}: no answer: {_why(error)}; {way_out}") from error
    finally:
        connection.close()
    if len(data) > ANSWER_BYTES_MAX:
        raise errors.ProtocolError(f"{address}: an answer above {ANSWER_BYTES_MAX} bytes")
    try:
        told = json.loads(data) if data else None
    except ValueError as error:
        raise errors.ProtocolError(f"{address}: {answer.status}, and no JSON: is it an admin API?") from error
    if answer.status < 400:
        return told
    told_error = _error(answer.status, told)
    if answer.status in RETRIED:
        raise _Again(told_error, _slug(told))
    raise told_error


def _error(status: int, problem: Any) -> RingfenceError:
    """The error of a problem; the class tells what to do, as for answers on the data socket."""
    told = problem if isinstance(problem, dict) else {}
    detail = str(told.get("detail", f"status {status}"))
    name = _slug(told).upper().replace("-", "_")
    if name in Code.__members__:
        return refusal(Code[name], detail)
    return _ERRORS.get(status, errors.RetriableError if status >= 500 else errors.RefusedError)(detail)


def _slug(problem: Any) -> str:
    """Which problem it is; empty if it is none."""
    told = problem if isinstance(problem, dict) else {}
    return str(told.get("type", "")).rpartition(":")[2]


def _checked(text: str) -> str:
    try:
        parts = urlsplit(text)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.path.strip("/")
        parts.port  # noqa: B018 - raises for one that is none
    except ValueError:
        sound = False
    if not sound:
        raise errors.ConfigError(f"--http {text!r}: http://HOST:PORT", key="http")
    return text
