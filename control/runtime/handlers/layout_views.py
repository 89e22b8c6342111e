"""Show layouts, sealed partitions and open layout changes as values, for HTTP and the command line alike."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from ringfence.control.model.ids import Index, NodeId, PartitionId, drawn_at
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import listed
from ringfence.control.model.topics import Topic
from ringfence.control.runtime.handlers.layout_changes import Progress, progress_of
from ringfence.control.runtime.layout.leader import LayoutLeader
from ringfence.control.runtime.layout.times import LayoutTimes
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.layout_messages import ShowTransitions
from ringfence.control.state_machines.metadata import drained
from ringfence.control.state_machines.metadata.layout_checks import waiting_scope

# Timeout for the leader's answer; after it the caller gets this node's view.
SHOW_S: Final = 1.0
# Open layout changes in one answer, because control answers are limited.
TRANSITIONS_SHOWN: Final = 256
# Ended layout changes in one answer.
ENDED_SHOWN: Final = 16
# Wait for the gap of a change that is committed, between looks at the leader; rows before that are recent.
GAP_WAIT_S: Final = 0.5
GAP_LOOK_S: Final = 0.05
RECENT_MS: Final = 2_000
# Nodes or readers that one reason names.
NAMED: Final = 8


class LayoutViews:
    """Reads of one node."""

    def __init__(
        self, proposer: RaftProposer, peer_client: PeerClient, leader: LayoutLeader, times: LayoutTimes
    ) -> None:
        self._proposer, self._peer_client, self._leader = proposer, peer_client, leader
        self._times = times

    async def transitions(self) -> dict[str, Any]:
        """The leader's view, which has the nodes' answers; this node's view if the leader is silent."""
        leader = self._proposer.replica.leader
        if leader and leader != self._peer_client.here:
            try:
                reply = await self._peer_client.ask(NodeId(leader), ShowTransitions(here=True), SHOW_S)
            except RequestRefused:
                return self.transitions_here()
            if isinstance(reply, messages.Document):
                return reply.value
        return self.transitions_here()

    async def times_of(self, change: ChangeId) -> dict[str, Any]:
        """Phases and gap of a change that is committed; the gap once the leader has measured it.

        Rows that wait for their children arrive within some ms. The gap stays None if none arrives.
        """
        transition = self._proposer.state.transitions.get(change)
        stopped_us = 0 if transition is None else transition.stopped_us
        # Without rows shortly before the change none is waiting.
        waits_s = GAP_WAIT_S if self._proposer.now_ms() - stopped_us // 1_000 < RECENT_MS else 0.0
        end_s = time.monotonic() + waits_s
        while True:
            shown = await self.transitions()
            known = shown.get("times", {}).get(str(change), {})
            if known.get("gap_us") is not None or time.monotonic() >= end_s:
                own = self._times.of(change)
                phases = {} if own is None else own.phases_ms
                return {"gap_us": known.get("gap_us"), "phases_ms": known.get("phases_ms") or phases}
            await asyncio.sleep(GAP_LOOK_S)

    async def abort_reason(self, change: ChangeId) -> str:
        """The reason of an ABORT; empty if neither this node nor the leader has seen it."""
        known = self._times.of(change)
        if known is not None and known.aborted_why:
            return known.aborted_why
        return str((await self.transitions()).get("aborted", {}).get(str(change), ""))

    def transitions_here(self) -> dict[str, Any]:
        """Open layout changes as this node knows them, and those that it has seen end."""
        state = self._proposer.state
        shown = [self._transition(state, one) for _, one in sorted(state.transitions.items())]
        ended = self._times.ended
        known = (*(self._times.of(number) for number in state.transitions), *ended)
        return {
            "transitions": shown[:TRANSITIONS_SHOWN],
            "count": len(shown),
            "ended": [one.shown() for one in ended[:ENDED_SHOWN]],
            "times": {
                str(one.change): {"gap_us": one.gap_us, "phases_ms": one.phases_ms}
                for one in known[:TRANSITIONS_SHOWN]
                if one is not None
            },
            "aborted": {str(one.change): one.aborted_why for one in ended if one.aborted_why},
        }

    def _transition(self, state: MetadataState, transition: Transition) -> dict[str, Any]:
        observed = self._leader.coordinator.progress(transition.change) if self._leader.leads() else None
        now_ms = time.monotonic_ns() // 1_000_000
        times = self._times.of(transition.change)
        return {
            **transition_shown(state, transition),
            "phases_ms": {} if times is None else times.phases_ms,
            "gap_us": None if times is None else times.gap_us,
            "phase_ms": None if observed is None else now_ms - observed.since_ms,
            "overdue": overdue(state, transition),
            "waits": self._waits(state, transition),
        }

    def _waits(self, state: MetadataState, transition: Transition) -> list[str]:
        """What the change waits for now, as the leader knows it."""
        waits = []
        if transition.phase is ChangePhase.HELD:
            scope = waiting_scope(state, {*transition.sources})
            if scope is not None:
                waits.append(f"rows that scope {scope!r} has committed wait for their publish")
        nodes = sorted({order.to.node for order in self._leader.orders if order.change == transition.change})
        if nodes:
            waits.append(f"an answer of nodes {listed(nodes, NAMED)}")
        if transition.phase is ChangePhase.OPENED:
            waits += _readers_waited_for(state, transition)
            if self._leader.leads():
                behind = self._leader.coordinator.adoption.waits(state, transition)
                if behind:
                    waits.append(f"clients of nodes {listed(behind, NAMED)} that hold an older table")
                elif not waits:
                    waits.append(
                        "a first client with the new table, or the end of repartition_adoption_timeout_ms"
                    )
        return waits


def transition_shown(state: MetadataState, transition: Transition) -> dict[str, Any]:
    """An open layout change as the metadata has it."""
    return {
        "change": transition.change,
        "topic": transition.topic,
        "name": state.topics[transition.topic].name,
        "kind": str(transition.kind),
        "phase": str(transition.phase),
        "sources": list(transition.sources),
        "children": [
            {
                "partition": child.partition,
                "lo": child.slots.lo,
                "hi": child.slots.hi,
                "nodes": [place.node for place in child.replicas],
            }
            for child in transition.children
        ],
        "version": transition.version,
        "from": transition.before,
        "to": transition.after,
        "adoption_generation": transition.adoption_generation,
        "why": transition.why,
    }


def overdue(state: MetadataState, transition: Transition) -> list[str]:
    """Registered readers that hold a source no longer, because they have not read it in time."""
    if transition.may_abort:
        return []
    return _holders(state, transition, is_overdue=True)


def _readers_waited_for(state: MetadataState, transition: Transition) -> list[str]:
    names = _holders(state, transition, is_overdue=False)
    return [f"registered readers {listed(names, NAMED)}"] if names else []


def _holders(state: MetadataState, transition: Transition, *, is_overdue: bool) -> list[str]:
    """Registered readers that are not through sources that are overdue, or not yet."""
    topic, born_by = transition.topic, transition.adoption_generation
    readers = drained.registered_readers(state, topic)
    names = {
        name
        for source in transition.sources
        if drained.is_overdue(state, topic, source) == is_overdue
        for name in drained.holders(state, topic, source, born_by, readers)
    }
    return sorted(names)


def partition_shown(state: MetadataState, topic: Topic, part: Partition) -> dict[str, Any]:
    """A partition with its lineage. `end_offset` and `sealed_ms` are null of an ACTIVE one."""
    number, seal = part.partition, topic.seal(part.partition)
    assignment = topic.assignments[number]
    change = state.changes.get(number)
    return {
        "partition": number,
        "name": part.name,
        "lo": part.slots.lo,
        "hi": part.slots.hi,
        "state": "ACTIVE" if part.is_active else "SEALED",
        "parents": list(part.parents),
        "children": list(part.children),
        "created_version": part.created_version,
        "sealed_version": part.sealed_version,
        "owner": assignment.owner.node,
        "epoch": assignment.epoch,
        "replicas": [replica.node for replica in assignment.replicas],
        "end_offset": None if seal is None else seal.end.offset,
        "sealed_ms": None if seal is None else seal.sealed_ms,
        "lowered": seal is not None and seal.lowered > 0,
        "gone": [[parent.partition, parent.offset] for parent in topic.pruned_parents(number)],
        "change": None if change is None else change.change,
    }


def layout_shown(state: MetadataState, topic: Topic) -> dict[str, Any]:
    """The partitions of a topic, SEALED ones included, and its open layout changes."""
    return {
        "topic": topic.topic,
        "name": topic.name,
        "version": topic.layout.version,
        "partitions": [partition_shown(state, topic, part) for part in topic.layout.partitions],
        "transitions": [
            transition_shown(state, one)
            for _, one in sorted(state.transitions.items())
            if one.topic == topic.topic
        ],
    }


def lineage_of(topic: Topic, partition: PartitionId) -> dict[str, list[int]]:
    """Ancestors and descendants of a partition, each in the order of their ids."""
    parts = topic.layout.by_id()

    def reached(of: str) -> list[int]:
        found: set[PartitionId] = set()
        frontier = [partition]
        while frontier:
            part = parts.get(frontier.pop())
            for number in () if part is None else getattr(part, of):
                if number not in found:
                    found.add(number)
                    frontier.append(number)
        return sorted(found)

    return {"ancestors": reached("parents"), "descendants": reached("children")}


def preview_shown(topic: Topic, command: PrepareLayout | None) -> dict[str, Any]:
    """What a layout change would prepare: ranges of the children, and their nodes, the owner first."""
    if command is None:
        return {"change": None, "kind": None, "version": topic.layout.version, "sources": [], "would": []}
    return {
        "change": None,
        "kind": str(command.kind),
        "version": topic.layout.version,
        "sources": [number for number, _ in command.sources],
        "would": [[child.lo, child.hi, list(child.nodes)] for child in command.children],
    }


def change_shown(state: MetadataState, topic: Topic, change: ChangeId) -> dict[str, Any]:
    """A layout change that was prepared: its phase, and its children once it is committed.

    `change` 0: nothing was to be done.
    """
    if not change:
        return {"change": None, "kind": None, "phase": None, "version": topic.layout.version}
    transition = state.transitions.get(change)
    progress = progress_of(state, topic.topic, change)
    phase = str(progress) if transition is None else str(transition.phase)
    shown: dict[str, Any] = {
        "change": change,
        "kind": None if transition is None else str(transition.kind),
        "phase": phase,
    }
    if progress is not Progress.COMMITTED:
        return shown
    children = [part for part in topic.layout.partitions if drawn_at(part.partition) == Index(change)]
    return {
        **shown,
        "version": children[0].created_version if children else topic.layout.version,
        "partitions": [partition_shown(state, topic, part) for part in children],
    }
