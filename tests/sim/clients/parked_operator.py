"""An operator of a QUEUE: lists what is parked, puts some of it back, and discards some."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.native import cohort_messages as cohort
from ringfence.native import messages
from ringfence.native.wire import Opcode, Status
from tests.sim.clients.customer import ClusterClient, Told

if TYPE_CHECKING:
    from ringfence.common.codec import Answer
    from ringfence.native.cohort_messages import ParkedRange
    from tests.sim.checks.queues import QueueRecord
    from tests.sim.cohorts import CohortSimulation

BEAT_US: Final = 500_000
DEADLINE_MS: Final = 3_000
PATIENCE_US: Final = 5_000_000
ITEMS_MAX: Final = 8


class ParkedOperator(ClusterClient):
    """One request at a time. In peace it lists what is parked until the list is whole."""

    def __init__(self, world: CohortSimulation, record: QueueRecord, random: Random) -> None:
        super().__init__(world, "operator", random)
        self._world, self._record = world, record
        self._is_busy = False
        self._found: list[ParkedRange] = []
        world.agenda.after(BEAT_US, self._beat)

    def _beat(self) -> None:
        self.lose_patience()
        if self._record.is_drained and self._record.parked is None and not self._is_busy:
            self._list(None)
        self.world.agenda.after(BEAT_US, self._beat)

    def operate(self, dice: Random) -> None:
        """List what is parked, and do something with it."""
        if not self._is_busy:
            self._list(dice)

    # ---- lists ----

    def _list(self, dice: Random | None) -> None:
        self._found = []
        self._page(dice)

    def _page(self, dice: Random | None) -> None:
        last = self._found[-1] if self._found else None
        more = {} if last is None else {"after": (last.partition, last.number)}
        incarnation = self._record.incarnation

        def told(answer: Answer | None) -> None:
            if answer is None or answer.header.status != Status.OK:
                self._is_busy = False
                return
            listed = answer.control(cohort.ParkedListed)
            self._found += listed.parked
            if listed.more:
                self._page(dice)
            elif dice is not None and not self._world.healed:
                self._settle(dice)
            else:
                self._is_busy = False
                if self._world.healed and not listed.unknown and incarnation == self._record.incarnation:
                    self._record.parked = self._found

        self._ask("list", told, **more)

    def _ask(self, action: str, told: Told, **more: Any) -> None:
        machine = self.tried()
        self._is_busy = machine is not None
        if machine is None:
            return
        body = cohort.CohortParked(
            topic=self._world.topic_name, cohort=self._record.name, action=action, **more
        )
        self.ask(
            machine,
            Opcode.COHORT_PARKED,
            told,
            body=messages.encode(body),
            patience_us=PATIENCE_US,
            deadline_ms=DEADLINE_MS,
        )

    # ---- retry and discard ----

    def _settle(self, dice: Random) -> None:
        found = self._found
        chosen = dice.sample(found, min(len(found), dice.randrange(1, ITEMS_MAX)))
        is_retry, incarnation = dice.random() < 0.7, self._record.incarnation
        if not chosen:
            self._is_busy = False
            return
        (self._record.puts_back if is_retry else self._record.discards)(chosen)

        def told(answer: Answer | None) -> None:
            self._is_busy = False
            if answer is None or answer.header.status != Status.OK:
                return
            settled = answer.control(cohort.ParkedSettled)
            self._world.counts["parked_put_back" if is_retry else "parked_discarded"] += settled.done
            left = [*settled.not_parked, *settled.unknown, *settled.exported, *settled.exporting]
            if not is_retry and incarnation == self._record.incarnation:
                self._record.discarded(
                    one for one in chosen if (one.partition, one.number) not in map(tuple, left)
                )

        items = [(one.partition, one.number) for one in chosen]
        self._ask("retry" if is_retry else "discard", told, items=items)
