"""One fault behind another, each kind in turn, paced by what the cluster gets done meanwhile.

A clock alone would end on a slow machine before enough had happened: the next fault waits until its share of
the rows is there, and a run goes on beyond its time until its goals are met.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.chaos.faults import FAULTS
from tests.chaos.fleet import NODES, Fleet
from tests.chaos.goals import MAIN, OTHER, Counts, Goals
from tests.chaos.mover import Mover

OVERTIME_S = 600.0
"""Then a machine is ten times too slow for the short form, or the cluster is stuck."""
WAIT_MOVE_S, WAIT_ROWS_S = 3.0, 6.0
"""For a move to be under way, and for rows; then the fault comes all the same."""
MOVING_SHARE = 0.7
"""Of the faults wait for a move to be under way."""


class Strike(NamedTuple):
    """A fault of one node, and when."""

    kind: str
    node: int
    begin: float
    end: float


@dataclass
class Harmer:
    """Does harm to `fleet`; `rows` tells how many were acknowledged so far."""

    fleet: Fleet
    mover: Mover
    goals: Goals
    rows: Callable[[], int]
    seed: int
    is_broken: Callable[[], bool] = lambda: False
    """True: a writer or reader has failed; what comes then shows nothing more."""
    is_enough: Callable[[], bool] = lambda: True
    """Whether all else has happened that a run must have seen."""

    def __post_init__(self) -> None:
        self.ended: list[str] = []
        """Nodes that ended by themselves: no fault does that to a node."""
        self._dice = random.Random(self.seed)
        self.strikes = list[Strike]()
        self._done, self._while_moving = Counter[str](), 0
        self._bag: list[str] = []

    def counts(self) -> Counts:
        return Counts(self._done, self._while_moving, self.mover.committed, self.rows())

    def run(self, seconds: float) -> None:
        begun = time.monotonic()
        while (spent := time.monotonic() - begun) < seconds + OVERTIME_S and not self.is_broken():
            if spent >= seconds and not self.goals.missing(self.counts()) and self.is_enough():
                return
            self._pace()
            self._one(spent)
            self._look()
            time.sleep(self._dice.uniform(0.2, 1.0))

    def _next_kind(self) -> str:
        if not self._bag:  # the main ones twice as often; each once before any comes again
            dice = self._dice
            self._bag = [*dice.sample(MAIN, len(MAIN)), *dice.sample(MAIN + OTHER, len(MAIN + OTHER))]
        return self._bag.pop()

    def _pace(self) -> None:
        due = self._done.total() * self.goals.rows // self.goals.faults
        end = time.monotonic() + WAIT_ROWS_S
        while self.rows() < due and time.monotonic() < end:
            time.sleep(0.05)
        if self._dice.random() < MOVING_SHARE:
            self.mover.moving.wait(WAIT_MOVE_S)

    def _one(self, spent: float) -> None:
        kind, place = self._next_kind(), self._dice.randrange(NODES)
        is_moving = self.mover.moving.is_set()
        while_moving = ", while partitions move" if is_moving else ""
        print(
            f"{spent:6.1f} s: {kind} of node {self.fleet.id(place)}{while_moving}",
            file=sys.stderr,
            flush=True,
        )
        begun = time.monotonic()
        FAULTS[kind](self.fleet, place, self._dice)
        self.strikes.append(Strike(kind, self.fleet.id(place), begun, time.monotonic()))
        self._done[kind] += 1
        self._while_moving += is_moving

    def _look(self) -> None:
        for place in range(NODES):
            if not self.fleet.alive(place):
                process = self.fleet.nodes[place].process
                code = None if process is None else process.returncode
                self.ended.append(f"node {self.fleet.id(place)} ended by itself with {code}")
                self.fleet.nodes[place].start()
