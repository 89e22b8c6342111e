"""A named producer of a topic without key in a `CutWorld`: a send has a slot. Pure."""

from __future__ import annotations

import random
from typing import Final

from ringfence.common.send_effects import Piece
from ringfence.native.messages import ResumePoint
from ringfence.native.wire import SLOT_COUNT
from ringfence.send.inflight import Inflight
from ringfence.send.resume import ResumePoints, Rule, send_slot
from tests.fakes.cut_owners import SLOTS, Batch, Part
from tests.fakes.cut_planted import BlocksNothing, ForgetsHoles, KeepsWaiting
from tests.fakes.cut_walk import CutWalk
from tests.fakes.cut_world import FAR, CutWorld

WIDTH: Final = SLOT_COUNT // SLOTS
LINE_SLOT: Final = 3


class LaneGoesOn(Inflight):
    """After a hole the partition takes later sends."""

    def _make_lasting_hole(self, queue: object) -> list[object]:  # type: ignore[override]
        return []


class KeylessWorld(CutWorld):
    """`bug`: one of BUGS, or none."""

    BUGS: Final = {
        "greatest_point": "it goes on after the greatest send that any partition has",
        "least_of_known": "it goes on after the least point of the partitions that have one",
        "by_count": "the number modulo the ACTIVE partitions chooses, not a slot",
        "lane_to_one_child": "what a sealed partition did not take goes to one child as a whole",
        "leaves_out_away": "a partition that does not answer is left out",
        "spread_joins": "joined sends of a spread name are one batch under the last number",
        "numbers_go_on": "a successor counts on after the greatest number and skips nothing",
        "half_open": "the open ends before every slot is covered",
        "open_once": "the open counts sealed partitions as covered",
        "skip_by_partition": "a send is skipped by the greatest point of its partition",
        "hole_forgotten": "a hole of a sealed partition is none in its children",
        "waiting_sent": "what waits at the children of a partition with a hole is sent",
        "children_at_once": "children take later sends before the sealed partition is settled",
        "lane_goes_on": "after a hole the partition takes later sends",
    }
    MACHINES: Final[dict[str, type[Inflight]]] = {
        "hole_forgotten": ForgetsHoles,
        "waiting_sent": KeepsWaiting,
        "children_at_once": BlocksNothing,
        "lane_goes_on": LaneGoesOn,
    }

    def __init__(self, rule: Rule, *, bounds: tuple[int, ...] = (4,), bug: str = "", seed: int = 0) -> None:
        super().__init__(named=True, bounds=bounds, machine_type=self.MACHINES.get(bug, Inflight))
        self.rule, self.bug, self.dice = rule, bug, random.Random(seed)
        self.topic.checks_slots = False
        self.ahead = 0  # planted: how much the numbers of a successor are above those of its sends

    def send(self, slots: list[int], *, deadline: float = FAR, encoded: int | None = None) -> None:
        """The next send, or two of a line that are joined; `slots` is ignored."""
        if self.covered is not None:
            return
        count = 2 if self._joins() and self.dice.random() < 0.4 else 1
        first, last = self.sent + 1, self.sent + count
        self.sent = last
        slot = self._slot_of(last)
        rows = tuple((one, slot) for one in range(first, last + 1))
        routes = self.topic.tables[self.held if encoded is None else encoded]
        partition = next(one for one, (lo, hi) in routes.active.items() if lo <= slot <= hi)
        if self._is_skipped(last, slot, partition):
            self._tell(rows, "D")
            return
        if self.bug == "leaves_out_away" and self.dice.random() < 0.3:
            partition = self.dice.choice(sorted(routes.active))
        key = self._new(Batch(rows, last + self.ahead))
        self.run(self.machine.submit(key, partition, deadline, last + self.ahead))

    def _joins(self) -> bool:
        return self.rule is Rule.LINE or self.bug == "spread_joins"

    def _slot_of(self, number: int) -> int:
        if self.rule is Rule.LINE:
            return LINE_SLOT
        if self.bug == "by_count":
            active = sorted(self.table.active.items(), key=lambda one: one[1])
            return active[number % len(active)][1][0]
        return send_slot(number) // WIDTH

    def _is_skipped(self, number: int, slot: int, partition: int) -> bool:
        if self.bug == "numbers_go_on":
            return False
        if self.bug == "skip_by_partition":
            lo, hi = self.topic.parts[partition].slots
            return number <= max(self.points.get(one, 0) for one in range(lo, hi + 1))
        return number <= self.points.get(slot, 0)

    def route_again(self, count: int = 1) -> None:
        for _ in range(count):
            key = self.machine.next_unrouted()
            if key is None:
                return
            batch = self.batches[key]
            former = self.topic.parts[self.machine._entries[key].partition].slots
            slot = former[0] if self.bug == "lane_to_one_child" else batch.rows[0][1]
            partition = next(one for one, (lo, hi) in self.table.active.items() if lo <= slot <= hi)
            self.run(self.machine.rerouted(key, [Piece(self._new(batch), partition, slot)]))

    def raise_at(self, part: Part) -> None:
        before = self.covered
        super().raise_at(part)
        if self.covered is not None and self.bug == "half_open" and self.covered:
            self.points, self.covered = self.covered, None
        if self.covered is not None and self.bug == "open_once":
            for sealed in self.topic.parts.values():
                if sealed.sealed:
                    for slot in range(sealed.slots[0], sealed.slots[1] + 1):
                        self.covered.setdefault(slot, sealed.points.get(slot, 0))
            if len(self.covered) == SLOTS:
                self.points, self.covered = self.covered, None
        if before is not None and self.covered is None:
            self._resume()

    def _resume(self) -> None:
        points = [
            ResumePoint(
                partition=0,
                sequence=0,
                send=send,
                note=None,
                first_offset=0,
                rows=0,
                lo=slot * WIDTH,
                hi=(slot + 1) * WIDTH - 1,
            )
            for slot, send in self.points.items()
            if send
        ]
        known = ResumePoints(points, lambda _: (0, -1))
        found = known.resume_from(self.rule, "n", has_key=False)
        if self.rule is Rule.LINE:
            self.sent = self.points.get(LINE_SLOT, 0)
        else:
            self.sent = 0 if found is None else found.send
        sends = [send for send in self.points.values() if send]
        if self.bug == "greatest_point":
            self.sent = max(sends, default=0)
        if self.bug == "least_of_known":
            self.sent = min(sends, default=0)
        if self.bug == "numbers_go_on":
            self.ahead = max(sends, default=0) - self.sent
        for number in range(1, self.sent + 1):
            self._tell([(number, self._slot_of(number))], "D")

    def check(self) -> None:
        """K5, K8, and L3 to L5 over all partitions: a row may be anywhere."""
        stored: list[int] = []
        for part in self.topic.parts.values():
            last = (0, 0)
            for record in part.records:
                at = record.identity.producer_epoch, record.batch.send
                assert at > last, f"K5: {part.partition} takes send {at} after {last}: a node refuses it"
                last = at
                stored += [send for send, _ in record.batch.rows]
        assert len(set(stored)) == len(stored), f"I5: sends {sorted(stored)}: one twice"
        told = {send: outcome for (send, _), outcome in self.outcomes.items()}
        lost = [send for send, outcome in told.items() if outcome == "D" and send not in stored]
        assert not lost, f"I5: sends {lost} count as stored and are nowhere"
        wrong = [send for send, outcome in told.items() if outcome == "R" and send in stored]
        assert not wrong, f"L5: sends {wrong} are refused and stored"
        for slot in range(SLOTS):
            sends = self.topic.lineage(slot)
            assert sends == sorted(sends), f"I7: slot {slot} has sends {sends}"


def play_keyless(seed: int, rule: Rule, *, bug: str = "", steps: int = 250) -> KeylessWorld:
    """One walk, another process that takes over in the end, and what must hold."""
    world = KeylessWorld(rule, bounds=[(4,), (2, 5), (), (3,)][seed % 4], bug=bug, seed=seed)
    walk = CutWalk(world, seed)
    walk.faults -= {"prune", "give back", "old layout"}
    for name in ("prune", "give back"):
        walk.weights.pop(name, None)
    walk.walk(steps)
    world.settle()
    world.check()
    world.kill()
    world.settle()
    records = [record for part in world.topic.parts.values() for record in part.records]
    sent = max((send for record in records for send, _ in record.batch.rows), default=0)
    while world.sent < sent + 3:
        world.send([])
    world.settle()
    world.check()
    return world
