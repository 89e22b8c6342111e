"""`python -m benchmarks.senders.python_producer ADDRESS TOPIC WORKLOAD PID [--quick]`: the library."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import ringfence
from benchmarks.dataset import batches_of
from benchmarks.process import usage, used_since
from benchmarks.senders.report import print_report
from benchmarks.workload import load_all

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

ANSWER_TIMEOUT_S = 60.0


def run(producer: Any, batches: list[pa.RecordBatch], requests: int, window: int) -> tuple[int, list[float]]:
    """Send `requests` batches, at most `window` unanswered.

    Returns rows acknowledged, seconds until each answer.
    """
    latencies: list[float] = []
    rows = 0
    waiting: deque[Future[Any]] = deque()

    def settle() -> None:
        nonlocal rows
        rows += sum(part.rows for part in waiting.popleft().result(ANSWER_TIMEOUT_S))

    for number in range(requests):
        while len(waiting) >= window:
            settle()
        begin = time.perf_counter()
        future = producer.send(batches[number % len(batches)])
        future.add_done_callback(lambda _, begin=begin: latencies.append(time.perf_counter() - begin))
        waiting.append(future)
    while waiting:
        settle()
    return rows, latencies


def main() -> None:
    address, topic, name, pid, *flags = sys.argv[1:]
    workload = load_all()[name]
    requests, warmup, rows_expected = workload.sizes(quick="--quick" in flags)
    batches = batches_of(workload)
    sizes = [batch.serialize().size for batch in batches]
    with ringfence.connect(address) as client, client.producer(topic) as producer:
        run(producer, batches, warmup, workload.window)
        before, begin = usage(int(pid)), time.perf_counter()
        rows, latencies = run(producer, batches, requests, workload.window)
        seconds, after = time.perf_counter() - begin, usage(int(pid))
    if rows != rows_expected:
        raise SystemExit(f"{rows} rows acknowledged, {rows_expected} sent")
    print_report(
        requests=requests,
        rows=rows,
        body_bytes=sum(sizes[number % len(sizes)] for number in range(requests)),
        seconds=seconds,
        latencies_s=latencies,
        server=used_since(before, after),
    )


if __name__ == "__main__":
    main()
