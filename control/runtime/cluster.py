"""Build and run a node's part of the cluster: log, consensus, transport, members, control server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from msgspec.structs import replace

from ringfence.control.consensus import events
from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.model.commands import Command, RestartNode
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.results import NodeRestarted
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica as Place
from ringfence.control.runtime.control_server import ControlServer
from ringfence.control.runtime.handlers.cluster_levels import ClusterLevels, check_level
from ringfence.control.runtime.membership import removed_node
from ringfence.control.runtime.membership.cluster_clock import CLOCK_LEVEL
from ringfence.control.runtime.membership.members import Members
from ringfence.control.runtime.process.addresses import advertised
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.process.wait_log import WaitLog
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.proposer_interface import Applied
from ringfence.control.runtime.raft.recordings import Recordings
from ringfence.control.runtime.raft.replica import Replica
from ringfence.control.runtime.reassignment.coordinator import ReassignmentLeader
from ringfence.control.runtime.reassignment.order_batches import OrderBatches
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.peers import Peers
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from ringfence.control.state_machines.rebalance.loads import LoadReport
from ringfence.control.store.directory import DataDirectory, JoiningDirectory
from ringfence.control.store.raft_store import RaftStore
from ringfence.control.transport.envelope import Envelope
from ringfence.control.transport.hub import ForeignClusterError, Hub, NoAnswerError
from ringfence.native.errors import ConfigError, NewerFormatError, StorageError
from ringfence.native.wire import LEVEL_NEWEST, Code

_LOG = structlog.get_logger("ringfence.cluster")
CONTROL_DEFAULT: Final = "tcp://127.0.0.1:0"
# Timeout of one join request, in seconds; the node repeats it until the cluster answers.
JOIN_TIMEOUT_S: Final = 2.0
# Timeout of one reassignment order to another node, in seconds; the leader repeats it.
ORDER_TIMEOUT_S: Final = 3.0
# Time that a stop waits for another leader, in seconds; after it the other voters elect one.
HAND_OVER_S: Final = 1.0
# Attempts to commit a start. An attempt fails only if another start was committed in between, which is rare.
START_ATTEMPTS_MAX: Final = 8
# Refusals after which a joining node tries again; all others end the join.
RETRIED_CODES: Final = frozenset(
    {
        Code.TOO_FEW_REPLICAS,
        Code.UNKNOWN_OUTCOME,
        Code.STOPPING,
        Code.OVERLOADED,
        Code.INTERNAL,
        Code.DISK_FULL,
    }
)

Applier = Callable[[MetadataState, MetadataState, Index], None]


class Cluster:
    """Call `open`, `start`, and at last `close`. The metadata may be read after `catch_up`."""

    def __init__(
        self,
        settings: Settings,
        health: Health,
        *,
        on_applied: Applier,
        on_loads: Callable[[Mapping[NodeId, LoadReport]], None],
        on_time_window: Callable[[int, int], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._settings, self._health = settings, health
        self._on_loads, self._on_time_window = on_loads, on_time_window
        self._on_applied, self._on_failed = on_applied, on_failed
        self.hub = Hub(on_message=self._receive, on_question=self._ask, on_fenced=self._fenced)
        self.proposer = RaftProposer(
            on_applied=self._applied,
            on_own_start=self._own_start,
            on_other_start=self._other_start,
            now_ms=lambda: self.members.clock.proposal_ms(self.proposer.state),
        )
        self._peers: Peers | None = None
        self._members: Members | None = None
        self._control_server: ControlServer | None = None
        self._reassignments: ReassignmentLeader | None = None
        self._batches = OrderBatches(
            level=lambda: self.proposer.state.level, one=self._ask_order, many=self._ask_orders
        )
        self._join_peers: dict[int, tuple[str, ...]] = {}
        # Control addresses of other nodes, from the settings and the recovered metadata; set by `open`.
        self._control_addresses: tuple[str, ...] = ()
        # Index of the entry of this node's log, committed or not, that removes this node.
        self._removed_by: Index | None = None
        # True once the start of the node that this process proposed is applied.
        self._is_started = False
        self._wait_log = WaitLog()

    async def join(self, directory: JoiningDirectory) -> DataDirectory:
        """Ask the cluster to register this store as a node, without a time limit.

        Raises:
            ConfigError: the control address cannot be bound.
            StorageError: the cluster refuses the store.
        """
        control = self._bind(self._settings.control or CONTROL_DEFAULT)
        call = messages.Join(
            store=directory.store,
            control=control,
            addresses=self._settings.advertise,
            zone=self._settings.zone,
            weight=self._settings.weight or 0,
            body_bytes=self._settings.body_bytes_max,
            stored_bytes=self._settings.stored_bytes_max,
            level=LEVEL_NEWEST,
        )
        while True:
            joined = await self._ask_to_join(call)
            if joined is not None:
                break
        self._join_peers = dict(joined.peers)
        _LOG.info("joined", node=joined.node, cluster=joined.cluster.hex())
        check_level(joined.level, f"the cluster {joined.cluster.hex()}")
        return directory.settle(
            cluster=joined.cluster, history=joined.history, node=joined.node, level=joined.level
        )

    async def open(self, directory: DataDirectory, store: RaftStore) -> None:
        """Build all parts over an open store; start none of them. Raises as `join`."""
        identity, state = directory.identity, store.end_state()
        here = Place(node=NodeId(identity.node), store=identity.store)
        self._removed_by = removed_node.entry_of(state, here.node)
        if here.node not in state.nodes:
            self._check_member(store.end_state(committed=True), store.initial_state()[0].commit, here.node)
        self.hub.identify(identity.cluster, identity.node)
        own = state.nodes.get(here.node)
        if not self.hub.address:
            self._bind_again(own.control if own is not None else ())
        recordings = Recordings(self._settings.data_dir)
        peers = self._peers = Peers(self.hub, store, on_beat=self._beat)
        replica = Replica(
            store,
            identity.node,
            listener=self.proposer,
            send=peers.send_message,
            before_tick=self.hub.drain,
            on_failed=self._on_failed,
            save_recording=recordings.save,
        )
        self.proposer.attach(replica)
        peers.attach(replica)
        peers.set_committed(self._join_peers.items())
        peers.set_committed((number, node.control) for number, node in state.nodes.items())
        others = [node.control[0] for node in state.nodes.values() if node.control and node is not own]
        self._control_addresses = tuple(dict.fromkeys((*self._settings.join, *others)))
        self._members = Members(
            self.proposer,
            peers,
            here,
            self._health,
            contested=self.hub.contested,
            silence_ms=self.hub.silence_ms,
            counters=self._counters,
            on_loads=self._on_loads,
            is_started=lambda: self._is_started,
            on_time_window=self._on_time_window,
        )
        self.peer_client = PeerClient(self.hub, peers, self.proposer, here.node, self._members.silent)
        self.levels = ClusterLevels(self.proposer, self.peer_client, self._members.board, directory)
        self._control_server = ControlServer(
            self.proposer, self._members, recordings, self._settings, self.levels
        )
        self._reassignments = ReassignmentLeader(self.proposer, self._batches.ask, self._members.board)
        if self._settings.join and not self._join_peers:
            await self._check_cluster(peers)

    @property
    def control(self) -> tuple[str, ...] | None:
        """The advertised control addresses; None if this node has none."""
        return advertised((self.hub.address,)) if self.hub.address else None

    @property
    def members(self) -> Members:
        assert self._members is not None, "the cluster is not open"
        return self._members

    @property
    def reassignments(self) -> ReassignmentLeader:
        assert self._reassignments is not None, "the cluster is not open"
        return self._reassignments

    def _counters(self) -> list[dict[str, Any]]:
        return self.control_server.partition_counters()

    async def _ask_order(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        """Send an order to its node, which may be this one. RequestRefused."""
        if order.to.node == self.peer_client.here:
            return await self.control_server.execute(term, order)
        reply = await self.peer_client.ask(
            order.to.node, messages.ExecuteOrder(term=term, order=order), ORDER_TIMEOUT_S
        )
        if isinstance(reply, messages.OrderAnswer):
            return reply.answer
        raise RequestRefused(
            Code.INTERNAL, f"node {order.to.node} answered an order with another message: {reply!r:.200}"
        )

    async def _ask_orders(
        self, term: int, orders: tuple[ReassignmentOrder, ...]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        """Send orders that are all for one node. RequestRefused."""
        node = orders[0].to.node
        if node == self.peer_client.here:
            return await self.control_server.execute_many(term, orders)
        reply = await self.peer_client.ask(
            node, messages.ExecuteOrders(term=term, orders=orders), ORDER_TIMEOUT_S
        )
        if isinstance(reply, messages.OrderAnswers):
            return reply.answers
        raise RequestRefused(
            Code.INTERNAL, f"node {node} answered orders with another message: {reply!r:.200}"
        )

    @property
    def control_server(self) -> ControlServer:
        assert self._control_server is not None, "the cluster is not open"
        return self._control_server

    def start(self) -> None:
        assert self._members is not None, "the cluster is not open"
        self.proposer.start()
        self._members.start()
        assert self._reassignments is not None, "the cluster is not open"
        self._reassignments.start()

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
                self._check_member(self.proposer.state, self.proposer.applied.index, node)
                self._wait_log.log("waiting for a majority", refusal.message + self._removal_hint())
            else:
                self._check_member(self.proposer.state, self.proposer.applied.index, node)
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
        if self._reassignments is not None:
            await self._reassignments.close()
        self._batches.close()
        if self._members is not None:
            await self._members.close()
        if self._peers is not None:
            self._peers.close()
            await self.proposer.close()
        self.hub.close()

    # ---- parts --------------------------------------------------------------------------------------

    def _bind(self, address: str) -> tuple[str, ...]:
        return advertised((self.hub.bind(address),))

    def _bind_again(self, before: tuple[str, ...]) -> None:
        """Bind the configured control address; else the last one; else, to join, any port of loopback."""
        configured = self._settings.control
        if configured is None and before:
            try:
                self._bind(before[0])
            except ConfigError as error:
                _LOG.warning("control address changed", before=before[0], why=str(error))
            else:
                return
        if configured is not None or before or self._settings.join:
            self._bind(configured or CONTROL_DEFAULT)

    async def _ask_to_join(self, call: messages.Join) -> messages.Joined | None:
        for address in self._settings.join:
            try:
                reply = messages.decode_reply(
                    await self.hub.ask(address, messages.encode(call), JOIN_TIMEOUT_S)
                )
            except NoAnswerError as error:
                self._wait_log.log("waiting to join", str(error))
                continue
            except ForeignClusterError as error:
                raise StorageError(str(error)) from error
            except msgspec.MsgspecError as error:
                raise StorageError(
                    f"{address} sent no valid answer to a join request: {error}; name a control address"
                ) from error
            if isinstance(reply, messages.Joined):
                return reply
            if isinstance(reply, messages.Refusal):
                if Code(reply.code) not in RETRIED_CODES:
                    raise StorageError(f"the cluster at {address} refuses this node: {reply.message}")
                self._wait_log.log("waiting to join", reply.message)
                await asyncio.sleep(max(reply.retry_after_ms, 200) / 1_000)
        return None

    async def _check_cluster(self, peers: Peers) -> None:
        """Check that `join` names the directory's cluster. Addresses that do not answer are skipped."""
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
                peers.set_committed((node.node, node.control) for node in reply.nodes)
                return

    async def _reports_removed(self, address: str) -> bool:
        """Whether the node at `address` reports this node as removed; False without an answer."""
        request = messages.encode(messages.ListNodes())
        try:
            reply = messages.decode_reply(await self.hub.ask(address, request, JOIN_TIMEOUT_S))
        except (NoAnswerError, ForeignClusterError, msgspec.MsgspecError) as error:
            _LOG.debug("membership not answered", address=address, why=str(error))
            return False
        return isinstance(reply, messages.Nodes) and removed_node.reports_removed(reply, self.hub.node)

    def _check_member(self, state: MetadataState, index: int, node: NodeId) -> None:
        if removed_node.is_removed(state, node, index):
            raise StorageError(removed_node.removed(node, removed_node.entry_of(state, node)))

    def _removal_hint(self) -> str:
        """A hint that this node may have been removed; empty if its log has no such entry."""
        if self._removed_by is None:
            return ""
        return (
            f"; entry {self._removed_by} of this node's metadata log removes node {self.hub.node} from the "
            "cluster. Only another node knows whether the entry was committed, and none answers"
        )

    def _own_start(self) -> None:
        """The start that this process proposed is applied. A later one belongs to another process."""
        self._is_started = True

    def _other_start(self, command: RestartNode, index: Index) -> None:
        """Fail if another process with the same identity has committed a later start."""
        if self._is_started and command.node == self.hub.node:
            self._fenced(f"entry {index} of the log starts it with addresses {', '.join(command.addresses)}")

    def _fenced(self, why: str) -> None:
        self._on_failed(
            StorageError(
                f"another process is node {self.hub.node} of this cluster ({why}): the data directory was "
                "copied, or restored while the original runs. Stop one of the two; to add a node, start "
                "it with an empty directory and --join. Nothing was removed"
            )
        )

    def _receive(self, envelope: Envelope) -> None:
        if self._peers is not None:
            self._peers.receive(envelope)

    async def _ask(self, envelope: Envelope) -> bytes:
        if self._control_server is None:
            refusal = messages.Refusal(code=Code.STOPPING, message="the node is starting", retry_after_ms=500)
            return messages.encode(refusal)
        return await self._control_server.answer(envelope)

    def _beat(self, sender: int, body: bytes) -> None:
        if self._members is not None:
            self._members.beat(sender, body)

    def _applied(self, before: MetadataState, after: MetadataState, index: Index) -> None:
        if after.level != before.level:
            try:
                check_level(after.level, "the metadata")
            except NewerFormatError as error:
                self._on_failed(error)
                return
            _LOG.info("level raised", level=after.level, before=before.level, index=index)
        if self._members is not None:
            self._members.hash_if_due(index)
        self._on_applied(before, after, index)
        if self._reassignments is not None:
            self._reassignments.wake()
