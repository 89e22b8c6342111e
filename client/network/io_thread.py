"""The background thread of a client: it owns every socket, and nothing else touches them.

    user threads --calls (deque + wake-up)--> link thread --frames--> nodes
                 <---------futures-----------

START HERE for the loop: `_turn` is one round of it. Producers are `Member`s: after each round in which
anything happened they may send what fits. The thread starts with the first call and ends with `close`. ZeroMQ
contexts are made per process on first use, for a context does not survive a fork: see `fork.py`.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import math
import random
import socket
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import zmq

from ringfence.common.fork import context, guard
from ringfence.common.locks import Flag, interrupted
from ringfence.common.retry import Backoff
from ringfence.common.token import Token
from ringfence.native import wire
from ringfence.native.errors import (
    ClosedError,
    ConnectError,
    InvalidArgumentError,
    ProtocolError,
    RingfenceError,
)
from ringfence.network.connection import Connection
from ringfence.network.failover import mind
from ringfence.network.peer import Peer
from ringfence.network.request import Ask, send_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from ringfence.common.codec import Answer
    from ringfence.common.routing import Layout
    from ringfence.network.member import Member

HANDSHAKE_S_MAX = 10.0  # from connect to READY, as libzmq's own 5 s for each half
TICK_S = 0.02  # while anything is under way: how late a deadline or a back-off may be seen
MODERATE_FROM = 16  # unanswered requests: below it somebody may be waiting for this very answer
MODERATE_BYTES_MAX = 65536  # of such a request on average: larger ones keep both sides busy by their bytes
MODERATE_S = 0.002  # a quarter of what a window of 64 takes at 15,000 sends a second
CROWD = 32  # calls that are worth a turn of their own: what one takes besides them is then a few percent
GIVE_WAY_S = 0.005  # a caller waits no longer for such a turn: the interpreter's own interval between threads
CLOSE_S_MAX = 10.0  # the thread never blocks on anything but its poll; this is a last resort
FAILURE = Backoff(first_s=0.05, cap_s=1.0)  # between turns that end by an error
FAILED_MAX = 16  # of them in a row, by a defect: some ten seconds
logger = logging.getLogger("ringfence")


class Link:
    """Sockets, timers and requests of one client."""

    def __init__(self, addresses: tuple[str, ...], *, token: Token | None = None) -> None:
        self.addresses = addresses
        self.now = time.monotonic()
        self.jitter = random.random
        self.members: list[Member] = []
        self.history: bytes | None = None
        self.on_history: Callable[[], None] = lambda: None
        self.message_bytes_max = wire.MESSAGE_BYTES_MAX
        """The least of the nodes that were reached: what is above it is refused before any of it is sent."""
        self.on_up: Callable[[Connection], None] = lambda _: None
        self.on_silent: Callable[[], None] = lambda: None
        self.known: Callable[[], Iterable[str]] = tuple
        self.on_push: Callable[[Answer], None] = lambda _: None
        self._token = token or Token()
        self._calls: deque[Callable[[], object]] = (
            deque()
        )  # bounded: by the producers' bytes in flight, one per blocked caller
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._timer_numbers = itertools.count()
        self.first = Peer(None, addresses)
        self._peers: dict[int | None, Peer] = {None: self.first}
        self._crowd, self._drained = Flag(), Flag()
        self._took = 0  # calls of the last turn
        self._asleep: list[None] = []  # one for each sleep; not empty: nobody has waked it
        self._closing = False
        self._released = False  # nobody looks at `_calls` any more, after one last round
        self._thread: threading.Thread | None = None
        # While it runs: the system gives the ident of a thread that has ended to others.
        self._ident: int | None = None
        self._start_lock = threading.Lock()
        try:
            self._wake_in, self._wake_out = socket.socketpair()
        except OSError as error:
            raise ConnectError(f"a client cannot be made: {error.strerror}") from error
        self._wake_in.settimeout(0)
        self._wake_out.settimeout(0)
        self._poller = zmq.Poller()
        self._poller.register(self._wake_in, zmq.POLLIN)
        self._owner = guard("client")

    # ---- from any thread --------------------------------------------------------------------------------

    def call(self, function: Callable[[], object]) -> None:
        """Run a function on the link's thread, soon.

        Raises:
            ClosedError: the client is closed. ForkedError: it belongs to the parent process.
        """
        self._owner.check()
        self.post(function)

    def post(self, function: Callable[[], object]) -> None:
        """`call`, for those who know already that this is the client's process."""
        if self._closing:
            raise ClosedError("the client is closed; connect anew")
        if self._thread is None:
            self._start()
        self._calls.append(function)
        self._wake()
        if self._released:  # it ended in between; either its last round took the call, or it is still there
            with contextlib.suppress(ValueError):
                self._calls.remove(function)
                raise ClosedError("the client is closed; connect anew")

    def give_way(self) -> None:
        """Wait a moment where many calls wait: the link's thread then takes them in one go.

        With one interpreter lock only one of the two threads runs at a time, and the link's gives it away at
        every call of ZeroMQ. A caller that wants it then costs both a switch a message; one that sleeps does
        not.
        """
        if len(self._calls) >= CROWD and not self.inside:
            self._drained.clear()
            self._crowd.set()
            self._drained.wait(GIVE_WAY_S)

    def call_at_last(self, function: Callable[[], object]) -> None:
        """`call`, and once the thread has ended here: for what must happen in any case."""
        try:
            self.call(function)
        except ClosedError:
            if self._thread is not None and not self.inside:
                self._thread.join(CLOSE_S_MAX)
            function()

    @property
    def inside(self) -> bool:
        """Whether this is the link's own thread: a callback of a future runs there."""
        return threading.get_ident() == self._ident

    def check_outside(self, what: str) -> None:
        """For who waits for the link's thread, by the caller's name.

        Raises:
            InvalidArgumentError: it is that thread itself, which would wait for ever.
            ReentrantError: a call is interrupted which that thread may wait for.
        """
        if self.inside:
            raise InvalidArgumentError(
                f"{what} would wait for its own thread here, in a callback of a future; hand it to a thread "
                "of your own"
            )
        interrupted(sys._getframe(2), what)  # noqa: SLF001 - the one way to it

    def _wake(self) -> None:
        # The loop falls asleep before it looks at `_calls` a last time: either it sees the call, or this sees
        # it asleep. First the byte: a signal's handler that comes in between must not believe that it was
        # sent. And what is cleared then is this sleep, not the next.
        asleep = self._asleep
        if asleep:
            with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it has ended already
                self._wake_out.send(b"\0")
            asleep.clear()

    def ask(self, ask: Ask) -> Future[Answer]:
        """Send a request with its retries; the future ends at its deadline at the latest."""
        self.check_outside("a request")
        self.call(lambda: self.enqueue(ask))
        return ask.future

    def ask_owner(self, ask: Ask, layout: Layout, partition: int) -> Future[Answer]:
        """`ask` at the owner of a partition."""
        self.check_outside("a request")
        self.call(lambda: self.enqueue_at_owner(ask, layout, partition))
        return ask.future

    def close(self) -> None:
        """End the thread and close the sockets. Requests under way end with ClosedError."""
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
        """As `close`, without waiting for the thread: from a finalizer, which may run anywhere."""
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
                thread = threading.Thread(target=self._run, name="ringfence-link", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    raise ConnectError(f"the client's thread cannot be started: {error}") from error
                self._thread = thread

    # ---- on the link's thread ---------------------------------------------------------------------------

    def at(self, when: float, function: Callable[[], object]) -> None:
        """Run a function at a time of `time.monotonic`."""
        heapq.heappush(self._timers, (when, next(self._timer_numbers), function))

    def enqueue(self, ask: Ask) -> None:
        """Queue a request for its node."""
        peer = self._peers.get(ask.node) or self.first
        peer.waiting.append(ask)
        send_waiting(self, peer)

    def enqueue_at_owner(self, ask: Ask, layout: Layout, partition: int) -> None:
        """As `enqueue`, for the node that a layout names."""
        ask.layout, ask.partition = layout, partition
        try:
            entry = layout.partitions.get(partition)
            ask.node = None if entry is None else self.peer_of(layout, entry.owner).node
        except Exception as error:  # noqa: BLE001  # of this request alone
            ask.failed(error)
            return
        self.enqueue(ask)

    def peer_of(self, layout: Layout, node: int) -> Peer:
        """The peer of an owner. The node at the application's own address is reached there."""
        up = self.first.up
        if up is not None and up.ready is not None and up.ready.node == node:
            return self.first
        addresses = layout.addresses.get(node)
        if not addresses:
            return self.first  # it will redirect
        peer = self._peers.get(node)
        if peer is None:
            peer = self._peers[node] = Peer(node, addresses)
        elif peer.addresses != addresses and peer.connection is None:
            peer.addresses = addresses
        return peer

    def _is_moderate(self) -> bool:
        up = [peer.connection for peer in self._peers.values() if peer.connection is not None]
        unanswered = sum(map(len, up))
        if unanswered < MODERATE_FROM:
            return False
        return sum(connection.unanswered_bytes for connection in up) <= unanswered * MODERATE_BYTES_MAX

    def connections(self) -> list[Connection]:
        """Those that stand."""
        return [up for peer in self._peers.values() if (up := peer.up) is not None]

    def _run(self) -> None:
        self._ident = threading.get_ident()
        failed = 0  # turns in a row
        try:
            while not self._closing:
                try:
                    self._turn()
                    failed = 0
                except Exception as error:  # noqa: BLE001  # it serves many: see `_after_failure`
                    failed += 1
                    self._after_failure(error, failed)
        except BaseException:
            logger.exception("the link's thread ended by a defect; every request under way is lost")
            raise
        finally:
            self._closing = True
            self._release()
            self._ident = None

    def _after_failure(self, error: Exception, failed: int) -> None:
        """A turn ended in its midst: the next one goes on, later each time.

        What the system refuses (descriptors, memory) may be there again; a defect that comes every time ends
        the thread.
        """
        if failed >= FAILED_MAX and not isinstance(error, OSError | zmq.ZMQError | MemoryError):
            raise error
        if failed == 1:
            logger.error("the link's thread goes on after an error", exc_info=error)
        time.sleep(FAILURE.delay_s(failed, 0.5))

    @staticmethod
    def _guarded(step: Callable[[], object]) -> None:
        """Something that was asked for: what fails there ends nothing else."""
        try:
            step()
        except Exception:
            logger.exception("a step of the link's thread failed by a defect; the others go on")

    def _turn(self) -> None:
        if self._took and self._is_moderate():
            # Many small answers are on their way: let some come together with what is sent meanwhile.
            self._crowd.clear()
            if len(self._calls) < CROWD:
                self._crowd.wait(MODERATE_S)
        self._asleep = [None]
        timeout_s = 0.0 if self._calls else self._timeout_s()
        # Rounded up: a wait of less than a millisecond would spin.
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
        for peer in list(self._peers.values()):
            self._serve(peer, ready, now)
        while self._timers and self._timers[0][0] <= now:
            self._guarded(heapq.heappop(self._timers)[2])
        for member in list(self.members):
            try:
                member.tick(now)
                member.pump(now)
            except Exception as error:  # noqa: BLE001  # of this member alone
                member.failed(error)
        for connection in self.connections():
            connection.flush()
        if not self._drained.is_set():
            self._drained.set()

    def _timeout_s(self) -> float | None:
        """Until something is due: seconds, or None for nothing."""
        due = [self._timers[0][0]] if self._timers else []
        busy = any(member.busy for member in self.members)
        for peer in self._peers.values():
            busy = busy or bool(peer.waiting) or bool(peer.connection)
            if peer.connection is None and (peer.waiting or busy) and self._is_wanted(peer):
                due.append(peer.retry_at)
            elif peer.connection is not None and (len(peer.connection) or not peer.connection.greeted):
                busy = True
        if busy:
            due.append(self.now + TICK_S)
        return max(0.0, min(due) - time.monotonic()) if due else None

    # ---- one peer -----------------------------------------------------------------------------------------

    def _is_wanted(self, peer: Peer) -> bool:
        """Whether it is connected again when it may be. Of another one nothing is due: turns would spin."""
        return peer is self.first or bool(peer.waiting) or any(member.busy for member in self.members)

    def _serve(self, peer: Peer, ready: set[Any], now: float) -> None:
        connection = peer.connection
        if connection is None:
            if now >= peer.retry_at and self._is_wanted(peer):
                self._open(peer, now)
            elif peer.waiting:
                send_waiting(self, peer)
            return
        try:
            if connection.socket in ready:
                was_up = peer.up is not None
                connection.greet()
                if connection.greeted:
                    self._poller.modify(connection.socket, zmq.POLLIN)
                connection.receive()
                if not was_up and peer.up is not None:
                    self._came_up(peer)
        except ProtocolError as error:
            self._drop(peer, now, error)
            return
        if connection.monitor in ready:
            connection.read_monitor()
        connection.give_up(now)
        late = connection.ready is None and now >= connection.give_up_at
        if connection.ended or late or connection.failure is not None:
            self._drop(peer, now, connection.failure)
            return
        if peer.waiting:
            send_waiting(self, peer)
        mind(self, peer, now)

    def leave_first(self, now: float) -> bool:
        """The node that serves requests to any node is silent: go on to the next one.

        The connection stays, as that of the node itself: what its owner alone can answer may still come.
        False: no other node is known.
        """
        connection = self.first.left(now, self.known())
        if connection is None:
            return False
        assert connection.ready is not None
        node = connection.ready.node
        own = self._peers.setdefault(node, Peer(node, (connection.address,)))
        if own.connection is None:
            own.connection = connection
        else:  # since the first address led elsewhere once
            self._poller.unregister(connection.socket)
            self._poller.unregister(connection.monitor)
            connection.close()
        return True

    def peers(self) -> list[Peer]:
        """All, whether or not they are connected."""
        return list(self._peers.values())

    def _open(self, peer: Peer, now: float) -> None:
        try:
            peer.connection = Connection(
                context(),
                peer.address,
                credential=self._token.current(),
                give_up_at=now + HANDSHAKE_S_MAX,
                on_push=self.on_push,
                is_ipv6=peer.tries_ipv6,
            )
        except (RingfenceError, zmq.ZMQError, OSError) as error:
            # Of a context of ZeroMQ: the system gives no descriptors.
            failure = error if isinstance(error, RingfenceError) else ConnectError(f"no socket: {error}")
            peer.failed(now, self.jitter(), failure)
            return
        self._poller.register(peer.connection.socket, zmq.POLLIN | zmq.POLLOUT)
        self._poller.register(peer.connection.monitor, zmq.POLLIN)

    def _came_up(self, peer: Peer) -> None:
        peer.succeeded()
        assert peer.connection is not None
        assert peer.connection.ready is not None
        history = peer.connection.ready.history
        if self.history is not None and history != self.history:
            for member in list(self.members):
                member.history_changed()
            self.on_history()
        self.history = history
        self.message_bytes_max = min(self.message_bytes_max, peer.connection.message_bytes_max)
        self.on_up(peer.connection)
        send_waiting(self, peer)

    def _drop(self, peer: Peer, now: float, failure: RingfenceError | None) -> None:
        connection = peer.connection
        assert connection is not None
        self._poller.unregister(connection.socket)
        self._poller.unregister(connection.monitor)
        peer.failed(now, self.jitter(), failure)
        connection.close()
        if failure is not None and not failure.retriable:
            # The node spoke and will say the same again: whoever waits should hear it now.
            for ask in peer.waiting:
                ask.future.set_exception(failure)
            peer.waiting.clear()

    def _release(self) -> None:
        error = ClosedError("the client was closed while this was under way")
        for peer in self._peers.values():
            if peer.connection is not None:
                connection, peer.connection = peer.connection, None
                connection.close()
        for member in list(self.members):
            member.abandon(error)
        self._released = True
        while self._calls:  # what was asked for in the last moment ends as well
            self._guarded(self._calls.popleft())
        timers, self._timers = self._timers, []
        for _, _, function in timers:  # so do requests that wait for their next try
            self._guarded(function)
        for member in list(self.members):
            member.abandon(error)
        for peer in self._peers.values():
            while peer.waiting:
                peer.waiting.popleft().future.set_exception(error)
        self._timers.clear()
        self._wake_in.close()
        self._wake_out.close()
