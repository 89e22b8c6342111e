"""All orders in which layout changes of one topic can be asked for at once, over the product's log.

Each asker looks at the layout, and proposes later what it decided on; a split or a merge that is told STALE
looks again, at most three times. Between two entries any other may come, aborts and starts of a node too.
States that differ by the numbers of their entries alone are one: partitions are named after the ask that made
them, and of a look only what a later comparison can see is kept.

- I1, I2 and all other invariants hold after each entry.
- P6: a split or merge that shares no partition with another ask is never refused.
- F9: a repartition to n makes n partitions, and what was prepared after it comes on top.
- Each state has a next step until every ask has an outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL, TransitionKind
from ringfence.control.model.layout_commands import (
    AbortLayout,
    CommitLayout,
    ConfirmLayout,
    HoldLayout,
    PlannedChild,
    PrepareLayout,
)
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import cluster, create, entry, restart

SPLIT, MERGE, REPARTITION = TransitionKind.SPLIT, TransitionKind.MERGE, TransitionKind.REPARTITION
TRIES: Final = 3
END: Final = LogEnd(Epoch(1), 7, 70, 99)
STATES_MAX: Final = 60_000


class Wanted(NamedTuple):
    """A split of first partition `places[0]`, a merge of two, or a repartition to `wanted`."""

    kind: TransitionKind
    places: tuple[int, ...] = ()
    wanted: int = 0


class Ask(NamedTuple):
    """`look` is what was decided and not yet proposed, `number` the transition that was prepared."""

    look: PrepareLayout | None = None
    tries: int = 0
    outcome: str = ""
    number: int = 0
    more: int = 0


class State(NamedTuple):
    log: MetadataState
    at: int
    asks: tuple[Ask, ...]
    commits: int = 0
    aborts: int = 0
    starts: int = 0


class Found(NamedTuple):
    states: int
    ends: int
    wrong: str = ""
    way: tuple[str, ...] = ()


class LayoutSearch:
    """A topic of some partitions on two nodes, and what is asked for at once."""

    def __init__(
        self,
        ranges: tuple[SlotRange, ...],
        *wanted: Wanted,
        aborts: int = 0,
        starts: int = 0,
        tries: int = TRIES,
    ) -> None:
        """`ranges` are those of the first partitions."""
        self.wanted, self.aborts, self.starts, self.tries = wanted, aborts, starts, tries
        partitions = len(ranges)
        log = replace(cluster(2), level=LAYOUT_LEVEL)
        self.nodes = sorted(log.nodes)
        placed = tuple((int(self.nodes[place % 2]),) for place in range(partitions))
        made = replace(create(partitions=partitions, nodes=placed), ranges=ranges)
        log, _ = apply(log, entry(10, made))
        self.topic, self.first = TopicId(10), [PartitionId(10 << 16 | place) for place in range(partitions)]
        self.begin = State(log, 10, tuple(Ask() for _ in wanted))

    def explore(self) -> Found:
        """Breadth first, or the shortest way to what is wrong."""
        parents: dict[object, tuple[object, str]] = {self.key(self.begin): (None, "")}
        queue, ends = deque([self.begin]), 0

        def way(key: object) -> tuple[str, ...]:
            labels: list[str] = []
            while parents[key][0] is not None:
                labels.append(parents[key][1])
                key = parents[key][0]
            return tuple(labels[::-1])

        while queue:
            state = queue.popleft()
            key, has_step = self.key(state), False
            try:
                for label, after in self.steps(state):
                    has_step = True
                    reached = self.key(after)
                    if reached not in parents:
                        parents[reached] = (key, label)
                        self.check(after)
                        queue.append(after)
            except AssertionError as error:
                return Found(len(parents), ends, str(error), way(key))
            if not has_step:
                ends += 1
                if any(ask.outcome in {"", "open"} for ask in state.asks):
                    return Found(len(parents), ends, "nothing can happen any more", way(key))
            assert len(parents) < STATES_MAX, "more states than expected"
        return Found(len(parents), ends)

    # ---- names ----------------------------------------------------------------------------------------

    def names(self, state: State) -> dict[PartitionId, tuple[int, int]]:
        """Partitions of the layout, by the ask that made them (-1: the first ones) and their place."""
        by_number = {ask.number: place for place, ask in enumerate(state.asks) if ask.number}
        return {
            part.partition: (by_number.get(int(part.partition) >> 16, -1), int(part.partition) & 0xFFFF)
            for part in state.log.topics[self.topic].layout.partitions
        }

    def key(self, state: State) -> object:
        topic, names = state.log.topics[self.topic], self.names(state)
        parts = tuple(
            sorted(
                (names[part.partition], part.is_active, part.sealed_version)
                for part in topic.layout.partitions
            )
        )
        open_ones = tuple(
            sorted(
                (place, str(state.log.transitions[ChangeId(ask.number)].phase))
                for place, ask in enumerate(state.asks)
                if ask.number in state.log.transitions
            )
        )
        looks = tuple(
            (ask.outcome, ask.tries, ask.more, None if ask.look is None else self.look_key(state, ask.look))
            for ask in state.asks
        )
        # Which ask was prepared first decides what comes on top of a repartition.
        order = tuple(sorted(range(len(state.asks)), key=lambda place: state.asks[place].number))
        return parts, open_ones, looks, order, state.aborts, state.starts

    def look_key(self, state: State, look: PrepareLayout) -> object:
        """Epochs and versions only rise: one that is not the present one never will be again."""
        topic, names = state.log.topics[self.topic], self.names(state)
        sources = tuple(
            (names[number], topic.assignments[number].epoch == epoch) for number, epoch in look.sources
        )
        children = tuple((child.lo, child.hi) for child in look.children)
        return sources, children, look.version == topic.layout.version

    # ---- steps ----------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        for place, ask in enumerate(state.asks):
            if not ask.outcome:
                yield self.look(state, place) if ask.look is None else self.prepare(state, place)
        for place, ask in enumerate(state.asks):
            transition = state.log.transitions.get(ChangeId(ask.number))
            if transition is None:
                continue
            kind = self.wanted[place].kind
            if transition.may_abort:
                yield f"COMMIT {kind} {place}", self.commit(state, place)
                if state.aborts < self.aborts:
                    after = self.applied(state, AbortLayout(change=transition.change, why="test"))
                    after = self.with_ask(after, place, Ask(outcome="aborted"))
                    yield f"ABORT {kind} {place}", after._replace(aborts=state.aborts + 1)
            elif transition.phase is ChangePhase.COMMITTED:
                yield f"OPENED {kind} {place}", self.applied(state, ConfirmLayout(change=transition.change))
        if state.starts < self.starts:
            for node in self.nodes:
                yield f"node {node} starts", self.started(state, node)

    def look(self, state: State, place: int) -> tuple[str, State]:
        wanted, topic = self.wanted[place], state.log.topics[self.topic]
        label = f"{wanted.kind} {place} looks"
        if wanted.kind is REPARTITION:
            ranges = tile(wanted.wanted)
            present = {part.slots for part in topic.layout.active()}
            sources = [part for part in topic.layout.active() if part.slots not in ranges]
            made = [slots for slots in ranges if slots not in present]
            if not sources:
                return label, self.with_ask(state, place, Ask(outcome="nothing to do"))
        else:
            parts = topic.layout.by_id()
            sources = sorted((parts[self.first[one]] for one in wanted.places), key=lambda part: part.slots)
            lo, hi = sources[0].slots.lo, sources[-1].slots.hi
            made = [SlotRange(lo, hi)] if wanted.kind is MERGE else [SlotRange(lo, lo), SlotRange(lo + 1, hi)]
        look = PrepareLayout(
            topic=self.topic,
            kind=wanted.kind,
            version=topic.layout.version,
            sources=tuple((part.partition, topic.assignments[part.partition].epoch) for part in sources),
            children=tuple(
                PlannedChild(slots.lo, slots.hi, (NodeId(self.nodes[ordinal % 2]),))
                for ordinal, slots in enumerate(made)
            ),
        )
        return label, self.with_ask(state, place, state.asks[place]._replace(look=look))

    def prepare(self, state: State, place: int) -> tuple[str, State]:
        ask, wanted = state.asks[place], self.wanted[place]
        assert ask.look is not None
        after, refusal = self.proposed(state, ask.look)
        if refusal is None:
            taken = Ask(outcome="open", number=after.at)
            return f"PREPARE {wanted.kind} {place}", self.with_ask(after, place, taken)
        is_stale = refusal.code == Code.TOO_OLD
        if is_stale and wanted.kind is not REPARTITION and ask.tries + 1 < self.tries:
            return f"{wanted.kind} {place} is stale", self.with_ask(state, place, Ask(tries=ask.tries + 1))
        outcome = Ask(outcome=f"refused: {refusal.message}")
        return f"{wanted.kind} {place} is refused", self.with_ask(state, place, outcome)

    def commit(self, state: State, place: int) -> State:
        number = ChangeId(state.asks[place].number)
        transition = state.log.transitions[number]
        held = self.applied(state, HoldLayout(change=number))
        after = self.applied(
            held,
            CommitLayout(
                change=number,
                ends=tuple((source, END) for source in transition.sources),
                created=tuple(
                    (child.partition, LogEnd(Epoch(number), 2, 0, 5)) for child in transition.children
                ),
            ),
        )
        more = len(transition.children) - len(transition.sources)
        asks = tuple(
            ask._replace(more=ask.more + more) if 0 < ask.number < number and ask.outcome == "open" else ask
            for ask in after.asks
        )
        wanted, mine = self.wanted[place], asks[place]
        if wanted.kind is REPARTITION:
            count = len(after.log.topics[self.topic].layout.active())
            assert count == wanted.wanted + mine.more, (
                f"F9: {count} partitions, {wanted.wanted} were asked for"
            )
        asks = (*asks[:place], mine._replace(outcome="done", more=0), *asks[place + 1 :])
        return after._replace(asks=asks, commits=state.commits + 1)

    def started(self, state: State, node: int) -> State:
        """A node starts: its partitions have another epoch, and its layout changes end."""
        begin = replace(restart(state.log, node), level=LAYOUT_LEVEL)
        after = self.applied(state, begin)
        for place, ask in enumerate(after.asks):
            if ask.outcome == "open" and ask.number not in after.log.transitions:
                after = self.with_ask(after, place, Ask(outcome="aborted"))
        return after._replace(starts=state.starts + 1)

    def proposed(self, state: State, command: Command) -> tuple[State, Refused | None]:
        after, result = apply(state.log, entry(state.at + 1, command))
        if isinstance(result, Refused):
            assert after is state.log, "I15"
            return state, result
        invariants.check_step(state.log, after, state.at + 1)
        return state._replace(log=after, at=state.at + 1), None

    def applied(self, state: State, command: Command) -> State:
        after, refusal = self.proposed(state, command)
        assert refusal is None, f"refused: {refusal}"
        return after

    def with_ask(self, state: State, place: int, ask: Ask) -> State:
        return state._replace(asks=(*state.asks[:place], ask, *state.asks[place + 1 :]))

    def check(self, state: State) -> None:
        version = state.log.topics[self.topic].layout.version
        assert version == 1 + state.commits, f"I2: version {version} after {state.commits} changes"
        for place, ask in enumerate(state.asks):
            wanted = self.wanted[place]
            others = [other for number, other in enumerate(self.wanted) if number != place]
            is_apart = wanted.kind is not REPARTITION and not any(
                other.kind is REPARTITION or {*other.places} & {*wanted.places} for other in others
            )
            assert not is_apart or state.starts or not ask.outcome.startswith("refused"), (
                f"P6: {wanted} shares no partition with another ask and is {ask.outcome}"
            )
