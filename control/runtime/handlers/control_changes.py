"""Serve changes of operators at the control address: nodes, rebalances, forced owners, lost rows.

The answer follows once the entry is applied here; it does not wait until the change is carried out. The
address asks for no token, so it serves changes only while the cluster has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.rebalances import Action
from ringfence.control.model.results import RebalanceStarted
from ringfence.control.runtime.handlers import node_plans
from ringfence.control.runtime.handlers.commands import (
    Build,
    Commands,
    Outcome,
    Plan,
    RequestContext,
    at_control_address,
)
from ringfence.control.runtime.handlers.partitions import Partitions
from ringfence.control.runtime.handlers.quarantines import Quarantines
from ringfence.control.runtime.handlers.rebalances import Rebalances, action_of, shown_plan
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.state_machines.rebalance.plans import ChosenMove

_LOG = structlog.get_logger("ringfence.control")


class ControlChanges:
    """The handlers of one node; they raise RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        commands: Commands,
        rebalances: Rebalances,
        partitions: Partitions,
        quarantines: Quarantines,
    ) -> None:
        self._proposer, self._commands = proposer, commands
        self._rebalances, self._partitions, self._quarantines = rebalances, partitions, quarantines

    async def change_node(self, call: messages.ChangeNode) -> messages.Done:
        node = NodeId(call.node)

        async def build() -> Plan:
            return await node_plans.plan(self._proposer, node, call.change, joins=False)

        context = at_control_address(f"node {call.change}", f"node/{node}", "change nodes")
        await self._commands.submit(build, context)
        return messages.Done()

    async def steer_rebalance(self, call: messages.SteerRebalance) -> messages.Document:
        if call.verb == "show":
            view = await self._rebalances.show()
        elif call.verb == "history":
            view = await self._rebalances.history()
        elif call.verb == "preview":
            action, node, chosen = _start_of(call)
            view = shown_plan(await self._rebalances.preview(action, node, chosen))
        elif call.verb == "start":
            view = await self._start_rebalance(call)
        else:
            await self._submit_rebalance(lambda: self._rebalances.plan_steer(call.verb), call.verb)
            view = await self._rebalances.show()
        return messages.Document(value=view)

    async def _start_rebalance(self, call: messages.SteerRebalance) -> dict[str, Any]:
        view: dict[str, Any] = {}

        async def build() -> Plan:
            action, node, chosen = _start_of(call)
            return await self._rebalances.plan_start(
                action, node, chosen, lambda preview: view.update(shown_plan(preview))
            )

        started = (await self._submit_rebalance(build, f"start {call.action}")).result
        assert isinstance(started, RebalanceStarted), started
        return {"run": started.run, **view}

    async def _submit_rebalance(self, build: Build, action: str) -> Outcome:
        purpose = "start and steer rebalances"
        context = at_control_address(f"rebalance {action}", "rebalance", purpose)
        return await self._commands.submit(build, context)

    async def force_owner(self, call: messages.ForcePartition) -> messages.Document:
        number = PartitionId(call.partition)
        action = f"partition {number} force-owner {call.owner} change {call.change}: {call.accepts}"
        context = at_control_address(action, f"partition/{number}", "force owners")

        async def build() -> Plan:
            return await self._partitions.plan_owner(
                number, call.change, call.owner, call.accepts, call.replicas
            )

        return await self._submit_loss(build, context, "an owner was forced")

    async def give_up_part(self, call: messages.GiveUpPart) -> messages.Document:
        number = PartitionId(call.partition)
        action = f"partition give-up {call.scope} {call.epoch}"
        context = at_control_address(action, f"partition/{number}", "give up lost rows")

        async def build() -> Plan:
            return await self._partitions.plan_give_up(number, call.scope, call.epoch)

        return await self._submit_loss(build, context, "a lost part of a committed epoch was given up")

    async def release_partition(self, call: messages.ReleasePartition) -> messages.Document | messages.Done:
        """End quarantines of a partition; with `here` only this node's, for the node that asks."""
        number = PartitionId(call.partition)
        if call.here:
            await self._quarantines.release_here(number)
            return messages.Done()
        context = at_control_address(
            f"partition {number} release", f"partition/{number}", "release partitions"
        )
        view: dict[str, Any] = {}

        await self._commands.submit(lambda: self._quarantines.plan_release(number, view.update), context)
        return messages.Document(value=view)

    async def _submit_loss(self, build: Build, context: RequestContext, event: str) -> messages.Document:
        """Submit a change that accepts a loss of rows, and log it as `event`."""

        async def log(index: int, plan: Plan) -> Sequence[str]:
            _LOG.warning(event, command=repr(plan.commands[-1]), index=index)
            return ()

        outcome = await self._commands.submit(build, context, log)
        return messages.Document(value={"index": outcome.index})


def _start_of(call: messages.SteerRebalance) -> tuple[Action, NodeId, list[ChosenMove]]:
    """Action, node and chosen moves of a start or its preview. RequestRefused if the action is unknown."""
    chosen = [
        ChosenMove(PartitionId(partition), tuple(NodeId(node) for node in nodes))
        for partition, nodes in call.moves
    ] or [ChosenMove(PartitionId(partition), ()) for partition in call.partitions]
    return action_of(call.action), NodeId(call.node), chosen
