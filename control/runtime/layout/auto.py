"""Run the policy of automatic splits and merges on the leader: loads from heartbeats, sketches from owners.

A look takes place every few seconds. Its actions are proposed like those of operators; one that the log
refuses is decided again after the topic's cool-down. What the leader last said about each topic is kept for
operators, and told as an event whenever it says something else.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, NamedTuple

import structlog
from msgspec.structs import replace

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL, TransitionKind
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc.layout_messages import SketchOf
from ringfence.control.state_machines.layout.hot_keys import Sketch
from ringfence.control.state_machines.layout.policy import (
    LayoutDecision,
    Observations,
    TopicDecision,
    Why,
    decide_layout,
)
from ringfence.control.state_machines.layout.policy_memory import LayoutMemory, Loads
from ringfence.control.state_machines.metadata.auto_layout import settings_by_topic
from ringfence.control.state_machines.rebalance.loads import LoadBoard, known_loads

_LOG = structlog.get_logger("ringfence.auto_layout")
# Interval of looks, in seconds: owners read their counters as often.
LOOK_S: Final = 2.0
# Answers with sketches count for so long: the policy uses one at its next look.
SKETCH_KEPT_MS: Final = 10_000
# Questions for sketches at a time: few partitions are hot, and each answer has 4 KiB.
ASKED_MAX: Final = 16

# Reasons that pass by themselves, and are neither counted nor told.
NO_NEWS: Final = frozenset({Why.WINDOW, Why.OTHER_ACTION, Why.SKETCH})

# Where the leader's loads come from: (state, now) -> loads of partitions. Replaceable.
LoadSource = Callable[[MetadataState, int], Loads]
# Asks the owner of a partition. RequestRefused.
AskSketch = Callable[[NodeId, SketchOf], Awaitable[Sketch]]
# (topic's name, what the policy says now).
OnDecision = Callable[[str, dict[str, Any]], None]


class Said(NamedTuple):
    """What the policy has last said about a topic. `at_ms`: Unix ms."""

    at_ms: int
    decision: TopicDecision


class AutoCounts:
    """Counts since the start of this node: actions by kind, reasons against one each time that they begin."""

    def __init__(self) -> None:
        self.actions: Counter[str] = Counter()
        self.suppressed: Counter[Why] = Counter()


def loads_of_board(board: LoadBoard) -> LoadSource:
    """The loads that heartbeats tell, of topics with automatic changes."""

    def loads(state: MetadataState, now_ms: int) -> Loads:
        reports, rows = board.by_node(now_ms), board.rows_by_node(now_ms)
        known: dict[PartitionId, Any] = {}
        for number in settings_by_topic(state):
            known |= known_loads(state.topics[number], reports, rows)
        return known

    return loads


class AutoLayouts:
    """Runs on every node; idle while the node does not lead."""

    def __init__(
        self,
        proposer: RaftProposer,
        loads: LoadSource,
        ask_sketch: AskSketch,
        *,
        lagging: Callable[[MetadataState], Collection[PartitionId]] = lambda _: (),
        on_decision: OnDecision = lambda *_: None,
    ) -> None:
        """`lagging`: partitions that registered readers have not read far enough to be merged."""
        self._proposer, self._loads, self._ask_sketch = proposer, loads, ask_sketch
        self._lagging, self._on_decision = lagging, on_decision
        self.counts = AutoCounts()
        self.said: dict[TopicId, Said] = {}
        self._memory: LayoutMemory | None = None
        self._term = 0
        self._sketches: dict[PartitionId, tuple[Sketch, int]] = {}
        self._asking: dict[PartitionId, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="auto layouts")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        tasks = {*self._asking.values(), *([self._task] if self._task else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)  # the replica reports a failure of a task

    @property
    def leads(self) -> bool:
        """Whether what this node says is of the present leadership."""
        return self._memory is not None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look(time.monotonic_ns() // 1_000_000)

    async def look(self, now_ms: int) -> LayoutDecision | None:
        """One look, on the leader."""
        replica, state = self._proposer.replica, self._proposer.state
        is_ready = replica.leads and replica.applied.term == replica.term
        if not is_ready or state.level < LAYOUT_LEVEL:
            self._memory = None
            self.said.clear()
            return None
        if self._memory is None or self._term != replica.term:
            self._memory, self._term = LayoutMemory(now_ms), replica.term
            self.said.clear()
        fresh = {part: entry for part, entry in self._sketches.items() if now_ms - entry[1] < SKETCH_KEPT_MS}
        self._sketches = fresh
        # The log's time stands still while nothing is proposed, and readers hold partitions for a time.
        timed = replace(state, time_ms=max(state.time_ms, self._proposer.now_ms()))
        observed = Observations(
            self._loads(state, now_ms),
            {part: sketch for part, (sketch, _) in fresh.items()},
            self._lagging(timed),
        )
        decision, self._memory = decide_layout(state, observed, now_ms, self._memory)
        self._note(state, decision)
        self._ask(state, decision.wants, now_ms)
        for command in decision.commands:
            await self._propose(command)
        return decision

    def _note(self, state: MetadataState, decision: LayoutDecision) -> None:
        """Keep the explanations; count and tell what is new in them."""
        for number in self.said.keys() - decision.watched:
            del self.said[number]
        for number, now in decision.topics.items():
            known = self.said.get(number)
            self.said[number] = Said(self._proposer.now_ms(), now)
            before = set() if known is None else _reasons(known.decision)
            begun = _reasons(now) - before
            for _, why in begun:
                self.counts.suppressed[why] += 1
            if begun or now.command is not None:
                self._on_decision(state.topics[number].name, event_values(now))

    def _ask(self, state: MetadataState, wants: Collection[PartitionId], now_ms: int) -> None:
        owners = {
            part: (number, topic.assignments[part].owner.node)
            for number, topic in state.topics.items()
            for part in wants
            if part in topic.assignments
        }
        for part, (topic, node) in sorted(owners.items()):
            if part not in self._asking and len(self._asking) < ASKED_MAX:
                question = self._ask_owner(node, SketchOf(topic=topic, partition=part), now_ms)
                self._asking[part] = asyncio.get_running_loop().create_task(question, name="sketch")

    async def _ask_owner(self, node: NodeId, call: SketchOf, now_ms: int) -> None:
        part = PartitionId(call.partition)
        try:
            self._sketches[part] = await self._ask_sketch(node, call), now_ms
        except RequestRefused as refusal:
            _LOG.debug("no sketch", node=node, partition=part, why=refusal.message)
        finally:
            self._asking.pop(part, None)

    async def _propose(self, command: PrepareLayout) -> None:
        kind = "split" if command.kind is TransitionKind.SPLIT else "merge"
        try:
            await self._proposer.propose(command)
        except RequestRefused as refusal:
            self.counts.suppressed[Why.REFUSED] += 1
            _LOG.info("automatic layout change refused", kind=kind, why=refusal.message)
            return
        self.counts.actions[kind] += 1
        _LOG.info("automatic layout change", kind=kind, topic=command.topic, why=command.why)


def _reasons(decision: TopicDecision) -> set[tuple[tuple[PartitionId, ...], Why]]:
    """What is suppressed, and why."""
    return {
        (one.sources, one.suppressed)
        for one in decision.candidates
        if one.suppressed is not None and one.suppressed not in NO_NEWS
    }


def event_values(decision: TopicDecision) -> dict[str, Any]:
    """The event `layout policy`: an action, or what suppresses one."""
    first = next((one for one in decision.candidates if one.suppressed is None), None)
    shown = first or (decision.candidates[0] if decision.candidates else None)
    return {
        "topic": decision.topic,
        "action": None if decision.command is None or first is None else first.kind,
        "partitions": [] if shown is None else list(shown.sources),
        "suppressed": None if shown is None or shown.suppressed is None else str(shown.suppressed),
        "why": decision.why,
        "hot_keys": [str(found) for found in decision.hot_keys],
    }
