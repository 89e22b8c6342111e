"""Explicit-state search: every state that a world can reach, breadth first, each one checked.

A world gives its first state, the steps out of a state, and what is wrong with one. States are hashable.
After the last state was found, ends are looked for backwards: a state from which no end can be reached
without another fault is a dead one (I13). The shortest way to what is wrong is told.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, Protocol

STATES_MAX = 2_000_000
"""About 2 GB: a world that has more is too large to be exhausted here."""


class Step(NamedTuple):
    label: str
    after: Hashable
    is_fault: bool = False


class World(Protocol):
    def first(self) -> Hashable: ...
    def steps(self, state: Hashable) -> Iterable[Step]: ...
    def wrong(self, state: Hashable) -> str | None: ...
    def is_end(self, state: Hashable) -> bool: ...


class Found(NamedTuple):
    """What a search gave: `wrong` is None if nothing is; `way` leads to it from the first state."""

    states: int
    steps: int
    ends: int
    wrong: str | None
    way: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = f"{self.states} states, {self.steps} steps, {self.ends} ends"
        return told if self.wrong is None else "\n  ".join([f"{told}: {self.wrong}", *self.way])


def exhaust(world: World) -> Found:
    """All of a world, or what is wrong with it."""
    first = world.first()
    number: dict[Hashable, int] = {first: 0}
    states: list[Hashable] = [first]
    parents: list[tuple[int, str]] = [(-1, "")]
    back: list[list[int]] = [[]]
    """For each state those that lead to it by a step that is no fault."""
    ends: list[int] = []
    count, at = 0, 0

    def way(to: int) -> tuple[str, ...]:
        labels = []
        while parents[to][0] >= 0:
            labels.append(parents[to][1])
            to = parents[to][0]
        return tuple(reversed(labels))

    while at < len(states):
        state = states[at]
        wrong = world.wrong(state)
        if wrong is not None:
            return Found(len(states), count, len(ends), wrong, way(at))
        if world.is_end(state):
            ends.append(at)
        for step in world.steps(state):
            count += 1
            known = number.get(step.after)
            if known is None:
                known = number[step.after] = len(states)
                assert known < STATES_MAX, f"more than {STATES_MAX} states"
                states.append(step.after)
                parents.append((at, step.label))
                back.append([])
            if not step.is_fault and known != at:
                back[known].append(at)
        at += 1
    dead = _dead(back, ends)
    if dead is None:
        return Found(len(states), count, len(ends), None)
    return Found(len(states), count, len(ends), "I13: no end can be reached from here", way(dead))


def _dead(back: list[list[int]], ends: list[int]) -> int | None:
    """The first state that leads to no end."""
    alive = bytearray(len(back))
    for end in ends:
        alive[end] = 1
    waiting = list(ends)
    while waiting:
        for before in back[waiting.pop()]:
            if not alive[before]:
                alive[before] = 1
                waiting.append(before)
    return next((at for at, is_alive in enumerate(alive) if not is_alive), None)
