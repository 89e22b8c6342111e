"""Readers that follow their partitions through everything, and remember what stood at which offset."""

from __future__ import annotations

import threading
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

import ringfence
from ringfence.control.cli.cluster_load import NUMBER, PRODUCER, Order, ProofError, identity_of
from ringfence.native.errors import RingfenceError

FETCH_S = 10.0


class Seen:
    """Rows by partition and offset: (first offset, producers, numbers) of each batch."""

    def __init__(self) -> None:
        self.rows = 0
        self._batches: dict[int, list[tuple[int, NDArray[np.int32], NDArray[np.int64]]]] = defaultdict(list)

    def add(
        self, partition: int, first: int, producers: NDArray[np.int32], numbers: NDArray[np.int64]
    ) -> None:
        self._batches[partition].append((first, producers, numbers))
        self.rows += len(numbers)

    def partitions(self) -> list[int]:
        return sorted(self._batches)

    def columns(self, partition: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Offsets, ascending, and one number that tells producer and row, for each."""
        batches = self._batches[partition]
        offsets = np.concatenate([first + np.arange(len(numbers)) for first, _, numbers in batches])
        rows = np.concatenate([numbers * 1_000 + producers for _, producers, numbers in batches])
        order = np.argsort(offsets, kind="stable")
        return offsets[order], rows[order]


def compare(read: Seen, followed: Seen) -> None:
    """What was followed stands there at the end, each row at its offset. Raises ProofError."""
    for partition in followed.partitions():
        offsets, rows = followed.columns(partition)
        if (np.diff(offsets) <= 0).any():
            raise ProofError(f"partition {partition}: an offset was given out twice to one reader")
        known, truth = read.columns(partition)
        at = np.searchsorted(known, offsets)
        if (at >= len(known)).any() or (known[np.minimum(at, len(known) - 1)] != offsets).any():
            raise ProofError(f"partition {partition}: rows were read, and are not there at the end")
        if (truth[at] != rows).any():
            wrong = int(offsets[int(np.argmax(truth[at] != rows))])
            raise ProofError(f"partition {partition}: two rows were seen at offset {wrong}")


class Follower:
    """A reader in a thread; errors that a retry can help are counted and retried."""

    def __init__(self, addresses: str, topic: str, partitions: list[int]) -> None:
        self.seen, self.retries = Seen(), 0
        self.failure: BaseException | None = None
        self._addresses, self._topic, self._partitions = addresses, topic, partitions
        self._order = Order()
        self._closing = False
        self._client = ringfence.connect(addresses, timeout_s=FETCH_S)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._closing = True
        self._client.close()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            reader = self._client.read(
                self._topic, partition=self._partitions, follow=True, columns=[PRODUCER, NUMBER]
            )
            while True:
                try:
                    batch = next(reader)
                except RingfenceError:
                    if self._closing:
                        return
                    self.retries += 1
                    continue
                where = reader.place
                assert where is not None
                self._order.look(where, batch)
                self.seen.add(where.partition, where.first_offset, *identity_of(batch))
        except (RingfenceError, ProofError, AssertionError, StopIteration) as error:
            if not self._closing:
                self.failure = error
