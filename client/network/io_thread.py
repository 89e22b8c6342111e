"""The background I/O thread of a client. It alone uses the sockets.

    caller threads --calls (deque + wake-up)--> I/O thread --frames--> nodes
                   <---------futures-----------

START HERE for the loop: `_turn` is one round. Producers are `Member`s: each round lets them send as much as
fits. The thread starts with the first call and ends with `close`. A ZeroMQ context does not survive a fork,
so each process creates one on first use: see `fork.py`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import socket
import sys
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import zmq

from ringfence.common.fork import guard
from ringfence.common.locks import Flag, interrupted
from ringfence.common.retry import Backoff
from ringfence.common.token import Token
from ringfence.native import wire
from ringfence.native.errors import ClosedError, ConnectError, InvalidArgumentError
from ringfence.network.peers import Peers
from ringfence.network.request import Request, send_waiting
from ringfence.network.scheduler import MODERATE_S, Scheduler, should_collect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from concurrent.futures import Future

    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.connection import Connection
    from ringfence.network.member import Member
    from ringfence.network.peer import Peer

# Delay with which a deadline or the end of a backoff may be noticed while requests are pending.
TICK_S = 0.02
# Queued calls that justify a turn of their own: the fixed cost of a turn is then a few percent.
CROWD = 32
# Longest wait of a caller for such a turn: the interpreter's own switch interval.
YIELD_S = 0.005
# The thread blocks on nothing but its poll, so this limit is a last resort.
CLOSE_S_MAX = 10.0
# Between turns that end with an error.
FAILURE = Backoff(first_s=0.05, cap_s=1.0)
# Failed turns in a row after which a defect ends the thread: about ten seconds.
FAILED_MAX = 16
logger = logging.getLogger("ringfence")


class IoThread:
    """Sockets, timers and requests of one client."""

    def __init__(self, addresses: tuple[str, ...], *, token: Token | None = None) -> None:
        self.addresses = addresses
        self.now = time.monotonic()
        self.jitter = random.random
        self.members: list[Member] = []
        self.history: bytes | None = None
        self.on_history: list[Callable[[], None]] = []
        self.message_bytes_max = wire.MESSAGE_BYTES_MAX
        """The smallest limit of all nodes reached so far.

        Larger messages are refused before any byte is sent.
        """
        self.on_up: list[Callable[[Connection], None]] = []
        self.on_silent: Callable[[], None] = lambda: None
        self.known: Callable[[], Iterable[str]] = tuple
        self.on_push: list[Callable[[Connection, Answer], None]] = []
        # Bounded by the bytes in flight of the producers, and by one call for each blocked caller.
        self._calls: deque[Callable[[], object]] = deque()
        self._timers = Scheduler()
        self.at = self._timers.at  # on this thread only
        self._crowd, self._drained = Flag(), Flag()
        self._took = 0  # calls that the last turn executed
        self._asleep: list[None] = []  # a new list for each poll; not empty: no wake-up was sent
        self._closing = False
        self._released = False  # `_calls` is not executed any more, after one last round
        self._thread: threading.Thread | None = None
        # Set only while the thread runs: the system reuses the ident of an ended thread.
        self._ident: int | None = None
        self._start_lock = threading.Lock()
        try:
            self._wake_in, self._wake_out = socket.socketpair()
        except OSError as error:
            raise ConnectError(f"the client cannot create its wake-up socket: {error.strerror}") from error
        self._wake_in.settimeout(0)
        self._wake_out.settimeout(0)
        self._poller = zmq.Poller()
        self._poller.register(self._wake_in, zmq.POLLIN)
        self._peers = Peers(self, self._poller, addresses, token or Token())
        self.first = self._peers.first
        self._owner = guard("client")

    # ---- from any thread --------------------------------------------------------------------------------

    def call(self, function: Callable[[], object]) -> None:
        """Run a function on the I/O thread, soon.

        Raises:
            ClosedError: the client is closed. ForkedError: it belongs to the parent process.
        """
        self._owner.check()
        self.post(function)

    def post(self, function: Callable[[], object]) -> None:
        """Like `call`, without the fork check."""
        if self._closing:
            raise ClosedError("the client is closed; connect again")
        if self._thread is None:
            self._start()
        self._calls.append(function)
        self._wake()
        if self._released:
            # The thread ended meanwhile: either its last round took the call, or the call is still queued.
            with contextlib.suppress(ValueError):
                self._calls.remove(function)
                raise ClosedError("the client is closed; connect again")

    def yield_to_io(self) -> None:
        """Pause the caller while many calls are queued, so that the I/O thread executes them in one turn.

        The interpreter lock lets one of the two threads run at a time, and the I/O thread releases it at
        every ZeroMQ call. A caller that competes for the lock costs a thread switch for each message. A
        sleeping caller does not.
        """
        if len(self._calls) >= CROWD and not self.inside:
            self._drained.clear()
            self._crowd.set()
            self._drained.wait(YIELD_S)

    def call_at_last(self, function: Callable[[], object]) -> None:
        """Like `call`.

        If the I/O thread has ended, run the function here: for cleanup that must not be lost.
        """
        try:
            self.call(function)
        except ClosedError:
            if self._thread is not None and not self.inside:
                self._thread.join(CLOSE_S_MAX)
            function()

    @property
    def inside(self) -> bool:
        """Whether the caller is the I/O thread itself, as in a callback of a future."""
        return threading.get_ident() == self._ident

    def check_outside(self, what: str) -> None:
        """Refuse a call that would deadlock because it waits for the I/O thread.

        Args:
            what: name of the call, for the error text.

        Raises:
            InvalidArgumentError: the caller is the I/O thread and would wait for itself.
            ReentrantError: the caller interrupts a call that may hold a lock of the I/O thread.
        """
        if self.inside:
            raise InvalidArgumentError(
                f"{what} would block the client's I/O thread, which runs this callback of a future; call it "
                "from a thread of your own"
            )
        interrupted(sys._getframe(2), what)  # noqa: SLF001 - there is no public way to the stack

    def _wake(self) -> None:
        # The loop sets `_asleep` before it reads `_calls` a last time: either it sees the call, or this code
        # sees `_asleep`. The byte is sent before the list is cleared: a signal handler that runs in between
        # must not assume that the byte was sent. Each poll has its own list, so only that poll is cleared.
        asleep = self._asleep
        if asleep:
            with contextlib.suppress(OSError):  # full: it will wake anyway; closed: the thread has ended
                self._wake_out.send(b"\0")
            asleep.clear()

    def request(self, request: Request) -> Future[Answer]:
        """Send a request and repeat it as needed; the future ends at the deadline at the latest."""
        self.check_outside("a request")
        self.call(lambda: self.enqueue(request))
        return request.future

    def request_owner(self, request: Request, layout: Layout, partition: int) -> Future[Answer]:
        """Like `request`, to the owner of a partition."""
        self.check_outside("a request")
        self.call(lambda: self.enqueue_at_owner(request, layout, partition))
        return request.future

    def close(self) -> None:
        """End the thread and close the sockets. Pending requests end with ClosedError."""
        if self._closing or not self._owner.mine:
            return
        with self._start_lock:
            self._closing = True
            thread = self._thread
        if thread is None:
            self._release()
        else:
            self._asleep = [None]
            self._wake()
            if thread is not threading.current_thread():
                thread.join(CLOSE_S_MAX)

    def drop(self) -> None:
        """Like `close`, without waiting for the thread: for finalizers, which may run in any thread."""
        if self._closing or not self._owner.mine:
            return
        self._closing = True
        if self._thread is None:
            self._release()
        else:
            self._asleep = [None]
            self._wake()

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None and not self._closing:
                thread = threading.Thread(target=self._run, name="ringfence-io", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise ConnectError(f"the client's I/O thread cannot be started: {error}") from error
                self._thread = thread

    # ---- on the I/O thread ------------------------------------------------------------------------------

    def enqueue(self, request: Request) -> None:
        """Queue a request for its node."""
        peer = self._peers.at(request.node)
        peer.waiting.append(request)
        send_waiting(self, peer)

    def enqueue_at_owner(self, request: Request, layout: Layout, partition: int) -> None:
        """Like `enqueue`, to the owner of a partition according to `layout`."""
        request.layout, request.partition = layout, partition
        try:
            entry = layout.partitions.get(partition)
            request.node = None if entry is None else self.peer_of(layout, entry.owner).node
        except Exception as error:  # noqa: BLE001  # ends this request only
            request.failed(error)
            return
        self.enqueue(request)

    def peer_of(self, layout: Layout, node: int) -> Peer:
        """See `Peers.of`."""
        return self._peers.of(layout.addresses.get(node), node)

    def pushed(self, connection: Connection, answer: Answer) -> None:
        """Give a push to the handlers. A defect in one of them does not affect the others."""
        for handler in self.on_push:
            self._guarded(partial(handler, connection, answer))

    def keep_peers(self, nodes: Collection[int]) -> None:
        """See `Peers.keep`."""
        self._peers.keep(nodes)

    def connections(self) -> list[Connection]:
        """The established ones."""
        return self._peers.connections()

    def peers(self) -> list[Peer]:
        """All peers, connected or not."""
        return self._peers.all()

    def leave_first(self, now: float) -> bool:
        """See `Peers.leave_first`."""
        return self._peers.leave_first(now, self.known())

    def _run(self) -> None:
        self._ident = threading.get_ident()
        failed = 0  # turns in a row
        try:
            while not self._closing:
                try:
                    self._turn()
                    failed = 0
                except Exception as error:  # noqa: BLE001  # see `_after_failure`
                    failed += 1
                    self._after_failure(error, failed)
        except BaseException:
            logger.exception("the I/O thread ended because of a defect; all pending requests are lost")
            raise
        finally:
            self._closing = True
            self._release()
            self._ident = None

    def _after_failure(self, error: Exception, failed: int) -> None:
        """Continue after a failed turn, with a growing pause.

        A shortage of the system (descriptors, memory) may pass. A defect that repeats ends the thread.
        """
        if failed >= FAILED_MAX and not isinstance(error, OSError | zmq.ZMQError | MemoryError):
            raise error
        if failed == 1:
            logger.error("the I/O thread continues after an error", exc_info=error)
        time.sleep(FAILURE.delay_s(failed, 0.5))

    @staticmethod
    def _guarded(step: Callable[[], object]) -> None:
        """Run one queued step; its failure affects no other step."""
        try:
            step()
        except Exception:
            logger.exception("a step of the I/O thread failed because of a defect; the others continue")

    def _turn(self) -> None:
        if self._took and should_collect(self._peers.all()):
            self._crowd.clear()
            if len(self._calls) < CROWD:
                self._crowd.wait(MODERATE_S)
        self._asleep = [None]
        timeout_s = 0.0 if self._calls else self._timeout_s()
        # Rounded up: with a wait of 0 ms the loop would spin.
        events = self._poller.poll(None if timeout_s is None else math.ceil(timeout_s * 1000))
        self._asleep.clear()
        self.now = now = time.monotonic()
        ready = {sock for sock, _ in events}
        if self._wake_in.fileno() in ready or self._wake_in in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake_in.recv(4096)
        self._took = len(self._calls)
        for _ in range(self._took):
            self._guarded(self._calls.popleft())
        self._peers.serve(ready, now)
        for function in self._timers.due(now):
            self._guarded(function)
        for member in list(self.members):
            try:
                member.tick(now)
                member.pump(now)
            except Exception as error:  # noqa: BLE001  # ends this member only
                member.failed(error)
        for connection in self.connections():
            connection.flush()
        if not self._drained.is_set():
            self._drained.set()

    def _timeout_s(self) -> float | None:
        """Seconds until the next timer or retry; None: nothing is due."""
        due = [self._timers.next_at] if self._timers else []
        busy, retries = self._peers.due()
        due += retries
        if busy:
            due.append(self.now + TICK_S)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _release(self) -> None:
        error = ClosedError("the client was closed before this request was answered")
        self._peers.close()
        for member in list(self.members):
            member.abandon(error)
        self._released = True
        while self._calls:  # calls queued at the last moment end as well
            self._guarded(self._calls.popleft())
        for function in self._timers.take_all():  # requests that wait for a retry end as well
            self._guarded(function)
        for member in list(self.members):
            member.abandon(error)
        self._peers.end_waiting(error)
        self._timers.clear()
        self._wake_in.close()
        self._wake_out.close()
