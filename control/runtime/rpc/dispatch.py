"""Decode control requests of clients, route them, and answer within their deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native import messages
from ringfence.native._node import Node, crc32c, crc32c_seal
from ringfence.native.cluster_messages import AlreadyCommitted
from ringfence.native.errors import RingfenceError
from ringfence.native.messages import Message
from ringfence.native.wire import (
    ANSWER_STRUCT,
    CONTROL_BYTES_MAX,
    REQUEST_STRUCT,
    AnswerFlags,
    AnswerHeader,
    Code,
    Opcode,
    RequestHeader,
    Status,
)

_LOG = structlog.get_logger("ringfence.requests")
# Concurrent control requests; bodies are below 1 MiB: 1 GiB in the worst case, a few MB in practice.
REQUESTS_MAX: Final = 1_024
ALL_FEATURES: Final = (1 << 64) - 1
# For handlers: the time by which the client gets an answer, on the loop's clock. Waits may end then.
ANSWER_DUE_S: ContextVar[float | None] = ContextVar("ANSWER_DUE_S", default=None)
# For handlers: the name of the token that the connection presented; empty without one.
CALLER_TOKEN: ContextVar[str] = ContextVar("CALLER_TOKEN", default="")
# For handlers: the topic prefix that the token is restricted to; empty for all topics.
CALLER_PREFIX: ContextVar[str] = ContextVar("CALLER_PREFIX", default="")
# For handlers: the number of the caller's connection; 0 for callers without one.
CALLER_CONNECTION: ContextVar[int] = ContextVar("CALLER_CONNECTION", default=0)
# For handlers: what the caller's client can do, as bits of `Features`; callers without a client: all.
CALLER_FEATURES: ContextVar[int] = ContextVar("CALLER_FEATURES", default=ALL_FEATURES)
# Share of a deadline after which waits end, so that the handler itself can answer with its progress.
ANSWER_DUE_SHARE: Final = 0.95

Narrow = Callable[[str, Message], Message]
Handler = Callable[[Any], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Route:
    """The route of an opcode: the type of its body (None = no body), and the handler."""

    body: type[Message] | None
    handle: Handler


class _Caller(NamedTuple):
    """Of whom a request is; see the context variables."""

    prefix: str
    token: str
    features: int


class RequestDispatch:
    """Answers the control requests that the engine passes to Python."""

    def __init__(
        self,
        node: Node,
        routes: Mapping[int, Route],
        *,
        generation: Callable[[], int],
        request_ms: int,
        pulse: Callable[[], None] = lambda: None,
        narrow: Narrow = lambda _, message: message,
    ) -> None:
        """Set the routes and callbacks.

        Args:
            node: sends the answers.
            routes: by opcode.
            generation: returns the applied metadata index.
            request_ms: deadline of requests without a deadline of their own.
            pulse: called before and after each request, so that consensus ticks in time under load.
            narrow: restricts a request to the topic prefix of the caller's token.
        """
        self._pulse, self._narrow = pulse, narrow
        self._node, self._routes, self._generation, self._request_ms = node, routes, generation, request_ms
        self._running: set[asyncio.Task[None]] = set()
        self.stopping = False

    def serve(
        self,
        connection: int,
        header: bytes,
        body: bytes,
        prefix: str = "",
        token: str = "",
        features: int = ALL_FEATURES,
    ) -> None:
        """Start to serve one request; return immediately.

        The request may use topics whose full names begin with `prefix`; `token` names the caller's token,
        `features` is what its client can do.
        """
        request = RequestHeader(*REQUEST_STRUCT.unpack(header))
        if len(self._running) >= REQUESTS_MAX:
            refusal = RequestRefused(
                Code.OVERLOADED,
                f"too many control requests are running (limit {REQUESTS_MAX}); retry in 100 ms",
                retry_after_ms=100,
            )
            self._refuse(connection, request, refusal)
            return
        task = asyncio.get_running_loop().create_task(
            self._serve(connection, request, body, _Caller(prefix, token, features))
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def finish(self, timeout_s: float) -> None:
        """Wait for running requests; refuse new ones from now on."""
        self.stopping = True
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)

    async def _serve(self, connection: int, request: RequestHeader, body: bytes, caller: _Caller) -> None:
        self._pulse()
        CALLER_TOKEN.set(caller.token)  # in this task, and in tasks that it creates
        CALLER_PREFIX.set(caller.prefix)
        CALLER_FEATURES.set(caller.features)
        CALLER_CONNECTION.set(connection)
        try:
            route, message = self._decode(request, body)
            if caller.prefix and message is not None:
                message = self._narrow(caller.prefix, message)
            answer = await self._within_deadline(route.handle(message), request)
        except RequestRefused as refusal:
            self._refuse(connection, request, refusal)
        except RingfenceError as error:
            code = error.code if error.code is not None else Code.INTERNAL
            self._refuse(connection, request, RequestRefused(code, str(error)))
        except Exception:  # noqa: BLE001 - a defect must fail one request, not the node
            _LOG.exception("request failed", opcode=request.opcode, connection=connection)
            self._refuse(
                connection,
                request,
                RequestRefused(Code.INTERNAL, "internal error; the node's log has the details"),
            )
        else:
            decided = isinstance(answer, AlreadyCommitted)
            status = Status.ALREADY_COMMITTED if decided else Status.OK
            self._answer(connection, request, status, messages.encode(answer))
        finally:
            self._pulse()

    def _decode(self, request: RequestHeader, body: bytes) -> tuple[Route, Message | None]:
        route = self._routes.get(request.opcode)
        if route is None:
            is_known = request.opcode in set(Opcode)
            code = Code.NOT_SUPPORTED if is_known else Code.UNKNOWN_OPCODE
            name = Opcode(request.opcode).name if is_known else str(request.opcode)
            raise RequestRefused(code, f"opcode {name} is not served by this node")
        if self.stopping:
            raise RequestRefused(Code.STOPPING, "the node is going down", retry_after_ms=1_000)
        if route.body is None:
            return route, None
        if len(body) > CONTROL_BYTES_MAX:
            raise RequestRefused(
                Code.TOO_LARGE,
                f"the control body of {len(body)} bytes exceeds the limit of {CONTROL_BYTES_MAX}",
            )
        try:
            return route, messages.decode(route.body, body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise RequestRefused(Code.BAD_BODY, f"{Opcode(request.opcode).name}: {error}") from error

    async def _within_deadline(self, work: Awaitable[Message], request: RequestHeader) -> Message:
        deadline_ms = request.deadline_ms or self._request_ms
        # Each request runs in a task of its own, so no other request sees the value.
        ANSWER_DUE_S.set(asyncio.get_running_loop().time() + deadline_ms / 1000 * ANSWER_DUE_SHARE)
        task = asyncio.ensure_future(work)
        # The work is not cancelled: a command that is in the journal cannot be withdrawn.
        done, _ = await asyncio.wait({task}, timeout=deadline_ms / 1000)
        if done:
            return task.result()
        task.add_done_callback(_log_late_failure)
        raise RequestRefused(
            Code.UNKNOWN_OUTCOME,
            f"not done within {deadline_ms} ms, and still running; ask again",
            deadline_ms=deadline_ms,
        )

    def _refuse(self, connection: int, request: RequestHeader, refusal: RequestRefused) -> None:
        body = messages.encode(messages.Refused(message=refusal.message, details=refusal.details))
        self._answer(connection, request, Status.REFUSED, body, refusal)

    def _answer(
        self,
        connection: int,
        request: RequestHeader,
        status: Status,
        body: bytes,
        refusal: RequestRefused | None = None,
    ) -> None:
        if len(body) > CONTROL_BYTES_MAX:
            message = (
                f"the answer of {len(body)} bytes exceeds the limit of {CONTROL_BYTES_MAX}; ask for less"
            )
            self._refuse(connection, request, RequestRefused(Code.TOO_LARGE, message))
            return
        header = AnswerHeader(
            opcode=request.opcode,
            status=status,
            request_id=request.request_id,
            topic=request.topic,
            partition=request.partition,
            generation=self._generation(),
            retry_after_ms=0 if refusal is None else refusal.retry_after_ms,
            code=0 if refusal is None else refusal.code,
            flags=AnswerFlags.CONTROL,
            body_bytes=len(body),
            body_crc=crc32c(body),
        )
        packed = bytearray(ANSWER_STRUCT.pack(*header))
        crc32c_seal(packed)
        self._node.answer(connection, bytes(packed), body)


def _log_late_failure(task: asyncio.Future[Message]) -> None:
    """Log a failure after the deadline; without this, asyncio would only warn at exit."""
    if not task.cancelled() and task.exception() is not None:
        _LOG.warning("a request failed after its deadline", error=str(task.exception()))
