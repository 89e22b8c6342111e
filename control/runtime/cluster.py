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
from ringfence.control.machines.change_orders import Answer, Order
from ringfence.control.machines.loads import Told
from ringfence.control.model.commands import Command, RestartNode
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.results import NodeRestarted
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica as Place
from ringfence.control.runtime import calls, removal
from ringfence.control.runtime.addresses import advertised
from ringfence.control.runtime.answers import Answers
from ringfence.control.runtime.changes_leader import ChangeLeader
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.runtime.event_files import EventFiles
from ringfence.control.runtime.health import Health
from ringfence.control.runtime.members import Members
from ringfence.control.runtime.order_batches import OrderBatches
from ringfence.control.runtime.others import Others
from ringfence.control.runtime.peers import Peers
from ringfence.control.runtime.proposals import Applied
from ringfence.control.runtime.raft_proposer import RaftProposer
from ringfence.control.runtime.replica import Replica
from ringfence.control.runtime.settings import Settings
from ringfence.control.runtime.upgrades import Upgrades, check_level
from ringfence.control.runtime.waits import Waits
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
            on_applied=self._applied,
            on_own_start=self._own_start,
            on_other_start=self._other_start,
            now_ms=self._stamp_ms,
        )
        self._peers: Peers | None = None
        self._members: Members | None = None
        self._answers: Answers | None = None
        self._changes: ChangeLeader | None = None
        self._batches = OrderBatches(
            level=lambda: self.proposer.state.level, one=self._ask_change, many=self._ask_changes
        )
        self._seeds: dict[int, tuple[str, ...]] = {}
        self._asked: tuple[str, ...] = ()  # control addresses of others, as far as they are known
        self._removed_by: Index | None = None  # in the log here, committed or not
        self._is_started = False
        self._waits = Waits()

    async def join(self, directory: JoiningDirectory) -> DataDirectory:
        """Ask the cluster to take this store as a node, for as long as it takes.

        Raises:
            ConfigError: the control address cannot be bound.
            StorageError: the cluster refuses it.
        """
        control = self._bind(self._settings.control or CONTROL_DEFAULT)
        call = calls.Join(
            store=directory.store, control=control, addresses=self._settings.advertise,
            zone=self._settings.zone, weight=self._settings.weight or 0,
            body_bytes=self._settings.body_bytes_max, stored_bytes=self._settings.stored_bytes_max,
            level=LEVEL_NEWEST,
        )  # fmt: skip
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
        self._removed_by = removal.entry_of(known, here.node)
        if here.node not in known.nodes:
            self._check_member(store.end_state(committed=True), store.initial_state()[0].commit, here.node)
        self.hub.identify(identity.cluster, identity.node)
        before = known.nodes.get(here.node)
        if not self.hub.address:
            self._bind_again(before.control if before is not None else ())
        event_files = EventFiles(self._settings.data_dir)
        peers = self._peers = Peers(self.hub, store, on_beat=self._beat)
        replica = Replica(
            store, identity.node, listener=self.proposer, send=peers.send_message,
            before_tick=self.hub.drain, on_failed=self._on_failed,
            keep=event_files.keep,
        )  # fmt: skip
        self.proposer.attach(replica)
        peers.attach(replica)
        peers.know(self._seeds.items())
        peers.know((number, node.control) for number, node in known.nodes.items())
        others = [node.control[0] for node in known.nodes.values() if node.control and node is not before]
        self._asked = tuple(dict.fromkeys((*self._settings.join, *others)))
        self._members = Members(
            self.proposer, peers, here, self._health, contested=self.hub.contested,
            silence_ms=self.hub.silence_ms, figures=self._counted, on_loads=self._loads,
            is_started=lambda: self._is_started, on_time=self._tell_time,
        )  # fmt: skip
        self.others = Others(self.hub, peers, self.proposer, here.node, self._members.silent)
        self.upgrades = Upgrades(self.proposer, self.others, self._members.board, directory)
        self._answers = Answers(self.proposer, self._members, event_files, self._settings, self.upgrades)
        self._changes = ChangeLeader(self.proposer, self._batches.ask, self._members.board)
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
    def changes(self) -> ChangeLeader:
        assert self._changes is not None, "the cluster is not open"
        return self._changes

    def _stamp_ms(self) -> int:
        return self.members.stamp_ms()

    def _tell_time(self, time_ms: int) -> None:
        if self._answers is not None:
            self._answers.tell_time(time_ms)

    def _counted(self) -> list[dict[str, Any]]:
        return self.answers.counted_here()

    async def _ask_change(self, term: int, order: Order) -> Answer:
        """An order to the node that it is for, which may be this one. RequestRefused."""
        if order.to.node == self.others.here:
            return await self.answers.obey(term, order)
        reply = await self.others.ask(order.to.node, calls.Obey(term=term, order=order), ORDER_S)
        if isinstance(reply, calls.Obeyed):
            return reply.answer
        raise RequestRefused(
            Code.INTERNAL, f"node {order.to.node} gave no answer to an order: {reply!r:.200}"
        )

    async def _ask_changes(self, term: int, orders: tuple[Order, ...]) -> tuple[Answer | None, ...]:
        """Orders to one node. RequestRefused."""
        node = orders[0].to.node
        if node == self.others.here:
            return await self.answers.obey_many(term, orders)
        reply = await self.others.ask(node, calls.ObeyMany(term=term, orders=orders), ORDER_S)
        if isinstance(reply, calls.ObeyedMany):
            return reply.answers
        raise RequestRefused(Code.INTERNAL, f"node {node} gave no answers to orders: {reply!r:.200}")

    @property
    def answers(self) -> Answers:
        assert self._answers is not None, "the cluster is not open"
        return self._answers

    def start(self) -> None:
        assert self._members is not None, "the cluster is not open"
        self.proposer.start()
        self._members.start()
        assert self._changes is not None, "the cluster is not open"
        self._changes.start()

    async def catch_up(self) -> None:
        """Wait until this node's state is what a majority has, for as long as it takes.

        A majority listens to no node that was removed: whoever answers then is asked whether it was.

        Raises:
            StorageError: this node was removed from the cluster.
        """
        node = NodeId(self.hub.node)
        while True:
            try:
                await self.proposer.fresh()
            except RequestRefused as refusal:
                if any(await asyncio.gather(*map(self._tells_removed, self._asked))):
                    raise StorageError(removal.removed(node, self._removed_by)) from None
                self._check_member(self.proposer.state, self.proposer.applied.index, node)
                self._waits.tell("waiting for a majority", refusal.message + self._perhaps_removed())
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
                self._waits.tell("waiting for space", refusal.message)
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
        command = None if self.hub.address else await self.upgrades.raised_alone()
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
        if self._changes is not None:
            await self._changes.close()
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

    async def _ask_to_join(self, call: calls.Join) -> calls.Joined | None:
        for address in self._settings.join:
            try:
                reply = calls.decode_reply(await self.hub.ask(address, calls.encode(call), JOIN_TRY_S))
            except NoAnswerError as error:
                self._waits.tell("waiting to join", str(error))
                continue
            except ForeignClusterError as error:
                raise StorageError(str(error)) from error
            except msgspec.MsgspecError as error:
                raise StorageError(
                    f"{address} gave no answer that is one: {error}; name a control address"
                ) from error
            if isinstance(reply, calls.Joined):
                return reply
            if isinstance(reply, calls.Refusal):
                if Code(reply.code) not in AGAIN:
                    raise StorageError(f"the cluster at {address} refuses this node: {reply.message}")
                self._waits.tell("waiting to join", reply.message)
                await asyncio.sleep(max(reply.retry_after_ms, 200) / 1_000)
        return None

    async def _check_cluster(self, peers: Peers) -> None:
        """A directory that has a cluster was told to join one: is it the same? Nobody there is no answer."""
        question = calls.encode(calls.ListNodes())
        for address in self._settings.join:
            try:
                reply = calls.decode_reply(await self.hub.ask(address, question, JOIN_TRY_S))
            except NoAnswerError as error:
                _LOG.warning("not asked", why=str(error))
                continue
            except ForeignClusterError as error:
                raise StorageError(str(error)) from error
            if isinstance(reply, calls.Nodes):
                if removal.is_told_removed(reply, self.hub.node):
                    raise StorageError(removal.removed(self.hub.node, self._removed_by))
                peers.know((node.node, node.control) for node in reply.nodes)
                return

    async def _tells_removed(self, address: str) -> bool:
        """Whether the node there says that this one is no member any more. Nobody there says nothing."""
        question = calls.encode(calls.ListNodes())
        try:
            reply = calls.decode_reply(await self.hub.ask(address, question, JOIN_TRY_S))
        except (NoAnswerError, ForeignClusterError, msgspec.MsgspecError) as error:
            _LOG.debug("not asked", why=str(error))
            return False
        return isinstance(reply, calls.Nodes) and removal.is_told_removed(reply, self.hub.node)

    def _check_member(self, state: MetadataState, index: int, node: NodeId) -> None:
        if removal.is_removed(state, node, index):
            raise StorageError(removal.removed(node, removal.entry_of(state, node)))

    def _perhaps_removed(self) -> str:
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
        if self._answers is None:
            refusal = calls.Refusal(code=Code.STOPPING, message="the node is starting", retry_after_ms=500)
            return calls.encode(refusal)
        return await self._answers.answer(envelope)

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
        if self._changes is not None:
            self._changes.poke()
