"""`python -m benchmarks.senders.python_producer ADDRESS TOPIC WORKLOAD PID REQUESTS WARMUP SECONDS`."""

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
WINDOW_PARTS = 8  # so many waits a window: one batch of 8 MiB, 512 single rows


def run(
    producer: Any, batches: list[pa.RecordBatch], requests: int, window: int, seconds_max: float
) -> tuple[int, int, list[float]]:
    """Send `requests` batches, at most `window` unanswered.

    Stops after `seconds_max`. Returns requests, rows acknowledged, seconds until each answer.
    """
    latencies: list[float] = []
    rows = 0
    waiting: deque[Future[Any]] = deque()

    def settle() -> None:
        nonlocal rows
        rows += sum(part.rows for part in waiting.popleft().result(ANSWER_TIMEOUT_S))

    part = max(1, window // WINDOW_PARTS)
    sent, end = 0, time.perf_counter() + seconds_max
    while sent < requests and time.perf_counter() < end:
        if len(waiting) >= window:
            # Whoever waits for every single answer is woken for every single one: wait for a part of them.
            waiting[part - 1].result(ANSWER_TIMEOUT_S)
            for _ in range(part):
                settle()
        begin = time.perf_counter()
        future = producer.send(batches[sent % len(batches)])
        future.add_done_callback(lambda _, begin=begin: latencies.append(time.perf_counter() - begin))
        waiting.append(future)
        sent += 1
    while waiting:
        settle()
    return sent, rows, latencies


def main() -> None:
    address, topic, name, pid, requests, warmup, seconds = sys.argv[1:]
    workload, seconds_max = load_all()[name], float(seconds)
    batches = batches_of(workload)
    sizes = [batch.serialize().size for batch in batches]
    with ringfence.connect(address) as client, client.producer(topic) as producer:
        run(producer, batches, int(warmup), workload.window, seconds_max)
        before, begin = usage(int(pid)), time.perf_counter()
        sent, rows, latencies = run(producer, batches, int(requests), workload.window, seconds_max)
        taken, after = time.perf_counter() - begin, usage(int(pid))
    if rows != sent * workload.batch_rows:
        raise SystemExit(f"{rows} rows acknowledged, {sent * workload.batch_rows} sent")
    print_report(
        requests=sent,
        rows=rows,
        body_bytes=sum(sizes[number % len(sizes)] for number in range(sent)),
        seconds=taken,
        latencies_s=latencies,
        server=used_since(before, after),
    )


if __name__ == "__main__":
    main()
