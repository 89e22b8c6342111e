"""Moves partitions all the while: onto other nodes, to another owner, off a node that is drained."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from ringfence.control.runtime.rpc import messages
from ringfence.native.errors import RingfenceError
from tests.chaos.fleet import NODES, Fleet

REPLICAS = 3
DRAIN_EVERY = 8
"""Every so many runs one is a drain, which moves all that a node has; it gets it back by later moves."""
LOOK_S = 0.1
RUN_S = 60.0
"""A run that does not end within this is cancelled: it waits for a node that is away, say."""


class Mover:
    """A thread; `committed` counts moves that the metadata says are done."""

    def __init__(self, fleet: Fleet, partitions: Callable[[], list[int]], seed: int) -> None:
        self.committed = self.failed = self.refused = self.drains = 0
        self.moving = threading.Event()
        self.failure: BaseException | None = None
        self._fleet, self._partitions, self._dice = fleet, partitions, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(2 * RUN_S)
        if self._thread.is_alive():
            self.failure = TimeoutError(f"a cancelled run of moves does not end within {2 * RUN_S:.0f} s")

    def _run(self) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                number += 1
                self._one(number)
                self._stop.wait(0.2)
        except BaseException as error:  # noqa: BLE001 - the run shows it
            self.failure = error

    def _one(self, number: int) -> None:
        nodes = [self._fleet.id(place) for place in range(NODES)]
        favoured = self._fleet.favoured
        try:
            partitions = self._partitions()
        except RingfenceError:  # no node tells the layout just now
            self.refused += 1
            return
        if number % DRAIN_EVERY == 0 and favoured is None:
            node = self._dice.choice(nodes)
            call = messages.SteerRebalance(verb="start", action="drain", node=node)
        else:
            node = 0
            moves = tuple(
                (partition, tuple(self._dice.sample(nodes, REPLICAS)))
                for partition in self._dice.sample(partitions, min(4, len(partitions)))
            )
            moves = tuple(
                (partition, tuple(sorted(replicas, key=lambda one: one != favoured)))
                for partition, replicas in moves
            )
            call = messages.SteerRebalance(verb="start", action="move", moves=moves)
        try:
            run = int(self._fleet.asked(call)["run"])
        except RingfenceError:  # nobody leads just now, a node is away, nothing to move
            self.refused += 1
            return
        self.moving.set()
        self._await(run)
        self.moving.clear()
        if node:
            self.drains += 1
            self._undrain(node)

    def _await(self, run: int) -> None:
        end, cancelled = time.monotonic() + RUN_S, False
        while True:
            try:
                shown = self._fleet.asked(messages.SteerRebalance(verb="show"))
                if shown["run"] != run or shown["state"] == "IDLE":
                    self.committed += shown["counts"].get("COMMITTED", 0) if shown["run"] == run else 0
                    self.failed += shown["counts"].get("FAILED", 0) if shown["run"] == run else 0
                    return
                if not cancelled and (time.monotonic() > end or self._stop.is_set()):
                    self._fleet.asked(messages.SteerRebalance(verb="cancel"))
                    cancelled = True
            except RingfenceError:
                pass
            time.sleep(LOOK_S)

    def _undrain(self, node: int) -> None:
        while not self._stop.is_set():
            try:
                self._fleet.told(messages.ChangeNode(node=node, change="undrain"))
            except RingfenceError:
                time.sleep(LOOK_S)
            else:
                return
