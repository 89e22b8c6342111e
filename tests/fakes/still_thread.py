"""An I/O thread that sends nothing: it keeps requests and acknowledgements, and its clock stands still."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection
from typing import Any

from ringfence.common.codec import Answer
from ringfence.common.routing import Layout
from ringfence.native import messages, wire
from ringfence.network.request import Request

Acknowledged = tuple[int, int]
"""Topic and generation."""


class StillConnection:
    """Notes what is acknowledged on it."""

    def __init__(self) -> None:
        self.acknowledged: list[Acknowledged] = []

    def send(self, opcode: int, body: bytes, pending: object, **fields: int) -> bool:
        assert (opcode, body, pending) == (wire.Opcode.TABLE_ACK, b"", None)
        self.acknowledged.append((fields["topic"], fields["sequence"]))
        return True


class StillPeer:
    def __init__(self, node: int | None) -> None:
        self.node, self.waiting = node, list[Request]()
        self.connection: Any = None
        self.up: Any = StillConnection()


class StillThread:
    """`first` and the peers of `nodes` are connected."""

    def __init__(self, *nodes: int) -> None:
        self.now, self.requests = 100.0, list[Request]()
        self.first = StillPeer(None)
        self._peers = [self.first, *map(StillPeer, nodes)]
        self.kept: list[Collection[int]] = []
        self.members: list[Any] = []
        self.on_push: list[Callable[[Any, Answer], None]] = []
        self.on_up: list[Callable[[Any], None]] = []
        self.on_history: list[Callable[[], None]] = []
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def jitter(self) -> float:
        return 0.5

    def enqueue(self, request: Request) -> None:
        self.requests.append(request)

    def check_outside(self, what: str) -> None:
        """The test is never the I/O thread."""

    def call(self, function: Callable[[], object]) -> None:
        function()

    def connections(self) -> list[Any]:
        return [peer.up for peer in self._peers if peer.up is not None]

    def peers(self) -> list[Any]:
        return self._peers

    def peer_of(self, layout: Layout, node: int) -> StillPeer:
        assert node in layout.addresses
        found = next((peer for peer in self._peers if peer.node == node), None)
        if found is None:
            found = StillPeer(node)
            found.up = None
            self._peers.append(found)
        return found

    def keep_peers(self, nodes: Collection[int]) -> None:
        self.kept.append(nodes)

    def at(self, when: float, function: Callable[[], object]) -> None:
        heapq.heappush(self._timers, (when, next(self._numbers), function))

    def pass_s(self, seconds: float) -> None:
        """Let the time pass; timers run when they are due."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, function = heapq.heappop(self._timers)
            function()
        self.now = end

    # ---- what nodes send ------------------------------------------------------------------------------

    def push(self, table: messages.Table, generation: int = 0, *, way: int = 0) -> StillConnection:
        """A node pushes a table over one of the connections, which is returned."""
        connection: StillConnection = self.connections()[way]
        for handler in self.on_push:
            handler(connection, pushed(table, generation))
        return connection


def answer(table: messages.Table | None, generation: int = 0, **fields: int) -> Answer:
    """The answer to TABLE; None: nothing is newer than what is held."""
    return _framed(wire.Opcode.TABLE, wire.Status.OK, table, generation, **fields)


def pushed(message: messages.Message, generation: int = 0, **fields: int) -> Answer:
    """TABLE_PUSH, or another push."""
    fields = {"topic": getattr(message, "topic", 0), "opcode": wire.Opcode.TABLE_PUSH} | fields
    return _framed(fields.pop("opcode"), wire.Status.PUSH, message, generation, **fields)


def _framed(
    opcode: int, status: int, message: messages.Message | None, generation: int, **fields: int
) -> Answer:
    body = b"" if message is None else messages.encode(message)
    made = generation or getattr(message, "generation", 0)
    header = dict.fromkeys(wire.AnswerHeader._fields, 0)
    header |= {"opcode": opcode, "status": status, "generation": made, "body_bytes": len(body), **fields}
    return Answer(wire.AnswerHeader(**header), memoryview(body))
