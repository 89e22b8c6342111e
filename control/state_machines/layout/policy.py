"""Decide whether the leader splits or merges partitions without an operator, and which ones. Off by default.

    decide_layout(state, observed, now_ms, memory) -> (LayoutDecision, memory)

A partition is split in two where its owner's sketch has half of the load, or in the middle of its slots. Two
adjacent partitions are merged. Each topic gets one action at most, and each look explains itself: loads,
thresholds, and what suppresses an action. The same trace of loads and times gives the same actions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ringfence.control.model.ids import NodeId, PartitionId, TopicId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.layout_commands import PrepareLayout
from ringfence.control.model.nodes import Life
from ringfence.control.model.reassignments import ChangePhase
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.layout import plan
from ringfence.control.state_machines.layout.hot_keys import HotKey, Sketch, hot_key
from ringfence.control.state_machines.layout.policy_memory import (
    LayoutMemory,
    Loads,
    Pair,
    TopicMemory,
    changing_topics,
    heat,
    observe,
    with_loads,
)
from ringfence.control.state_machines.metadata.auto_layout import AutoSettings, settings_by_topic
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.layout_checks import closed_fault
from ringfence.control.state_machines.metadata.layout_rules import planned_children
from ringfence.control.state_machines.metadata.state_machine import validate

# A reason in the log that begins so is of this policy; operators' layout changes have none.
REASON: Final = "policy: "
# After this time without an answer of the owner a partition is split in the middle of its slots.
SKETCH_WAIT_MS: Final = 10_000
# A hot key is looked for again after this time: the sketch halves its weights every minute.
HOT_KEY_MS: Final = 60_000
# The policy leaves a quarter of a topic's lineage to operators: SEALED partitions go only with retention.
LINEAGE_PERCENT: Final = 75
# Partitions of one look, which holds up the loop for 20 ms with so many: more are looked at in turn.
LOOK_PARTITIONS_MAX: Final = 2_000
# Candidates of each kind that the explanation of a topic shows.
SHOWN_MAX: Final = 16


class Why(StrEnum):
    """What suppresses an action; the label of a metric."""

    WINDOW = "window"
    UNCLASSIFIED = "unclassified"
    COOLDOWN = "cooldown"
    GRACE = "grace"
    IN_CHANGE = "in_change"
    NODE_FAILED = "node_failed"
    PARTITIONS_MAX = "partitions_max"
    PARTITIONS_MIN = "partitions_min"
    LINEAGE = "lineage"
    OPEN_MAX = "open_max"
    HOT_KEY = "hot_key"
    SKETCH = "sketch"
    LAG = "lag"
    DISABLED = "disabled"
    REFUSED = "refused"
    OTHER_ACTION = "other_action"


class Observations(NamedTuple):
    """What the leader sees besides the metadata.

    `sketches`: answers of owners that were asked. `lagging`: partitions that registered readers have not read
    far enough to be merged.
    """

    loads: Loads
    sketches: Mapping[PartitionId, Sketch] = MappingProxyType({})
    lagging: Collection[PartitionId] = ()


class Candidate(NamedTuple):
    """A partition that is hot, or a pair that is cold, and what suppresses its action; None: nothing does."""

    kind: str
    sources: tuple[PartitionId, ...]
    bytes_s: float
    rows_s: float
    for_ms: int
    suppressed: Why | None
    text: str


class TopicDecision(NamedTuple):
    """The explanation of one look at a topic. `why` is its one line, `command` the action or None."""

    topic: TopicId
    name: str
    settings: AutoSettings
    why: str
    candidates: tuple[Candidate, ...] = ()
    hot_keys: tuple[HotKey, ...] = ()
    command: PrepareLayout | None = None


class LayoutDecision(NamedTuple):
    """`commands` are to be proposed; owners of partitions in `wants` are to be asked for their sketches.

    `topics` are those of this look, `watched` all with automatic changes.
    """

    topics: dict[TopicId, TopicDecision]
    commands: tuple[PrepareLayout, ...] = ()
    wants: frozenset[PartitionId] = frozenset()
    watched: frozenset[TopicId] = frozenset()


def decide_layout(
    state: MetadataState, observed: Observations, now_ms: int, memory: LayoutMemory
) -> tuple[LayoutDecision, LayoutMemory]:
    """One look at topics with automatic splits or merges: at all of them, or at some in turn if they have
    very many partitions. Nothing is decided in the grace period.
    """
    if state.level < LAYOUT_LEVEL:
        return LayoutDecision({}), LayoutMemory(memory.began_ms)
    watched = settings_by_topic(state)
    numbers, turn = _in_turn(state, list(watched), memory.turn)
    looks: list[_Look] = []
    changing = changing_topics(state)
    for number in numbers:
        topic, settings = state.topics[number], watched[number]
        known = observe(topic, memory.topics.get(number), now_ms, is_changing=number in changing)
        known = with_loads(topic, settings, known, observed.loads, now_ms)
        looks.append(_Look(state, topic, settings, known, observed, now_ms, memory.began_ms))
    room = limit(state, "auto_open_max") - open_actions(state)
    commands: list[PrepareLayout] = []
    # The hottest partitions of all topics first, then the coldest pairs.
    for look in sorted((look for look in looks if look.chosen is not None), key=lambda look: look.rank):
        if len(commands) < room:
            commands.append(look.take())
        else:
            look.suppress_chosen(Why.OPEN_MAX, f"auto_open_max {limit(state, 'auto_open_max')} are open")
    wants = frozenset(part for look in looks for part in look.wants)
    kept = {number: known for number, known in memory.topics.items() if number in watched}
    after = LayoutMemory(
        memory.began_ms, kept | {look.topic.topic: look.remembered() for look in looks}, turn
    )
    decisions = {look.topic.topic: look.decision() for look in looks}
    return LayoutDecision(decisions, tuple(commands), wants, frozenset(watched)), after


def _in_turn(state: MetadataState, watched: list[TopicId], turn: TopicId) -> tuple[list[TopicId], TopicId]:
    """The topics of one look, and the one that the next look begins with."""
    first = next((place for place, number in enumerate(watched) if number >= turn), 0)
    order, count = [*watched[first:], *watched[:first]], 0
    for place, number in enumerate(order):
        count += len(state.topics[number].layout.partitions)
        if place and count > LOOK_PARTITIONS_MAX:
            return order[:place], number
    return order, TopicId(0)


def open_actions(state: MetadataState) -> int:
    """Layout changes of this policy that have not taken effect everywhere."""
    return sum(
        transition.why.startswith(REASON) and transition.phase is not ChangePhase.OPENED
        for transition in state.transitions.values()
    )


class _Look:
    """One look at one topic: candidates, the action that nothing suppresses, and the memory after it."""

    def __init__(
        self,
        state: MetadataState,
        topic: Topic,
        settings: AutoSettings,
        memory: TopicMemory,
        observed: Observations,
        now_ms: int,
        began_ms: int,
    ) -> None:
        self.topic, self._state, self._settings, self._memory = topic, state, settings, memory
        self._observed, self._now_ms, self._began_ms = observed, now_ms, began_ms
        self._parts = topic.layout.by_id()
        planned = sum(1 for _ in planned_children(state, topic.topic))
        sealing = sum(
            len(one.sources)
            for one in state.transitions.values()
            if one.topic == topic.topic and one.may_abort
        )
        self._active = len(topic.layout.active()) + planned - sealing
        self._lineage = len(topic.layout.partitions) + planned
        self.wants: set[PartitionId] = set()
        self._asked_ms: dict[PartitionId, int] = {}
        self._hot_keys = dict(memory.hot_keys)
        self.candidates: list[Candidate] = []
        self.chosen: tuple[int, PrepareLayout] | None = None
        self._taken = False
        for candidate in (*self._splits(), *self._merges()):
            self._consider(candidate)

    # ---- candidates ---------------------------------------------------------------------------------

    def _splits(self) -> Iterator[Candidate]:
        tracks = self._memory.tracks
        hot = [(part, track) for part, track in tracks.items() if track.hot_since_ms is not None]
        for number, track in sorted(hot, key=lambda entry: (-heat(entry[1], self._settings), entry[0])):
            assert track.hot_since_ms is not None, number
            for_ms = self._now_ms - track.hot_since_ms
            yield Candidate("split", (number,), track.bytes_s, track.rows_s, for_ms, None, "")

    def _merges(self) -> Iterator[Candidate]:
        loads = self._observed.loads

        def of(pair: Pair) -> tuple[float, float]:
            one, other = loads[pair[0]], loads[pair[1]]
            return one.bytes_s + other.bytes_s, one.rows_s + other.rows_s

        cold = sorted(self._memory.cold_since_ms.items(), key=lambda entry: (of(entry[0]), entry[0]))
        for pair, since_ms in cold:
            yield Candidate("merge", pair, *of(pair), self._now_ms - since_ms, None, "")

    def _consider(self, candidate: Candidate) -> None:
        reason = self._suppressed(candidate)
        if reason is None and self.chosen is not None:
            reason = Why.OTHER_ACTION, "another action of the topic comes first"
        if reason is None:
            planned = self._planned(candidate)
            if isinstance(planned, PrepareLayout):
                self.chosen = len(self.candidates), planned
            else:
                reason = planned
        if reason is not None:
            candidate = candidate._replace(suppressed=reason[0], text=reason[1])
        self.candidates.append(candidate)

    # ---- what suppresses an action --------------------------------------------------------------------

    def _suppressed(self, candidate: Candidate) -> tuple[Why, str] | None:
        """The first reason against it, the cheapest ones first."""
        return (
            self._too_early(candidate) or self._hindered(candidate) or self._capped(candidate, self._settings)
        )

    def _too_early(self, candidate: Candidate) -> tuple[Why, str] | None:
        splits, settings = candidate.kind == "split", self._settings
        window_ms = settings.window_ms if splits else settings.merge_window_ms
        cooldown_ms = settings.cooldown_ms if splits else settings.merge_cooldown_ms
        now_ms, memory = self._now_ms, self._memory
        age_ms = min(now_ms - memory.active_since_ms(self._parts[part]) for part in candidate.sources)
        if age_ms < window_ms:
            return Why.UNCLASSIFIED, f"ACTIVE for {_s(age_ms)} of {_s(window_ms)}"
        if candidate.for_ms < window_ms:
            return Why.WINDOW, f"for {_s(candidate.for_ms)} of {_s(window_ms)}"
        left_ms = cooldown_ms - (now_ms - memory.changed_ms)
        if left_ms > 0:
            return Why.COOLDOWN, f"the topic's layout has changed: {_s(left_ms)} more"
        left_ms = limit(self._state, "policy_grace_s") * 1_000 - (now_ms - self._began_ms)
        if left_ms > 0:
            return Why.GRACE, f"the leader is new: {_s(left_ms)} more"
        return None

    def _hindered(self, candidate: Candidate) -> tuple[Why, str] | None:
        closed = closed_fault(self._state)
        if closed is not None:
            return Why.DISABLED, closed.message
        for part in candidate.sources:
            change = self._state.changes.get(part)
            if change is not None:
                return Why.IN_CHANGE, f"partition {part} is in change {change.change} ({change.kind})"
            failed = self._failed_node(part)
            if failed is not None:
                return Why.NODE_FAILED, f"node {failed} of partition {part} is FAILED"
            if candidate.kind == "merge" and part in self._observed.lagging:
                return Why.LAG, f"registered readers of partition {part} lag"
        return None

    def _failed_node(self, part: PartitionId) -> NodeId | None:
        nodes = self._state.nodes
        replicas = self.topic.assignments[part].replicas
        lost = (
            place.node
            for place in replicas
            if place.node not in nodes or nodes[place.node].life is Life.FAILED
        )
        return next(lost, None)

    def _capped(self, candidate: Candidate, settings: AutoSettings) -> tuple[Why, str] | None:
        if candidate.kind == "split" and self._active >= settings.partitions_max:
            return (
                Why.PARTITIONS_MAX,
                f"{self._active} partitions of auto_partitions_max {settings.partitions_max}",
            )
        if candidate.kind == "merge" and self._active <= settings.partitions_min:
            return (
                Why.PARTITIONS_MIN,
                f"{self._active} partitions of auto_partitions_min {settings.partitions_min}",
            )
        made = 2 if candidate.kind == "split" else 1
        most = limit(self._state, "topic_partitions_max") * LINEAGE_PERCENT // 100
        if self._lineage + made > most:
            return (
                Why.LINEAGE,
                f"{self._lineage} partitions, SEALED ones too; an operator may go above {most}",
            )
        return None

    # ---- the action -----------------------------------------------------------------------------------

    def _planned(self, candidate: Candidate) -> PrepareLayout | tuple[Why, str]:
        if candidate.kind == "split":
            part = self._parts[candidate.sources[0]]
            weights, reason = self._weights(part)
            if reason is not None:
                return reason
            planned = plan.split(
                self._state, self.topic, part.partition, weights=weights, why=self._reason(candidate, weights)
            )
        else:
            one, other = candidate.sources
            loads = {number: self._observed.loads[number].bytes_s for number in candidate.sources}
            planned = plan.merge(
                self._state, self.topic, one, other, loads=loads, why=self._reason(candidate, ())
            )
        refusal = planned if isinstance(planned, Refused) else validate(self._state, planned)
        if refusal is not None:
            return Why.REFUSED, refusal.message
        assert isinstance(planned, PrepareLayout)
        return planned

    def _weights(self, part: Partition) -> tuple[plan.Weights, tuple[Why, str] | None]:
        """Where to split: the sketch, or nothing for the middle; and the reason not to split, if any."""
        number, now_ms = part.partition, self._now_ms
        known = self._hot_keys.get(number)
        if known is not None and now_ms - known[1] < HOT_KEY_MS:
            return (), (Why.HOT_KEY, str(known[0]))
        sketch = self._observed.sketches.get(number)
        if sketch is None and part.slots.lo < part.slots.hi:
            asked_ms = self._asked_ms[number] = self._memory.asked_ms.get(number, now_ms)
            if now_ms - asked_ms < SKETCH_WAIT_MS:
                self.wants.add(number)
                return (), (Why.SKETCH, "the owner is asked where half of the load is")
        weights = () if sketch is None else sketch.weights
        found = hot_key(number, part.slots, weights)
        if found is not None:
            self._hot_keys[number] = (found, now_ms)
            return (), (Why.HOT_KEY, str(found))
        self._hot_keys.pop(number, None)
        return weights, None

    def _reason(self, candidate: Candidate, weights: plan.Weights) -> str:
        named = " and ".join(str(part) for part in candidate.sources)
        text = f"{REASON}{named} with {candidate.bytes_s:,.0f} B/s and {candidate.rows_s:,.0f} rows/s"
        if candidate.kind == "merge":
            return f"{text}, low for {_s(candidate.for_ms)}"
        where = "where half of the load is" if any(weights) else "in the middle, without a sketch of the load"
        return f"{text}, high for {_s(candidate.for_ms)}, split {where}"

    # ---- results --------------------------------------------------------------------------------------

    @property
    def rank(self) -> tuple[int, float, TopicId]:
        assert self.chosen is not None
        candidate = self.candidates[self.chosen[0]]
        if candidate.kind == "split":
            return 0, -heat(self._memory.tracks[candidate.sources[0]], self._settings), self.topic.topic
        return 1, candidate.bytes_s, self.topic.topic

    def take(self) -> PrepareLayout:
        """The action is proposed."""
        assert self.chosen is not None
        self._taken = True
        return self.chosen[1]

    def suppress_chosen(self, why: Why, text: str) -> None:
        assert self.chosen is not None
        place = self.chosen[0]
        self.candidates[place] = self.candidates[place]._replace(suppressed=why, text=text)
        self.chosen = None

    def remembered(self) -> TopicMemory:
        changed_ms = self._now_ms if self._taken else self._memory.changed_ms
        return msgspec.structs.replace(
            self._memory, changed_ms=changed_ms, asked_ms=self._asked_ms, hot_keys=self._hot_keys
        )

    def decision(self) -> TopicDecision:
        splits = [one for one in self.candidates if one.kind == "split"][:SHOWN_MAX]
        merges = [one for one in self.candidates if one.kind == "merge"][:SHOWN_MAX]
        hot = tuple(found for _, (found, _) in sorted(self._hot_keys.items()))[:SHOWN_MAX]
        command = self.chosen[1] if self._taken and self.chosen is not None else None
        return TopicDecision(
            self.topic.topic, self.topic.name, self._settings, self._why(), (*splits, *merges), hot, command
        )

    def _why(self) -> str:
        if self._taken and self.chosen is not None:
            return self.chosen[1].why
        if self.candidates:
            first = self.candidates[0]
            named = " and ".join(str(part) for part in first.sources)
            return f"no {first.kind} of {named}: {first.text}"
        asked = "hot" if not self._settings.merge else "cold" if not self._settings.split else "hot or cold"
        reported = sum(part.partition in self._observed.loads for part in self.topic.layout.active())
        return f"none of {self._active} partitions is {asked}; loads of {reported} are known"


def _s(ms: int) -> str:
    return f"{ms // 1_000} s"
