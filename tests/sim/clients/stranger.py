"""A reader that asks for what must not be there: children of a layout change before its COMMIT.

Ids of children can be guessed: they follow from the number of the change. Nodes have their logs from the
PREPARE on, and serve them to nobody.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from ringfence.common.codec import Answer
from ringfence.control.model.reassignments import ChangeId
from ringfence.native.wire import Features, Status
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.customer import ClusterClient
from tests.sim.clients.reader import fetch_header

if TYPE_CHECKING:
    from tests.sim.world.world import World

BEAT_US: Final = 25_000
"""A change is open for some times as long."""
PATIENCE_US: Final = 500_000
SHARE: Final = 0.5
"""Of the beats at which a change is open."""


class Stranger(ClusterClient):
    """One question at a time, in half of the beats."""

    features = int(Features.RESUME_RANGES | Features.LINEAGE)

    def __init__(self, world: World, random: Random, topic: str) -> None:
        super().__init__(world, "str", random)
        self._topic = f"public/default/{topic}"
        world.agenda.after(random.randrange(BEAT_US), self._beat)

    def _beat(self) -> None:
        self.lose_patience()
        if not self.world.healed:
            if self.random.random() < SHARE:
                self._look()
            self.world.agenda.after(BEAT_US, self._beat)

    def _look(self) -> None:
        state = self.world.watch.newest[1]
        topic = None if state is None else state.topic_named(self._topic)
        known = [] if state is None or topic is None else [*state.transitions.values()]
        known = [one for one in known if one.topic == topic.topic and one.may_abort]  # type: ignore[union-attr]
        if topic is None or not known:
            return
        transition = self.random.choice(known)
        child = self.random.choice(transition.children)
        machine = self.world.by_node(int(child.replicas[0].node))
        if machine is not None and self.reach(machine):
            number, partition = self.next_request(), int(child.partition)
            frame = fetch_header(int(topic.topic), number, partition, 0, 0, 0)
            told = partial(self._told, transition.change, partition)
            self.put(machine, number, frame, b"", told, PATIENCE_US)

    def _told(self, change: ChangeId, partition: int, answer: Answer | None) -> None:
        state = self.world.watch.newest[1]
        transition = None if state is None else state.transitions.get(change)
        if answer is None or transition is None or not transition.may_abort:
            return
        self.world.count("child_asked_for")
        if answer.header.status == Status.OK:
            what = f"partition {partition} is read before the COMMIT of layout change {change}"
            self.world.violate(ViolationError("P5", what))
