"""The nodes that a client uses: open, serve and close the connections. Used by the I/O thread only.

`first` is any node that answers at the addresses of the application; the others are owners of partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import zmq

from ringfence.common.fork import context
from ringfence.native.errors import ConnectError, ProtocolError, RingfenceError
from ringfence.network.connection import Connection
from ringfence.network.failover import check_connection
from ringfence.network.peer import Peer
from ringfence.network.request import PendingRequest, send_waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ringfence.common.token import Token
    from ringfence.network.io_thread import IoThread

# From connect to READY: twice libzmq's own 5 s for connecting and for its handshake.
HANDSHAKE_S_MAX = 10.0
# Seconds that a node keeps its connection after no table names it any more. A former owner answers within
# milliseconds; a table may name the node again after a failover.
UNUSED_S = 30.0
# Pause between looks at a connection that must stay for a request.
LOOK_AGAIN_S = 1.0


class Peers:
    """All peers of one client."""

    def __init__(
        self, io_thread: IoThread, poller: zmq.Poller, addresses: tuple[str, ...], token: Token
    ) -> None:
        self._io_thread, self._poller, self._token = io_thread, poller, token
        self.first = Peer(None, addresses)
        self.by_node: dict[int | None, Peer] = {None: self.first}
        self._named: frozenset[int] = frozenset()  # by the tables in use; empty: none is in use

    def all(self) -> list[Peer]:
        """All of them, connected or not."""
        return list(self.by_node.values())

    def at(self, node: int | None) -> Peer:
        """The peer of a node id; `first` if there is none."""
        return self.by_node.get(node) or self.first

    def of(self, addresses: tuple[str, ...] | None, node: int) -> Peer:
        """The peer of an owner. A node that answers at the application's own address is used there."""
        up = self.first.up
        if up is not None and up.ready is not None and up.ready.node == node:
            return self.first
        if not addresses:
            return self.first  # that node will redirect
        peer = self.by_node.get(node)
        if peer is None:
            peer = self.by_node[node] = Peer(node, addresses)
            self._count_unused(peer, self._io_thread.now)
        peer.used_s = self._io_thread.now
        if peer.addresses != addresses and peer.connection is None:
            peer.addresses = addresses
        return peer

    def connections(self) -> list[Connection]:
        """The established ones."""
        return [up for peer in self.by_node.values() if (up := peer.up) is not None]

    # ---- rounds of the I/O thread -----------------------------------------------------------------------

    def serve(self, ready: set[Any], now: float) -> None:
        """Serve all peers; `ready`: sockets that can be read."""
        for peer in self.all():
            self._serve(peer, ready, now)

    def due(self) -> tuple[bool, list[float]]:
        """Whether anything is pending or connecting, and the times of the next tries to connect."""
        busy, due = any(member.busy for member in self._io_thread.members), list[float]()
        for peer in self.by_node.values():
            busy = busy or bool(peer.waiting) or bool(peer.connection)
            if peer.connection is None and (peer.waiting or busy) and self._is_wanted(peer):
                due.append(peer.retry_at)
            elif peer.connection is not None and (len(peer.connection) or not peer.connection.greeted):
                busy = True
        return busy, due

    def _is_wanted(self, peer: Peer) -> bool:
        """Whether the peer is to be connected again.

        A retry time of any other peer would make the loop spin.
        """
        return (
            peer is self.first or bool(peer.waiting) or any(member.busy for member in self._io_thread.members)
        )

    def _serve(self, peer: Peer, ready: set[Any], now: float) -> None:
        connection = peer.connection
        if connection is None:
            if now >= peer.retry_at and self._is_wanted(peer):
                self._open(peer, now)
            elif peer.waiting:
                send_waiting(self._io_thread, peer)
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
            send_waiting(self._io_thread, peer)
        check_connection(self._io_thread, peer, now)

    # ---- one connection -----------------------------------------------------------------------------------

    def leave_first(self, now: float, others: Iterable[str]) -> bool:
        """Send requests that any node can serve to the next node, because the current one is silent.

        The old connection is kept under the node's id: answers that only this node can give may still arrive.
        Returns False if no other node is known.
        """
        connection = self.first.left(now, others)
        if connection is None:
            return False
        assert connection.ready is not None
        node = connection.ready.node
        own = self.by_node.setdefault(node, Peer(node, (connection.address,)))
        # An older one is there if the first address led to another node before. The session of a consumer is
        # bound to the newest connection: the node refuses to bind it to an older one while that is open.
        older, own.connection = own.connection, connection
        if older is not None:
            self._forget_sockets(older)
            older.close()
        return True

    def _open(self, peer: Peer, now: float) -> None:
        try:
            peer.connection = Connection(
                context(),
                peer.address,
                credential=self._token.current(),
                give_up_at=now + HANDSHAKE_S_MAX,
                on_push=self._io_thread.pushed,
                is_ipv6=peer.tries_ipv6,
            )
        except (RingfenceError, zmq.ZMQError, OSError) as error:
            # ZeroMQ raises OSError when the system has no descriptors left.
            failure = (
                error
                if isinstance(error, RingfenceError)
                else ConnectError(f"the client cannot open a socket: {error}")
            )
            peer.failed(now, self._io_thread.jitter(), failure)
            return
        self._poller.register(peer.connection.socket, zmq.POLLIN | zmq.POLLOUT)
        self._poller.register(peer.connection.monitor, zmq.POLLIN)

    def _came_up(self, peer: Peer) -> None:
        peer.succeeded()
        io_thread = self._io_thread
        assert peer.connection is not None
        assert peer.connection.ready is not None
        history = peer.connection.ready.history
        if io_thread.history is not None and history != io_thread.history:
            for member in list(io_thread.members):
                member.history_changed()
            for forget in io_thread.on_history:
                forget()
        io_thread.history = history
        io_thread.message_bytes_max = min(io_thread.message_bytes_max, peer.connection.message_bytes_max)
        for note in io_thread.on_up:
            note(peer.connection)
        send_waiting(io_thread, peer)

    def _drop(self, peer: Peer, now: float, failure: RingfenceError | None) -> None:
        connection = peer.connection
        assert connection is not None
        self._forget_sockets(connection)
        peer.failed(now, self._io_thread.jitter(), failure)
        connection.close()
        if failure is not None and not failure.retriable:
            # The node would give the same answer again, so pending requests end now.
            for request in peer.waiting:
                request.future.set_exception(failure)
            peer.waiting.clear()

    def _forget_sockets(self, connection: Connection) -> None:
        self._poller.unregister(connection.socket)
        self._poller.unregister(connection.monitor)

    # ---- nodes that left ---------------------------------------------------------------------------------

    def keep(self, nodes: Collection[int]) -> None:
        """Close the connections to other nodes after UNUSED_S, unless requests are routed to them by then.

        A node that has left the cluster is not connected again and again. The addresses of the application
        stay, whatever node answers there.
        """
        self._named = frozenset(nodes)
        for peer in self.all():
            self._count_unused(peer, self._io_thread.now)

    def _count_unused(self, peer: Peer, now: float) -> None:
        if peer.node is None or peer.node in self._named or not self._named:
            peer.unused_s = None
        elif peer.unused_s is None:
            peer.unused_s = now
            self._io_thread.at(now + UNUSED_S, lambda: self._close_unused(peer))

    def _close_unused(self, peer: Peer) -> None:
        """Outcomes that are pending there count as lost, and are asked for at the present owner."""
        now = self._io_thread.now
        if peer.unused_s is None or self.by_node.get(peer.node) is not peer:
            return
        if (at := max(peer.unused_s, peer.used_s) + UNUSED_S) > now or self._must_wait(peer):
            self._io_thread.at(max(at, now + LOOK_AGAIN_S), lambda: self._close_unused(peer))
            return
        del self.by_node[peer.node]
        connection, peer.connection = peer.connection, None
        if connection is not None:
            self._forget_sockets(connection)
            connection.close()
        while peer.waiting:  # without the peer they go to any node, which names the owner
            self._io_thread.enqueue(peer.waiting.popleft())

    @staticmethod
    def _must_wait(peer: Peer) -> bool:
        """Whether a request is pending that must not be repeated: only this node can tell its outcome."""
        pending = () if peer.connection is None else peer.connection.pending()
        return any(isinstance(one, PendingRequest) and one.request.once for one in pending)

    # ---- the end ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all connections; pending requests are reported as lost."""
        for peer in self.all():
            if peer.connection is not None:
                connection, peer.connection = peer.connection, None
                connection.close()

    def end_waiting(self, error: RingfenceError) -> None:
        """End the requests that were not sent."""
        for peer in self.all():
            while peer.waiting:
                peer.waiting.popleft().future.set_exception(error)
