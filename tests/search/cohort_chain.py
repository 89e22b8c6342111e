"""The metadata log of a searched world of cohorts: a chain of partitions over the product's machine.

Prefixes of the log are numbers, and equal questions to the product's pure functions are asked once.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from ringfence.control.invariants import cohorts as invariants
from ringfence.control.model.cohort_commands import Begun, CreateCohort, Drained, MarkBegun
from ringfence.control.model.cohorts import (
    COHORT_LEVEL,
    Cohort,
    CohortId,
    CohortMode,
    MemberSession,
    StartKind,
)
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.layout_commands import (
    CommitLayout,
    ConfirmLayout,
    HoldLayout,
    PlannedChild,
    PrepareLayout,
)
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.cohorts import gates
from ringfence.control.state_machines.cohorts.gates import DrainedWord, DrainedWords, GateRule
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.metadata_commands import cluster, create, entry

EARLIEST, LATEST = StartKind.EARLIEST, StartKind.LATEST
NODE = NodeId(1)


class Prefix(NamedTuple):
    """One prefix of the log: its state, its index and the chain's partitions that were made so far.

    `restart` is the number of the prefix at which owners were replaced last.
    """

    state: MetadataState
    at: int
    chain: tuple[PartitionId, ...]
    restart: int


class CohortChain:
    """A topic of one partition at first, and one cohort. `lengths`: rows of each partition of the chain."""

    topic: TopicId
    cohort: CohortId

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths, self.all = lengths, range(len(lengths))
        self.log: list[Prefix] = []
        self._after: dict[tuple[int, Command, int], int] = {}
        self._rules: dict[tuple[int, int, int], GateRule] = {}

    def begin(self, start: StartKind, active: int, wrote: tuple[int, ...]) -> int:
        """The log up to the entry that makes the cohort; `active` partitions are sealed before."""
        state = replace(cluster(1), level=COHORT_LEVEL, time_ms=1_000)
        state, _ = apply(state, entry(10, create(partitions=1)))
        self.topic, first = TopicId(10), PartitionId(10 << 16)
        self.log, at = [Prefix(state, 10, (first,), 0)], 0
        for place in range(active):
            at = self.split(at, wrote[place])
        at = self.take(at, CreateCohort(topic=self.topic, name="c", mode=CohortMode.STREAM, start=start))
        self.cohort = next(iter(self.log[at].state.cohorts))
        return self.siblings_begin(at)

    def cohort_of(self, at: int) -> Cohort:
        return self.log[at].state.cohorts[self.cohort]

    def take(self, at: int, command: Command, later_ms: int = 0) -> int:
        """The prefix with one entry more; the same one if the entry changes nothing."""
        known = self._after.get((at, command, later_ms))
        if known is not None:
            return known
        before = self.log[at]
        made = entry(before.at + 1, command, time_ms=before.state.time_ms + later_ms)
        after, result = apply(before.state, made)
        assert not isinstance(result, Refused), result
        found = at
        if after != before.state:
            invariants.check_step(before.state, after, before.at + 1)
            found = len(self.log)
            self.log.append(before._replace(state=after, at=before.at + 1))
        self._after[at, command, later_ms] = found
        return found

    def split(self, at: int, end: int) -> int:
        """The last partition of the chain is sealed at `end`; the next one has its lowest slots."""
        prefix = self.log[at]
        source = prefix.chain[-1]
        topic = prefix.state.topics[self.topic]
        part = topic.layout.by_id()[source]
        lo, hi = part.slots
        epoch = topic.assignments[source].epoch
        at = self.take(
            at,
            PrepareLayout(
                topic=self.topic,
                kind=TransitionKind.SPLIT,
                sources=((source, epoch),),
                children=(PlannedChild(lo, hi - 1, (NODE,)), PlannedChild(hi, hi, (NODE,))),
            ),
        )
        change = max(self.log[at].state.transitions)
        children = self.log[at].state.transitions[change].children
        for command in (
            HoldLayout(change=change),
            CommitLayout(
                change=change,
                ends=((source, LogEnd(epoch, end + 1, end, 7)),),
                created=tuple((child.partition, LogEnd(Epoch(change), 2, 0, 5)) for child in children),
            ),
            ConfirmLayout(change=change),
        ):
            at = self.take(at, command)
        self.log[at] = self.log[at]._replace(chain=(*prefix.chain, children[0].partition))
        return at

    def siblings_begin(self, at: int) -> int:
        """Siblings have no rows: their owners tell immediately that they have begun."""
        prefix = self.log[at]
        cohort, topic = self.cohort_of(at), prefix.state.topics[self.topic]
        waiting = [part for part in cohort.resetting if part not in prefix.chain]
        if not waiting:
            return at
        marks = tuple(
            Begun(cohort.cohort, cohort.incarnation, part, topic.assignments[part].epoch) for part in waiting
        )
        return self.take(at, MarkBegun(marks=marks))

    def expected(
        self, at: int, wrote: tuple[int, ...], to: StartKind, named: dict[int, int]
    ) -> tuple[int | None, ...]:
        """The first row that must be given of each partition; None: where RESET said."""
        chain = self.log[at].chain
        active, layout = len(chain) - 1, self.log[at].state.topics[self.topic].layout.by_id()
        found: list[int | None] = []
        for place in self.all:
            if place <= active and chain[place] not in layout:
                found.append(wrote[place])  # pruned before: nothing of it is missing
            elif place > active or to is EARLIEST:
                found.append(0)
            elif to is LATEST:
                found.append(wrote[place] if place < active else None)
            else:
                (part, offset) = next(iter(named.items()))
                found.append(wrote[place] if place < part else offset if place == part else 0)
        return tuple(found)

    def rule(self, at: int, place: int, word: int) -> GateRule:
        known = self._rules.get((at, place, word))
        if known is None:
            prefix = self.log[at]
            cohort = self.cohort_of(at)
            parts = prefix.state.topics[self.topic].layout.by_id()
            words = DrainedWords()
            if word:
                parent = prefix.chain[place - 1]
                words.tell([DrainedWord(Drained(self.cohort, word, parent, True), parent, Epoch(0))])  # type: ignore[arg-type]
            number = prefix.chain[place]
            is_sought = number in gates.barrier_of(cohort, parts)
            known = gates.rule_of(
                prefix.state, cohort, parts, number, words, MemberSession(0), is_sought=is_sought
            )
            self._rules[at, place, word] = known
        return known
