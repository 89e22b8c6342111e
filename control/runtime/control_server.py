"""Answer requests of other nodes and administrators at the control address."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import msgspec
import structlog

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.node_commands import RegisterNode
from ringfence.control.model.nodes import WEIGHT_DEFAULT
from ringfence.control.model.results import NodeRegistered
from ringfence.control.runtime.data_plane import partition_stats
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.data_plane.producer_epochs import raise_epoch
from ringfence.control.runtime.handlers import views
from ringfence.control.runtime.handlers.audit import CONTROL, Audit, Line
from ringfence.control.runtime.handlers.cluster_levels import ClusterLevels
from ringfence.control.runtime.handlers.inspections import Inspections
from ringfence.control.runtime.handlers.partitions import Partitions
from ringfence.control.runtime.handlers.quarantines import Quarantines
from ringfence.control.runtime.handlers.rebalances import Rebalances
from ringfence.control.runtime.membership import node_commands
from ringfence.control.runtime.membership.members import Members
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.recordings import Recordings
from ringfence.control.runtime.reassignment.participant import Participant
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from ringfence.control.transport.envelope import Envelope
from ringfence.control.transport.hub import ANSWER_BYTES_MAX
from ringfence.native.wire import Code

T = TypeVar("T")
_LOG = structlog.get_logger("ringfence.control")
# Timeout of one request, in seconds: enough for an election, a commit and a group of orders.
ANSWER_TIMEOUT_S: Final = 10.0


def limits_fault(call: messages.Join, settings: Settings, node: int) -> str:
    """Check the size limits of a joining store against those of `node`, which has `settings`; "": they fit.

    Each node must have room for every body that the other accepts from clients. A larger body could never be
    copied to a replica or a move's target, and its partition would wait forever. Limits may differ otherwise.
    """
    if not call.stored_bytes:
        return ""
    if call.stored_bytes < settings.body_bytes_max:
        return (
            f"node {node} accepts bodies of up to {settings.body_bytes_max} bytes, this node has room for "
            f"{call.stored_bytes}: a partition with larger bodies could not have a replica here. Start this "
            f"node with budget_bytes={settings.budget_bytes} and segment_bytes={settings.segment_bytes}, or "
            "first start the other nodes with a smaller message_bytes"
        )
    if settings.stored_bytes_max < call.body_bytes:
        return (
            f"this node would accept bodies of up to {call.body_bytes} bytes, node {node} has room for "
            f"{settings.stored_bytes_max}: a partition with larger bodies could not have a replica there. "
            f"Start this node with message_bytes={settings.body_bytes_max}"
        )
    return ""


class ControlServer:
    """Dispatches requests to handlers, and turns their exceptions into refusals."""

    def __init__(
        self,
        proposer: RaftProposer,
        members: Members,
        recordings: Recordings,
        settings: Settings,
        levels: ClusterLevels,
    ) -> None:
        self._proposer, self._members, self._recordings = proposer, members, recordings
        self._settings, self.levels = settings, levels
        self._executor: OrderExecutor | None = None
        self._native_node: NativeNode | None = None
        self._staged_row_counts: StagedRowCounts | None = None
        self._participant: Participant | None = None
        self._rebalances: Rebalances | None = None
        self._partitions: Partitions | None = None
        self._quarantines: Quarantines | None = None
        self._inspections: Inspections | None = None
        self._audit: Audit | None = None

    def attach_data_plane(
        self, executor: OrderExecutor, native_node: NativeNode, staged_row_counts: StagedRowCounts
    ) -> None:
        """Serve requests about the data plane from now on."""
        self._executor, self._native_node, self._staged_row_counts = executor, native_node, staged_row_counts

    def attach_reassignment(
        self,
        participant: Participant,
        rebalances: Rebalances,
        partitions: Partitions,
        quarantines: Quarantines,
        inspections: Inspections,
        audit: Audit,
    ) -> None:
        """Serve reassignment orders and requests about partitions, rebalances and audits from now on."""
        self._inspections, self._audit, self._quarantines = inspections, audit, quarantines
        self._participant, self._rebalances, self._partitions = participant, rebalances, partitions

    async def execute(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        """Execute a reassignment order of the leader, which may be this node. RequestRefused."""
        return await _attached(self._participant, retry_after_ms=200).execute(term, order)

    async def execute_many(
        self, term: int, orders: tuple[ReassignmentOrder, ...]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        """Execute reassignment orders; None for an order that is refused or not finished. RequestRefused."""
        return await _attached(self._participant, retry_after_ms=200).execute_many(term, orders)

    def partition_counters(self) -> list[dict[str, Any]]:
        """Counters of this node's partitions; empty before the data plane serves."""
        return [] if self._native_node is None else self._native_node.node.partitions()

    async def answer(self, envelope: Envelope) -> bytes:
        """Answer one request; every fault of it becomes a refusal."""
        self._proposer.replica.pulse()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                reply = await self._reply(messages.decode_call(envelope.body))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            reply = messages.Refusal(
                code=Code.BAD_BODY, message=f"the request cannot be decoded: {error}"[:1_000]
            )
        except RequestRefused as refusal:
            reply = messages.Refusal(
                code=refusal.code, message=refusal.message[:4_000], retry_after_ms=refusal.retry_after_ms
            )
        except TimeoutError:
            message = f"not done within {ANSWER_TIMEOUT_S:g} s, and may still be running; ask again"
            reply = messages.Refusal(code=Code.UNKNOWN_OUTCOME, message=message, retry_after_ms=1_000)
        except Exception:  # noqa: BLE001 - a defect must fail one request, not the node
            _LOG.exception("request failed", sender=envelope.sender)
            reply = messages.Refusal(
                code=Code.INTERNAL, message="internal error; the node's log has the details"
            )
        body = messages.encode(reply)
        if len(body) > ANSWER_BYTES_MAX:
            message = f"the answer of {len(body)} bytes exceeds the limit of {ANSWER_BYTES_MAX}; ask for less"
            body = messages.encode(messages.Refusal(code=Code.TOO_LARGE, message=message))
        return body

    async def _reply(self, call: messages.Call) -> messages.Reply:
        match call:
            case messages.Join():
                return await self._join(call)
            case messages.ListNodes():
                return self._nodes()
            case messages.ChangeNode(node=node, change=change):
                return await self._change_node(NodeId(node), change)
            case messages.AwaitExecution() | messages.ShowExecutedIndex():
                return await self._wait_for_orders(call)
            case messages.ListHosted(topic=topic):
                return self._list_hosted(topic)
            case messages.SaveRecording():
                path = self._recordings.save(self._proposer.replica.recording("requested by an operator"))
                return messages.RecordingSaved(path=str(path))
            case messages.OpenProducer() | messages.CountStaged():
                return await self._as_owner(call)
            case messages.ExecuteOrder() | messages.ExecuteOrders():
                return await self._execute(call)
            case messages.ShowRebalance() | messages.ShowRunRates() | messages.SteerRebalance():
                return await self._rebalance(call)
            case messages.Inspect() | messages.InspectAll():
                return await self._inspect(call)
            case messages.ShowVersions() | messages.PromiseLevel():
                return await self._level(call)
            case _:
                return await self._partition(call)

    async def _execute(
        self, call: messages.ExecuteOrder | messages.ExecuteOrders
    ) -> messages.OrderAnswer | messages.OrderAnswers:
        if isinstance(call, messages.ExecuteOrder):
            return messages.OrderAnswer(answer=await self.execute(call.term, call.order))
        return messages.OrderAnswers(answers=await self.execute_many(call.term, call.orders))

    async def _join(self, call: messages.Join) -> messages.Joined:
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
        return messages.Joined(
            cluster=state.cluster,
            history=state.history,
            node=registered.node,
            peers={int(number): node.control for number, node in state.nodes.items() if node.control},
            level=state.level,
        )

    def _nodes(self) -> messages.Nodes:
        replica, state = self._proposer.replica, self._proposer.state
        infos = views.nodes(state, replica.leader, replica.configuration)
        index, digest = self._members.digest
        return messages.Nodes(
            cluster=state.cluster,
            node=replica.id,
            leader=replica.leader,
            term=replica.term,
            index=index,
            hash=digest.hex(),
            nodes=infos,
        )

    async def _change_node(self, node: NodeId, change: str) -> messages.Done:
        self._require_no_tokens("change nodes")

        async def work() -> tuple[messages.Done, int]:
            index = 0
            for command in await node_commands.commands(self._proposer, node, change):
                index = (await self._proposer.propose(command)).index
            return messages.Done(), index

        return await self._audited(f"node {change}", f"node/{node}", work())

    async def _wait_for_orders(
        self, call: messages.AwaitExecution | messages.ShowExecutedIndex
    ) -> messages.Done | messages.ExecutedIndex:
        if isinstance(call, messages.ShowExecutedIndex):
            return messages.ExecutedIndex(
                index=_attached(self._executor).executed_index(self._proposer.applied.index)
            )
        await self._proposer.until_applied(call.index)
        return messages.Done(faults=tuple(await _attached(self._executor).until_executed(call.index)))

    async def _level(
        self, call: messages.ShowVersions | messages.PromiseLevel
    ) -> messages.Document | messages.Done:
        if isinstance(call, messages.ShowVersions):
            return messages.Document(value=self.levels.here())
        await self.levels.promise(call.level)
        return messages.Done()

    def _list_hosted(self, topic: int) -> messages.Counters:
        values = []
        for counters in partition_stats.hosted(_attached(self._native_node).node, topic):
            why = counters.get("quarantined")
            shown = {
                key: counters.get(key, 0)
                for key in ("topic", "partition", "start_offset", "end_offset", "bytes", "lag_records")
            }
            values.append({**shown, "quarantined": None if why is None else str(why)[:160]})
        return messages.Counters(values=tuple(values))

    async def _as_owner(self, call: messages.OpenProducer | messages.CountStaged) -> messages.Reply:
        if isinstance(call, messages.OpenProducer):
            return messages.Counters(values=(await raise_epoch(_attached(self._native_node), call),))
        return await _attached(self._staged_row_counts).here(call)

    async def _rebalance(
        self, call: messages.ShowRebalance | messages.ShowRunRates | messages.SteerRebalance
    ) -> messages.Document:
        if isinstance(call, messages.ShowRebalance):
            return messages.Document(value=_attached(self._rebalances).here())
        if isinstance(call, messages.ShowRunRates):
            return messages.Document(value=_attached(self._rebalances).rates_here())
        if call.verb in {"show", "history", "preview"}:
            return messages.Document(value=await _attached(self._rebalances).steer(call))
        self._require_no_tokens("start and steer rebalances")

        async def work() -> tuple[messages.Document, int]:
            view = await _attached(self._rebalances).steer(call)
            return messages.Document(value=view), self._proposer.applied.index

        what = f"{call.verb} {call.action}" if call.verb == "start" else call.verb
        return await self._audited(f"rebalance {what}", "rebalance", work())

    async def _partition(
        self,
        call: messages.ShowPartition
        | messages.ForcePartition
        | messages.GiveUpPart
        | messages.ReleasePartition,
    ) -> messages.Document | messages.Done:
        if isinstance(call, messages.ReleasePartition):
            return await self._release_partition(call)
        partitions = _attached(self._partitions)
        number = PartitionId(call.partition)
        if isinstance(call, messages.ShowPartition):
            view = partitions.here(number) if call.here else await partitions.show(number)
            return messages.Document(value=view)
        if isinstance(call, messages.GiveUpPart):
            self._require_no_tokens("give up lost rows")
            what, work = (
                f"partition give-up {call.scope} {call.epoch}",
                self._give_up_part(partitions, call),
            )
        else:
            self._require_no_tokens("force owners")
            what = f"partition {number} force-owner {call.owner} change {call.change}: {call.accepts}"
            work = self._force_owner(partitions, call)
        return await self._audited(what, f"partition/{number}", work)

    async def _release_partition(self, call: messages.ReleasePartition) -> messages.Document | messages.Done:
        quarantines, number = _attached(self._quarantines), PartitionId(call.partition)
        if call.here:
            await quarantines.release_here(number)
            return messages.Done()
        self._require_no_tokens("release partitions")

        async def work() -> tuple[messages.Document, int]:
            view = await quarantines.release(number)
            return messages.Document(value=view), self._proposer.applied.index

        return await self._audited(f"partition {number} release", f"partition/{number}", work())

    async def _give_up_part(
        self, partitions: Partitions, call: messages.GiveUpPart
    ) -> tuple[messages.Document, int]:
        entry = await partitions.lost_partitions.give_up(PartitionId(call.partition), call.scope, call.epoch)
        applied = await self._proposer.propose(entry)
        _LOG.warning(
            "a lost part of a committed epoch was given up", command=repr(entry), index=applied.index
        )
        return messages.Document(value={"index": applied.index}), applied.index

    async def _force_owner(
        self, partitions: Partitions, call: messages.ForcePartition
    ) -> tuple[messages.Document, int]:
        # The command must name the open failover: an older state could name a finished one.
        await self._proposer.read_barrier()
        number = PartitionId(call.partition)
        command = partitions.force(number, call.change, call.owner, call.accepts, call.replicas)
        applied = await self._proposer.propose(command)
        _LOG.warning("an owner was forced", command=repr(command), index=applied.index)
        return messages.Document(value={"index": applied.index}), applied.index

    async def _audited(self, action: str, resource: str, work: Coroutine[Any, Any, tuple[T, int]]) -> T:
        if self._audit is None:
            work.close()
            raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=500)
        return await self._audit.run_audited(Line("", "", "", CONTROL, resource, action), work)

    async def _inspect(
        self, call: messages.Inspect | messages.InspectAll
    ) -> messages.Inspected | messages.Document:
        inspections = _attached(self._inspections)
        if isinstance(call, messages.Inspect):
            return await inspections.here(call.after)
        return messages.Document(value=await inspections.inspect())

    def _require_no_tokens(self, what: str) -> None:
        """Refuse changes once the cluster has tokens: requests at the control address carry none."""
        if self._proposer.state.tokens:
            message = f"the cluster has tokens: {what} through the admin API with a token (--http)"
            raise RequestRefused(Code.UNAUTHORIZED, message)


def _attached(part: T | None, *, retry_after_ms: int = 500) -> T:
    """A part that the start attaches after the control address answers; RequestRefused until then."""
    if part is None:
        raise RequestRefused(Code.STOPPING, "the node is starting", retry_after_ms=retry_after_ms)
    return part
