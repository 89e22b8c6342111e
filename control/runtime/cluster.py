"""Build and run a node's part of the cluster: log, consensus, members, reassignments."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

from ringfence.control.consensus import events
from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.model.commands import Command, RestartNode
from ringfence.control.model.ids import Index, NodeId, PartitionId, TopicId
from ringfence.control.model.results import NodeRestarted
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica as Place
from ringfence.control.runtime.handlers.cluster_levels import ClusterLevels
from ringfence.control.runtime.membership import removed_node
from ringfence.control.runtime.membership.cluster_clock import CLOCK_LEVEL
from ringfence.control.runtime.membership.joining import JOIN_TIMEOUT_S, bind_again
from ringfence.control.runtime.membership.members import Members
from ringfence.control.runtime.membership.own_start import OwnStart
from ringfence.control.runtime.process.addresses import advertised
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.runtime.process.wait_log import WaitLog
from ringfence.control.runtime.raft.entry_listeners import EntryListeners
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.proposer_interface import Applied
from ringfence.control.runtime.raft.recordings import Recordings
from ringfence.control.runtime.raft.replica import Replica
from ringfence.control.runtime.reassignment.leader_loop import ReassignmentLeader
from ringfence.control.runtime.reassignment.order_batches import OrderBatches
from ringfence.control.runtime.reassignment.order_sender import OrderSender, OrderTarget
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.peers import Peers
from ringfence.control.state_machines.layout.adoption import NodeAdoption
from ringfence.control.state_machines.rebalance.loads import LoadReport
from ringfence.control.store.directory import DataDirectory
from ringfence.control.store.raft_store import RaftStore
from ringfence.control.transport.hub import ForeignClusterError, Hub, NoAnswerError
from ringfence.native.errors import StorageError
from ringfence.native.wire import Code

_LOG = structlog.get_logger("ringfence.cluster")
# Time that a stop waits for another leader, in seconds; after it the other voters elect one.
HAND_OVER_S: Final = 1.0
# Attempts to commit a start. An attempt fails only if another start was committed in between, which is rare.
START_ATTEMPTS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Log:
    """The metadata log of one node, as far as it needs no other part: what proposes, and what listens."""

    hub: Hub
    own_start: OwnStart
    listeners: EntryListeners
    proposer: RaftProposer


def build_log(hub: Hub, own_start: OwnStart, on_failed: Callable[[Exception], None]) -> Log:
    listeners = EntryListeners(on_failed)
    proposer = RaftProposer(
        on_applied=listeners.notify, on_own_start=own_start.applied, on_other_start=own_start.other_applied
    )
    return Log(hub, own_start, listeners, proposer)


class HeartbeatCalls(NamedTuple):
    """Calls of `Members` to the data plane and to the leader's part; see there."""

    counters: Callable[[], Iterable[Mapping[str, Any]]]
    on_loads: Callable[[Mapping[NodeId, LoadReport]], None]
    on_time_window: Callable[[int, int], None]
    adopted: Callable[[Collection[TopicId]], Iterable[tuple[TopicId, Index]]]
    on_adopted: Callable[[NodeId, NodeAdoption], None]
    lacking: Callable[[], Iterable[PartitionId]]
    on_lacking: Callable[[NodeId, Collection[PartitionId]], None]


class Cluster:
    """Call `start`, and at last `close`. The metadata may be read after `catch_up`."""

    def __init__(
        self,
        settings: Settings,
        health: Health,
        log: Log,
        directory: DataDirectory,
        store: RaftStore,
        *,
        join_peers: Mapping[int, tuple[str, ...]],
        orders: OrderTarget,
        gate: StartGate,
        heartbeats: HeartbeatCalls,
        on_failed: Callable[[Exception], None],
    ) -> None:
        """Build all parts over an open store; start none of them.

        Args:
            settings: the settings of the node.
            health: gets reasons about members and the journal.
            log: proposes, and calls listeners.
            directory: has the identity of the node.
            store: the open journal and snapshots.
            join_peers: control addresses of the members by node, from the answer to a join.
            orders: executes the reassignment orders for this node.
            gate: open once this node executes orders.
            heartbeats: give what heartbeats tell of this node, and take what those of others tell.
            on_failed: called with the error after which the node must stop.

        Raises:
            ConfigError: the control address cannot be bound.
            StorageError: this node was removed from the cluster.
        """
        state, hub = store.end_state(), log.hub
        here = Place(node=NodeId(directory.identity.node), store=directory.identity.store)
        self._settings, self._wait_log = settings, WaitLog()
        # Index of the entry of this node's log, committed or not, that removes this node.
        self._removed_by = removed_node.entry_of(state, here.node)
        if here.node not in state.nodes:
            _check_member(store.end_state(committed=True), store.initial_state()[0].commit, here.node)
        self.hub, self.proposer = hub, log.proposer
        self._identify(directory, state.nodes[here.node].control if here.node in state.nodes else ())
        self.recordings = Recordings(settings.data_dir)
        self.peers = Peers(hub, store, on_beat=self._beat)
        self._attach_replica(store, on_failed)
        nodes = [(number, node.control) for number, node in state.nodes.items()]
        self.peers.set_committed((*join_peers.items(), *nodes))
        self._control_addresses = _other_addresses(settings, state, here.node)
        self._has_joined = bool(join_peers)
        self.members = Members(
            self.proposer,
            self.peers,
            here,
            health,
            contested=hub.contested,
            silence_ms=hub.silence_ms,
            is_started=lambda: log.own_start.is_applied,
            disk_percent=lambda: _disk_percent(settings.data_dir),
            **heartbeats._asdict(),
        )
        self.proposer.set_clock(lambda: self.members.clock.proposal_ms(self.proposer.state))
        self.peer_client = PeerClient(hub, self.peers, self.proposer, here.node, self.members.silent)
        self.levels = ClusterLevels(self.proposer, self.peer_client, self.members.board, directory)
        self._batches = self._order_batches(OrderSender(self.peer_client, orders, gate))
        self.reassignments = ReassignmentLeader(
            self.proposer, self._batches.ask, self.members.board, self.members.board.pressures
        )
        log.listeners.add(lambda _, __, index: self.members.hash_if_due(index), self._wake_reassignments)

    def _identify(self, directory: DataDirectory, control: tuple[str, ...]) -> None:
        """Give the hub the node's identity, and bind a control address unless the join has bound one."""
        self.hub.identify(directory.identity.cluster, directory.identity.node)
        if not self.hub.address:
            bind_again(self.hub, self._settings, control)

    def _order_batches(self, sender: OrderSender) -> OrderBatches:
        return OrderBatches(level=lambda: self.proposer.state.level, one=sender.send, many=sender.send_many)

    def _attach_replica(self, store: RaftStore, on_failed: Callable[[Exception], None]) -> None:
        replica = Replica(
            store,
            self.hub.node,
            listener=self.proposer,
            send=self.peers.send_message,
            before_tick=self.hub.drain,
            on_failed=on_failed,
            save_recording=self.recordings.save,
        )
        self.proposer.attach(replica)
        self.peers.attach(replica)

    @property
    def control(self) -> tuple[str, ...] | None:
        """The advertised control addresses; None if this node has none."""
        return advertised((self.hub.address,)) if self.hub.address else None

    async def check_joined(self) -> None:
        """Check that `join` names the directory's cluster. Addresses that do not answer are skipped.

        Raises:
            StorageError: `join` names another cluster, or this node was removed.
        """
        if not self._settings.join or self._has_joined:
            return
        request = messages.encode(messages.ListNodes())
        for address in self._settings.join:
            try:
                reply = messages.decode_reply(await self.hub.ask(address, request, JOIN_TIMEOUT_S))
            except NoAnswerError as error:
                _LOG.warning("no answer from a join address", why=str(error))
                continue
            except ForeignClusterError as error:
                raise StorageError(str(error)) from error
            if isinstance(reply, messages.Nodes):
                if removed_node.reports_removed(reply, self.hub.node):
                    raise StorageError(removed_node.removed(self.hub.node, self._removed_by))
                self.peers.set_committed((node.node, node.control) for node in reply.nodes)
                return

    def start(self) -> None:
        self.proposer.start()
        self.members.start()
        self.reassignments.start()

    async def catch_up(self) -> None:
        """Wait, without a time limit, until this node has applied everything that a majority has committed.

        The other voters ignore a removed node. So after each timeout this node asks the others whether it is
        still a member.

        Raises:
            StorageError: this node was removed from the cluster.
        """
        node = NodeId(self.hub.node)
        while True:
            try:
                await self.proposer.read_barrier()
            except RequestRefused as refusal:
                if any(await asyncio.gather(*map(self._reports_removed, self._control_addresses))):
                    raise StorageError(removed_node.removed(node, self._removed_by)) from None
                _check_member(self.proposer.state, self.proposer.applied.index, node)
                self._wait_log.log("waiting for a majority", refusal.message + self._removal_hint())
            else:
                _check_member(self.proposer.state, self.proposer.applied.index, node)
                return

    async def until_time_known(self) -> None:
        """Wait, without a time limit, until the engine has bounds for the times of records.

        Opening a partition writes a record, and the time of later records cannot go below. A single node has
        only its own clock, and does not wait.
        """
        state = self.proposer.state
        if state.level >= CLOCK_LEVEL and len(state.nodes) > 1:
            await self.members.clock.until_known()

    async def commit(self, command: Command) -> Applied:
        """Propose a command of the start. On a full disk wait for space without a limit, as the journal does.

        Raises:
            RequestRefused: the state does not allow it.
        """
        while True:
            try:
                return await self.proposer.propose(command)
            except RequestRefused as refusal:
                if refusal.code != Code.DISK_FULL:
                    raise
                self._wait_log.log("waiting for space", refusal.message)
                await asyncio.sleep(refusal.retry_after_ms / 1_000)

    async def commit_start(self, start: RestartNode) -> NodeRestarted:
        """Commit the start of this process, on condition that the node's last start is still the newest.

        If another start was committed in between, the next attempt names that start. It can be a late
        proposal of an earlier process, or one of this process that arrived here in a snapshot.

        Raises:
            RequestRefused: the state does not allow it.
        """
        for remaining in reversed(range(START_ATTEMPTS_MAX)):
            node = self.proposer.state.nodes.get(start.node)
            try:
                applied = await self.commit(replace(start, after=Index(0) if node is None else node.started))
            except RequestRefused as refusal:
                if refusal.code not in (Code.TOO_OLD, Code.UNKNOWN_OUTCOME) or not remaining:
                    raise
                _LOG.warning("start proposed again", why=refusal.message)
                await self.catch_up()
            else:
                assert isinstance(applied.result, NodeRestarted), applied
                return applied.result
        raise AssertionError("the last attempt returns or raises")

    async def finalize_alone(self) -> None:
        """Raise a single node without a control address to the newest level: it is its own cluster."""
        command = None if self.hub.address else await self.levels.raise_if_alone()
        if command is not None:
            before = self.proposer.state.level
            await self.commit(command)
            _LOG.info(
                "finalized", level=command.level, before=before, why="a single node runs no older program"
            )

    async def hand_over(self) -> None:
        """Transfer leadership before a stop, so that the cluster needs no election."""
        replica = self.proposer.replica
        others = [node for node in replica.configuration.voters if node != replica.id]
        if not replica.leads or not others:
            return
        members = replica.node.status().members
        best = max(others, key=lambda node: (members[node].recent_active, members[node].match))
        try:
            replica.step(events.Transfer(best))
        except ConsensusError:
            return
        for _ in range(round(HAND_OVER_S / 0.01)):
            if replica.leader != replica.id:
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        await self.reassignments.close()
        self._batches.close()
        await self.members.close()
        self.peers.close()
        await self.proposer.close()

    def _beat(self, sender: int, body: bytes) -> None:
        self.members.beat(sender, body)

    def _wake_reassignments(self, *_: object) -> None:
        self.reassignments.wake()

    async def _reports_removed(self, address: str) -> bool:
        """Whether the node at `address` reports this node as removed; False without an answer."""
        request = messages.encode(messages.ListNodes())
        try:
            reply = messages.decode_reply(await self.hub.ask(address, request, JOIN_TIMEOUT_S))
        except (NoAnswerError, ForeignClusterError, msgspec.MsgspecError) as error:
            _LOG.debug("membership not answered", address=address, why=str(error))
            return False
        return isinstance(reply, messages.Nodes) and removed_node.reports_removed(reply, self.hub.node)

    def _removal_hint(self) -> str:
        """A hint that this node may have been removed; empty if its log has no such entry."""
        if self._removed_by is None:
            return ""
        return (
            f"; entry {self._removed_by} of this node's metadata log removes node {self.hub.node} from the "
            "cluster. Only another node knows whether the entry was committed, and none answers"
        )


def _other_addresses(settings: Settings, state: MetadataState, here: NodeId) -> tuple[str, ...]:
    """Control addresses of other nodes, from the settings and the recovered metadata."""
    others = [node.control[0] for number, node in state.nodes.items() if node.control and number != here]
    return tuple(dict.fromkeys((*settings.join, *others)))


def _check_member(state: MetadataState, index: int, node: NodeId) -> None:
    """Raise StorageError if the committed `state` shows that this node was removed."""
    if removed_node.is_removed(state, node, index):
        raise StorageError(removed_node.removed(node, removed_node.entry_of(state, node)))


def _disk_percent(directory: Path) -> int:
    """The used share of the file system; 0 if it cannot be told."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return 0
    return 100 * usage.used // max(1, usage.total)
