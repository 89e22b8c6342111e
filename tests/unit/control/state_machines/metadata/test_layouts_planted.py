"""Bugs planted into the commands of layout changes: the walks, or one scenario, find each of them.

A bug that is never found would mean that the rule it breaks is not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index, drawn
from ringfence.control.model.layout_changes import Transition, TransitionKind
from ringfence.control.model.ranges import tile
from ringfence.control.model.reassignments import ChangeId, ChangePhase
from ringfence.control.model.results import Refused
from ringfence.control.state_machines.metadata import (
    cluster,
    drained,
    layout_checks,
    layout_rules,
    layouts,
    prune_checks,
    reassignment_checks,
    reassignments,
    scopes,
    topics,
)
from ringfence.control.state_machines.metadata.refusals import conflict, stale
from tests.fakes.layout_log import LayoutLog
from tests.fakes.layout_walk import walk

# Walks that a bug may take; most need fewer than ten.
WALKS_MAX = 120
Patch = pytest.MonkeyPatch


def passing(module: Any, name: str, words: str) -> Callable[[Patch], None]:
    """The check `name` lets pass what it refuses with these words."""

    def plant(patch: Patch) -> None:
        check = getattr(module, name)

        def without(*arguments: Any) -> Refused | None:
            refusal: Refused | None = check(*arguments)
            return None if refusal is not None and words in refusal.message else refusal

        patch.setattr(module, name, without)

    return plant


def version_of_prepare(patch: Patch) -> None:
    """COMMIT makes the version that follows that of the PREPARE."""
    prepare, committed, versions = layouts.prepare, layout_rules.committed_topic, dict[ChangeId, int]()

    def noting(state: Any, command: Any, index: Index) -> Any:
        versions[ChangeId(index)] = state.topics[command.topic].layout.version
        return prepare(state, command, index)

    def planted(topic: Any, transition: Transition, *rest: Any) -> Any:
        after = committed(topic, transition, *rest)
        return replace(after, layout=replace(after.layout, version=versions[transition.change] + 1))

    patch.setattr(layouts, "prepare", noting)
    patch.setattr(layout_rules, "committed_topic", planted)


def version_compared(patch: Patch) -> None:
    """A split compares the layout's version: each one that commits makes the others stale."""
    fault = layout_checks.prepare_fault

    def planted(state: Any, command: Any) -> Refused | None:
        topic = state.topics.get(command.topic)
        if topic is not None and command.version != topic.layout.version:
            return stale("the layout has another version")
        return fault(state, command)

    patch.setattr(layout_checks, "prepare_fault", planted)


def abort_keeps_epochs(patch: Patch) -> None:
    """An ABORT after a HOLD draws no epoch."""
    abort = layout_rules.abort

    def planted(state: Any, transition: Transition, *rest: Any) -> Any:
        return abort(state, replace(transition, phase=ChangePhase.PREPARED), *rest)

    patch.setattr(layout_rules, "abort", planted)


def abort_owner_only(patch: Patch) -> None:
    """An abort releases a child at its owner, not at its followers."""
    release = layout_rules.with_released_children

    def planted(state: Any, transition: Transition) -> Any:
        children = tuple(replace(child, replicas=child.replicas[:1]) for child in transition.children)
        return release(state, replace(transition, children=children))

    patch.setattr(layout_rules, "with_released_children", planted)


def restart_aborts_nothing(patch: Patch) -> None:
    for module in (cluster, reassignments):
        patch.setattr(module.layout_rules, "overtaken", lambda state, *_: state)


def delete_forgets_children(patch: Patch) -> None:
    forget = layout_rules.without_topic_transitions
    patch.setattr(topics, "without_topic_transitions", lambda *given: (forget(*given)[0], (), frozenset()))


def prune_owner_only(patch: Patch) -> None:
    """A pruned partition is released at its owner only."""
    prune = layouts.prune

    def planted(state: Any, command: Any, index: Index) -> Any:
        after, result = prune(state, command, index)
        cut = {
            number: listed[:1] if number in command.partitions else listed
            for number, listed in after.leftovers.items()
        }
        return replace(after, leftovers=cut), result

    patch.setattr(layouts, "prune", planted)


def repartition_waits_for_cohort(patch: Patch) -> None:
    """A repartition is refused until the one before is finalized."""
    fault = layout_checks.repartition_fault

    def planted(state: Any, topic: Any) -> Refused | None:
        others = [other for other in state.transitions.values() if other.kind is TransitionKind.REPARTITION]
        return fault(state, topic) or (conflict("one is open") if others else None)

    patch.setattr(layout_checks, "repartition_fault", planted)


def commit_without_hold(patch: Patch) -> None:
    fault = layout_checks.phase_fault

    def planted(state: Any, number: Any, phases: Any, what: str) -> Refused | None:
        return fault(state, number, (*phases, ChangePhase.PREPARED) if what == "COMMIT" else phases, what)

    patch.setattr(layout_checks, "phase_fault", planted)


PLANTED: dict[str, Callable[[Patch], None]] = {
    "version_of_prepare": version_of_prepare,
    "version_compared": version_compared,
    "busy_unchecked": passing(layout_checks, "sources_fault", "is in change"),
    "sealed_unchecked": passing(layout_checks, "sources_fault", "was sealed by"),
    "epoch_unchecked": passing(layout_checks, "sources_fault", "was decided on"),
    "repartition_unversioned": passing(layout_checks, "prepare_fault", "the repartition was decided on"),
    "repartition_over_open": passing(layout_checks, "repartition_fault", "is about all partitions"),
    "tiles_unchecked": passing(layout_checks, "shape_fault", "do not tile"),
    "dead_owner": passing(layout_checks, "owner_fault", "only a live owner"),
    # Each try makes children of the same ids: a late drop of one try meets those of the next.
    "same_ids": lambda patch: patch.setattr(
        layouts, "drawn", lambda index, ordinal: drawn(index % 8 + 20, 60_000 + ordinal)
    ),
    "commit_without_hold": commit_without_hold,
    "commit_of_other_children": passing(layout_checks, "_proof_fault", "created under its number"),
    "seal_over_pending": passing(layout_checks, "pending_fault", "wait for their publish"),
    "commit_while_held": passing(scopes, "seal_fault", "is held by"),
    "commit_names_sealed": passing(scopes, "seal_fault", "are sealed now"),
    "seal_alone": passing(reassignment_checks, "open_fault", "part of a layout change"),
    "abort_keeps_epochs": abort_keeps_epochs,
    "abort_leaves": lambda patch: patch.setattr(
        layout_rules, "with_released_children", lambda state, _: state
    ),
    "abort_owner_only": abort_owner_only,
    "restart_aborts_nothing": restart_aborts_nothing,
    "delete_forgets_children": delete_forgets_children,
    "children_first": passing(prune_checks, "part_fault", "are pruned before it"),
    "prune_before_finalize": passing(prune_checks, "part_fault", "is not finalized"),
    "prune_of_active": passing(prune_checks, "part_fault", "is ACTIVE"),
    "prune_owner_only": prune_owner_only,
    "finalize_before_opened": lambda patch: patch.setattr(
        layouts, "OPENED", (ChangePhase.OPENED, ChangePhase.COMMITTED)
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_walks_find_each_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    found: list[str] = []
    for seed in range(WALKS_MAX):
        try:
            walk(seed)
        except (AssertionError, KeyError) as error:
            found.append(str(error))
            break
    assert found, f"{bug} was not found in {WALKS_MAX} walks"


# ---- what only time shows: something stays refused for good -----------------------------------------


class Gone:
    """A registered reader that never reads again."""

    name, created = "gone", Index(1)

    def has_read(self, *_: object) -> bool:
        return False


def ends_without_the_reader() -> None:
    """One that never returns holds neither the next changes, nor finalize and prune for good."""
    log = LayoutLog(3)
    log.must(log.config(changes_max=1))
    source = log.active[0].partition
    first = log.done(log.repartition(tile(5)), upto="opened")
    log.refuses(log.finalize(first))
    second = log.done(log.repartition(tile(6)), upto="opened")
    log.time_ms += 86_400_000
    log.must(log.finalize(first))
    log.must(log.finalize(second))
    log.must(log.prune(source))


LASTING: dict[str, Callable[[Patch], None]] = {
    "opened_counts": lambda patch: patch.setattr(
        layout_checks, "open_count", lambda state: len(state.transitions)
    ),
    "repartition_waits_for_cohort": repartition_waits_for_cohort,
    "cohort_holds_for_good": lambda patch: patch.setattr(drained, "is_overdue", lambda *_: False),
}


@pytest.mark.parametrize("bug", LASTING)
def test_a_change_that_is_refused_for_good_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drained, "registered_readers", lambda *_: (Gone(),))
    ends_without_the_reader()
    LASTING[bug](monkeypatch)
    with pytest.raises(AssertionError):
        ends_without_the_reader()
