"""Simulations of one node: clean in every seed, equal for equal seeds, and full of faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from ringfence.native import _node
from tests.sim.data_plane import Result, run

SEEDS = range(1, 61)
REPLAYED = range(1, 7)


@cache
def result(seed: int) -> Result:
    return run(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_to_clients_holds_in_spite_of_all_faults(seed: int) -> None:
    result(seed)


def test_most_seeds_count_and_every_kind_of_fault_strikes() -> None:
    results = [result(seed) for seed in SEEDS]
    counting = sum(each.counts for each in results)
    assert counting >= len(SEEDS) * 3 // 4, f"{counting} of {len(SEEDS)} seeds had crashes and answers enough"
    struck = Counter[str]()
    for each in results:
        struck.update(each.faults)
    kinds = {
        "crash",
        "power_cut",
        "crash_in_job",
        "stop",
        "connection_cut",
        "truncated",
        "sync_errors",
        "rot",
    }
    kinds |= {"read_errors", "disk_full", "start_failed", "shard_failed", "quarantined", "released"}
    assert kinds <= struck.keys(), f"never struck: {kinds - struck.keys()}"


@pytest.mark.parametrize("seed", REPLAYED)
def test_equal_seeds_give_equal_traces(seed: int) -> None:
    assert run(seed) == result(seed)


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_no_trace_depends_on_the_process(hash_seed: str) -> None:
    script = "from tests.sim.data_plane import run; print(run(3).trace)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.strip() == result(3).trace


def test_different_seeds_give_different_traces() -> None:
    assert len({result(seed).trace for seed in SEEDS}) == len(SEEDS)


def test_the_product_has_no_switch_for_faults() -> None:
    assert not [name for name in dir(_node) if "plant" in name]
