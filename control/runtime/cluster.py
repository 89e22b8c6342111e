"""The control plane of one node, put together: durable log, consensus, transport, members, questions."""

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
from ringfence.control.state_machines.reassignment.messages import Answer, Order
from ringfence.control.state_machines.rebalance.loads import Told
from ringfence.control.store.directory import DataDirectory, JoiningDirectory
from ringfence.control.store.raft_store import RaftStore
from ringfence.control.transport.envelope import Envelope
from ringfence.control.transport.hub import ForeignClusterError, Hub, NoAnswerError
from ringfence.native.errors import ConfigError, NewerFormatError, StorageError
from ringfence.native.wire import LEVEL_NEWEST, Code

_LOG = structlog.get_logger("ringfence.cluster")
CONTROL_DEFAULT: Final = "tcp://127.0.0.1:0"
JOIN_TRY_S: Final = 2.0
"""How long one question to join waits; it is asked again until there is an answer."""
ORDER_S: Final = 3.0
"""How long one question to another node about a change waits; it is asked again."""
HAND_OVER_S: Final = 1.0
"""How long a stop waits for another leader; then the others elect one."""
STARTS_MAX: Final = 8
"""Tries of a start, each behind another one that came in between: late ones are few."""
AGAIN: Final = frozenset(
    {
        Code.TOO_FEW_REPLICAS,
        Code.UNKNOWN_OUTCOME,
        Code.STOPPING,
        Code.OVERLOADED,
        Code.INTERNAL,
        Code.DISK_FULL,
    }
)
"""Refusals that a joining node outlives; others name what is wrong with it."""

Applier = Callable[[MetadataState, MetadataState, Index], None]


class Cluster:
    """`open`, then `start`, in the end `close`. Metadata may be asked for after `catch_up`."""

    def __init__(
        self,
        settings: Settings,
        health: Health,
        *,
        on_applied: Applier,
        on_loads: Callable[[Mapping[NodeId, Told]], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._settings, self._health = settings, health
        self._loads = on_loads
        self._on_applied, self._on_failed = on_applied, on_failed
        self.hub = Hub(on_message=self._take, on_ask=self._ask, on_fenced=self._fenced)
        self.proposer = RaftProposer(
            on_applied=self._applied, on_own_start=self._own_start, on_other_start=self._other_start
        )
        self._peers: Peers | None = None
        self._members: Members | None = None
        self._control_server: ControlServer | None = None
        self._reassignments: ReassignmentLeader | None = None
        self._batches = OrderBatches(
            level=lambda: self.proposer.state.level, one=self._ask_order, many=self._ask_orders
        )
        self._seeds: dict[int, tuple[str, ...]] = {}
        self._control_addresses: tuple[str, ...] = ()  # control addresses of others, as far as they are known
        self._removed_by: Index | None = None  # in the log here, committed or not
        self._is_started = False
        self._wait_log = WaitLog()

    async def join(self, directory: JoiningDirectory) -> DataDirectory:
        """Ask the cluster to take this store as a node, for as long as it takes.

        Raises:
            ConfigError: the control address cannot be bound.
            StorageError: the cluster refuses it.
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
        self._seeds = dict(joined.peers)
        _LOG.info("joined", node=joined.node, cluster=joined.cluster.hex())
        check_level(joined.level, f"the cluster {joined.cluster.hex()}")
        return directory.settle(
            cluster=joined.cluster, history=joined.history, node=joined.node, level=joined.level
        )

    async def open(self, directory: DataDirectory, store: RaftStore) -> None:
        """Put everything together over an open store; nothing runs yet. Raises as `join`."""
        identity, known = directory.identity, store.end_state()
        here = Place(node=NodeId(identity.node), store=identity.store)
        self._removed_by = removed_node.entry_of(known, here.node)
        if here.node not in known.nodes:
            self._check_member(store.end_state(committed=True), store.initial_state()[0].commit, here.node)
        self.hub.identify(identity.cluster, identity.node)
        before = known.nodes.get(here.node)
        if not self.hub.address:
            self._bind_again(before.control if before is not None else ())
        event_files = Recordings(self._settings.data_dir)
        peers = self._peers = Peers(self.hub, store, on_beat=self._beat)
        replica = Replica(
            store,
            identity.node,
            listener=self.proposer,
            send=peers.send_message,
            before_tick=self.hub.drain,
            on_failed=self._on_failed,
            keep=event_files.keep,
        )
        self.proposer.attach(replica)
        peers.attach(replica)
        peers.know(self._seeds.items())
        peers.know((number, node.control) for number, node in known.nodes.items())
        others = [node.control[0] for node in known.nodes.values() if node.control and node is not before]
        self._control_addresses = tuple(dict.fromkeys((*self._settings.join, *others)))
        self._members = Members(
            self.proposer,
            peers,
            here,
            self._health,
            contested=self.hub.contested,
            silence_ms=self.hub.silence_ms,
            figures=self._counted,
            on_loads=self._loads,
            is_started=lambda: self._is_started,
        )
        self.peer_client = PeerClient(self.hub, peers, self.proposer, here.node, self._members.silent)
        self.levels = ClusterLevels(self.proposer, self.peer_client, self._members.board, directory)
        self._control_server = ControlServer(
            self.proposer, self._members, event_files, self._settings, self.levels
        )
        self._reassignments = ReassignmentLeader(self.proposer, self._batches.ask, self._members.board)
        if self._settings.join and not self._seeds:
            await self._check_cluster(peers)

    @property
    def control(self) -> tuple[str, ...] | None:
        """What other nodes are told; None while nobody can reach this one."""
        return advertised((self.hub.address,)) if self.hub.address else None

    @property
    def members(self) -> Members:
        assert self._members is not None, "the cluster is not open"
        return self._members

    @property
    def reassignments(self) -> ReassignmentLeader:
        assert self._reassignments is not None, "the cluster is not open"
        return self._reassignments

    def _counted(self) -> list[dict[str, Any]]:
        return self.control_server.counted_here()

    async def _ask_order(self, term: int, order: Order) -> Answer:
        """An order to the node that it is for, which may be this one. RequestRefused."""
        if order.to.node == self.peer_client.here:
            return await self.control_server.execute(term, order)
        reply = await self.peer_client.ask(
            order.to.node, messages.ExecuteOrder(term=term, order=order), ORDER_S
        )
        if isinstance(reply, messages.OrderAnswer):
            return reply.answer
        raise RequestRefused(
            Code.INTERNAL, f"node {order.to.node} gave no answer to an order: {reply!r:.200}"
        )

    async def _ask_orders(self, term: int, orders: tuple[Order, ...]) -> tuple[Answer | None, ...]:
        """Orders to one node. RequestRefused."""
        node = orders[0].to.node
        if node == self.peer_client.here:
            return await self.control_server.execute_many(term, orders)
        reply = await self.peer_client.ask(node, messages.ExecuteOrders(term=term, orders=orders), ORDER_S)
        if isinstance(reply, messages.OrderAnswers):
            return reply.answers
        raise RequestRefused(Code.INTERNAL, f"node {node} gave no answers to orders: {reply!r:.200}")

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
        """Wait until this node's state is what a majority has, for as long as it takes.

        A majority listens to no node that was removed: whoever answers then is asked whether it was.

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

    async def commit(self, command: Command) -> Applied:
        """Propose what a start needs; wait for space as the journal itself does, for as long as it takes.

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
        """Put the start of this process behind the node's last one.

        One that came in between is known at the next try: a late one of an earlier process, or of this one,
        which heard of it by a snapshot only.

        Raises:
            RequestRefused: the state does not allow it.
        """
        for left in reversed(range(STARTS_MAX)):
            node = self.proposer.state.nodes.get(start.node)
            try:
                applied = await self.commit(replace(start, after=Index(0) if node is None else node.started))
            except RequestRefused as refusal:
                if refusal.code not in (Code.TOO_OLD, Code.UNKNOWN_OUTCOME) or not left:
                    raise
                _LOG.warning("started once more", why=refusal.message)
                await self.catch_up()
            else:
                assert isinstance(applied.result, NodeRestarted), applied
                return applied.result
        raise AssertionError("the last try returns or raises")

    async def finalize_alone(self) -> None:
        """A node without a control address has no others to wait for: it goes on at the newest level."""
        command = None if self.hub.address else await self.levels.raise_if_alone()
        if command is not None:
            before = self.proposer.state.level
            await self.commit(command)
            _LOG.info("finalized", level=command.level, before=before, why="a node alone waits for no other")

    async def hand_over(self) -> None:
        """Before a stop: let another voter lead, so that nobody waits for an election."""
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
        """Where it is told to; else where others look for it; else, if it is to have company, anywhere."""
        wanted = self._settings.control
        if wanted is None and before:
            try:
                self._bind(before[0])
            except ConfigError as error:
                _LOG.warning("another control address", before=before[0], why=str(error))
            else:
                return
        if wanted is not None or before or self._settings.join:
            self._bind(wanted or CONTROL_DEFAULT)

    async def _ask_to_join(self, call: messages.Join) -> messages.Joined | None:
        for address in self._settings.join:
            try:
                reply = messages.decode_reply(await self.hub.ask(address, messages.encode(call), JOIN_TRY_S))
            except NoAnswerError as error:
                self._wait_log.log("waiting to join", str(error))
                continue
            except ForeignClusterError as error:
                raise StorageError(str(error)) from error
            except msgspec.MsgspecError as error:
                raise StorageError(
                    f"{address} gave no answer that is one: {error}; name a control address"
                ) from error
            if isinstance(reply, messages.Joined):
                return reply
            if isinstance(reply, messages.Refusal):
                if Code(reply.code) not in AGAIN:
                    raise StorageError(f"the cluster at {address} refuses this node: {reply.message}")
                self._wait_log.log("waiting to join", reply.message)
                await asyncio.sleep(max(reply.retry_after_ms, 200) / 1_000)
        return None

    async def _check_cluster(self, peers: Peers) -> None:
        """A directory that has a cluster was told to join one: is it the same? Nobody there is no answer."""
        question = messages.encode(messages.ListNodes())
        for address in self._settings.join:
            try:
                reply = messages.decode_reply(await self.hub.ask(address, question, JOIN_TRY_S))
            except NoAnswerError as error:
                _LOG.warning("not asked", why=str(error))
                continue
            except ForeignClusterError as error:
                raise StorageError(str(error)) from error
            if isinstance(reply, messages.Nodes):
                if removed_node.is_told_removed(reply, self.hub.node):
                    raise StorageError(removed_node.removed(self.hub.node, self._removed_by))
                peers.know((node.node, node.control) for node in reply.nodes)
                return

    async def _reports_removed(self, address: str) -> bool:
        """Whether the node there says that this one is no member any more. Nobody there says nothing."""
        question = messages.encode(messages.ListNodes())
        try:
            reply = messages.decode_reply(await self.hub.ask(address, question, JOIN_TRY_S))
        except (NoAnswerError, ForeignClusterError, msgspec.MsgspecError) as error:
            _LOG.debug("not asked", why=str(error))
            return False
        return isinstance(reply, messages.Nodes) and removed_node.is_told_removed(reply, self.hub.node)

    def _check_member(self, state: MetadataState, index: int, node: NodeId) -> None:
        if removed_node.is_removed(state, node, index):
            raise StorageError(removed_node.removed(node, removed_node.entry_of(state, node)))

    def _removal_hint(self) -> str:
        """What a wait may be in vain for."""
        if self._removed_by is None:
            return ""
        return (
            f"; entry {self._removed_by} of the metadata here removes node {self.hub.node} from the cluster, "
            "but whether it was committed only another node can tell, and none that is known here answers"
        )

    def _own_start(self) -> None:
        """This process has started the node: another one that starts it by a later entry takes it over."""
        self._is_started = True

    def _other_start(self, command: RestartNode, index: Index) -> None:
        """A start of this node that this process did not propose, behind its own: another one took over."""
        if self._is_started and command.node == self.hub.node:
            self._fenced(f"entry {index} of the log starts it with addresses {', '.join(command.addresses)}")

    def _fenced(self, why: str) -> None:
        self._on_failed(
            StorageError(
                f"another process is node {self.hub.node} of this cluster ({why}): a data directory that was "
                "copied, or restored while the original goes on. Stop one of the two; to have one more node, "
                "give an empty directory and --join. Nothing was removed"
            )
        )

    def _take(self, envelope: Envelope) -> None:
        if self._peers is not None:
            self._peers.take(envelope)

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
