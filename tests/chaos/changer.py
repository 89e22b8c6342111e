"""Changes the layout of a topic all the while: splits, merges and repartitions beside moves and faults."""

from __future__ import annotations

import random
import threading

import ringfence
from ringfence.native.errors import RingfenceError
from tests.chaos.fleet import Fleet
from tests.harness.random_layout import changed_at_random

WAIT_S = 30.0
"""For the end of one change. It waits for nodes that are away; a command that gives up does not end it."""
PAUSE_S = 1.0, 4.0
"""Between two changes: moves of the same partitions are refused while one is open."""


class Changer:
    """A thread; `changed` counts the changes whose end it was told, `refused` all others.

    A split and a merge come first, and any kinds behind them. `missing` names what has not come yet.
    """

    def __init__(self, fleet: Fleet, topic: str, seed: int) -> None:
        self.changed = self.refused = 0
        self.missing = ["split", "merge"]
        self.failure: BaseException | None = None
        self._addresses, self._topic, self._dice = fleet.addresses, topic, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(4 * WAIT_S)
        if self._thread.is_alive():
            self.failure = TimeoutError(f"a layout change is not answered within {4 * WAIT_S:.0f} s")

    def _run(self) -> None:
        try:
            with ringfence.connect(self._addresses, timeout_s=WAIT_S) as client:
                while not self._stop.wait(self._dice.uniform(*PAUSE_S)):
                    self._one(client)
        except BaseException as error:  # noqa: BLE001 - the run shows it
            self.failure = error

    def _one(self, client: ringfence.Client) -> None:
        try:
            kind = self.missing[0] if self.missing else ""
            done = changed_at_random(client, self._topic, self._dice, WAIT_S, kind).partition(",")[0]
        except RingfenceError:  # a node is away, a partition moves, a change was aborted, no answer
            self.refused += 1
        else:
            self.changed += 1
            self.missing = [one for one in self.missing if one != done]


def active(addresses: str, topic: str) -> list[int]:
    """The partitions that take rows now."""
    with ringfence.connect(addresses, timeout_s=WAIT_S) as client:
        return [part.partition for part in client.layout(topic).active]
