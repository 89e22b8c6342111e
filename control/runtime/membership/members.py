"""Send heartbeats; on the leader, propose changes of members and voters.

Pure state machines decide (`membership.liveness`, `membership.voters`). This module gives them time and
heartbeats, and proposes their decisions. A lost or refused decision is taken again on the newer state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog

from ringfence.control.consensus import events
from ringfence.control.consensus.configuration_changes import Change, NodeChange, Operation
from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Index, NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica as Place
from ringfence.control.runtime.membership import beats, removed_node
from ringfence.control.runtime.membership.beats import Beat, LayoutBeat, TimedBeat
from ringfence.control.runtime.membership.cluster_clock import Clocks, ClusterClock
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.peers import Peers
from ringfence.control.state_machines.layout.adoption import NodeAdoption
from ringfence.control.state_machines.membership.agreement import Agreement, Divergence
from ringfence.control.state_machines.membership.liveness import Heartbeat, Liveness
from ringfence.control.state_machines.membership.voters import ChangeVoters, TransferLeadership, next_change
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.control.state_machines.rebalance.loads import LoadBoard, LoadReport, Meter, Pressure, RowReport
from ringfence.control.transport.envelope import Kind
from ringfence.native.wire import LEVEL_NEWEST

_LOG = structlog.get_logger("ringfence.members")
# Entries that a learner may lack to become a voter: it gets them in a round trip.
CAUGHT_UP_ENTRIES: Final = 64
# Shortest time between two changes of the configuration, in seconds: the last one is still being applied.
CHANGE_S: Final = 1.0

# Entries that a node may lack without being avoided: a second of a busy cluster.
LAG_ENTRIES: Final = 1_000
# Silence after which new topics avoid a node, in ms: five heartbeats of 200 ms.
SILENT_MS: Final = 1_000

# Silence after which the reason for a stranger is cleared, in ms: 25 heartbeats.
STRANGER_MS: Final = 5_000
# Strangers at a time: any process that reaches the control address could claim any number of ids.
STRANGERS_MAX: Final = 64

# Nodes in a cluster whose nodes send their loads to all others: at most 5 KB per two seconds each, 600 KB/s
# together. In a larger cluster only the leader has all loads; producers assume average loads for the others.
ADVERTISERS_MAX: Final = 16


class Members:
    """Sends and receives heartbeats. Runs on the loop, next to the replica."""

    def __init__(
        self,
        proposer: RaftProposer,
        peers: Peers,
        here: Place,
        health: Health,
        *,
        contested: Callable[[], Iterable[int]] = tuple,
        silence_ms: Callable[[int], int | None] = lambda _: None,
        counters: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        on_loads: Callable[[Mapping[NodeId, LoadReport]], None] = lambda _: None,
        is_started: Callable[[], bool],
        on_time_window: Callable[[int, int], None] = lambda *_: None,
        adopted: Callable[[Collection[TopicId]], Iterable[tuple[TopicId, Index]]] = lambda _: (),
        on_adopted: Callable[[NodeId, NodeAdoption], None] = lambda *_: None,
        disk_percent: Callable[[], int] = lambda: 0,
        lacking: Callable[[], Iterable[PartitionId]] = tuple,
        on_lacking: Callable[[NodeId, Collection[PartitionId]], None] = lambda *_: None,
    ) -> None:
        """Set the callbacks; `start` starts the task.

        Args:
            proposer: proposes the decisions.
            peers: sends the heartbeats.
            here: the replica id of this store.
            health: gets reasons about strangers, contested nodes and diverged states.
            contested: returns the nodes whose id two processes use.
            silence_ms: returns the time since the last message of a node, in ms.
            counters: returns the counters of this node's partitions.
            on_loads: called every few seconds with the loads of all nodes.
            is_started: whether the start that this process proposed is applied. Until then the node's last
                start belongs to another process. A later start is a repeat, or ends this process.
            on_time_window: gets the bounds for times of records, with each heartbeat.
            adopted: returns the lowest generation that clients of this node hold, of those of these topics
                that clients follow.
            on_adopted: on the leader, called with what each heartbeat tells of that.
            disk_percent: returns the used share of the data directory's file system.
            lacking: returns sealed partitions that this node was given and lacks records of.
            on_lacking: on the leader, called with what each heartbeat tells of that.
        """
        self.clock = ClusterClock(here.node, health, on_time_window)
        self._is_started = is_started
        self._counters, self._meter, self.board = counters, Meter(), LoadBoard()
        self._on_loads, self._adopted, self._on_adopted = on_loads, adopted, on_adopted
        self._disk_percent, self._rows = disk_percent, RowReport()
        self._lacking, self._on_lacking = lacking, on_lacking
        self._proposer, self._peers, self._here, self._health = proposer, peers, here, health
        self._contested, self._reported_contests = contested, set[int]()
        self._silence_ms = silence_ms
        self._liveness = Liveness(here.node)
        self._agreement, self._digests = Agreement(), StateDigests()
        self._newest: tuple[Index, bytes] = (Index(0), bytes(16))
        self._changed_s = 0.0
        self._proposing: set[asyncio.Task[None]] = set()
        self._strangers: dict[int, int] = {}  # ms of the last heartbeat, by claimed id
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="members")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        tasks = {*self._proposing, *([self._task] if self._task else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # the replica reports a failure of a task

    @property
    def digest(self) -> tuple[Index, bytes]:
        """The newest hashed metadata index, and the hash."""
        return self._newest

    def pressures(self) -> dict[NodeId, Pressure]:
        """What breaks ties between nodes that new partitions may go to; the leader knows it of all nodes."""
        return self.board.pressures(_now_ms())

    def silent(self) -> frozenset[NodeId]:
        """Nodes whose heartbeats to this node are overdue: they may have failed, although still LIVE."""
        replica, now_ms = self._proposer.replica, _now_ms()
        if replica.leads:
            silences = {node: self._liveness.silence_ms(node, now_ms) for node in self._proposer.state.nodes}
        else:
            voters = replica.configuration.voters
            silences = {NodeId(node): self._silence_ms(node) for node in voters if replica.id in voters}
        silences.pop(self._here.node, None)
        return frozenset(node for node, silence in silences.items() if (silence or 0) >= SILENT_MS)

    def hash_if_due(self, index: Index) -> None:
        """Hash the state if due. Called per applied entry, so that all nodes hash at the same indexes."""
        if self._agreement.is_due(index):
            self._hash(index)

    def beat(self, sender: int, body: bytes) -> None:
        """Process a received heartbeat. Raises msgspec.MsgspecError."""
        beat = beats.decode(body)
        node = NodeId(sender)
        heartbeat = Heartbeat(
            node=node, store=beat.store, index=Index(beat.index), started=Index(beat.started)
        )
        stranger = self._liveness.beat(self._proposer.state, heartbeat, _now_ms())
        if stranger is not None:
            if beat.index > self._proposer.replica.applied.index:
                return  # after a restart this node may not have applied the sender's entries yet
            if sender not in self._strangers and len(self._strangers) >= STRANGERS_MAX:
                return
            self._strangers[sender] = _now_ms()
            self._health.set_reason(
                f"stranger {sender}",
                f"store {beat.store.hex()} sends heartbeats as node {sender}, which it is not: its data "
                "directory was copied, or the node was removed; stop it",
            )
            return
        self._forget_stranger(sender)
        replica = self._proposer.replica
        if replica.leads:
            self.clock.receive_clock(node, beat.clock_ms)
            self._on_adopted(node, beat.adoption)
            self._on_lacking(node, tuple(map(PartitionId, beat.lacking)))
        elif sender == replica.leader:
            self.clock.receive_estimate(beat.time_ms)
        if beat.loads is not None:
            lags = replica.applied.index - beat.index > LAG_ENTRIES
            self.board.record(node, beat.loads, _now_ms(), beat.rows, lags=lags)
        if beat.at:
            self._compare(self._agreement.add_other(node, Index(beat.at), beat.digest))

    # ---- parts --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(limit(self._proposer.state, "heartbeat_ms") / 1_000)
            try:
                self._round()
            except ConsensusError as error:
                _LOG.debug("event refused", why=str(error))

    def _round(self) -> None:
        replica, state = self._proposer.replica, self._proposer.state
        self._peers.set_committed((number, node.control) for number, node in state.nodes.items())
        if state.nodes:
            members = {*state.nodes, *replica.configuration.voters, *replica.configuration.voters_outgoing}
            self._peers.keep_only(members)
        self._hash(Index(replica.applied.index))
        if replica.disk_full:
            self._health.set_reason("journal full", "disk full: no space for the metadata journal; free some")
        else:
            self._health.clear_reason("journal full")
        for sender in [
            node for node, last_ms in self._strangers.items() if _now_ms() - last_ms > STRANGER_MS
        ]:
            self._forget_stranger(sender)
        self._report_contests()
        removed_by = removed_node.entry_of(state, self._here.node)
        if removed_by is not None:
            self._health.set_reason("removed", removed_node.removed(self._here.node, removed_by))
        loads = self._meter.read(self._counters(), _now_ms()) if self._meter.is_due(_now_ms()) else None
        if loads is not None:
            loads = msgspec.structs.replace(loads, level=LEVEL_NEWEST)
            self._rows = msgspec.structs.replace(self._meter.rows, disk_percent=self._disk_percent())
            self.board.record(self._here.node, loads, _now_ms(), self._rows)
            self._on_loads(self.board.by_node(_now_ms()))
        clocks = self.clock.update(state, leads=replica.leads)
        if loads is not None or not replica.leads or (clocks is not None and clocks.time_ms):
            self._send_beats(loads, clocks)
        if not replica.leads:
            self._liveness.end()
            return
        if state.level >= LAYOUT_LEVEL:
            own = NodeAdoption(Index(replica.applied.index), dict(self._floors(state)))
            self._on_adopted(self._here.node, own)
            self._on_lacking(self._here.node, self._lacks())
        if replica.term > self._liveness.term:
            self._liveness.begin(replica.term, _now_ms())
        for command in self._liveness.tick(state, _now_ms()):
            self._propose(command)
        if time.monotonic() - self._changed_s >= CHANGE_S:
            self._change_voters()

    def _forget_stranger(self, sender: int) -> None:
        """Clear the reason of a stranger that was stopped, or that is a member by now."""
        if self._strangers.pop(sender, None) is not None:
            self._health.clear_reason(f"stranger {sender}")

    def _send_beats(self, loads: LoadReport | None, clocks: Clocks | None) -> None:
        """Send heartbeats to the leader, and from voters to all voters.

        Each voter must know which process has another voter's vote. The leader's Raft messages show that, so
        the leader sends heartbeats only to nodes that advertise loads, and to all nodes once it has an
        estimate of the cluster's time.
        """
        replica, state = self._proposer.replica, self._proposer.state
        own = state.nodes.get(self._here.node) if self._is_started() else None
        at, digest = self._newest
        started = Index(0) if own is None else own.started
        beat = Beat(self._here.store, replica.applied.index, started, at, digest)
        if clocks is not None:
            beat = TimedBeat(
                self._here.store,
                replica.applied.index,
                started,
                at,
                digest,
                clock_ms=clocks.clock_ms,
                time_ms=clocks.time_ms,
            )
        if state.level >= LAYOUT_LEVEL:
            beat = LayoutBeat(
                self._here.store,
                replica.applied.index,
                started,
                at,
                digest,
                clock_ms=0 if clocks is None else clocks.clock_ms,
                time_ms=0 if clocks is None else clocks.time_ms,
                adopted=self._floors(state),
                lacking=self._lacks(),
            )
        plain = with_loads = msgspec.msgpack.encode(beat)
        if loads is not None:
            more = {"rows": self._rows} if isinstance(beat, LayoutBeat) else {}
            with_loads = msgspec.msgpack.encode(msgspec.structs.replace(beat, loads=loads, **more))
        advertisers = self._advertisers() if loads is not None else set[int]()
        receivers = set[int]()
        if not replica.leads:
            voters = {*replica.configuration.voters, *replica.configuration.voters_outgoing}
            receivers = {replica.leader, *(voters if replica.id in voters else ())}
        elif clocks is not None and clocks.time_ms:
            receivers = {int(node) for node in state.nodes}
        for node in (receivers | advertisers) - {0, replica.id}:
            self._peers.send(
                node, Kind.BEAT, with_loads if node == replica.leader or node in advertisers else plain
            )

    def _lacks(self) -> tuple[PartitionId, ...]:
        return tuple(sorted(self._lacking())[: beats.LACKING_MAX])

    def _floors(self, state: MetadataState) -> tuple[tuple[TopicId, Index], ...]:
        """What clients of this node hold of topics with an open layout change, the oldest changes first."""
        topics = dict.fromkeys(
            transition.topic
            for _, transition in sorted(state.transitions.items())
            if not transition.may_abort
        )
        return tuple(self._adopted(tuple(topics)[: beats.ADOPTED_MAX])) if topics else ()

    def _advertisers(self) -> set[int]:
        """Nodes that advertise loads to producers: all, if there is a topic without key."""
        state = self._proposer.state
        has_keyless = len(state.nodes) <= ADVERTISERS_MAX and any(
            not topic.key for topic in state.topics.values()
        )
        return {int(node) for node in state.nodes} if has_keyless else set()

    def _report_contests(self) -> None:
        contested = set(self._contested())
        for node in contested:
            self._health.set_reason(
                f"twice {node}", f"two processes say that they are node {node}; the younger one is ignored"
            )
        for node in self._reported_contests - contested:
            self._health.clear_reason(f"twice {node}")
        self._reported_contests = contested

    def _hash(self, index: Index) -> None:
        if index > self._newest[0]:
            self._newest = (index, self._digests.of(self._proposer.state))
            for divergence in self._agreement.add_own(*self._newest):
                self._compare(divergence)

    def _compare(self, divergence: Divergence | None) -> None:
        if divergence is not None:
            self._health.set_reason(
                f"diverged {divergence.node}",
                f"node {divergence.node} has another state than this one at index {divergence.at}: "
                f"{divergence.other.hex()}, here {divergence.own.hex()}; stop one, let it join as a new node",
            )

    def _propose(self, command: Command) -> None:
        task = asyncio.get_running_loop().create_task(self._propose_decision(command))
        self._proposing.add(task)
        task.add_done_callback(self._proposing.discard)
        self._proposer.replica.supervise(task)

    async def _propose_decision(self, command: Command) -> None:
        try:
            await self._proposer.propose(command)
            _LOG.info("decided", command=repr(command))
        except RequestRefused as refusal:
            _LOG.info("decision refused", command=repr(command), why=refusal.message)

    def _change_voters(self) -> None:
        """Change the configuration by one step towards the members in the metadata."""
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
