"""Answer questions of other nodes and of administrators at the control address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.envelope import Envelope
from ringfence.control.transport.hub import ANSWER_BYTES_MAX
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.control")
# Timeout of one request, in seconds: enough for an election, a commit and a group of orders.
ANSWER_TIMEOUT_S: Final = 10.0

Handler = Callable[[Any], Awaitable[messages.Reply]]


@dataclass(frozen=True, slots=True)
class Question:
    """The handler of one type of question. `while_starting`: it is answered before the node serves."""

    handle: Handler
    while_starting: bool = False


class ControlServer:
    """Dispatches questions to their handlers, and turns exceptions into refusals."""

    def __init__(
        self, questions: Mapping[type[messages.Call], Question], gate: StartGate, pulse: Callable[[], None]
    ) -> None:
        """`pulse` is called before each question, so that consensus ticks in time under load."""
        self._questions, self._gate, self._pulse = questions, gate, pulse

    async def answer(self, envelope: Envelope) -> bytes:
        """Answer one question; every fault of it becomes a refusal."""
        self._pulse()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                reply = await self.reply(messages.decode_call(envelope.body))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            reply = messages.Refusal(
                code=Code.BAD_BODY, message=f"the request cannot be decoded: {error}"[:1_000]
            )
        except RequestRefused as refusal:
            reply = refusal_of(refusal)
        except TimeoutError:
            message = f"not done within {ANSWER_TIMEOUT_S:g} s, and may still be running; ask again"
            reply = messages.Refusal(code=Code.UNKNOWN_OUTCOME, message=message, retry_after_ms=1_000)
        except Exception:  # noqa: BLE001 - a defect must fail one request, not the node
            _LOG.exception("request failed", sender=envelope.sender)
            reply = messages.Refusal(
                code=Code.INTERNAL, message="internal error; the node's log has the details"
            )
        body = messages.encode(reply)
        if len(body) > ANSWER_BYTES_MAX:
            message = f"the answer of {len(body)} bytes exceeds the limit of {ANSWER_BYTES_MAX}; ask for less"
            body = messages.encode(messages.Refusal(code=Code.TOO_LARGE, message=message))
        return body

    async def reply(self, call: messages.Call) -> messages.Reply:
        """The reply to one question. RequestRefused, also while the node starts."""
        question = self._questions[type(call)]
        if not question.while_starting:
            self._gate.check()
        return await question.handle(call)


def refusal_of(refusal: RequestRefused) -> messages.Refusal:
    return messages.Refusal(
        code=refusal.code, message=refusal.message[:4_000], retry_after_ms=refusal.retry_after_ms
    )
