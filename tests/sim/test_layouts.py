"""Simulated clusters whose partitions split and merge: no promise is broken, and enough of it happens."""

from __future__ import annotations

import datetime
from collections import Counter
from functools import cache

import pytest

from tests.sim import layout_matrix
from tests.sim.faults.plan import Plan, with_layouts
from tests.sim.faults.struck import Cell
from tests.sim.layout_matrix import DELETED, QUIET, cells_of_day, run_cell
from tests.sim.simulation import Result, run

SEEDS = range(1, 13)
RARE_SEEDS = range(13, 31)
"""Where one of the rare things was not seen: any change of a limit or of a time gives other runs."""
QUIET_SEEDS = range(1, 5)
"""A split, a merge and a repartition with three replicas, and one of these with one."""
CLIENTS = {
    "part_rerouted",
    "pieces",
    "parts_joined",
    "send_again",
    "row_resumed",
    "reader_finished",
    "reader_restored",
}
WRITERS = {"epoch_acknowledged", "epoch_moved", "attempt_rerouted", "reader_published"}
CHANGES = {"layout_committed", "layout_aborted", "layout_aborted_held", "layout_finalized", "pruned"}


@cache
def result(seed: int) -> Result:
    return run(with_layouts(Plan.drawn(seed)))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed: int) -> None:
    broken = result(seed).violation
    assert broken is None, f"{broken}; replay: python -m tests.sim --seed {seed} --layouts"


def test_changes_of_all_ends_meet_batches_names_and_a_reader() -> None:
    found = Counter[str]()
    for seed in SEEDS:
        found.update(result(seed).counts)
    assert found["layout_committed"] >= 3 * len(SEEDS), found["layout_committed"]
    wanted = CLIENTS | CHANGES | WRITERS | {"source_unheard", "owner_forced"}
    for seed in RARE_SEEDS:
        if found.keys() >= wanted:
            break
        found.update(result(seed).counts)
    assert found.keys() >= wanted, f"never seen: {wanted - found.keys()}"


def test_equal_seeds_have_equal_traces() -> None:
    assert run(with_layouts(Plan.drawn(2)), is_told=True).trace == result(2).trace


def test_some_seeds_of_a_mix_have_layout_changes() -> None:
    mixed = [Plan.mixed(seed) for seed in range(1, 101)]
    assert 10 <= sum(plan.layouts for plan in mixed) <= 30
    assert all(plan.layouts or plan == Plan.drawn(plan.seed) for plan in mixed)


@pytest.mark.parametrize("seed", QUIET_SEEDS)
def test_a_change_that_nobody_disturbs_is_committed(seed: int) -> None:
    told, end = run_cell(QUIET, seed)
    assert (told.violation, end) == (None, "committed")


@pytest.mark.parametrize("step", DELETED)
def test_a_topic_that_is_deleted_while_its_partitions_are_changed_leaves_nothing(step: str) -> None:
    told, end = run_cell(Cell(step, "source", "kill", "short"))
    assert (told.violation, end) == (None, "deleted")


def test_the_cells_of_the_day(soak: int) -> None:
    day = datetime.datetime.now(tz=datetime.UTC).date().toordinal()
    ends, wrong = layout_matrix.played(cells_of_day(day, layout_matrix.DAILY * soak), 1 + day % 12)
    assert not wrong, "\n".join(wrong)
    assert ends["committed"] and ends["aborted"], ends
