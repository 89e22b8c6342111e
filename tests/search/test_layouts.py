"""Every order of layout changes that are asked for at once; planted bugs are found by their shortest way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.results import Refused
from ringfence.control.state_machines.metadata import layout_checks, layout_rules, layouts
from ringfence.control.state_machines.metadata.refusals import stale
from tests.search.layouts import LayoutSearch, Wanted

SPLIT, MERGE, REPARTITION = TransitionKind.SPLIT, TransitionKind.MERGE, TransitionKind.REPARTITION


def split(place: int) -> Wanted:
    return Wanted(SPLIT, (place,))


def merge(one: int, other: int) -> Wanted:
    return Wanted(MERGE, (one, other))


def repartition(count: int) -> Wanted:
    return Wanted(REPARTITION, wanted=count)


HALF_AND_QUARTERS = (SlotRange(0, 32_767), SlotRange(32_768, 49_151), SlotRange(49_152, 65_535))

WORLDS: dict[str, Callable[[], LayoutSearch]] = {
    "three splits": lambda: LayoutSearch(tile(3), split(0), split(1), split(2), tries=2),
    "merges and splits of neighbours": lambda: LayoutSearch(
        tile(4), merge(0, 1), merge(1, 2), split(2), split(3)
    ),
    "the same with an abort and a start": lambda: LayoutSearch(
        tile(3), merge(0, 1), split(1), split(2), aborts=1, starts=1
    ),
    "a repartition beside a split and a merge": lambda: LayoutSearch(
        tile(4), repartition(2), split(0), merge(2, 3)
    ),
    "two repartitions beside a split": lambda: LayoutSearch(
        tile(4), repartition(2), repartition(3), split(3)
    ),
    "a repartition that leaves one alone": lambda: LayoutSearch(
        HALF_AND_QUARTERS, repartition(2), split(0), split(1), aborts=1
    ),
}


@pytest.mark.parametrize("world", WORLDS)
def test_no_order_breaks_a_rule_and_each_ask_has_an_outcome(world: str) -> None:
    found = WORLDS[world]().explore()
    assert not found.wrong, (found.wrong, found.way)
    assert found.states > 50
    assert found.ends >= 1


# ---- planted bugs -------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def passing(name: str, words: str) -> Callable[[Patch], None]:
    """A check lets pass what it refuses with these words."""

    def plant(patch: Patch) -> None:
        check = getattr(layout_checks, name)

        def without(*arguments: Any) -> Refused | None:
            refusal: Refused | None = check(*arguments)
            return None if refusal is not None and words in refusal.message else refusal

        patch.setattr(layout_checks, name, without)

    return plant


def version_compared(patch: Patch) -> None:
    fault = layout_checks.prepare_fault

    def planted(state: Any, command: Any) -> Refused | None:
        version = state.topics[command.topic].layout.version
        return stale("another version") if command.version != version else fault(state, command)

    patch.setattr(layout_checks, "prepare_fault", planted)


def version_of_prepare(patch: Patch) -> None:
    prepare, committed, versions = layouts.prepare, layout_rules.committed_topic, dict[int, int]()

    def noting(state: Any, command: Any, index: int) -> Any:
        versions[index] = state.topics[command.topic].layout.version
        return prepare(state, command, index)  # type: ignore[arg-type]

    def planted(topic: Any, transition: Any, *rest: Any) -> Any:
        after = committed(topic, transition, *rest)
        return replace(after, layout=replace(after.layout, version=versions[transition.change] + 1))

    patch.setattr(layouts, "prepare", noting)
    patch.setattr(layout_rules, "committed_topic", planted)


# The bug, and the world that shows it.
PLANTED: dict[str, tuple[Callable[[Patch], None], str]] = {
    "version_compared": (version_compared, "three splits"),
    "version_of_prepare": (version_of_prepare, "three splits"),
    "busy_unchecked": (passing("sources_fault", "is in change"), "merges and splits of neighbours"),
    "sealed_unchecked": (passing("sources_fault", "was sealed by"), "merges and splits of neighbours"),
    "repartition_unversioned": (
        passing("prepare_fault", "the repartition was decided on"),
        "a repartition that leaves one alone",
    ),
    "repartition_over_open": (
        passing("repartition_fault", "is about all partitions"),
        "a repartition that leaves one alone",
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_search_finds_each_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, world = PLANTED[bug]
    search = WORLDS[world]()
    plant(monkeypatch)
    found = search.explore()
    assert found.wrong, f"{bug} was not found in {found.states} states"
    assert found.way
