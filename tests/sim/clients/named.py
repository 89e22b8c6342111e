"""A producer with a name that dies now and then: its successor learns from resume points what is stored.

One batch at a time, with its number and a note. After each death every partition's resume point is the last
batch there that was acknowledged, or the one that had no outcome. The ledger then counts that
one as stored, and otherwise as refused.
Where an operator forced an owner it may be an earlier one: the last that he did not give up.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from ringfence.arrow.encode import note_extension
from ringfence.common.codec import Answer
from ringfence.common.send_effects import BatchStored, BatchUnknown, Effect, Transmit
from ringfence.native import messages
from ringfence.native.wire import Code, Status
from tests.sim.checks.ledger import Batch
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.publisher import Publisher

if TYPE_CHECKING:
    from tests.sim.world.world import World

ANY_LATER: Final = 1 << 62
"""Above every owner epoch."""
DEATH: Final = 0.1
"""How often it dies after an outcome, or with a batch under way."""


class NamedProducer(Publisher):
    """Sends batches under one name, in one life after the other."""

    def __init__(self, world: World, number: int, random: Random, topic: str) -> None:
        super().__init__(world, number, random, topic)
        self.producer_name = f"named {number}"
        self._sent = 0
        self._numbers: dict[int, int] = {}  # key -> number of the batch
        self._stored: dict[int, list[tuple[int, Batch]]] = {}  # partition -> its stored batches, by number
        self._begun: dict[int, int] = {}  # partition -> its owner epoch when an open was sent
        self._left: list[tuple[Batch, int]] = []  # without outcome when its life ended
        self._is_dead = self._was_opened = self._may_begin_anew = False

    @property
    def idle(self) -> bool:
        return super().idle and not self._left

    def submit(self) -> None:
        if not self.idle or self._is_dead:
            if super().idle is False and self.random.random() < DEATH:
                self._die()
            return
        self._sent += 1
        self._numbers[self._key + 1] = self._sent
        super().submit()

    # ---- its lives ----

    def _die(self) -> None:
        self._is_dead = True
        for name in list(self._lines):
            self.hang_up(name, 0.5)
        self._left += [(batch, self._numbers[key]) for key, batch in self._effects.batches.items()]
        self._effects.batches.clear()
        self._machine = None
        self._is_dead = False

    def _send(self) -> None:
        if not self._is_dead:
            super()._send()

    def _accepts_fresh_start(self) -> bool:
        """Before its first open it has stored nothing.

        Opens that ended half-way at level 0 are not known as such when the level is raised.
        """
        return not self._was_opened or self._may_begin_anew

    def _open(self) -> None:
        self._begun = self._begun if self._opening else self.world.epochs()
        super()._open()

    def _opened(self, answer: Answer | None) -> None:
        if answer is not None and answer.header.status == Status.OK:
            self._was_opened, self._may_begin_anew = True, False
            if self._machine is None:
                self._resume(answer.control(messages.ProducerOpened))
        elif answer is not None and answer.header.code == Code.QUARANTINED:
            self._leave_open()
        elif answer is not None and answer.header.code == Code.RESUME_UNKNOWN:
            # Of a forced owner the rows tell what is stored, and this one reads them.
            self._may_begin_anew = any(part.forced for part in self.world.ledger.partitions.values())
        super()._opened(answer)

    def _leave_open(self) -> None:
        """A partition's log is damaged: what was stored cannot be told before an operator releases it."""
        for batch, _ in self._left:
            self.world.ledger.ended(batch, "unknown")
            self._stored.pop(batch.partition, None)
        self._left.clear()

    def _resume(self, told: messages.ProducerOpened) -> None:
        points = {point.partition: point for point in told.resume}
        for batch, number in self._left:
            point = points.get(batch.partition)
            if point is not None and point.send == number:
                # The entry of the open came later than the owner's that is known.
                batch.epochs = self._begun.get(batch.partition, 0), ANY_LATER
                self._stored.setdefault(batch.partition, []).append((number, batch))
                self.world.ledger.ended(batch, "done", point.first_offset)
            else:
                self.world.ledger.ended(batch, "refused")
        self._left.clear()
        for partition, stored in self._stored.items():
            if self.world.ledger.partitions[partition].lost_below:
                continue  # its bytes rotted: nobody promises what is known of producers
            point = points.get(partition)
            found = None if point is None else (point.send, point.note)
            last = self._may_be_last(stored)
            if found not in [(number, str(number).encode()) for number in last if number] and (
                found is not None or 0 not in last
            ):
                what = f"{self.producer_name}: resumes in {partition} at {found}, its last batch is {last[0]}"
                self.world.violate(ViolationError("I6", what))

    def _may_be_last(self, stored: list[tuple[int, Batch]]) -> list[int]:
        """Numbers of stored batches, the newest first, down to one that was not given up; 0 below all."""
        found = []
        for number, batch in reversed(stored):
            found.append(number)
            if not self.world.ledger.may_lack(batch):
                return found
        return [*found, 0]

    # ---- its batches ----

    def _name(self) -> str | None:
        return self.producer_name

    def _marked(self, order: Transmit) -> tuple[bytes, int]:
        number = self._numbers[order.key]
        return note_extension(str(number).encode()), number

    def _run(self, effects: list[Effect]) -> None:
        dies = False
        for effect in effects:
            match effect:
                case BatchStored(key):
                    batch = self._effects.batches[key]
                    self._stored.setdefault(batch.partition, []).append((self._numbers[key], batch))
                    super()._run([effect])
                    dies |= self.random.random() < DEATH
                case BatchUnknown(key):
                    # Its successor is told.
                    self._left.append((self._effects.batches.pop(key), self._numbers[key]))
                    dies = True
                case _:
                    super()._run([effect])
        if dies and not self._is_dead:
            self.world.agenda.after(0, self._die)
