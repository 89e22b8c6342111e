"""Readers that follow their partitions through everything, and remember what stood at which offset."""

from __future__ import annotations

import threading

import ringfence
from ringfence.control.cli.cluster_load import NUMBER, PRODUCER, identity_of
from ringfence.native.errors import RingfenceError
from tests.chaos.seen import Seen

FETCH_S = 10.0
CLOSE_S = 30.0


class Follower:
    """A reader in a thread; errors that a retry can help are counted and retried."""

    def __init__(self, addresses: str, topic: str, partitions: list[int]) -> None:
        self.seen, self.retries, self.partitions = Seen(), 0, partitions
        self.failure: BaseException | None = None
        self._topic = topic
        self._closing = False
        self._client = ringfence.connect(addresses, timeout_s=FETCH_S)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._client.close()

    def finish(self) -> None:
        """After `close`."""
        self._thread.join(CLOSE_S)
        if self._thread.is_alive() and self.failure is None:
            self.failure = TimeoutError(f"it does not end within {CLOSE_S:.0f} s of its client's end")

    def _run(self) -> None:
        try:
            reader = self._client.read(
                self._topic, partition=self.partitions, follow=True, columns=[PRODUCER, NUMBER]
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
                self.seen.add(where.partition, where.first_offset, *identity_of(batch))
        except BaseException as error:  # noqa: BLE001 - the run shows it
            if not self._closing:
                self.failure = error
