"""Derive the rules of gates from the metadata of the node that owns them.

A gate is (partition, cohort). Its owner is the owner of the partition, of a SEALED one that of its heir: the
ACTIVE partition that has its lowest slot, whose log goes on with the gate. A node derives the rules from its
own applied log, so an order of a leader that is old or deposed does nothing (2.1 of the design): an applied
entry cannot be either.

    gates_of(topic, here)                   the partitions whose gates a store owns
    rule_of(state, cohort, part, words)     the rule of one gate
    cohorts_to_derive(before, after)        cohorts whose rules an entry may have changed
    DrainedWords                            what the owners of parents' gates told directly (CD5)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from ringfence.control.model.cohort_commands import Begun, Drained
from ringfence.control.model.cohorts import Cohort, CohortId, Incarnation, MemberSession, PrunedNotes
from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.state_machines.metadata.cohort_checks import holders_of
from ringfence.control.state_machines.metadata.cohort_lineage import (
    Beginning,
    BeginningKind,
    beginning,
    has_partition,
    heir,
    is_through,
    members_of,
    relatives,
    waits_for,
    was_read,
)

# Words that a node keeps; the mark in the metadata replaces each within seconds.
WORDS_MAX: Final = 65_536
NO_SESSION: Final = MemberSession(0)
Key = TypeVar("Key")


class GateRule(NamedTuple):
    """What the metadata says of a gate.

    `assignee` is the session that the plan names, 0: none. `waits_for` are parents that are not drained,
    as far as the metadata and words tell; `is_sought`: a relative has not begun the incarnation. Of ordered
    cohorts either keeps the gate closed. `is_begun` is False while the leader waits for this gate's word that
    it began. `end` is the offset at which a SEALED partition ended. `read` are parents whose rows members
    settled, for CHECKPOINT; `notes` what was pruned in front of the partition.
    """

    cohort: CohortId
    partition: PartitionId
    incarnation: Incarnation
    generation: int
    assignee: MemberSession
    beginning: Beginning
    is_through: bool
    is_begun: bool
    waits_for: tuple[PartitionId, ...]
    is_sought: bool
    end: int | None
    read: tuple[PartitionId, ...]
    notes: PrunedNotes | None

    @property
    def is_blocked(self) -> bool:
        return bool(self.waits_for) or self.is_sought


class DrainedWord(NamedTuple):
    """The word of a gate owner: a partition is drained. `log` is the partition whose log has the gate,
    `epoch` the owner epoch under which its owner told it.
    """

    mark: Drained
    log: PartitionId
    epoch: Epoch


class DrainedWords:
    """Words about parents, as good as marks: within an incarnation a settled position never goes back.

    The exception is a loss that an operator accepted: the log of the gate may have lost the position. Words
    of owners before that choice do not count, whenever they arrive; the mark does. A restart forgets all.
    """

    def __init__(self) -> None:
        self._words: dict[tuple[CohortId, PartitionId], DrainedWord] = {}

    def tell(self, words: Iterable[DrainedWord]) -> None:
        """An owner tells. Of two words about a partition that of the newer incarnation counts, then of the
        newer owner.
        """
        for word in words:
            key = (word.mark.cohort, word.mark.partition)
            known = self._words.get(key)
            if known is None and len(self._words) >= WORDS_MAX:
                continue  # it is told again
            if known is None or (known.mark.incarnation, known.epoch) <= (word.mark.incarnation, word.epoch):
                self._words[key] = word

    def is_drained(self, topic: Topic, cohort: Cohort, partition: PartitionId) -> bool:
        """Whether a word that counts says that the cohort is through the partition in this incarnation."""
        word = self._words.get((cohort.cohort, partition))
        return (
            word is not None
            and word.mark.incarnation == cohort.incarnation
            and word.epoch >= topic.forced_epoch(word.log)
        )

    def was_read(self, topic: Topic, cohort: Cohort, partition: PartitionId) -> bool:
        return self.is_drained(topic, cohort, partition) and self._words[cohort.cohort, partition].mark.read

    def forget(self, state: MetadataState) -> None:
        """Drop words that the metadata has, or that no present incarnation is about."""
        self._words = {
            key: word
            for key, word in self._words.items()
            if key[0] in state.cohorts
            and word.mark.incarnation >= state.cohorts[key[0]].incarnation
            and not _has_word(state, state.cohorts[key[0]], key[1])
        }


def _has_word(state: MetadataState, cohort: Cohort, partition: PartitionId) -> bool:
    part = state.topics[cohort.topic].layout.find(partition)
    return part is not None and is_through(state, cohort, part)


# ---- rules ------------------------------------------------------------------------------------------


def gates_of(topic: Topic, here: Replica) -> tuple[PartitionId, ...]:
    """Partitions of a topic whose gates this store owns, ascending."""
    parts = topic.layout.by_id()
    return tuple(number for number in sorted(parts) if topic.assignments[heir(parts, number)].owner == here)


def barrier_of(cohort: Cohort, parts: Mapping[PartitionId, Partition]) -> frozenset[PartitionId]:
    """Partitions that stay closed until those in `resetting` have begun: these and their relatives (CD6).

    A QUEUE has no order: each of its partitions waits for itself only.
    """
    if not cohort.mode.is_ordered:
        return frozenset(cohort.resetting)
    return relatives(parts, cohort.resetting)


def rules_of(
    state: MetadataState, cohort: Cohort, here: Replica, words: DrainedWords
) -> tuple[GateRule, ...]:
    """The rules of a cohort's gates that this store owns, by partition."""
    topic = state.topics[cohort.topic]
    parts = topic.layout.by_id()
    barrier, members = barrier_of(cohort, parts), members_of(state, cohort.cohort)
    holders = holders_of(members)
    found = []
    for number in gates_of(topic, here):
        name = holders.get(number)
        assignee = NO_SESSION if name is None else members[name].session
        found.append(rule_of(state, cohort, parts, number, words, assignee, is_sought=number in barrier))
    return tuple(found)


def rule_of(
    state: MetadataState,
    cohort: Cohort,
    parts: Mapping[PartitionId, Partition],
    number: PartitionId,
    words: DrainedWords,
    assignee: MemberSession = NO_SESSION,
    *,
    is_sought: bool = False,
) -> GateRule:
    """The rule of one gate."""
    part, topic = parts[number], state.topics[cohort.topic]
    seal = topic.seal(number)
    waits = tuple(
        parent
        for parent in waits_for(state, cohort, parts, part)
        if cohort.mode.is_ordered and not words.is_drained(topic, cohort, parent)
    )
    read = tuple(
        parent
        for parent in part.parents
        if was_read(state, cohort.cohort, parent) or words.was_read(topic, cohort, parent)
    )
    return GateRule(
        cohort=cohort.cohort,
        partition=number,
        incarnation=cohort.incarnation,
        generation=cohort.generation,
        assignee=assignee,
        beginning=beginning(cohort, part),
        is_through=is_through(state, cohort, part),
        is_begun=not has_partition(cohort.resetting, number),
        waits_for=waits,
        is_sought=is_sought,
        end=None if seal is None else seal.end.offset,
        read=read,
        notes=state.pruned_notes.get(cohort.cohort, {}).get(number),
    )


def cohorts_to_derive(before: MetadataState, after: MetadataState) -> tuple[CohortId, ...]:
    """Cohorts whose rules may differ after the entries between two states, ascending; some may be gone.

    A layout that changed concerns all cohorts of its topic, also those whose record is the same: blocked
    gates, heirs and beginnings follow from it. So does an owner that changed, or a loss that was accepted.
    """
    found = (
        _changed(before.cohorts, after.cohorts)
        | _changed(before.cohort_members, after.cohort_members)
        | _changed(before.drained_marks, after.drained_marks)
        | _changed(before.pruned_notes, after.pruned_notes)
    )
    topics = _changed(before.topics, after.topics)
    found |= {number for number, cohort in after.cohorts.items() if cohort.topic in topics}
    return tuple(sorted(found))


def _changed(before: Mapping[Key, object], after: Mapping[Key, object]) -> set[Key]:
    """Keys whose values are other objects: values of the state are replaced, never changed."""
    if before is after:
        return set()
    changed = {key for key, value in before.items() if after.get(key) is not value}
    return changed | {key for key in after if key not in before}


# ---- what owners tell ---------------------------------------------------------------------------------


class GateProgress(NamedTuple):
    """What the log of a gate has, in records below the mark. `offset` is the settled position or floor.

    `incarnation` is that of its entry, 0: it has none, and is at its beginning. `is_settled`: a member
    settled a position in this incarnation; `is_held`: the hold of an incarnation before may last.
    """

    incarnation: Incarnation
    offset: int
    is_settled: bool
    is_held: bool = False


def is_drained(rule: GateRule, gate: GateProgress, *, is_ordered: bool) -> bool:
    """Whether the gate owner tells that the partition is drained (CD1).

    It is SEALED, its parents are drained, and its settled position is at its end. Where rows were missed, a
    member must have settled there (CR3).
    """
    if rule.end is None or rule.is_through or rule.waits_for or rule.is_sought:
        return False
    if gate.incarnation not in {0, rule.incarnation}:
        return False
    if is_ordered and rule.notes is not None and rule.notes.has_missed and not gate.is_settled:
        return False
    if gate.incarnation == 0:
        return _has_place(rule) and rule.beginning.offset >= rule.end
    return gate.offset >= rule.end


def drained_words(
    state: MetadataState,
    rules: Iterable[GateRule],
    progress: Mapping[tuple[CohortId, PartitionId], GateProgress],
) -> tuple[DrainedWord, ...]:
    """What a node tells: drained partitions that its own metadata has no mark of."""
    found = []
    for rule in rules:
        gate = progress.get((rule.cohort, rule.partition))
        cohort = state.cohorts[rule.cohort]
        if gate is None or not is_drained(rule, gate, is_ordered=cohort.mode.is_ordered):
            continue
        topic = state.topics[cohort.topic]
        log = heir(topic.layout.by_id(), rule.partition)
        mark = Drained(rule.cohort, rule.incarnation, rule.partition, _has_read(rule, gate))
        found.append(DrainedWord(mark, log, topic.assignments[log].epoch))
    return tuple(found)


def begun_words(
    state: MetadataState,
    rules: Iterable[GateRule],
    progress: Mapping[tuple[CohortId, PartitionId], GateProgress],
) -> tuple[Begun, ...]:
    """What a node tells: gates that have begun the incarnation, and that the leader waits for.

    A gate has begun when no entry of an incarnation before is left, the beginning of a partition that was
    ACTIVE at a seek to the latest rows is in the log, and the hold of before is over.
    """
    found = []
    for rule in rules:
        gate = progress.get((rule.cohort, rule.partition))
        if gate is None or rule.is_begun or gate.is_held:
            continue
        if gate.incarnation == rule.incarnation or (gate.incarnation == 0 and _has_place(rule)):
            cohort = state.cohorts[rule.cohort]
            topic = state.topics[cohort.topic]
            log = heir(topic.layout.by_id(), rule.partition)
            found.append(Begun(rule.cohort, rule.incarnation, rule.partition, topic.assignments[log].epoch))
    return tuple(found)


def _has_read(rule: GateRule, gate: GateProgress) -> bool:
    """Whether members settled rows: one that gives a partition back settles where it began."""
    begin = rule.beginning.offset if _has_place(rule) else 0
    return gate.is_settled and gate.offset > begin


def _has_place(rule: GateRule) -> bool:
    """Whether the metadata alone tells where the gate begins."""
    return rule.beginning.kind is not BeginningKind.NOT_BEGUN
