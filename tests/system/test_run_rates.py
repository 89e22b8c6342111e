"""Z14: what a move cost is in the product's own history: rates and latencies before, during and after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.admin_cluster import AdminCluster
from tests.harness.admin_http import ask
from tests.harness.load import Load
from tests.harness.loaded_cluster import grown
from tests.harness.processes import cli, until

COPY_BYTES_S = 200_000
"""Of 600 kB: the move takes three seconds."""
WINDOWS = ("before", "during", "after")


class Counted:
    """Rows that producers counted by themselves, and when."""

    def __init__(self, loads: list[Load]) -> None:
        self.at_s, self.rows = time.monotonic(), sum(len(load.acknowledged) for load in loads)

    def rate_since(self, before: Counted) -> float:
        return (self.rows - before.rows) / (self.at_s - before.at_s)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[AdminCluster]:
    made = AdminCluster(tmp_path)
    try:
        made.three.start()
        made.configure(sync_bytes_per_s=COPY_BYTES_S)
        yield made
    finally:
        made.three.kill_all()


def rates(desk: AdminCluster, place: int) -> dict[str, Any]:
    """Of the only run, as the node at `place` tells them."""
    [run] = ask(desk.doors[place], "GET", "/admin/rebalance/history").body["runs"]
    return dict(run["rates"])


def all_rates(desk: AdminCluster) -> list[dict[str, Any]]:
    return [rates(desk, place) for place in range(3)]


@pytest.mark.timeout(180)
def test_the_history_tells_rates_and_latencies_around_a_move(desk: AdminCluster) -> None:
    """Z14: as producers counted them in the same time; the same at any node, and on the command line."""
    three = desk.three
    partition, source, target = desk.create("moved", 600)
    three.create(0, "t")
    assert ask(desk.doors[0], "GET", "/admin/rebalance/history").body["runs"] == []
    # Twice fifty rows each 50 ms: a machine under load keeps up with that.
    loads = [Load(three.nodes[place].address, "t", place, pause_s=0.05, window=4).start() for place in (0, 1)]
    until(grown(loads, 200), what="rows")
    marks = [Counted(loads)]
    until(lambda: Counted(loads).at_s - marks[0].at_s >= 6, what="the time before the move")
    marks.append(Counted(loads))
    assert desk.start(source, (partition, target)).status == 201
    assert desk.ended()["outcome"] == "DONE"
    marks.append(Counted(loads))
    until(
        lambda: all((told["after"] or {"seconds": 0})["seconds"] >= 5 for told in all_rates(desk)),
        what="an end",
    )
    marks.append(Counted(loads))
    for load in loads:
        load.finish()
    assert [load.errors for load in loads] == [[], []]
    # Each node ends its window with its next second.
    until(lambda: all(told == all_rates(desk)[0] for told in all_rates(desk)), what="the same at any node")
    seen = rates(desk, 0)
    assert seen["nodes"] == 3
    for name, since, upto in zip(WINDOWS, marks, marks[1:], strict=False):
        figures, counted = seen[name], upto.rate_since(since)
        print(f"{name}: {figures}, producers counted {counted:.0f} rows a second")
        # A node's seconds begin and end up to a second beside those of the test; the load is steady.
        assert 0.5 * counted < figures["rows_s"] < 2 * counted, name
        assert 0 < figures["batches_s"] <= figures["rows_s"]
        assert figures["bytes_s"] > figures["rows_s"] * 10
        assert 1 <= figures["p50_ms"] <= figures["p99_ms"] <= 60_000
    assert abs(seen["during"]["seconds"] - (marks[2].at_s - marks[1].at_s)) < 2

    def is_shown() -> bool:
        line = " / ".join(f"{rates(desk, 0)[name]['rows_s']:,}" for name in WINDOWS)
        return line in cli("rebalance", "history", "--http", desk.doors[1]).stdout

    until(is_shown, what="the same on the command line")
    counters = ask(desk.doors[0], "GET", "/admin/status").body["counters"]
    buckets = [count for name, count in counters.items() if name.startswith("acknowledged_")]
    assert sum(buckets) == counters["acknowledged"] > 0, "each batch is in one bucket"


def test_a_node_that_starts_again_has_no_figures_and_is_not_counted(desk: AdminCluster) -> None:
    """Z14: so a part of the cluster is not taken for all of it."""
    three = desk.three
    partition, source, target = desk.create("moved", 100)
    assert desk.start(source, (partition, target)).status == 201
    assert desk.ended()["outcome"] == "DONE"
    until(lambda: rates(desk, 0)["nodes"] == 3, what="figures of all")
    three.nodes[2].kill()
    three.nodes[2].start()
    three.until_whole()
    until(lambda: rates(desk, 0)["nodes"] == 2, what="figures of the other two")
