"""Answers to what other nodes and administrators ask over the control address."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import msgspec
import structlog

from ringfence.control.machines.change_orders import Answer, Order
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.node_commands import RegisterNode
from ringfence.control.model.nodes import WEIGHT_DEFAULT
from ringfence.control.model.results import NodeRegistered
from ringfence.control.runtime import calls, figures, node_changes, views
from ringfence.control.runtime.audit import CONTROL, Audit, Line
from ringfence.control.runtime.changes_node import ChangeNode
from ringfence.control.runtime.driver import Driver
from ringfence.control.runtime.errors import RequestRefused
from ringfence.control.runtime.event_files import EventFiles
from ringfence.control.runtime.follower import Follower
from ringfence.control.runtime.inspections import Inspections
from ringfence.control.runtime.members import Members
from ringfence.control.runtime.partition_requests import Partitions
from ringfence.control.runtime.producer_epochs import raise_epoch
from ringfence.control.runtime.raft_proposer import RaftProposer
from ringfence.control.runtime.rebalance_requests import Rebalances
from ringfence.control.runtime.settings import Settings
from ringfence.control.runtime.stage_checks import StageChecks
from ringfence.control.runtime.upgrades import Upgrades
from ringfence.control.transport.envelope import Envelope
from ringfence.control.transport.hub import ANSWER_BYTES_MAX
from ringfence.native.wire import Code

T = TypeVar("T")
_LOG = structlog.get_logger("ringfence.control")
ANSWER_S: Final = 10.0
"""How long one question may take: an election, a commit and a group of orders. Then others get its place."""


def limits_fault(call: calls.Join, settings: Settings, node: int) -> str:
    """Why bodies of that store and of `node`, which has these settings, do not fit each other; else empty.

    What one takes of clients the other must have room for as its replica or a move's target: a larger body is
    never copied, and holds up its partition for ever. Unequal limits that fit are no fault.
    """
    if not call.stored_bytes:
        return ""
    if call.stored_bytes < settings.body_bytes_max:
        return (
            f"node {node} takes bodies of up to {settings.body_bytes_max} bytes, this one has room for "
            f"{call.stored_bytes}: a partition with a larger one could never have a replica here. Start it "
            f"with budget_bytes={settings.budget_bytes} and segment_bytes={settings.segment_bytes}, as "
            "there, or the other nodes with a smaller message_bytes first"
        )
    if settings.stored_bytes_max < call.body_bytes:
        return (
            f"this node would take bodies of up to {call.body_bytes} bytes, node {node} has room for "
            f"{settings.stored_bytes_max}: a partition with a larger one could never have a replica there. "
            f"Start it with message_bytes={settings.body_bytes_max}, as there"
        )
    return ""


class Answers:
    """Handlers; what they raise becomes a refusal."""

    def __init__(
        self, proposer: RaftProposer, members: Members, events: EventFiles, settings: Settings,
        upgrades: Upgrades,
    ) -> None:  # fmt: skip
        self._proposer, self._members, self._events = proposer, members, events
        self._settings, self.upgrades = settings, upgrades
        self._follower: Follower | None = None
        self._driver: Driver | None = None
        self._stages: StageChecks | None = None
        self._change_node: ChangeNode | None = None
        self._rebalancing: Rebalances | None = None
        self._partitions: Partitions | None = None
        self._inspections: Inspections | None = None
        self._audit: Audit | None = None

    def serve_data(self, follower: Follower, driver: Driver, stages: StageChecks) -> None:
        """From now on orders are carried out here."""
        self._follower, self._driver, self._stages = follower, driver, stages

    def serve_changes(
        self,
        node: ChangeNode,
        rebalances: Rebalances,
        partitions: Partitions,
        inspections: Inspections,
        audit: Audit,
    ) -> None:
        """From now on orders of changes are obeyed here."""
        self._inspections, self._audit = inspections, audit
        self._change_node, self._rebalancing, self._partitions = node, rebalances, partitions

    async def obey(self, term: int, order: Order) -> Answer:
        """An order about a change, from another node or from this one. RequestRefused."""
        if self._change_node is None:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=200)
        return await self._change_node.obey(term, order)

    async def obey_many(self, term: int, orders: tuple[Order, ...]) -> tuple[Answer | None, ...]:
        """Orders about changes; None for one that has no answer yet, or is refused. RequestRefused."""
        if self._change_node is None:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=200)
        return await self._change_node.obey_many(term, orders)

    def tell_time(self, time_ms: int) -> None:
        """The engine hears the cluster's time; nobody does before it serves."""
        if self._driver is not None:
            self._driver.time(time_ms)

    def counted_here(self) -> list[dict[str, Any]]:
        """Counters of this node's partitions; none before it serves."""
        return [] if self._driver is None else self._driver.node.partitions()

    async def answer(self, envelope: Envelope) -> bytes:
        """The answer to one question, whatever it holds."""
        self._proposer.replica.pulse()
        try:
            async with asyncio.timeout(ANSWER_S):
                reply = await self._reply(calls.decode_call(envelope.body))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            reply = calls.Refusal(code=Code.BAD_BODY, message=f"no question: {error}"[:1_000])
        except RequestRefused as refusal:
            reply = calls.Refusal(
                code=refusal.code, message=refusal.message[:4_000], retry_after_ms=refusal.retry_after_ms
            )
        except TimeoutError:
            message = f"not done within {ANSWER_S:g} s, and maybe going on; ask again"
            reply = calls.Refusal(code=Code.UNKNOWN_OUTCOME, message=message, retry_after_ms=1_000)
        except Exception:  # noqa: BLE001 - a defect must cost one question, not the node
            _LOG.exception("question failed", sender=envelope.sender)
            reply = calls.Refusal(code=Code.INTERNAL, message="a defect of the node; its log says more")
        body = calls.encode(reply)
        if len(body) > ANSWER_BYTES_MAX:
            message = f"an answer of {len(body)} bytes, {ANSWER_BYTES_MAX} is the limit; ask for less"
            body = calls.encode(calls.Refusal(code=Code.TOO_LARGE, message=message))
        return body

    async def _reply(self, call: calls.Call) -> calls.Reply:
        match call:
            case calls.Join():
                return await self._join(call)
            case calls.ListNodes():
                return self._nodes()
            case calls.ChangeNode(node=node, change=change):
                return await self._change(NodeId(node), change)
            case calls.Settle() | calls.Carried():
                return await self._settle(call)
            case calls.Hosted(topic=topic):
                return self._hosted(topic)
            case calls.KeepEvents():
                path = self._events.keep(self._proposer.replica.recording("an operator asked"))
                return calls.EventsKept(path=str(path))
            case calls.OpenProducer() | calls.CountStaged():
                return await self._at_owner(call)
            case calls.Obey() | calls.ObeyMany():
                return await self._obeyed(call)
            case calls.ShowRebalance() | calls.SteerRebalance():
                return await self._steer(call)
            case calls.Inspect() | calls.InspectAll():
                return await self._inspect(call)
            case calls.ShowVersions() | calls.PromiseLevel():
                return await self._upgrade(call)
            case _:
                return await self._partition(call)

    async def _obeyed(self, call: calls.Obey | calls.ObeyMany) -> calls.Obeyed | calls.ObeyedMany:
        if isinstance(call, calls.Obey):
            return calls.Obeyed(answer=await self.obey(call.term, call.order))
        return calls.ObeyedMany(answers=await self.obey_many(call.term, call.orders))

    async def _join(self, call: calls.Join) -> calls.Joined:
        state = self._proposer.state
        if not state.cluster:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=200)
        fault = limits_fault(call, self._settings, self._proposer.replica.id)
        if fault:
            raise RequestRefused(Code.INVALID_ARGUMENT, fault)
        command = RegisterNode(
            cluster=state.cluster,
            store=call.store,
            control=call.control,
            addresses=call.addresses,
            zone=call.zone,
            weight=call.weight or WEIGHT_DEFAULT,
            program=call.program,
            level=call.level,
        )
        registered = (await self._proposer.propose(command)).result
        assert isinstance(registered, NodeRegistered), registered
        return calls.Joined(
            cluster=state.cluster,
            history=state.history,
            node=registered.node,
            peers={int(number): node.control for number, node in state.nodes.items() if node.control},
            level=state.level,
        )

    def _nodes(self) -> calls.Nodes:
        replica, state = self._proposer.replica, self._proposer.state
        infos = views.nodes(state, replica.leader, replica.configuration)
        index, digest = self._members.digest
        return calls.Nodes(cluster=state.cluster, node=replica.id, leader=replica.leader, term=replica.term,
                           index=index, hash=digest.hex(), nodes=infos)  # fmt: skip

    async def _change(self, node: NodeId, change: str) -> calls.Done:
        self._no_tokens("change nodes")

        async def work() -> tuple[calls.Done, int]:
            index = 0
            for command in await node_changes.commands(self._proposer, node, change):
                index = (await self._proposer.propose(command)).index
            return calls.Done(), index

        return await self._audited(f"node {change}", f"node/{node}", work())

    async def _settle(self, call: calls.Settle | calls.Carried) -> calls.Done | calls.HowFar:
        if isinstance(call, calls.Carried):
            return calls.HowFar(index=self._carried_out().carried(self._proposer.applied.index))
        await self._proposer.reached(call.index)
        return calls.Done(faults=tuple(await self._carried_out().until(call.index)))

    async def _upgrade(self, call: calls.ShowVersions | calls.PromiseLevel) -> calls.Told | calls.Done:
        if isinstance(call, calls.ShowVersions):
            return calls.Told(value=self.upgrades.here())
        await self.upgrades.promise(call.level)
        return calls.Done()

    def _hosted(self, topic: int) -> calls.Figures:
        values = []
        for known in figures.hosted(self._native().node, topic):
            why = known.get("quarantined")
            kept = {key: known.get(key, 0) for key in
                    ("topic", "partition", "start_offset", "end_offset", "bytes", "lag_records")}  # fmt: skip
            values.append({**kept, "quarantined": None if why is None else str(why)[:160]})
        return calls.Figures(values=tuple(values))

    async def _at_owner(self, call: calls.OpenProducer | calls.CountStaged) -> calls.Reply:
        if isinstance(call, calls.OpenProducer):
            return calls.Figures(values=(await raise_epoch(self._native(), call),))
        if self._stages is None:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=500)
        return await self._stages.here(call)

    def _carried_out(self) -> Follower:
        if self._follower is None:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=500)
        return self._follower

    async def _steer(self, call: calls.ShowRebalance | calls.SteerRebalance) -> calls.Told:
        if isinstance(call, calls.ShowRebalance):
            return calls.Told(value=self._rebalances().here())
        if call.verb in {"show", "history", "preview"}:
            return calls.Told(value=await self._rebalances().steer(call))
        self._no_tokens("start and steer rebalances")

        async def work() -> tuple[calls.Told, int]:
            told = await self._rebalances().steer(call)
            return calls.Told(value=told), self._proposer.applied.index

        what = f"{call.verb} {call.action}" if call.verb == "start" else call.verb
        return await self._audited(f"rebalance {what}", "rebalance", work())

    async def _partition(
        self, call: calls.ShowPartition | calls.ForcePartition | calls.GiveUpPart
    ) -> calls.Told:
        if self._partitions is None:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=500)
        number = PartitionId(call.partition)
        if isinstance(call, calls.ShowPartition):
            known = self._partitions.here(number) if call.here else await self._partitions.show(number)
            return calls.Told(value=known)
        if isinstance(call, calls.GiveUpPart):
            self._no_tokens("give up what is lost")
            what, work = (
                f"partition give-up {call.scope} {call.epoch}",
                self._given_up(self._partitions, call),
            )
        else:
            self._no_tokens("force owners")
            what = f"partition {number} force-owner {call.owner} change {call.change}: {call.accepts}"
            work = self._forced(self._partitions, call)
        return await self._audited(what, f"partition/{number}", work)

    async def _given_up(self, partitions: Partitions, call: calls.GiveUpPart) -> tuple[calls.Told, int]:
        entry = await partitions.lost_parts.give_up(PartitionId(call.partition), call.scope, call.epoch)
        applied = await self._proposer.propose(entry)
        _LOG.warning("a part of a decided epoch was given up", command=repr(entry), index=applied.index)
        return calls.Told(value={"index": applied.index}), applied.index

    async def _forced(self, partitions: Partitions, call: calls.ForcePartition) -> tuple[calls.Told, int]:
        await self._proposer.fresh()
        number = PartitionId(call.partition)
        command = partitions.force(number, call.change, call.owner, call.accepts, call.replicas)
        applied = await self._proposer.propose(command)
        _LOG.warning("an owner was forced", command=repr(command), index=applied.index)
        return calls.Told(value={"index": applied.index}), applied.index

    async def _audited(self, action: str, resource: str, work: Coroutine[Any, Any, tuple[T, int]]) -> T:
        if self._audit is None:
            work.close()
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=500)
        return await self._audit.kept(Line("", "", "", CONTROL, resource, action), work)

    async def _inspect(self, call: calls.Inspect | calls.InspectAll) -> calls.Inspected | calls.Told:
        if self._inspections is None:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=500)
        if isinstance(call, calls.Inspect):
            return await self._inspections.here(call.after)
        return calls.Told(value=await self._inspections.inspect())

    def _no_tokens(self, what: str) -> None:
        """Who asks here shows no token, so nothing is changed for him once there are any."""
        if self._proposer.state.tokens:
            message = f"the cluster has tokens: {what} through the admin API, with one (--http)"
            raise RequestRefused(Code.UNAUTHORIZED, message)

    def _rebalances(self) -> Rebalances:
        if self._rebalancing is None:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=500)
        return self._rebalancing

    def _native(self) -> Driver:
        if self._driver is None:
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=500)
        return self._driver
