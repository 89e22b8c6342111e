"""A topic under a load that has a shape over the slots, and the policy that splits and merges it.

One look is a few seconds. The loads are rates of the slots, and noise; owners answer with sketches, or have
none. Each decision is checked by the invariants of the policy, and carried out on a metadata log.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import NamedTuple

from ringfence.control.invariants import layout_policy
from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.state_machines.layout.hot_keys import Sketch
from ringfence.control.state_machines.layout.plan import BUCKETS
from ringfence.control.state_machines.layout.policy import LayoutDecision, Observations, decide_layout
from ringfence.control.state_machines.layout.policy_memory import LayoutMemory
from ringfence.control.state_machines.rebalance.loads import PartitionLoad
from tests.fakes.layout_log import LayoutLog

# Slots: a load names rates of intervals of them.
SLOTS = 65_536
MB = 1_000_000

# (first slot, last slot, bytes per second of the whole interval).
Shape = tuple[tuple[int, int, float], ...]


class Action(NamedTuple):
    """`bytes_s`: the true load of the sources, without noise."""

    at_s: float
    kind: TransitionKind
    sources: tuple[PartitionId, ...]
    bytes_s: float


def even(bytes_s: float) -> Shape:
    return ((0, SLOTS - 1, bytes_s),)


def rate(shape: Shape, lo: int, hi: int) -> float:
    """Bytes per second of the slots `lo` to `hi`."""
    return sum(
        size * max(0, min(hi, last) - max(lo, first) + 1) / (last - first + 1) for first, last, size in shape
    )


class PolicyWorld:
    """`noise`: each report is off by up to this part. `has_sketches`: owners answer when they are asked."""

    def __init__(
        self,
        *,
        partitions: int = 1,
        seed: int = 0,
        noise: float = 0.0,
        has_sketches: bool = True,
        look_s: float = 2.0,
        **config: int,
    ) -> None:
        self.log = LayoutLog(3, partitions=partitions)
        values = {"auto_split": 1, "auto_merge": 1, "policy_grace_s": 0} | config
        self.log.must(SetConfig(values=values))
        self.random, self.noise, self.has_sketches = random.Random(seed), noise, has_sketches
        self.look_ms = round(look_s * 1_000)
        self.now_ms = 1_000_000
        self.memory = LayoutMemory(self.now_ms)
        self.sketches: dict[PartitionId, Sketch] = {}
        self.lagging: set[PartitionId] = set()
        self.silent: set[PartitionId] = set()
        self.actions: list[Action] = []
        self.decision = LayoutDecision({})
        # Weight of bytes in a row.
        self.row_bytes = 500
        self.decide = decide_layout

    @property
    def active(self) -> list[Partition]:
        return sorted(self.log.active, key=lambda part: part.slots)

    def loads(self, shape: Shape) -> dict[PartitionId, PartitionLoad]:
        loads = {}
        for part in self.active:
            if part.partition in self.silent:
                continue
            size = rate(shape, *part.slots) * (1 + self.noise * (2 * self.random.random() - 1))
            loads[part.partition] = PartitionLoad(size, size / self.row_bytes)
        return loads

    def sketch(self, part: Partition, shape: Shape) -> Sketch:
        if not self.has_sketches:
            return Sketch()
        lo, hi = part.slots
        size = hi - lo + 1
        if size >= BUCKETS:
            edges = [lo - (-size * bucket // BUCKETS) for bucket in range(BUCKETS + 1)]
            weights = [
                round(rate(shape, first, last - 1) / 1_000) for first, last in itertools.pairwise(edges)
            ]
        else:
            weights = [0] * BUCKETS
            for slot in range(lo, hi + 1):
                weights[(slot - lo) * BUCKETS // size] += round(rate(shape, slot, slot) / 1_000)
        return Sketch(tuple(weights))

    def look(self, shape: Shape) -> LayoutDecision:
        """One look, checked; its actions are carried out."""
        self.now_ms += self.look_ms
        observed = Observations(self.loads(shape), self.sketches, self.lagging)
        before = self.memory
        self.decision, self.memory = self.decide(self.log.state, observed, self.now_ms, before)
        layout_policy.check(self.log.state, observed, self.now_ms, before, self.decision, self.memory)
        parts = {part.partition: part for part in self.active}
        self.sketches = {number: self.sketch(parts[number], shape) for number in self.decision.wants}
        for command in self.decision.commands:
            sources = tuple(number for number, _ in command.sources)
            size = sum(rate(shape, *parts[number].slots) for number in sources)
            self.actions.append(Action(self.now_ms / 1_000, command.kind, sources, size))
            self.log.done(command)
        return self.decision

    def run(self, seconds: float, shape: Shape | Callable[[float], Shape]) -> list[Action]:
        """Look for so long. The shape may depend on the seconds since the begin. Returns the new actions."""
        begun, count = self.now_ms, len(self.actions)
        while self.now_ms - begun < seconds * 1_000:
            self.look(shape((self.now_ms - begun) / 1_000) if callable(shape) else shape)
        return self.actions[count:]

    def why(self) -> str:
        """The explanation of the newest look."""
        return self.decision.topics[self.log.topic].why
