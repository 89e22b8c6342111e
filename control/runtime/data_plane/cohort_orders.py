"""Make the order that installs rules of cohorts, from the metadata and from words of other owners."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ringfence.control.model.cohorts import Cohort, CohortMode, NoteKind
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.state_machines.cohorts.gates import DrainedWords, GateRule, rules_of
from ringfence.control.state_machines.metadata.cohort_lineage import BeginningKind, heir, members_of
from ringfence.control.state_machines.node_orders import InstallCohorts
from ringfence.native._node import Order

MODES: Final = {CohortMode.STREAM: 0, CohortMode.CHECKPOINT: 1, CohortMode.QUEUE: 2}
BEGINNINGS: Final = {BeginningKind.AT: 0, BeginningKind.FINISHED: 1, BeginningKind.NOT_BEGUN: 2}
NOTES: Final = {NoteKind.READ: 1, NoteKind.MISSED: 2}
# Flags of a rule.
BEGUN, THROUGH, SOUGHT, MISSED = 1, 2, 4, 8

# Topic, cohort, mode, incarnation, generation, three settings, sessions.
CohortItem = tuple[int, int, int, int, int, int, int, int, list[int]]
# Topic, partition, log, cohort, assignee; kind, offset and epoch of the beginning; flags, end, parents that
# are not drained, (parent, end) of those that were read, notes.
RuleItem = tuple[
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int | None,
    list[int],
    list[tuple[int, int]],
    list[tuple[int, int, int]],
]


class CohortItems(NamedTuple):
    """The arguments of the order."""

    as_of: int
    cohorts: list[CohortItem]
    rules: list[RuleItem]
    gone: list[tuple[int, int]]
    complete: list[int]


def items_of(
    order: InstallCohorts, state: MetadataState, as_of: int, here: Replica, words: DrainedWords
) -> CohortItems:
    """What the engine gets: all rules of these cohorts whose gates this store owns, as of `state`."""
    cohorts: list[CohortItem] = []
    rules: list[RuleItem] = []
    for number in order.cohorts:
        cohort = state.cohorts[number]
        cohorts.append(_cohort_item(state, cohort))
        parts = state.topics[cohort.topic].layout.by_id()
        rules += [
            _rule_item(state.topics[cohort.topic], cohort, rule, heir(parts, rule.partition))
            for rule in rules_of(state, cohort, here, words)
        ]
    gone: list[tuple[int, int]] = [(topic, number) for topic, number in order.gone]
    return CohortItems(as_of, cohorts, rules, gone, [*order.complete])


def install_order(
    order: InstallCohorts, state: MetadataState, as_of: int, here: Replica, words: DrainedWords
) -> Order:
    make: Any = Order
    made: Order = make.install_cohorts(*items_of(order, state, as_of, here, words))
    return made


def _cohort_item(state: MetadataState, cohort: Cohort) -> CohortItem:
    settings = cohort.settings
    sessions = sorted(member.session for member in members_of(state, cohort.cohort).values())
    return (
        cohort.topic,
        cohort.cohort,
        MODES[cohort.mode],
        cohort.incarnation,
        cohort.generation,
        settings.handover_ms,
        settings.lease_ms,
        settings.limit,
        [*sessions],
    )


def _rule_item(topic: Topic, cohort: Cohort, rule: GateRule, log: int) -> RuleItem:
    seals = ((parent, topic.seal(parent)) for parent in rule.read)
    notes = () if rule.notes is None else rule.notes.notes
    has_missed = rule.notes is not None and rule.notes.has_missed
    flags = BEGUN * rule.is_begun + THROUGH * rule.is_through + SOUGHT * rule.is_sought + MISSED * has_missed
    return (
        cohort.topic,
        rule.partition,
        log,
        rule.cohort,
        rule.assignee,
        BEGINNINGS[rule.beginning.kind],
        rule.beginning.offset,
        rule.beginning.epoch,
        flags,
        rule.end,
        [*rule.waits_for],
        [(parent, seal.end.offset) for parent, seal in seals if seal is not None],
        [(note.partition, note.offset, NOTES[note.kind]) for note in notes],
    )
