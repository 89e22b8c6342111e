"""Windows of rates around a run: what belongs to which window, of one node and of several together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ringfence.control.model.ids import Index
from ringfence.control.model.rebalances import Run, RunState
from ringfence.control.state_machines.rebalance import run_rates
from ringfence.control.state_machines.rebalance.run_rates import (
    RunRates,
    combine,
    decode_windows,
    encode_windows,
)

IDLE, RUNNING = Run(), Run(run=Index(7), state=RunState.RUNNING)
OVER = Run(run=Index(7))
NAMES = [*(f"acknowledged_{bound}_ms" for bound in run_rates.BOUNDS_MS), "acknowledged_later"]


def counters(batches: int, **latencies: int) -> dict[str, int]:
    """After so many batches of ten rows and 100 bytes; all within 1 ms unless `latencies` says otherwise."""
    slower = sum(latencies.values())
    return {
        "rows": 10 * batches,
        "bytes": 100 * batches,
        "acknowledged": batches,
        "acknowledged_1_ms": batches - slower,
        **latencies,
    }


def measured(rates: RunRates | None = None) -> RunRates:
    """100 batches a second before, 50 during and 200 after a run from second 20 to 25."""
    rates = rates or RunRates()
    batches = 0
    for second in range(20):
        rates.read(counters(batches), IDLE, 1_000 * second)
        batches += 100
    rates.read(counters(batches), RUNNING, 20_000)
    for second in range(21, 25):
        batches += 50
        rates.read(counters(batches), RUNNING, 1_000 * second)
    batches += 50
    rates.read(counters(batches), OVER, 25_000)
    for second in range(26, 50):
        batches += 200
        rates.read(counters(batches), OVER, 1_000 * second)
    return rates


def test_each_window_has_the_batches_of_its_time() -> None:
    windows = measured().windows[7]
    assert {name: (window.ms, window.batches) for name, window in windows.items()} == {
        "before": (5_000, 500),
        "during": (5_000, 250),
        "after": (5_000, 1_000),
    }
    assert (windows["during"].rows, windows["during"].bytes) == (2_500, 25_000)
    assert windows["during"].latencies == (250, *[0] * len(run_rates.BOUNDS_MS))


def test_a_window_grows_until_it_is_over_and_a_next_run_ends_it() -> None:
    rates = RunRates()
    rates.read(counters(0), IDLE, 0)
    rates.read(counters(10), RUNNING, 1_000)
    assert set(rates.windows[7]) == {"before"}
    rates.read(counters(15), RUNNING, 2_000)
    assert rates.windows[7]["during"].batches == 5
    rates.read(counters(20), OVER, 3_000)
    assert rates.windows[7]["during"].batches == 10
    assert "after" not in rates.windows[7]
    rates.read(counters(24), msgspec.structs.replace(RUNNING, run=Index(9)), 4_000)
    rates.read(counters(99), msgspec.structs.replace(RUNNING, run=Index(9)), 5_000)
    assert rates.windows[7]["after"].batches == 4
    assert rates.windows[9]["before"].batches == 24
    assert rates.windows[9]["during"].batches == 75


def test_a_paused_run_goes_on_and_one_that_was_over_before_the_start_has_no_window() -> None:
    rates = RunRates()
    rates.read(counters(0), OVER, 0)
    assert rates.windows == {}
    rates.read(counters(0), msgspec.structs.replace(RUNNING, run=Index(8)), 1_000)
    rates.read(counters(5), msgspec.structs.replace(RUNNING, run=Index(8), state=RunState.PAUSED), 2_000)
    rates.read(counters(9), msgspec.structs.replace(RUNNING, run=Index(8)), 3_000)
    assert rates.windows[8]["during"].batches == 9


def test_only_as_many_runs_are_kept_as_the_metadata_has() -> None:
    rates = RunRates()
    for run in range(1, 100):
        rates.read(counters(run), msgspec.structs.replace(RUNNING, run=Index(run)), 1_000 * run)
    assert sorted(rates.windows) == list(range(100 - run_rates.RUNS_MAX, 100))


def test_nodes_are_added_up_and_quantiles_are_upper_bounds_of_all_batches() -> None:
    slow = RunRates()
    slow.read(counters(0), IDLE, 0)
    slow.read(counters(0), RUNNING, 1_000)
    slow.read(counters(300, acknowledged_20_ms=100, acknowledged_later=3), RUNNING, 2_000)
    together = combine([measured().windows, slow.windows, {}], 7)
    assert together is not None
    assert together["nodes"] == 2
    assert together["during"] == {
        "seconds": 5.0,
        "rows_s": 500 + 3_000,
        "bytes_s": 5_000 + 30_000,
        "batches_s": 350.0,
        "p50_ms": 1,
        "p99_ms": 20,
    }
    assert together["before"]["p50_ms"] == 1
    assert combine([slow.windows], 7)["before"]["p99_ms"] is None  # type: ignore[index]
    assert combine([slow.windows], 8) is None
    late = combine([{7: {"during": run_rates.Window(1_000, 1, 1, 1, (*[0] * 12, 1))}}], 7)
    assert late is not None
    assert late["during"]["p99_ms"] == run_rates.LATER_MS


def test_windows_of_another_node_come_as_they_were_or_not_at_all() -> None:
    windows = measured().windows
    wire: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(encode_windows(windows)))
    assert decode_windows(wire) == windows
    broken_ones: list[dict[str, Any]] = [
        {"x": {}},
        {"7": {"during": [1, 2, 3]}},
        {"7": {"during": [1, 2, 3, 4, [5]]}},
        {"7": {"during": [1_000, -1, 0, 0, [0] * 13]}},
    ]
    for broken in broken_ones:
        with pytest.raises(msgspec.ValidationError):
            decode_windows(broken)
