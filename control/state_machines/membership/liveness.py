"""Detect failed and recovered nodes: heartbeats in, decisions out. The leader decides, the log records it.

    begin(term, now)      this node leads from now on, without any observations
    beat(heartbeat, now)  a heartbeat arrived
    tick(state, now)      commands to propose now: FailNode, RecoverNode, and changes of the ring
    end()                 this node leads no more

Heartbeats are soft state: none enters the log (F35). Rules:

1. A LIVE node that was silent for `failure_ms` fails. The leader must have led for as long, without being
stopped itself: silence before that was its own. If ticks did not come, it was stopped, and waits again.
2. A FAILED node that sends heartbeats recovers once it has applied the entry that failed it.
3. Each decision names the `changed` of the node's life that it is about. The machine refuses a late one. So a
lost answer costs nothing: the leader decides again after a time-out.
4. A heartbeat from another store than the log names, or from an older start of a copied one, is a stranger's
under a member's id. It does not count, and the caller gets it.
5. The leader never fails itself: while it can commit, it lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.node_commands import FailNode, NodeCommand, RecoverNode, RingCommand
from ringfence.control.model.nodes import Life, NodeRecord
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.ring_decisions import ring_change

_NOT_STARTED: Final = Index(0)
# Commands of one tick: a burst of failures takes a few ticks and does not fill the log's window.
DECISIONS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A node's heartbeat.

    `index` is the last index that the node has applied. `started` is the index of the entry that started
    this process, 0 before that entry is applied.
    """

    node: NodeId
    store: bytes
    index: Index
    started: Index = _NOT_STARTED


class Stranger(NamedTuple):
    """A heartbeat from no member, from another store than the member's, or from an older start of it.

    Causes: two nodes with one identity, or a removed node that does not know of its removal.
    """

    node: NodeId
    store: bytes


@dataclass(frozen=True, slots=True)
class _LastBeat:
    """The last heartbeat of a node: time of arrival and applied index."""

    at_ms: int
    index: Index


class Liveness:
    """The leader's view of all nodes. Times are in ms of one monotonic clock; the class reads no clock."""

    def __init__(self, here: NodeId) -> None:
        self.here = here
        self.term = 0
        self._since_ms: int | None = None
        self._ticked_ms = 0
        self._last_beats: dict[NodeId, _LastBeat] = {}
        self._starts: dict[NodeId, tuple[Index, int]] = {}
        self._proposed: dict[NodeId, tuple[Index, int]] = {}
        self._ring_proposed: tuple[int, int] | None = None

    @property
    def leads(self) -> bool:
        return self._since_ms is not None

    def begin(self, term: int, now_ms: int) -> None:
        """Lead term `term`. Heartbeats of an earlier leadership are discarded: they are old."""
        assert term > self.term, f"term {term} began after term {self.term}"
        self.term = term
        self._since_ms = self._ticked_ms = now_ms
        self._last_beats.clear()
        self._starts.clear()
        self._proposed.clear()
        self._ring_proposed = None

    def end(self) -> None:
        """Stop leading."""
        self._since_ms = None
        self._last_beats.clear()
        self._starts.clear()
        self._proposed.clear()

    def beat(self, state: MetadataState, heartbeat: Heartbeat, now_ms: int) -> Stranger | None:
        """Note a heartbeat; return the stranger if it does not count."""
        member = state.nodes.get(heartbeat.node)
        if member is None or member.store != heartbeat.store or 0 < heartbeat.started < member.started:
            return Stranger(heartbeat.node, heartbeat.store)
        if self.leads:
            self._last_beats[heartbeat.node] = _LastBeat(now_ms, heartbeat.index)
        return None

    def silence_ms(self, node: NodeId, now_ms: int) -> int | None:
        """Time since this leader received a node's last heartbeat; None if this node does not lead."""
        if self._since_ms is None:
            return None
        beat = self._last_beats.get(node)
        return now_ms - (self._since_ms if beat is None else max(beat.at_ms, self._since_ms))

    def tick(self, state: MetadataState, now_ms: int) -> tuple[NodeCommand | RingCommand, ...]:
        """The commands to propose now. Call it about every `heartbeat_ms`.

        Raises:
            AssertionError: the clock went back.
        """
        if self._since_ms is None:
            return ()
        assert now_ms >= self._ticked_ms, f"the clock went back from {self._ticked_ms} to {now_ms}"
        failure_ms = limit(state, "failure_ms")
        if now_ms - self._ticked_ms > failure_ms // 2:
            # This process was stopped or starved, and heartbeats may be unread: give every node a full
            # interval.
            self._since_ms = now_ms
        self._ticked_ms = now_ms
        self._last_beats = {node: beat for node, beat in self._last_beats.items() if node in state.nodes}
        self._note_starts(state, now_ms)
        decisions: list[NodeCommand | RingCommand] = []
        for number in sorted(state.nodes):
            decision = self._decide(state.nodes[number], now_ms, failure_ms)
            if decision is not None and self._is_due(number, decision.changed, now_ms, failure_ms):
                decisions.append(decision)
            if len(decisions) == DECISIONS_MAX:
                return tuple(decisions)
        ring = ring_change(state, frozenset(self._responsive(now_ms, failure_ms)))
        if ring is not None and self._is_ring_due(state.ring.version, now_ms, failure_ms):
            decisions.append(ring)
        return tuple(decisions)

    def _decide(self, node: NodeRecord, now_ms: int, failure_ms: int) -> FailNode | RecoverNode | None:
        silence_ms = self.silence_ms(node.node, now_ms)
        assert silence_ms is not None, "only a leader judges"
        # A start proves life: the entry of a node that joins or returns comes before its first heartbeat.
        silence_ms = min(silence_ms, now_ms - self._starts[node.node][1])
        if node.life is Life.LIVE and node.node != self.here and silence_ms >= failure_ms:
            return FailNode(node=node.node, changed=node.changed)
        if node.life is Life.FAILED:
            beat = self._last_beats.get(node.node)
            is_beating = beat is not None and now_ms - beat.at_ms < failure_ms // 2
            has_applied = beat is not None and beat.index >= node.changed
            if node.node == self.here or (is_beating and has_applied):
                return RecoverNode(node=node.node, changed=node.changed)
        return None

    def _note_starts(self, state: MetadataState, now_ms: int) -> None:
        """Note the time at which this leader saw each member start last. Its first look finds old starts."""
        assert self._since_ms is not None, "only a leader judges"
        seen_ms = now_ms if self._starts else self._since_ms
        earlier = self._starts
        self._starts = {
            number: earlier[number]
            if number in earlier and earlier[number][0] == node.started
            else (node.started, seen_ms)
            for number, node in state.nodes.items()
        }

    def _is_due(self, node: NodeId, changed: Index, now_ms: int, failure_ms: int) -> bool:
        """Whether to propose a decision: not while the same one may be in the log's queue."""
        proposed = self._proposed.get(node)
        if proposed is not None and proposed[0] == changed and now_ms - proposed[1] < failure_ms:
            return False
        self._proposed[node] = (changed, now_ms)
        return True

    def _is_ring_due(self, version: int, now_ms: int, failure_ms: int) -> bool:
        proposed = self._ring_proposed
        if proposed is not None and proposed[0] == version and now_ms - proposed[1] < failure_ms:
            return False
        self._ring_proposed = (version, now_ms)
        return True

    def _responsive(self, now_ms: int, failure_ms: int) -> set[NodeId]:
        """Nodes whose heartbeats this leader has received recently."""
        beat = {node for node, beat in self._last_beats.items() if now_ms - beat.at_ms < failure_ms // 2}
        return beat | {self.here}
