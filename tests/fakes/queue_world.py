"""Members of a QUEUE, owners, and a network that delays and breaks: the real state machines in virtual time.

What members give to their applications is judged as it happens.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.consumer.calls import (
    Attach,
    Attached,
    Beat,
    Join,
    Joined,
    Leave,
    Left,
    Plan,
    Refresh,
    Refusal,
    Renewed,
    Why,
)
from ringfence.consumer.queue_calls import Leased, QueueFetch, QueueSettle, QueueSettled
from ringfence.consumer.routes import Routes
from tests.fakes.fake_queue import CONNECTION_WAIT_S, FakeQueue, RowLease

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.consumer.calls import Reply
    from tests.fakes.queue_actor import QueueActor

# One of four seeds has the second, which is shorter than the time that a plain FETCH waits.
LEASES_S = (6.0, 3.0)
OWNER_WAIT_S = 1.0


class QueueRoutes(Routes):
    """A table: the node of each partition."""

    def __init__(self, version: int, nodes: dict[int, int], epochs: dict[int, int]) -> None:
        super().__init__(None)
        self._version, self._nodes, self._epochs = version, dict(nodes), dict(epochs)
        self.owners = frozenset(nodes.values())

    @property
    def version(self) -> int:
        return self._version

    def is_known(self, partition: int) -> bool:
        return partition in self._nodes

    def epoch_of(self, partition: int) -> int | None:
        return self._epochs.get(partition)

    def node_of(self, partition: int) -> int | None:
        return self._nodes.get(partition)


@dataclass
class Waiting:
    actor: QueueActor
    connection: int
    call: QueueFetch
    until: float


@dataclass
class QueueWorld:
    """All nodes. `seed` decides everything."""

    seed: int
    now: float = 100.0
    dice: random.Random = field(init=False)
    lease_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.lease_s = LEASES_S[self.seed % 4 == 3]
        self.queues: dict[int, FakeQueue] = {}
        self.nodes: dict[int, int] = {}  # by partition
        self.epochs: dict[int, int] = {}  # by partition
        self.serves_from: dict[int, float] = {}  # by partition
        self.moved_at: dict[int, float] = {}
        self.actors: list[QueueActor] = []
        self.sessions: dict[int, QueueActor] = {}
        self.connections: dict[tuple[int, int], int] = {}  # (session, node) -> connection
        self.waiting: list[Waiting] = []
        self.version, self._sessions, self._order = 1, 0, 0
        self.faults: list[str] = []
        self.worked: set[tuple[int, int, int]] = set()  # (incarnation, partition, row)
        self.acked: dict[tuple[int, int, int], float] = {}  # (incarnation, partition, row): answered then
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def add(self, partition: int, node: int, rows: int, limit: int = 3) -> None:
        queue = FakeQueue(self.lease_s, limit)
        queue.publish(rows)
        queue.on_expired = lambda row, lease: self._expired(partition, row, lease)
        self.queues[partition], self.nodes[partition], self.epochs[partition] = queue, node, 1

    # ---- time --------------------------------------------------------------------------------------------

    def at(self, after: float, event: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + after, self._order, event))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    # ---- trouble -----------------------------------------------------------------------------------------

    def move(self, partition: int, node: int) -> None:
        """Another node becomes the owner."""
        self.nodes[partition] = node
        self.epochs[partition] += 1
        self.queues[partition].new_owner()
        self.queues[partition].publish(2, self.epochs[partition])
        self.serves_from[partition] = self.now + OWNER_WAIT_S
        self.version += 1
        self.moved_at[partition] = self.now
        for actor in self.actors:  # nodes push their tables
            self.at(self.dice.uniform(0.01, 1.5), lambda one=actor: one.table(self.routes()))  # type: ignore[misc]

    def routes(self) -> QueueRoutes:
        return QueueRoutes(self.version, self.nodes, self.epochs)

    def seek(self) -> None:
        """All begins again."""
        for queue in self.queues.values():
            queue.seek(queue.incarnation + 1)

    def end_session(self, session: int) -> None:
        self.sessions.pop(session, None)
        for queue in self.queues.values():
            queue.end_session(session)

    def disconnected(self, session: int, node: int, connection: int) -> None:
        """A node notices the end of a connection."""
        self.waiting = [one for one in self.waiting if one.connection != connection]

        def look() -> None:
            if self.connections.get((session, node)) == connection:
                del self.connections[session, node]
                for partition, queue in self.queues.items():
                    if self.nodes[partition] == node:
                        queue.end_session(session)

        self.at(CONNECTION_WAIT_S, look)

    def _expired(self, partition: int, row: int, lease: RowLease) -> None:
        actor = self.sessions.get(lease.session)
        if actor is None or not actor.has_in_hand(partition, self.queues[partition].incarnation, row):
            return
        since = actor.up_since.get(self.nodes[partition])
        if since is not None and self.now - since > self.lease_s:
            self.faults.append(f"the lease of row {row} ended while {actor.name} works on it")

    # ---- nodes -------------------------------------------------------------------------------------------

    def serve(self, actor: QueueActor, connection: int, call: object) -> None:
        """A call arrived at its node; it is answered now or later."""
        reply = self._reply(actor, connection, call)
        if reply is not None:
            actor.answer(connection, call, reply)

    def _reply(self, actor: QueueActor, connection: int, call: object) -> Reply | Refusal | None:
        match call:
            case Join():
                return self._join(actor)
            case Leave():
                self.end_session(call.session)
                return Left()
            case Attach():
                if call.session not in self.sessions:
                    return Refusal(Why.NOT_ATTACHED)
                self.connections[call.session, call.node] = connection
                return Attached(0, 10.0)
            case Beat():
                return Renewed(0, 10.0, frozenset())
            case QueueFetch():
                return self._fetch(actor, connection, call)
            case QueueSettle():
                return self._settle(actor, connection, call)
            case Refresh():
                actor.table(self.routes())
                return None
            case _:
                raise AssertionError(call)

    def _join(self, actor: QueueActor) -> Joined:
        known = next((one for one, other in self.sessions.items() if other is actor), None)
        if known is None:
            self._sessions += 1
            known = self._sessions
            self.sessions[known] = actor
        incarnation = max(queue.incarnation for queue in self.queues.values())
        return Joined(Plan(known, 0, incarnation, ()), None, 10.0, self.lease_s)

    def _session(self, actor: QueueActor, connection: int, node: int) -> int | None:
        session = actor.member.state.session
        return session if self.connections.get((session, node)) == connection else None

    def _fetch(self, actor: QueueActor, connection: int, call: QueueFetch) -> Reply | Refusal | None:
        if self._session(actor, connection, call.node) is None:
            return Refusal(Why.NOT_ATTACHED)
        self.waiting = [one for one in self.waiting if one.connection != connection]
        leased = self._lease(actor, call)
        if leased is None:
            self.waiting.append(Waiting(actor, connection, call, self.now + call.poll_s))
        return leased

    def _lease(self, actor: QueueActor, call: QueueFetch) -> Leased | None:
        partitions = [one for one, node in self.nodes.items() if node == call.node]
        self.dice.shuffle(partitions)
        for partition in partitions:
            queue = self.queues[partition]
            if self.now < self.serves_from.get(partition, 0.0):
                continue
            lines = queue.lease(actor.member.state.session, self.now, call.rows_max or 8)
            if lines:
                first, end = lines[0].first, lines[-1].end
                return Leased(partition, queue.incarnation, first, end, tuple(lines), bytes=100, body=b"")
        return None

    def look(self) -> None:
        """Serve those that wait."""
        for one in list(self.waiting):
            leased = self._lease(one.actor, one.call)
            if leased is None and self.now >= one.until:
                leased = Leased(0, 0, 0, 0)
            if leased is not None and one in self.waiting:
                self.waiting.remove(one)
                one.actor.answer(one.connection, one.call, leased)
        self.at(0.05, self.look)

    def _settle(self, actor: QueueActor, connection: int, call: QueueSettle) -> Reply | Refusal | None:
        session = self._session(actor, connection, call.node)
        if session is None:
            return Refusal(Why.NOT_ATTACHED)
        if self.nodes[call.partition] != call.node:
            return Refusal(Why.REDIRECT, version=self.version)
        queue = self.queues[call.partition]
        if call.incarnation != queue.incarnation:
            return Refusal(Why.NOT_ASSIGNED)
        settled = QueueSettled(queue.tell(session, call.lines, self.now))
        wait_s = self.serves_from.get(call.partition, 0.0) - self.now
        if wait_s <= 0:
            return settled
        self.at(wait_s, lambda: actor.answer(connection, call, settled))
        return None

    def came(self, actor: QueueActor, leased: Leased) -> None:
        """An answer with rows arrived at its member."""
        for line in leased.lines:
            for row in range(line.first, line.end):
                lease = self.queues[leased.partition].leases.get(row)
                if lease is not None and self.sessions.get(lease.session) is actor:
                    lease.is_delivered = True

    def unknown_leases(self) -> list[str]:
        """Rows whose members got them and do not know of them any more."""
        found = []
        for partition, queue in self.queues.items():
            queue.expire(self.now)
            for row, lease in queue.leases.items():
                actor = self.sessions.get(lease.session)
                if lease.until - self.now < self.lease_s / 3:
                    continue  # a member counts it from its request on: it may be over there
                if lease.is_delivered and actor is not None and not actor.knows(partition, row):
                    found.append(f"row {row} of {partition} is on lease, and {actor.name} does not know it")
        return found
