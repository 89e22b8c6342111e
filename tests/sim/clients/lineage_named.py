"""A producer with a name whose partitions split and merge: it dies now and then, and its successor resumes.

The successor sends again what had no outcome, and some of what was acknowledged. The client's own `Resuming`
leaves out what resume points say is stored: that must be exactly what the log has of it.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from ringfence.arrow.body_router import BodyRouter
from ringfence.common.codec import Answer
from ringfence.common.send_effects import BatchRefused, BatchUnknown, Effect, Transmit
from ringfence.native import messages
from ringfence.native.errors import RingfenceError
from ringfence.native.wire import Status
from ringfence.send.inflight import VERDICTS_ON_CONTENT
from ringfence.send.resume import Rule
from ringfence.send.resuming import Resuming
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.keyed import ROWS, rows_of
from tests.sim.clients.lineage_publisher import LineagePublisher, Part

if TYPE_CHECKING:
    from tests.sim.world.world import World

DEATH: Final = 0.01
"""How often it dies instead of sending."""
DEATH_RETURNED: Final = 0.15
"""How often it dies after a batch that a layout change routed again: others of the send do not leave it."""
HOLE_US: Final = (600_000, 2_500_000)
"""How long it goes on at most after a batch that has no place in the order any more."""
UNDER_WAY_MAX: Final = 40
"""Bodies without outcome, above which it does not send."""
LOOKED_AT: Final = 40
"""Sends whose rows all have outcomes, the newest: a successor sends them again, too."""


class LineageNamed(LineagePublisher):
    """Sends under one name, in one life after the other."""

    def __init__(self, world: World, number: int, random: Random, topic: str) -> None:
        super().__init__(world, number, random, topic)
        self.producer_name = f"named {number}"
        self._ids: dict[int, tuple[int, ...]] = {}
        """Of each send, until all of its rows are stored and it is none of the newest."""
        self._resumes: list[messages.ResumePoint] | None = None
        self._was_opened = self._is_dying = False
        self._lives = 0

    @property
    def idle(self) -> bool:
        return super().idle and not self._open_sends()

    def _open_sends(self) -> list[int]:
        rows = self.ledger.rows
        return [send for send, ids in self._ids.items() if any(rows[one].outcome != "done" for one in ids)]

    def submit(self) -> None:
        if self._machine is None or self._is_dying or self._resumes is not None:
            return
        if self.random.random() < DEATH:
            self._dies()
        elif len(self._parts) < UNDER_WAY_MAX:
            super().submit()

    def _submit(self, send: int, ids: tuple[int, ...]) -> None:
        self._ids.setdefault(send, ids)
        super()._submit(send, ids)

    # ---- its lives ----

    def _dies(self) -> None:
        if not self._is_dying:
            self._is_dying = True
            self.world.agenda.after(0, self._die)

    def _dies_within(self, life: int) -> None:
        if life == self._lives:
            self._dies()

    def _die(self) -> None:
        self.world.count("named_died")
        self._lives += 1
        for name in list(self._lines):
            self.hang_up(name, 0.5)
        self._parts.clear()
        self._machine = None
        self._resumes = None
        self._is_dying = False

    def dies_and_opens(self) -> None:
        """Its successor opens the name immediately."""
        if not self._is_dying and self._machine is not None:
            self._is_dying = True
            self._die()
            self._open()

    def _send(self) -> None:
        if not self._is_dying:
            super()._send()

    def _transmit(self, owner: object, order: Transmit) -> None:
        if self._is_dying:
            return
        super()._transmit(owner, order)
        if self._parts[order.key].is_returned and self.random.random() < DEATH_RETURNED:
            self._dies()

    def _accepts_fresh_start(self) -> bool:
        return not self._was_opened

    def _opened(self, answer: Answer | None) -> None:
        if answer is not None and answer.header.status == Status.OK and self._machine is None:
            self._was_opened = True
            told = answer.control(messages.ProducerOpened)
            self._resumes = told.resume
            super()._opened(answer)
            self._resume(told)
            return
        super()._opened(answer)

    def _resume(self, told: messages.ProducerOpened) -> None:
        layout = self.layout
        assert layout is not None
        resuming = Resuming(layout, self.producer_name, Rule(told.rule or 0), told.resume)
        if resuming.slot_of_send is not None:
            self._slot_of_send = self.ledger.slots_of_sends[self.number] = resuming.slot_of_send
            self._router, self._encoder = BodyRouter(resuming.slot_of_send), None
        rows = self.ledger.rows
        again: list[tuple[int, tuple[int, ...]]] = []
        for send, ids in sorted(self._ids.items()):
            if not ids:
                continue
            left = {
                number
                for batch in resuming.without_stored([rows_of(ids)], send, ROWS)
                for number in batch.column(1).to_pylist()
            }
            for number in ids:
                row = rows[number]
                if number not in left and row.outcome != "done":
                    self.world.count("row_resumed")
                    row.outcome = ""
                    self.ledger.known(number)
                elif number in left and row.outcome == "done" and not self.ledger.may_be_lost(number):
                    what = f"{self.producer_name}: row {number} of send {send} is stored, and is not known"
                    self.world.violate(ViolationError("I6", what))
                    return
            kept = tuple(number for number in ids if number in left)
            if kept:
                again.append((send, kept))
        self._forget()
        self._resumes = None
        for send, ids in again:
            self.ledger.sent_again(ids)
            self.ledger.undecided(ids)
            self.world.count("send_again")
            self._submit(send, ids)

    def _forget(self) -> None:
        """Sends that are stored, but for the newest."""
        open_sends = {*self._open_sends()}
        for send in [one for one in sorted(self._ids) if one not in open_sends][:-LOOKED_AT]:
            del self._ids[send]

    # ---- its batches ----

    def _name(self) -> str | None:
        return self.producer_name

    def _spreads(self) -> bool:
        return self.world.plan.keyless and self.world.plan.seed % 2 == 0

    def _note(self, send: int) -> bytes | None:
        return str(send).encode()

    def _not_stored(self, part: Part, outcome: str, error: RingfenceError) -> None:
        """Its successor is told what became of the rows; those that no node takes are left out for good."""
        if outcome == "refused" and error.code in VERDICTS_ON_CONTENT:
            self.ledger.not_stored(part.ids, outcome)
            left_out = {*part.ids}
            self._ids[part.send] = tuple(one for one in self._ids[part.send] if one not in left_out)
        else:
            self.ledger.undecided(part.ids)

    def _run(self, effects: list[Effect]) -> None:
        super()._run(effects)
        if any(isinstance(effect, BatchRefused | BatchUnknown) for effect in effects):
            # A program sends on until it looks at its futures.
            is_soon = self.random.random() < 0.3
            late_us = 0 if is_soon else self.random.randrange(self.random.choice(HOLE_US))
            self.world.agenda.after(late_us, partial(self._dies_within, self._lives))
