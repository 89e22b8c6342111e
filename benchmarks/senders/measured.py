"""One turn of a peer's client: a window of unanswered bodies, a warm-up, measured requests, the report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from benchmarks.dataset import batches_of
from benchmarks.process import usage, used_since
from benchmarks.senders.report import print_report
from benchmarks.workload import Workload, load_all

ANSWER_TIMEOUT_S = 60.0


class Window:
    """Gives out at most `size` places; whoever answers frees one. `latencies_s` are in order of answers."""

    def __init__(self, size: int) -> None:
        self._free = threading.Semaphore(size)
        self._changed = threading.Condition()
        self._open = 0
        self._failure: str | None = None
        self.latencies_s: list[float] = []

    def take(self) -> float:
        """Wait for a place. Returns the moment, to be given to `answered`."""
        if not self._free.acquire(timeout=ANSWER_TIMEOUT_S):
            raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S} s, {self._open} requests are open")
        with self._changed:
            if self._failure is not None:
                raise RuntimeError(self._failure)
            self._open += 1
        return time.perf_counter()

    def answered(self, began: float, failure: str | None = None) -> None:
        """Free a place; a failure ends the turn."""
        now = time.perf_counter()
        with self._changed:
            self._open -= 1
            self._failure = self._failure or failure
            if failure is None:
                self.latencies_s.append(now - began)
            self._changed.notify_all()
        self._free.release()

    def drain(self) -> None:
        """Wait until everything is answered. Raises TimeoutError, or RuntimeError with a failure."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._open == 0 or self._failure, ANSWER_TIMEOUT_S):
                raise TimeoutError(f"{self._open} requests unanswered for {ANSWER_TIMEOUT_S} s")
            if self._failure is not None:
                raise RuntimeError(self._failure)

    def send_many(self, post: Callable[[int, float], None], count: int, seconds_max: float) -> int:
        """Send `count` requests, or those for which there is time, and wait. Returns how many were sent.

        `post(number, began)` sends request `number`; its answer calls `answered(began)`.
        """
        end = time.perf_counter() + seconds_max
        sent = 0
        while sent < count and time.perf_counter() < end:
            post(sent, self.take())
            sent += 1
        self.drain()
        return sent


def bodies_of(workload: Workload) -> list[bytes]:
    """One Arrow IPC record batch message each: the bytes that every other engine gets."""
    return [batch.serialize().to_pybytes() for batch in batches_of(workload)]


def arguments(words: Sequence[str]) -> tuple[Workload, int, tuple[int, int], float]:
    """WORKLOAD PID REQUESTS WARMUP SECONDS: (workload, pid, (warm-up, measured), seconds at most of each)."""
    name, pid, requests, warmup, seconds = words
    return load_all()[name], int(pid), (int(warmup), int(requests)), float(seconds)


def run(
    many: Callable[[int], int],
    latencies_s: Sequence[float],
    *,
    workload: Workload,
    pid: int,
    counts: tuple[int, int],
    body_bytes: Sequence[int],
) -> None:
    """Warm up, measure, print. `many(count)` sends so many, waits for the answers, says how many it were."""
    many(counts[0])
    before_it, before, begin = len(latencies_s), usage(pid), time.perf_counter()
    sent = many(counts[1])
    seconds, after = time.perf_counter() - begin, usage(pid)
    acknowledged = len(latencies_s) - before_it
    if acknowledged != sent:
        raise SystemExit(f"{acknowledged} requests acknowledged, {sent} sent")
    print_report(
        requests=sent,
        rows=sent * workload.batch_rows,
        body_bytes=sum(body_bytes[number % len(body_bytes)] for number in range(sent)),
        seconds=seconds,
        latencies_s=list(latencies_s[before_it:]),
        server=used_since(before, after),
    )
