"""What the library's calls that wait need: time, flags, requests and tables, in the fiber of an application.

Requests are the library's own (`Request`, `PendingRequest`), with its rules of what is tried again. Only the
connections are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from ringfence import admin, consuming_transaction
from ringfence.common.codec import Answer, request_header
from ringfence.consumer import consumer, core, taking
from ringfence.native import cluster_messages, messages
from ringfence.native._node import crc32c
from ringfence.native.errors import FencedError, InvalidArgumentError
from ringfence.native.wire import Code, Opcode, Status
from ringfence.network import request as requests
from ringfence.network.request import ANSWER_GRACE_S, PendingRequest, Request
from ringfence.send import restage
from tests.sim.checks.scopes import Commit
from tests.sim.checks.violation import ViolationError
from tests.sim.world import fiber

if TYPE_CHECKING:
    from ringfence.common.routing import Layout
    from tests.sim.clients.transform_writer import TransformWriter

LOOK_US: Final = 5_000
"""How often the world looks whether something that a fiber waits for is there."""
AGAIN_US: Final = 50_000
SILENT_S: Final = (1.0, 3.0, 8.0)
"""After so long without an answer a node is taken for silent, and another one is asked."""
MODULES: Final = (admin, consuming_transaction, consumer, taking, requests, restage)
"""Of the library: their clock is that of the process whose fiber runs."""


class Event:
    """As of `threading`, for the code of fibers."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return wait_until(self.is_set, timeout)


def wait_until(holds: Callable[[], bool], timeout_s: float | None = None) -> bool:
    """In a fiber: until it holds, or not in time."""
    running = fiber.current()
    process = running.owner
    until = None if timeout_s is None else process.time_s + timeout_s

    def waits() -> fiber.Order:
        while not holds():
            if until is not None and process.time_s >= until:
                return False
            yield LOOK_US
        return True

    return bool(running.ask(waits()))


def pause(seconds: float) -> None:
    """In a fiber: some time passes."""

    def passes() -> fiber.Order:
        yield max(1, int(seconds * 1e6))

    fiber.current().ask(passes())


def _now_s() -> float:
    return float(fiber.current().owner.time_s)


def _random_bytes(count: int) -> bytes:
    found: bytes = fiber.current().owner.random.randbytes(count)
    return found


@contextmanager
def installed() -> Iterator[None]:
    """In this block the library's calls may be made in fibers, and nowhere else."""
    clock = SimpleNamespace(monotonic=_now_s, sleep=pause)
    with ExitStack() as stack:
        for module in MODULES:
            stack.enter_context(patch.object(module, "time", clock))
        stack.enter_context(patch.object(core, "now_s", _now_s))
        stack.enter_context(patch.object(consumer, "threading", SimpleNamespace(Event=Event)))
        stack.enter_context(patch.object(admin, "os", SimpleNamespace(urandom=_random_bytes)))
        yield


class SimIo:
    """In place of the I/O thread. Futures have their outcomes when `request` returns."""

    message_bytes_max = 16 << 20

    def __init__(self, writer: TransformWriter) -> None:
        self._writer, self._world = writer, writer.world
        self._commits: dict[Request, Commit] = {}
        self._known: dict[Request, dict[int, int]] = {}

    # ---- for the library ----

    @property
    def now(self) -> float:
        return self._writer.process.time_s

    def jitter(self) -> float:
        return self._writer.random.random()

    def check_outside(self, what: str) -> None:
        """A fiber is no I/O thread."""

    def at(self, at_s: float, call: Callable[[], None]) -> None:
        self._world.agenda.after(max(1, int((at_s - self.now) * 1e6)), call)

    def request(self, request: Request) -> Any:
        """At any node."""
        self._sends(request)
        self.enqueue(request)
        wait_until(request.future.done)
        self._commits.pop(request, None)
        self._known.pop(request, None)
        return request.future

    def request_owner(self, request: Request, layout: Layout, partition: int) -> Any:
        """At the owner of a partition in any state."""
        request.layout, request.partition = layout, partition
        self.enqueue(request)
        wait_until(request.future.done)
        return request.future

    def enqueue(self, request: Request) -> None:
        """A try, soon. From any thread."""
        self._world.agenda.after(1, lambda: self._try(request))

    # ---- tries, on the world's thread ----

    def _try(self, request: Request) -> None:
        writer = self._writer
        if not writer.process.is_alive or request.future.done():
            return
        if request.deadline <= self.now:
            silent: Any = SimpleNamespace(failure=None, found="", addresses=["simulated"])
            request.future.set_exception(request.expired_error(silent))
            return
        machine = self._machine(request)
        is_silent = writer.process.is_paused or writer.is_mute
        if machine is None or is_silent or not writer.reach(machine):
            self._world.agenda.after(AGAIN_US, lambda: self._try(request))
            return
        left_s = request.deadline - self.now
        silent_s = min(left_s + ANSWER_GRACE_S, writer.random.choice(SILENT_S))
        io: Any = self
        peer: Any = None
        pending = PendingRequest(io, peer, request, self.now + silent_s)
        number = writer.next_request()
        fields = dict(request.fields)
        if request.body:
            fields |= {"body_bytes": len(request.body), "body_crc": crc32c(request.body)}
        deadline_ms = max(1, int(left_s * 1_000))
        header = request_header(request.opcode, number, deadline_ms=deadline_ms, **fields)
        request.sent = True
        body = bytes(request.body)
        if request.opcode == Opcode.BEGIN:
            self._begins(request)
        writer.put(
            machine,
            number,
            bytes(header),
            body,
            lambda answer: self._told(request, pending, answer),
            int(silent_s * 1e6),
        )

    def _machine(self, request: Request) -> Any:
        if request.layout is None:
            return self._writer.tried()
        return self._world.machine_of(request.layout.partitions.get(request.partition))

    def _told(self, request: Request, pending: PendingRequest, answer: Answer | None) -> None:
        if request.future.done() or not self._writer.process.is_alive:
            return
        if answer is None:
            pending.lost()
            return
        try:
            self._hears(request, answer)
        except ViolationError as broken:
            self._world.violate(broken)
        pending.answered(answer)

    # ---- what the ledger of scopes hears ----

    def _sends(self, request: Request) -> None:
        if request.opcode == Opcode.COMMIT:
            message = messages.decode(cluster_messages.ScopeCommit, bytes(request.body))
            rows = tuple(sorted((partition, rows) for _, partition, rows in message.parts))
            tokens = frozenset(message.tokens)
            commit = Commit(message.scope_id, message.driver, message.epoch, tokens, rows)
            self._commits[request] = commit
            self._writer.scopes.sends_as(commit)

    def _begins(self, request: Request) -> None:
        message = messages.decode(cluster_messages.ScopeBegin, bytes(request.body))
        instance = b"" if message.drawn else message.instance
        self._world.scopes.asks(message.scope, instance, message.after or 0)
        self._known[request] = self._world.scopes.acknowledged_upto()

    def _hears(self, request: Request, answer: Answer) -> None:
        scopes, status = self._world.scopes, answer.header.status
        if request.opcode == Opcode.BEGIN and status == Status.OK:
            told = answer.control(cluster_messages.ScopeBegun)
            scopes.began(told.scope_id, told.committed, self._known[request])
        elif request.opcode == Opcode.EXPIRE and status == Status.OK:
            message = messages.decode(cluster_messages.ScopeExpire, bytes(request.body))
            scopes.expired(message.scope_id, message.epoch)
        elif request.opcode == Opcode.COMMIT:
            self._hears_commit(self._commits[request], answer)

    def _hears_commit(self, commit: Commit, answer: Answer) -> None:
        scopes, status = self._world.scopes, answer.header.status
        if status == Status.OK:
            self._world.count("consumed_acknowledged")
            scopes.acknowledged(commit)
        elif status == Status.ALREADY_COMMITTED:
            self._world.count("consumed_already")
            scopes.already(commit, answer.control(cluster_messages.AlreadyCommitted).own)
        else:
            error = answer.error()
            self._world.count(
                f"consumed_{Code(error.code).name.lower()}" if error.code else "consumed_unclear"
            )
            if isinstance(error, FencedError):
                scopes.fenced(commit)
            elif isinstance(error, InvalidArgumentError):
                scopes.refused(commit, error.message)


class SimTables:
    """In place of the cache of tables: that of the writer."""

    def __init__(self, writer: TransformWriter) -> None:
        self._writer = writer

    def get(self, topic: str, deadline: float) -> Layout:
        """The layout of the topic that rows go to."""
        assert topic == self._writer.topic, topic
        wait_until(lambda: self._writer.layout is not None, deadline - _now_s())
        assert self._writer.layout is not None
        return self._writer.layout

    def get_by_id(self, topic: int, deadline: float, name: str | None = None) -> Layout:
        """The newest table that any node tells."""
        fiber.current().ask(self._writer.fetched())
        assert self._writer.layout is not None
        return self._writer.layout
