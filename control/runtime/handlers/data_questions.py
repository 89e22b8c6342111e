"""Answer questions of other nodes to this node's data plane: orders, counters, producers, staged rows."""

from __future__ import annotations

from ringfence.control.runtime.data_plane import replica_lag
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.data_plane.producer_epochs import raise_epoch
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.reassignment.participant import Participant
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts

LISTED = ("topic", "partition", "start_offset", "end_offset", "bytes", "lag_records")


class DataQuestions:
    """The handlers of one node; they raise RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        executor: OrderExecutor,
        native_node: NativeNode,
        staged_row_counts: StagedRowCounts,
        participant: Participant,
        gate: StartGate,
    ) -> None:
        self._proposer, self._executor, self._native_node = proposer, executor, native_node
        self._staged_row_counts, self._participant, self._gate = staged_row_counts, participant, gate

    async def await_execution(self, call: messages.AwaitExecution) -> messages.Done:
        await self._proposer.until_applied(call.index)
        self._gate.check()
        return messages.Done(faults=tuple(await self._executor.until_executed(call.index)))

    async def show_executed_index(self, _: messages.ShowExecutedIndex) -> messages.ExecutedIndex:
        return messages.ExecutedIndex(index=self._executor.executed_index(self._proposer.applied.index))

    async def list_hosted(self, call: messages.ListHosted) -> messages.Counters:
        values = []
        for counters in replica_lag.hosted(self._native_node.node, call.topic):
            why = counters.get("quarantined")
            shown = {key: counters.get(key, 0) for key in LISTED}
            values.append({**shown, "quarantined": None if why is None else str(why)[:160]})
        return messages.Counters(values=tuple(values))

    async def open_producer(self, call: messages.OpenProducer) -> messages.Counters:
        return messages.Counters(values=(await raise_epoch(self._native_node, call),))

    async def count_staged(self, call: messages.CountStaged) -> messages.StagedCounts:
        return await self._staged_row_counts.here(call)

    async def execute_order(self, call: messages.ExecuteOrder) -> messages.OrderAnswer:
        return messages.OrderAnswer(answer=await self._participant.execute(call.term, call.order))

    async def execute_orders(self, call: messages.ExecuteOrders) -> messages.OrderAnswers:
        return messages.OrderAnswers(answers=await self._participant.execute_many(call.term, call.orders))
