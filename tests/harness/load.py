"""Producers that keep sending while a test does harm, and remember exactly what was acknowledged."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import ringfence
from tests.harness.processes import batch

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path


PAUSE_S: Final = 0.002
"""Between two batches. Without a pause a producer takes a whole core, and each row is compared at the end."""


class Load:
    """One thread with one producer: batches of `rows` rows with ascending ids until stopped."""

    def __init__(
        self,
        address: str,
        topic: str,
        producer: int,
        *,
        rows: int = 50,
        window: int = 16,
        timeout_s: float = 120,
        pause_s: float = PAUSE_S,
        token_file: Path | None = None,
    ) -> None:
        self.address, self.topic, self.producer = address, topic, producer
        self.rows, self.window, self.timeout_s = rows, window, timeout_s
        self.pause_between_s, self.token_file = pause_s, token_file
        self.sent = 0
        self.acknowledged: list[int] = []
        self.answered_s: list[float] = []
        """When each batch was settled, by the monotonic clock."""
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Load:
        self._thread.start()
        return self

    def finish(self, timeout_s: float = 180) -> None:
        """Stop sending, wait for every outcome. Raises the first error that the producer saw."""
        self._stop.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"producer {self.producer} did not end"

    def pause_s(self, since_s: float) -> float:
        """The longest time without an outcome since then: what a change of owners cost this producer."""
        times = sorted(self.answered_s)
        return max((after - before for before, after in pairwise(times) if after >= since_s), default=0.0)

    def _run(self) -> None:
        try:
            with (
                ringfence.connect(self.address, token_file=self.token_file) as client,
                client.producer(self.topic, timeout_s=self.timeout_s) as producer,
            ):
                waiting: list[tuple[int, Future[Any]]] = []
                while not self._stop.is_set():
                    sending = producer.send(batch(self.sent, self.rows, self.producer))
                    sending.add_done_callback(lambda _: self.answered_s.append(time.monotonic()))
                    waiting.append((self.sent, sending))
                    self.sent += self.rows
                    while len(waiting) > self.window:
                        self._settle(*waiting.pop(0))
                    if self.pause_between_s:
                        self._stop.wait(self.pause_between_s)
                for start, future in waiting:
                    self._settle(start, future)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            self.errors.append(error)

    def _settle(self, start: int, future: Future[Any]) -> None:
        appended = future.result(self.timeout_s)
        assert sum(part.rows for part in appended) == self.rows
        self.acknowledged.extend(range(start, start + self.rows))
