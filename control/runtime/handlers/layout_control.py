"""Serve changes and reads of layouts at the control address, for a cluster without admin API and tokens."""

from __future__ import annotations

from typing import Any, Final

from ringfence.control.model.reassignments import ChangeId
from ringfence.control.runtime.handlers.commands import Commands, at_control_address
from ringfence.control.runtime.handlers.layout_auto import LayoutAuto
from ringfence.control.runtime.handlers.layout_changes import (
    LayoutChanges,
    LayoutRequest,
    Merge,
    Progress,
    Repartition,
    Split,
    partition_named,
    progress_of,
)
from ringfence.control.runtime.handlers.layout_views import (
    LayoutViews,
    change_shown,
    layout_shown,
    lineage_of,
    partition_shown,
    preview_shown,
)
from ringfence.control.runtime.handlers.topic_plans import topic_named
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.layout_messages import ChangeLayout
from ringfence.native.wire import Code

PURPOSE: Final = "change layouts"
# Share of the time for one question that a change may wait: the rest is for the answer.
WAIT_S_MAX: Final = 8.0


class LayoutControl:
    """The handlers of one node; they raise RequestRefused."""

    def __init__(
        self,
        proposer: RaftProposer,
        commands: Commands,
        changes: LayoutChanges,
        views: LayoutViews,
        auto: LayoutAuto,
    ) -> None:
        self._proposer, self._commands = proposer, commands
        self._changes, self._views, self._auto = changes, views, auto

    async def serve(self, call: ChangeLayout) -> messages.Document:
        """Do or show what the question names."""
        match call.verb:
            case "layout":
                topic = await topic_named(self._proposer, call.topic)
                view = layout_shown(self._proposer.state, topic)
            case "partition":
                view = await self._partition(call)
            case "abort":
                view = await self._abort(call)
            case "auto":
                view = await self._set_auto(call)
            case _:
                view = await self._change(call, wanted_of(call))
        return messages.Document(value=view)

    async def _partition(self, call: ChangeLayout) -> dict[str, Any]:
        topic = await topic_named(self._proposer, call.topic)
        if len(call.partitions) != 1:
            raise RequestRefused(Code.INVALID_ARGUMENT, f"{len(call.partitions)} partitions: name one")
        part = partition_named(topic, call.partitions[0])
        return partition_shown(self._proposer.state, topic, part) | lineage_of(topic, part.partition)

    async def _change(self, call: ChangeLayout, wanted: LayoutRequest) -> dict[str, Any]:
        if call.preview:
            command = await self._changes.preview(call.topic, wanted)
            return preview_shown(await topic_named(self._proposer, call.topic), command)
        wait = self._changes.until_decided(min(call.wait_ms / 1_000, WAIT_S_MAX))
        context = at_control_address(f"topic {call.verb}"[:500], f"topic/{call.topic}"[:500], PURPOSE)
        outcome = await self._commands.submit(self._changes.planned(call.topic, wanted), context, wait)
        change = ChangeId(outcome.index)
        topic = await topic_named(self._proposer, call.topic)
        progress = progress_of(self._proposer.state, topic.topic, change)
        if change and progress is Progress.ABORTED:
            why = await self._views.abort_reason(change)
            why = why or "a node concerned restarted or failed, or an operator ended it"
            message = f"layout change {change} was aborted, nothing has changed: {why}. Ask again"
            raise RequestRefused(Code.ALREADY_EXISTS, message)
        shown = change_shown(self._proposer.state, topic, change)
        is_timed = change and progress is Progress.COMMITTED
        return shown | (await self._views.times_of(change) if is_timed else {})

    async def _abort(self, call: ChangeLayout) -> dict[str, Any]:
        context = at_control_address(
            f"layout change {call.change} abort: {call.why}"[:500], f"change/{call.change}", PURPOSE
        )
        outcome = await self._commands.submit(self._changes.planned_abort(call.change, call.why), context)
        return {"index": outcome.index}

    async def _set_auto(self, call: ChangeLayout) -> dict[str, Any]:
        context = at_control_address("topic auto", f"topic/{call.topic}"[:500], PURPOSE)
        outcome = await self._commands.submit(self._auto.planned(call.topic, call.auto), context)
        return {"index": outcome.index}


def wanted_of(call: ChangeLayout) -> LayoutRequest:
    """The change of a question. RequestRefused if its fields do not fit its verb."""
    match call.verb, call.partitions:
        case "split", (partition,):
            if call.at and call.into:
                message = "`at` and `into` exclude each other: `at` has the slots of all parts"
                raise RequestRefused(Code.INVALID_ARGUMENT, message)
            return Split(partition, call.at, call.into or 2)
        case "merge", (one, other):
            return Merge(one, other)
        case "repartition", ():
            return Repartition(call.into, call.even)
        case _:
            message = (
                f"verb={call.verb[:40]!r} with {len(call.partitions)} partitions: split names one, merge "
                "two, repartition none; others are abort, auto, layout and partition"
            )
            raise RequestRefused(Code.INVALID_ARGUMENT, message)
