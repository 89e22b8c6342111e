"""Control requests of clients: decoded, bounded, answered within their deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

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
REQUESTS_MAX: Final = 1_024
"""Control requests under way; bodies are below 1 MiB: 1 GiB in the worst case, a few MB in practice."""
TOLD_AT: ContextVar[float | None] = ContextVar("TOLD_AT", default=None)
"""For a handler: who asked is answered by then, on the loop's clock. What only waits may end with it."""
ASKED_BY: ContextVar[str] = ContextVar("ASKED_BY", default="")
"""For a handler: the name of the token that the connection presented; empty without one."""
ASKED_WITHIN: ContextVar[str] = ContextVar("ASKED_WITHIN", default="")
"""For a handler: the prefix of topics that this token is for; empty for all topics."""
TOLD_SHARE: Final = 0.95
"""Of a deadline: a handler that ends then says itself how far it came."""

Narrow = Callable[[str, Message], Message]
Handler = Callable[[Any], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Route:
    """How an opcode is served: the type of its body (None = no body) and the handler."""

    body: type[Message] | None
    handle: Handler


class RequestDispatch:
    """Answers the requests that the engine passes up."""

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
        """`generation` gives the applied index; `request_ms` is the deadline of requests that name none.

        `narrow` holds what comes with a prefix of topics to it: `prefixes.narrowed`.

        `pulse` is called before and after each request: however many are ready, consensus ticks in time.
        """
        self._pulse, self._narrow = pulse, narrow
        self._node, self._routes, self._generation, self._request_ms = node, routes, generation, request_ms
        self._under_way: set[asyncio.Task[None]] = set()
        self.stopping = False

    def take(self, connection: int, header: bytes, body: bytes, prefix: str = "", who: str = "") -> None:
        """Begin to serve one request; returns at once.

        It is good for topics whose full names begin with `prefix`. `who` is its token's name.
        """
        request = RequestHeader(*REQUEST_STRUCT.unpack(header))
        if len(self._under_way) >= REQUESTS_MAX:
            refusal = RequestRefused(
                Code.OVERLOADED, f"{REQUESTS_MAX} control requests wait", retry_after_ms=100
            )
            self._refuse(connection, request, refusal)
            return
        task = asyncio.get_running_loop().create_task(self._serve(connection, request, body, prefix, who))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def finish(self, timeout_s: float) -> None:
        """Wait for the requests under way; new ones are refused from now on."""
        self.stopping = True
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=timeout_s)

    async def _serve(
        self, connection: int, request: RequestHeader, body: bytes, prefix: str, who: str
    ) -> None:
        self._pulse()
        ASKED_BY.set(who)  # of this task, and of those that it makes
        ASKED_WITHIN.set(prefix)
        try:
            route, message = self._decoded(request, body)
            if prefix and message is not None:
                message = self._narrow(prefix, message)
            answer = await self._within_deadline(route.handle(message), request)
        except RequestRefused as refusal:
            self._refuse(connection, request, refusal)
        except RingfenceError as error:
            code = error.code if error.code is not None else Code.INTERNAL
            self._refuse(connection, request, RequestRefused(code, str(error)))
        except Exception:  # noqa: BLE001 - a defect must cost one request, not the node
            _LOG.exception("request failed", opcode=request.opcode, connection=connection)
            self._refuse(
                connection, request, RequestRefused(Code.INTERNAL, "a defect of the node; its log says more")
            )
        else:
            decided = isinstance(answer, AlreadyCommitted)
            status = Status.ALREADY_COMMITTED if decided else Status.OK
            self._answer(connection, request, status, messages.encode(answer))
        finally:
            self._pulse()

    def _decoded(self, request: RequestHeader, body: bytes) -> tuple[Route, Message | None]:
        route = self._routes.get(request.opcode)
        if route is None:
            known = request.opcode in set(Opcode)
            code = Code.NOT_SUPPORTED if known else Code.UNKNOWN_OPCODE
            name = Opcode(request.opcode).name if known else str(request.opcode)
            raise RequestRefused(code, f"opcode {name} is not served by this node")
        if self.stopping:
            raise RequestRefused(Code.STOPPING, "the node is going down", retry_after_ms=1_000)
        if route.body is None:
            return route, None
        if len(body) > CONTROL_BYTES_MAX:
            raise RequestRefused(
                Code.TOO_LARGE, f"a control body of {len(body)} bytes: at most {CONTROL_BYTES_MAX}"
            )
        try:
            return route, messages.decode(route.body, body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise RequestRefused(Code.BAD_BODY, f"{Opcode(request.opcode).name}: {error}") from error

    async def _within_deadline(self, work: Awaitable[Message], request: RequestHeader) -> Message:
        deadline_ms = request.deadline_ms or self._request_ms
        # This runs in a task of its own, so no other request sees it.
        TOLD_AT.set(asyncio.get_running_loop().time() + deadline_ms / 1000 * TOLD_SHARE)
        task = asyncio.ensure_future(work)
        # Shielded: what was begun goes on, for a command that is in the journal cannot be taken back.
        done, _ = await asyncio.wait({task}, timeout=deadline_ms / 1000)
        if done:
            return task.result()
        task.add_done_callback(_told_nobody)
        raise RequestRefused(
            Code.UNKNOWN_OUTCOME,
            f"not done within {deadline_ms} ms, and going on; ask again",
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
                f"the answer has {len(body)} bytes, a control body at most {CONTROL_BYTES_MAX}; ask for less"
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


def _told_nobody(task: asyncio.Future[Message]) -> None:
    """Read a late failure, so that it stands in the log and not in a warning at exit."""
    if not task.cancelled() and task.exception() is not None:
        _LOG.warning("a request failed after its deadline", error=str(task.exception()))
