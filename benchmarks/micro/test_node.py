"""What a batch costs inside the node, without sockets and files. `extra_info` has nanoseconds a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.micro.native_step import NativeStep
from benchmarks.workload import load_all

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

WORKLOADS = load_all()
ROUTE_FENCE_READS_MAX = 16.0
"""Of its three memory reads alone, in the same run: 7 to 8.5 with a dev build, quiet or beside a load."""
ROUTE_FENCE_COUNT = 200_000
ROUNDS = 8


def measure(benchmark: BenchmarkFixture, step: str, workload: str, count: int, partitions: int = 1) -> None:
    """Record the least nanoseconds of CPU time that a step took."""
    seconds: list[float] = []
    with NativeStep(step, WORKLOADS[workload], partitions) as native:
        benchmark.pedantic(  # type: ignore[no-untyped-call] # of pytest-benchmark
            lambda: seconds.append(native.run(count)), rounds=5, warmup_rounds=1
        )
    benchmark.extra_info["ns_per_step"] = round(min(seconds) / count * 1e9, 2)


@pytest.mark.parametrize("partitions", [1, 10_000])
def test_route_and_fence(benchmark: BenchmarkFixture, partitions: int) -> None:
    measure(benchmark, "route_fence", "row_1", ROUTE_FENCE_COUNT, partitions)


@pytest.mark.parametrize("partitions", [1, 10_000])
def test_route_and_fence_beside_its_memory_reads(partitions: int) -> None:
    workload = WORKLOADS["row_1"]
    route_s: list[float] = []
    reads_s: list[float] = []
    with (
        NativeStep("route_fence", workload, partitions) as route,
        NativeStep("reads", workload, partitions) as reads,
    ):
        for _ in range(ROUNDS):
            route_s.append(route.run(ROUTE_FENCE_COUNT))
            reads_s.append(reads.run(ROUTE_FENCE_COUNT))
    ratio = min(route_s) / min(reads_s)
    assert ratio <= ROUTE_FENCE_READS_MAX, (ratio, route_s, reads_s)


def test_decode_of_a_request_header(benchmark: BenchmarkFixture) -> None:
    measure(benchmark, "decode", "row_1", 200_000)


@pytest.mark.parametrize(
    ("workload", "count"),
    [("lineitem_8mib", 20), ("lineitem_1000", 500), ("lineitem_100", 2000), ("row_1", 20_000)],
)
@pytest.mark.parametrize("step", ["validate", "crc"])
def test_check_of_a_body(benchmark: BenchmarkFixture, step: str, workload: str, count: int) -> None:
    measure(benchmark, step, workload, count)


@pytest.mark.parametrize("partitions", [1, 10_000])
@pytest.mark.parametrize("step", ["ingest", "dedupe"])
def test_a_row_through_the_engine(benchmark: BenchmarkFixture, step: str, partitions: int) -> None:
    measure(benchmark, step, "partitions_1", 20_000, partitions)
