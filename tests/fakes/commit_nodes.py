"""Nodes that answer a COMMIT as they are told to."""

from __future__ import annotations

from ringfence.native import cluster_messages as messages
from ringfence.native.messages import Message
from ringfence.native.wire import Opcode, RequestHeader, Status
from tests.fakes.socket_node import FakeNode, Fault, Hook

SAID_BY_OLDER: Message = messages.ScopeCommitted()  # an empty map


class Decided(FakeNode):
    """Whatever is committed was committed before. `own`: whose that was; None: an older program's answer."""

    def __init__(self, own: bool | None, hook: Hook | None = None) -> None:
        super().__init__(hook=hook)
        self.own, self.given_up = own, False

    def _serve(self, header: RequestHeader, body: bytes) -> list[bytes] | None:
        if header.opcode == Opcode.BEGIN:
            return self._reply(header, messages.ScopeBegun(scope_id=5, driver=6))
        if header.opcode == Opcode.COMMIT:
            answer = (
                SAID_BY_OLDER
                if self.own is None
                else messages.AlreadyCommitted(own=self.own, given_up=self.given_up)
            )
            return self._reply(header, answer, Status.ALREADY_COMMITTED)
        return super()._serve(header, body)


def once(fault: Fault) -> Hook:
    """The first COMMIT has this fate."""
    left = [fault]
    return lambda header: left.pop() if header.opcode == Opcode.COMMIT and left else None
