"""A random walk through a `CutWorld`; each seed has its own mix of steps, so rare ones also come often."""

from __future__ import annotations

import random
from typing import Final

from tests.fakes.cut_owners import SLOTS, Part
from tests.fakes.cut_world import CutWorld

WEIGHTS: Final = {
    "send": 5,
    "transmit": 8,
    "route": 6,
    "serve": 9,
    "serve late": 1,
    "deliver": 9,
    "lose": 1.5,
    "advance": 1.5,
    "table": 3,
    "epoch": 2,
    "hold": 1,
    "abort": 0.4,
    "commit": 2,
    "overloaded": 0.5,
    "kill": 1,
    "raise": 2,
    "prune": 0.1,
    "give back": 0.1,
}
VERSIONS_MAX = 6
KILLS_MAX = 4
ENDS_BATCHES: Final = {"deadline", "give back", "prune"}
"""Faults after which a batch may end as refused or unknown."""


class CutWalk:
    """`faults`: steps that the walk may take beside the ordinary ones; others are left out."""

    FAULTS: Final = ("lose", "deadline", "abort", "overloaded", "kill", "old layout", "prune", "give back")

    def __init__(self, world: CutWorld, seed: int, faults: tuple[str, ...] = FAULTS) -> None:
        self.world, self.dice = world, random.Random(seed)
        self.faults = {fault for fault in faults if self.dice.random() < 0.7}
        self.life_s = 0.15 if "deadline" in self.faults else 1e9
        self.sources: list[Part] = []
        self.only_merges = self.dice.random() < 0.3
        self.weights = {
            name: weight * self.dice.choice([0.3, 1, 3])
            for name, weight in WEIGHTS.items()
            if name not in self.FAULTS or name in self.faults
        }

    def walk(self, steps: int) -> None:
        for name in self.dice.choices(list(self.weights), list(self.weights.values()), k=steps):
            self.step(name)

    def step(self, name: str) -> None:
        world, dice = self.world, self.dice
        match name:
            case "send":
                self.send()
            case "transmit":
                world.transmit()
            case "route":
                world.route_again(dice.choice([1, 1, 5]))
            case "serve" if world.requests:
                world.serve(dice.randrange(len(world.requests)))
            case "overloaded" if world.requests:
                world.serve(dice.randrange(len(world.requests)), "overloaded")
            case "serve late" if world.late:
                world.serve_late(dice.randrange(len(world.late)))
            case "deliver" if world.replies:
                world.deliver(dice.randrange(len(world.replies)))
            case "lose" if world.requests or world.replies:
                world.lose(dice.randrange(len(world.requests) + len(world.replies)))
            case "advance":
                world.advance(dice.choice([0.001, 0.02, 0.1]))
            case "table":
                world.table_comes(dice.randint(world.held, world.topic.version))
            case "epoch":
                world.reopen()
            case "kill" if world.named and world.kills < KILLS_MAX:
                world.kill()
            case "raise":
                world.raise_at(dice.choice(world.topic.active()))
            case _:
                self.change_layout(name)

    def send(self) -> None:
        """Mostly of all slots; sometimes encoded before the newest table came."""
        world, dice = self.world, self.dice
        slots = list(range(SLOTS)) if dice.random() < 0.5 else sorted(dice.sample(range(SLOTS), 3))
        encoded = None
        if "old layout" in self.faults and dice.random() < 0.3:
            encoded = dice.randint(1, world.held)
        world.send(slots, deadline=world.now + self.life_s, encoded=encoded)

    def change_layout(self, name: str) -> None:
        dice, topic = self.dice, self.world.topic
        old = [part for part in topic.parts.values() if part.sealed and not part.is_pruned]
        match name:
            case "hold" if not self.sources and topic.version < VERSIONS_MAX:
                active = topic.active()
                first = dice.randrange(len(active))
                self.sources = active[
                    first : first + (2 if self.only_merges else dice.choice([1, 1, 2, 2, 3]))
                ]
                topic.hold(self.sources)
            case "abort":
                self.sources = []
                topic.abort()
            case "commit" if self.sources:
                lo, hi = self.sources[0].slots[0], self.sources[-1].slots[1]
                if self.only_merges and len(self.sources) > 1:
                    topic.commit(self.sources, [lo])
                    self.sources = []
                    return
                inner = list(range(lo + 1, hi + 1))
                count = dice.choice([0, 1, 1, 2]) if len(self.sources) > 1 else dice.choice([1, 2])
                edges = [lo, *sorted(dice.sample(inner, min(count, len(inner))))]
                topic.commit(self.sources, edges)
                self.sources = []
            case "give back" if old:
                dice.choice(old).is_given_back = True
            case "prune" if old:
                topic.prune(min(old, key=lambda part: part.created))


def play(seed: int, *, named: bool, machine_type: type | None = None, steps: int = 250) -> CutWorld:
    """One walk to its end, checked."""
    bounds = [(4,), (2, 5), (), (3,)][seed % 4]
    world = CutWorld(
        named=named, bounds=bounds, **({} if machine_type is None else {"machine_type": machine_type})
    )
    walk = CutWalk(world, seed)
    walk.walk(steps)
    world.settle()
    world.check()
    if not walk.faults & ENDS_BATCHES:
        failed = [row for row, outcome in world.outcomes.items() if outcome != "D"]
        assert not failed, f"B5: a layout change alone ends {failed[:3]}"
    return world
