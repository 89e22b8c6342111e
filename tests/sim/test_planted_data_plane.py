"""Each fault that is put into the data plane is found, by an invariant with a name, and none without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.checks.violation import ViolationError
from tests.sim.data_plane import run
from tests.sim.planted import native

# What is broken, in which seeds at most it must show, and the invariants that may name it.
FAULTS = {
    "ack_before_sync": (3, {"I5", "I14"}),
    "old_epoch": (3, {"I4"}),
    "sync_retried": (60, {"I5", "I14", "L6"}),
    "torn_middle": (60, {"I5", "I14"}),
    "recycled_bytes": (120, {"I5", "I6", "I14", "PanicException"}),
    "dedupe_forgotten": (3, {"I6"}),
    "mark_too_high": (5, {"I14", "I5"}),
}


@pytest.fixture(autouse=True)
def built() -> Iterator[None]:
    native.load()
    yield
    native.load().plant(None)


def test_every_fault_that_can_be_planted_has_its_line() -> None:
    assert set(native.load().plantable()) == set(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found(name: str) -> None:
    seeds, invariants = FAULTS[name]
    with native.planted(name) as module:
        for seed in range(1, seeds + 1):
            try:
                run(seed, module)
            except ViolationError as broken:
                print(f"{name}: found in seed {seed} by {broken}")
                assert broken.invariant in invariants, broken
                return
    pytest.fail(f"{name} is not found in {seeds} seeds")


def test_the_same_module_without_a_fault_is_clean() -> None:
    for seed in range(1, 13):
        run(seed, native.load())
