"""`python -m benchmarks.senders.flight_sender ADDRESS WORKLOAD PID REQUESTS WARMUP SECONDS`: DoPut.

A window of batches is unanswered. Bytes are those of the IPC messages that the other engines get, so that
rates compare.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pyarrow.flight as fl

from benchmarks.dataset import batches_of
from benchmarks.process import usage, used_since
from benchmarks.senders.report import print_report
from benchmarks.workload import load_all

ANSWER_TIMEOUT_S = 60.0


class Window:
    """Sends batches while fewer than `size` are unanswered; a thread reads the answers."""

    def __init__(self, writer: Any, reader: Any, size: int) -> None:
        self._writer, self._reader = writer, reader
        self._free = threading.Semaphore(size)
        self._sent: list[float] = []
        self.latencies_s: list[float] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while (answer := self._reader.read()) is not None:
            number = int.from_bytes(answer.to_pybytes(), "little")
            self.latencies_s.append(time.perf_counter() - self._sent[number])
            self._free.release()

    def send(self, batch: Any) -> None:
        if not self._free.acquire(timeout=ANSWER_TIMEOUT_S):
            raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S} s after {len(self._sent)} batches")
        self._sent.append(time.perf_counter())
        self._writer.write_batch(batch)

    def wait(self) -> None:
        """Until everything sent is answered."""
        end = time.monotonic() + ANSWER_TIMEOUT_S
        while len(self.latencies_s) < len(self._sent):
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self._sent) - len(self.latencies_s)} batches unanswered")
            time.sleep(0.0005)

    def send_many(self, batches: list[Any], count: int, seconds_max: float) -> int:
        """Send `count` batches, or those for which there is time, and wait. Returns how many were sent."""
        end = time.perf_counter() + seconds_max
        sent = 0
        while sent < count and time.perf_counter() < end:
            self.send(batches[sent % len(batches)])
            sent += 1
        self.wait()
        return sent

    def close(self) -> None:
        """End the stream: closing before the reader has seen its end would wait for ever."""
        self._writer.done_writing()
        self._thread.join(ANSWER_TIMEOUT_S)
        self._writer.close()


def main() -> None:
    address, name, pid, requests, warmup, seconds_max = sys.argv[1:]
    workload = load_all()[name]
    batches = batches_of(workload)
    sizes = [batch.serialize().size for batch in batches]
    client = fl.connect(address)
    writer, reader = client.do_put(fl.FlightDescriptor.for_path(name), batches[0].schema)
    window = Window(writer, reader, workload.window)
    before_it = window.send_many(batches, int(warmup), float(seconds_max))
    before, begin = usage(int(pid)), time.perf_counter()
    sent = window.send_many(batches, int(requests), float(seconds_max))
    seconds, after = time.perf_counter() - begin, usage(int(pid))
    print_report(
        requests=sent,
        rows=sent * workload.batch_rows,
        body_bytes=sum(sizes[number % len(sizes)] for number in range(sent)),
        seconds=seconds,
        latencies_s=window.latencies_s[before_it:],
        server=used_since(before, after),
    )
    window.close()


if __name__ == "__main__":
    main()
