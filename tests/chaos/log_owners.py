"""When the owner of each gate changed, as the routing table of a topic told it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import ringfence
from ringfence.consumer.routes import Routes
from ringfence.native.errors import RingfenceError
from tests.chaos.cohort_record import LATE_S

LOOK_S: Final = 0.25


class OwnerChanges:
    """Pure. A change lies between two looks; a node may know it later than its owners, but not by LATE_S."""

    def __init__(self) -> None:
        self._changes = defaultdict[int, list[tuple[float, float]]](list)
        self._epochs: dict[int, int] = {}
        self._begun = 0.0

    def look(self, begun: float, ended: float, epochs: Mapping[int, int]) -> None:
        """By partition, the owner epoch of the log that has its gate, asked between two times."""
        for partition, epoch in epochs.items():
            if self._epochs.get(partition, epoch) < epoch:
                self._changes[partition].append((self._begun, ended))
        # A node that is behind tells an older table.
        self._epochs |= {one: max(epoch, self._epochs.get(one, 0)) for one, epoch in epochs.items()}
        self._begun = begun

    def may_lie_between(self, partition: int, begin: float, end: float) -> bool:
        """Whether an owner may have changed from `begin` to `end`, or so near that nodes knew it later."""
        return any(low - LATE_S <= end and begin <= high + LATE_S for low, high in self._changes[partition])

    def by_partition(self) -> dict[int, list[tuple[float, float]]]:
        """Each change as (last look before it, look after it)."""
        return dict(self._changes)

    def __len__(self) -> int:
        return sum(map(len, self._changes.values()))


class OwnerWatch:
    """A thread that looks at a topic's table until `finish`."""

    def __init__(self, addresses: str, topic: str) -> None:
        self.changes, self.failure = OwnerChanges(), list[BaseException]()
        self._addresses, self._topic = addresses, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            with ringfence.connect(self._addresses, timeout_s=10) as client:
                while not self._stop.wait(LOOK_S):
                    self._look(client)
        except BaseException as error:  # noqa: BLE001 - the run shows it
            self.failure.append(error)

    def _look(self, client: ringfence.Client) -> None:
        begun = time.monotonic()
        try:
            layout = client.layout(self._topic)
        except RingfenceError:
            return  # the next look's interval is the longer
        routes = Routes(layout)
        epochs = {one: epoch for one in layout.partitions if (epoch := routes.epoch_of(one)) is not None}
        self.changes.look(begun, time.monotonic(), epochs)
