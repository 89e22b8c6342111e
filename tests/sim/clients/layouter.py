"""An operator who splits, merges and repartitions, and aborts what has not taken effect, at any node."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.common.codec import Answer
from ringfence.native import layout_messages, messages
from ringfence.native.wire import Code, Opcode, Status
from tests.sim.checks.lineage_ledger import LineageLedger
from tests.sim.clients.customer import ClusterClient

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

BEAT_US: Final = 100_000
PATIENCE_US: Final = 4_000_000
SOON_US: Final = 300_000
"""Until an aborted change must have begun."""
OTHERS: Final = ("public/default/a", "public/default/b")
EMPTIED: Final = 0.7
"""Share of sealed partitions that retention empties at a time."""
ACTIVE_MAX: Final = 12
"""ACTIVE partitions above which it rather merges."""
LINEAGE_MAX: Final = 60
"""Partitions of the lineage above which it asks for nothing more: each costs every later step."""


class Layouter(ClusterClient):
    """`dice` are a strike's: which change, of what."""

    def __init__(self, world: Simulation, random: Random, topic: str) -> None:
        super().__init__(world, "lay", random)
        self._simulation, self.topic = world, topic
        if world.plan.layouts:
            world.agenda.after(random.randrange(BEAT_US), self._beat)

    def _beat(self) -> None:
        self.lose_patience()
        self.world.agenda.after(BEAT_US, self._beat)

    def split(self, dice: Random) -> None:
        """At the middle, at any slots, or into several."""
        parts = self._active()
        if not parts:
            return
        if len(parts) > ACTIVE_MAX:
            self.merge(dice)
            return
        part = dice.choice(parts)
        lo, hi = part.slots
        kind = dice.random()
        more: dict[str, Any] = {}
        if kind < 0.4 and hi > lo:
            more["at"] = sorted({dice.randrange(lo + 1, hi + 1) for _ in range(dice.choice([1, 1, 2]))})
        elif kind < 0.7:
            more["into"] = dice.choice([2, 3, 4])
        self.ask_for("split", [int(part.partition)], **more)

    def merge(self, dice: Random) -> None:
        """Two neighbours."""
        parts = self._active()
        if len(parts) > 1:
            first = dice.randrange(len(parts) - 1)
            pair = [int(part.partition) for part in parts[first : first + 2]]
            self.ask_for("merge", pair if dice.random() < 0.5 else pair[::-1])

    def repartition(self, dice: Random) -> None:
        if self._active():
            self.ask_for("repartition", [], into=dice.randrange(1, ACTIVE_MAX))

    def split_other(self, dice: Random) -> None:
        """A topic without rows, which an administrator may delete at any time."""
        state = self.world.watch.newest[1]
        topics = [] if state is None else [one for one in state.topics.values() if one.name in OTHERS]
        if topics:
            topic = dice.choice(topics)
            active = topic.layout.active()
            if len(active) < ACTIVE_MAX:
                self.ask_for("split", [int(dice.choice(active).partition)], topic=topic.name)

    def empty_sealed(self, dice: Random) -> None:
        """Retention has taken all rows of some sealed partitions: they are pruned, parents first."""
        ledger = self.world.ledger
        if isinstance(ledger, LineageLedger):
            for number, (end, _) in sorted(ledger.ends.items()):
                if dice.random() < EMPTIED:
                    self._simulation.admin.truncates_to(self.topic, ledger.partitions[number], end)

    def abort(self, dice: Random) -> None:
        """One that is open, perhaps too late."""
        state = self.world.watch.newest[1]
        if state is not None and state.transitions:
            self.ask_for("abort", [], change=int(dice.choice(sorted(state.transitions))))

    def abort_soon(self, dice: Random) -> None:
        """A change that is aborted as soon as the log has it, or some ms later."""
        state = self.world.watch.newest[1]
        known = set() if state is None else {*state.transitions}
        self.chosen(dice)
        self._abort_newer(known, dice.choice([0, 2_000, 8_000, 30_000]), self.world.agenda.now_us + SOON_US)

    def _abort_newer(self, known: set[Any], late_us: int, until_us: int) -> None:
        state = self.world.watch.newest[1]
        newer = [] if state is None else sorted({*state.transitions} - known)
        if newer:
            self.world.agenda.after(late_us, lambda: self.ask_for("abort", [], change=int(newer[0])))
        elif self.world.agenda.now_us < until_us and not self.world.healed:
            self.world.agenda.after(1_000, lambda: self._abort_newer(known, late_us, until_us))

    def several(self, dice: Random) -> None:
        """Three at the same time, of what may be the same partitions."""
        for _ in range(3):
            self.chosen(dice)

    def chosen(self, dice: Random) -> None:
        acts: list[Callable[[Random], None]] = [self.split, self.split, self.merge, self.repartition]
        dice.choice(acts)(dice)

    def _active(self) -> list[Any]:
        """In the order of their slots, as anybody has applied it; none if the lineage is long already."""
        state = self.world.watch.newest[1]
        topic = None if state is None else state.topic_named(f"public/default/{self.topic}")
        if topic is None or len(topic.layout.partitions) > LINEAGE_MAX:
            return []
        return list(topic.layout.active())

    def ask_for(self, action: str, partitions: list[int], **more: Any) -> None:
        machine = self.tried()
        if machine is None:
            return
        more.setdefault("topic", self.topic)
        wanted = layout_messages.LayoutChange(action=action, partitions=partitions, **more)
        self.world.tell("lay", action, partitions, more, f"at {machine.name}")

        def told(answer: Answer | None) -> None:
            if answer is None:
                self.world.count("layout_unheard")
            elif answer.header.status == Status.OK:
                self.world.count("layout_asked")
            else:
                self.world.count("layout_refused")
                name = Code(answer.header.code).name if answer.header.code else str(answer.header.status)
                self.world.tell("lay", "refused:", name, str(answer.error())[:160])

        body = messages.encode(wanted)
        self.ask(machine, Opcode.LAYOUT_CHANGE, told, body=body, patience_us=PATIENCE_US, deadline_ms=3_000)
