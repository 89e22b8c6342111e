"""A producer that sends at a fixed rate, or as fast as it may, and knows when each batch was acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa

import ringfence

BATCH_BYTES = 64 << 10
"""At 20 MB/s one every 3 ms: finer than the gaps that are wanted."""
WINDOW = 64
"""Batches without an answer; a producer keeps no more under way to one partition."""
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


class Steady:
    """Sends to one topic, `bytes_per_s` (inf: no pause); leaving the context waits for all answers.

    `name`: of a producer with a name. `errors`: of sends and of the producer; leaving raises the first one if
    it `raises`.
    """

    def __init__(
        self,
        addresses: str,
        topic: str,
        bytes_per_s: float,
        batch_bytes: int = BATCH_BYTES,
        name: str | None = None,
        *,
        raises: bool = True,
    ) -> None:
        self.batch_bytes = batch_bytes
        self.acknowledged_s: list[float] = []
        self.waits_s: list[float] = []
        self.errors: list[BaseException] = []
        self._addresses, self._topic, self._pause_s = addresses, topic, batch_bytes / bytes_per_s
        self._name, self._raises = name, raises
        self._stop = threading.Event()
        self._room = threading.Semaphore(WINDOW)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        if self.errors and self._raises:
            raise self.errors[0]

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        """Between two acknowledgements next to each other, within these moments of `time.perf_counter`."""
        seen = [at for at in self.acknowledged_s if since_s <= at <= until_s]
        return max(np.diff([since_s, *seen, until_s])) if seen else until_s - since_s

    def flow(self, phases: Sequence[tuple[float, float]]) -> dict[str, float]:
        """Rate and latency over all of these (from, until), in seconds of `time.perf_counter`."""
        waits = [
            wait
            for at, wait in zip(list(self.acknowledged_s), list(self.waits_s), strict=False)
            if any(since <= at < until for since, until in phases)
        ]
        p50, p99 = np.quantile(waits, [0.5, 0.99]) if waits else (float("nan"), float("nan"))
        seconds = sum(until - since for since, until in phases)
        return {
            "mb_per_s": round(len(waits) * self.batch_bytes / seconds / 1e6, 1),
            "seconds": round(seconds, 1),
            "p50_ms": round(p50 * 1e3, 1),
            "p99_ms": round(p99 * 1e3, 1),
        }

    def _run(self) -> None:
        batch = pa.record_batch([pa.array(np.arange(self.batch_bytes // 8))], schema=SCHEMA)
        try:
            with (
                ringfence.connect(self._addresses) as client,
                client.producer(self._topic, name=self._name, timeout_s=60) as producer,
            ):
                due = time.perf_counter()
                while not self._stop.is_set():
                    self._room.acquire()
                    began = time.perf_counter()
                    producer.send(batch).add_done_callback(partial(self._done, began))
                    due = max(due + self._pause_s, began - self._pause_s)
                    time.sleep(max(0.0, due - time.perf_counter()))
        except BaseException as error:  # noqa: BLE001 - raised again where the context ends
            self.errors.append(error)

    def _done(self, began: float, future: Future[Any]) -> None:
        now = time.perf_counter()
        self._room.release()
        error = future.exception()
        if error is not None:
            self.errors.append(error)
            return
        self.waits_s.append(now - began)
        self.acknowledged_s.append(now)
