"""What a node does for the cluster: it beats; and while it leads, it decides about members and voters.

Decisions are taken by pure machines (`machines.liveness`, `machines.voters`); here they get time, heartbeats
and a way into the log. One that is lost or refused is taken again on the newer state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
import structlog
from msgspec import Meta, Struct

from ringfence.control.consensus import events
from ringfence.control.consensus.changes import Change, NodeChange, Operation
from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.machines.agreement import Agreement, Diverged
from ringfence.control.machines.cluster_time import AHEAD_MS_MAX, ClusterTime
from ringfence.control.machines.config import limit
from ringfence.control.machines.digests import StateDigests
from ringfence.control.machines.liveness import Heartbeat, Liveness
from ringfence.control.machines.loads import Board, Meter, Told
from ringfence.control.machines.voters import ChangeVoters, TransferLeadership, next_change
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.topics import Replica as Place
from ringfence.control.runtime import removal
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.runtime.health import Health
from ringfence.control.runtime.peers import Peers
from ringfence.control.runtime.raft_proposer import RaftProposer
from ringfence.control.transport.envelope import Kind
from ringfence.native.wire import LEVEL_NEWEST

_LOG = structlog.get_logger("ringfence.members")
CAUGHT_UP_ENTRIES: Final = 64
"""A learner that lacks no more is ready to vote: it has the rest in a round trip."""
CHANGE_S: Final = 1.0
"""The next change of the configuration is not tried sooner: the last one is being applied."""

SILENT_MS: Final = 1_000
"""Five heartbeats of 200 ms: a new topic goes to other nodes then, if there are any."""

STRANGER_MS: Final = 5_000
"""Whoever beat as a node that it is not, and has not for 25 heartbeats, was stopped: nobody needs telling."""
STRANGERS_MAX: Final = 64
"""At a time; who reaches the control address could be any number of them."""

ADVERTISERS_MAX: Final = 16
"""Every node tells every other one, 5 KB in two seconds at most: 16 of them 600 KB/s together. In a larger
cluster a node knows its own partitions' loads and the leader all; producers take the others as average."""

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Bytes16 = Annotated[bytes, Meta(min_length=16, max_length=16)]


class Beat(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`at` and `digest` are the newest index that was hashed, and the state's hash there.

    `loads` goes to the leader every few seconds, and to others where producers are told of it; else None.
    The program's level goes with it: programs without levels refuse a beat with one field more.
    """

    store: Bytes16
    index: Number
    started: Number
    at: Number
    digest: Bytes16
    loads: Told | None = None


class TimedBeat(Beat, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From level 1 on, which all programs of the cluster know then.

    `clock_ms` of a leader is the cluster's time, of others their own wall clock, Unix ms; 0: not known.
    """

    clock_ms: Number = 0


_BEATS: Final = msgspec.msgpack.Decoder(TimedBeat)
LEVEL_OF_TIME: Final = 1


class Members:
    """Runs beside the replica on the loop."""

    def __init__(
        self,
        proposer: RaftProposer,
        peers: Peers,
        here: Place,
        health: Health,
        *,
        contested: Callable[[], Iterable[int]] = tuple,
        silence_ms: Callable[[int], int | None] = lambda _: None,
        figures: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        on_loads: Callable[[Mapping[NodeId, Told]], None] = lambda _: None,
        is_started: Callable[[], bool],
        on_time: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`contested` gives nodes that two processes speak for, `silence_ms` how long one was not heard.

        `figures` are counters of partitions here; `on_loads` hears what nodes take, every few seconds;
        `is_started` says whether a start of the node
        that this process proposed is applied: its last start is another process's until then. A later one
        is a repeat of it, or ends this process. `on_time` hears the cluster's time, with each heartbeat.
        """
        self.time, self._on_time = ClusterTime(here.node), on_time
        self._is_started = is_started
        self._figures, self._meter, self.board = figures, Meter(), Board()
        self._on_loads = on_loads
        self._proposer, self._peers, self._here, self._health = proposer, peers, here, health
        self._contested, self._told_twice = contested, set[int]()
        self._silence_ms = silence_ms
        self._liveness = Liveness(here.node)
        self._agreement, self._digests = Agreement(), StateDigests()
        self._newest: tuple[Index, bytes] = (Index(0), bytes(16))
        self._changed_s = 0.0
        self._proposing: set[asyncio.Task[None]] = set()
        self._strangers: dict[int, int] = {}  # when each was heard last
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="members")
        self._proposer.replica.needs(self._task)

    async def close(self) -> None:
        tasks = {*self._proposing, *([self._task] if self._task else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # one that failed was told of

    @property
    def digest(self) -> tuple[Index, bytes]:
        """The newest index that was hashed, and the hash."""
        return self._newest

    def silent(self) -> frozenset[NodeId]:
        """Nodes that beat to this one, and have not for a while: they may have died, though still LIVE."""
        replica, now_ms = self._proposer.replica, _now_ms()
        if replica.leads:
            known = {node: self._liveness.silence_ms(node, now_ms) for node in self._proposer.state.nodes}
        else:
            voters = replica.configuration.voters
            known = {NodeId(node): self._silence_ms(node) for node in voters if replica.id in voters}
        known.pop(self._here.node, None)
        return frozenset(node for node, silence in known.items() if (silence or 0) >= SILENT_MS)

    def hash_if_due(self, index: Index) -> None:
        """Called for every applied entry: all nodes hash at the same indexes."""
        if self._agreement.is_due(index):
            self._hash(index)

    def beat(self, sender: int, body: bytes) -> None:
        """A heartbeat came. Raises msgspec.MsgspecError."""
        beat = _BEATS.decode(body)
        node = NodeId(sender)
        heartbeat = Heartbeat(
            node=node, store=beat.store, index=Index(beat.index), started=Index(beat.started)
        )
        stranger = self._liveness.beat(self._proposer.state, heartbeat, _now_ms())
        if stranger is not None:
            if beat.index > self._proposer.replica.applied.index:
                return  # its entries may be those that this node, behind a restart, has not applied yet
            if sender not in self._strangers and len(self._strangers) >= STRANGERS_MAX:
                return
            self._strangers[sender] = _now_ms()
            self._health.worsen(
                f"stranger {sender}",
                f"store {beat.store.hex()} beats as node {sender}, which it is not: a copied data directory, "
                "or a node that was removed; stop it",
            )
            return
        self._forget_stranger(sender)
        if beat.clock_ms and self._proposer.replica.leads:
            self.time.hear(node, beat.clock_ms, _now_ms())
        elif beat.clock_ms and sender == self._proposer.replica.leader:
            self.time.told(beat.clock_ms, _now_ms())
        if beat.loads is not None:
            self.board.hear(node, beat.loads, _now_ms())
        if beat.at:
            self._compare(self._agreement.heard(node, Index(beat.at), beat.digest))

    # ---- parts --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(limit(self._proposer.state, "heartbeat_ms") / 1_000)
            try:
                self._round()
            except ConsensusError as error:
                _LOG.debug("not taken", why=str(error))

    def _round(self) -> None:
        replica, state = self._proposer.replica, self._proposer.state
        self._peers.know((number, node.control) for number, node in state.nodes.items())
        if state.nodes:
            members = {*state.nodes, *replica.configuration.voters, *replica.configuration.voters_outgoing}
            self._peers.forget_others(members)
        self._hash(Index(replica.applied.index))
        if replica.disk_full:
            self._health.worsen("journal full", "disk full: no space for the metadata journal; free some")
        else:
            self._health.mend("journal full")
        for sender in [one for one, heard in self._strangers.items() if _now_ms() - heard > STRANGER_MS]:
            self._forget_stranger(sender)
        self._tell_contests()
        gone = removal.entry_of(state, self._here.node)
        if gone is not None:
            self._health.worsen("removed", removal.removed(self._here.node, gone))
        loads = self._meter.look(self._figures(), _now_ms()) if self._meter.is_due(_now_ms()) else None
        if loads is not None:
            loads = msgspec.structs.replace(loads, level=LEVEL_NEWEST)
            self.board.hear(self._here.node, loads, _now_ms())
            self._on_loads(self.board.by_node(_now_ms()))
        time_ms = self._reckon() if state.level >= LEVEL_OF_TIME else None
        if loads is not None or not replica.leads or time_ms is not None:
            self._send_beats(loads, time_ms)
        if not replica.leads:
            self._liveness.end()
            return
        if replica.term > self._liveness.term:
            self._liveness.begin(replica.term, _now_ms())
        for command in self._liveness.tick(state, _now_ms()):
            self._propose(command)
        if time.monotonic() - self._changed_s >= CHANGE_S:
            self._change_voters()

    def _forget_stranger(self, sender: int) -> None:
        """It was stopped, or it is a member after all."""
        if self._strangers.pop(sender, None) is not None:
            self._health.mend(f"stranger {sender}")

    def stamp_ms(self) -> int:
        """The time of a proposal of this node: its wall clock, unless that is far ahead of the cluster's."""
        state = self._proposer.state
        if state.level < LEVEL_OF_TIME or len(state.nodes) <= 1:
            return _clock_ms()
        return self.time.stamp(_clock_ms(), state.time_ms, _now_ms())

    def _reckon(self) -> int | None:
        """The cluster's time; the engine hears it, and health of a clock that is far from it."""
        replica, state = self._proposer.replica, self._proposer.state
        clock_ms, now_ms = _clock_ms(), _now_ms()
        if replica.leads and self._here.node in state.nodes:
            self.time.lead(clock_ms, state.nodes.keys(), now_ms)
        time_ms, ahead_ms = self.time.at(now_ms), self.time.ahead_ms(clock_ms, now_ms)
        if time_ms is not None:
            self._on_time(max(time_ms, state.time_ms))
        if abs(ahead_ms) > AHEAD_MS_MAX:
            where = "ahead of" if ahead_ms > 0 else "behind"
            self._health.worsen(
                "clock",
                f"clock: this node's is {abs(ahead_ms) // 1_000} s {where} the cluster's time (the middle "
                f"one of the nodes' clocks); set it, and keep it by NTP. Rows and changes get times at most "
                f"{AHEAD_MS_MAX // 1_000} s ahead",
            )
        else:
            self._health.mend("clock")
        return time_ms

    def _send_beats(self, loads: Told | None, time_ms: int | None) -> None:
        """To the leader, and among voters to all: each must know which process speaks for another's vote.

        A leader's own messages say that; it beats to those who tell producers of loads, and to all where it
        knows the cluster's time.
        """
        replica, state = self._proposer.replica, self._proposer.state
        me = state.nodes.get(self._here.node) if self._is_started() else None
        at, digest = self._newest
        started = Index(0) if me is None else me.started
        beat = Beat(self._here.store, replica.applied.index, started, at, digest)
        if state.level >= LEVEL_OF_TIME:
            clock_ms = (time_ms or 0) if replica.leads else _clock_ms()
            beat = TimedBeat(self._here.store, replica.applied.index, started, at, digest, clock_ms=clock_ms)
        plain = msgspec.msgpack.encode(beat)
        told = plain if loads is None else msgspec.msgpack.encode(msgspec.structs.replace(beat, loads=loads))
        asked = self._who_advertises() if loads is not None else set[int]()
        heard = set[int]()
        if not replica.leads:
            voters = {*replica.configuration.voters, *replica.configuration.voters_outgoing}
            heard = {replica.leader, *(voters if replica.id in voters else ())}
        elif time_ms is not None:
            heard = {int(node) for node in state.nodes}
        for node in (heard | asked) - {0, replica.id}:
            self._peers.send(node, Kind.BEAT, told if node == replica.leader or node in asked else plain)

    def _who_advertises(self) -> set[int]:
        """Nodes that tell producers of loads: all that give out tables of topics without key."""
        state = self._proposer.state
        has_keyless = len(state.nodes) <= ADVERTISERS_MAX and any(
            not one.key for one in state.topics.values()
        )
        return {int(node) for node in state.nodes} if has_keyless else set()

    def _tell_contests(self) -> None:
        contested = set(self._contested())
        for node in contested:
            self._health.worsen(
                f"twice {node}", f"two processes say that they are node {node}; the younger one is not heard"
            )
        for node in self._told_twice - contested:
            self._health.mend(f"twice {node}")
        self._told_twice = contested

    def _hash(self, index: Index) -> None:
        if index > self._newest[0]:
            self._newest = (index, self._digests.of(self._proposer.state))
            for diverged in self._agreement.mine(*self._newest):
                self._compare(diverged)

    def _compare(self, diverged: Diverged | None) -> None:
        if diverged is not None:
            self._health.worsen(
                f"diverged {diverged.node}",
                f"node {diverged.node} has another state than this one at index {diverged.at}: "
                f"{diverged.its.hex()}, here {diverged.mine.hex()}; stop one, let it join anew",
            )

    def _propose(self, command: Command) -> None:
        task = asyncio.get_running_loop().create_task(self._proposed(command))
        self._proposing.add(task)
        task.add_done_callback(self._proposing.discard)
        self._proposer.replica.needs(task)

    async def _proposed(self, command: Command) -> None:
        try:
            await self._proposer.propose(command)
            _LOG.info("decided", command=repr(command))
        except RequestRefused as refusal:
            _LOG.info("decision refused", command=repr(command), why=refusal.message)

    def _change_voters(self) -> None:
        """One step of the configuration towards what the metadata says of members."""
        replica, state = self._proposer.replica, self._proposer.state
        configuration = replica.configuration
        if configuration.voters_outgoing or replica.applied.index < replica.node.core.log.commit:
            return
        voters = {NodeId(node) for node in configuration.voters}
        learners = {NodeId(node) for node in configuration.learners}
        members = set(state.nodes)
        if members - voters - learners:
            self._change(NodeChange(Operation.LEARNER, min(members - voters - learners)))
        elif learners - members:
            self._change(NodeChange(Operation.REMOVE, min(learners - members)))
        else:
            change = next_change(state, voters=voters, caught_up=self._caught_up(), leader=self._here.node)
            if isinstance(change, TransferLeadership):
                replica.step(events.Transfer(change.to))
                self._changed_s = time.monotonic()
            elif isinstance(change, ChangeVoters):
                joining = [NodeChange(Operation.VOTER, node) for node in sorted(change.voters - voters)]
                leaving = [
                    NodeChange(Operation.LEARNER if node in members else Operation.REMOVE, node)
                    for node in sorted(voters - change.voters)
                ]
                self._change(*joining, *leaving)

    def _change(self, *operations: NodeChange) -> None:
        _LOG.info(
            "changing the configuration", operations=[(op.operation.name, op.node) for op in operations]
        )
        self._changed_s = time.monotonic()
        self._proposer.replica.step(events.ProposeChange(Change(operations)))

    def _caught_up(self) -> set[NodeId]:
        status = self._proposer.replica.node.status()
        return {
            NodeId(node)
            for node, member in status.members.items()
            if member.is_learner
            and member.recent_active
            and status.commit - member.match <= CAUGHT_UP_ENTRIES
        }


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000
