"""A process with a member of a CHECKPOINT: it saves rows with their position in a store, then reports.

All members have one store. One whose save is refused ends, as an application does whose transaction fails,
and begins again where the store is.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ringfence.consumer.member import Member
from ringfence.consumer.values import MemberOptions, Point, Task, TaskKind
from ringfence.native.errors import PositionError, TruncatedError
from tests.sim.checks.checkpoints import CheckpointRecord
from tests.sim.clients.cast import Cast
from tests.sim.clients.cores import SimCore, clock_of
from tests.sim.clients.member import StreamHabits, StreamProcess
from tests.sim.clients.member_process import BEAT_US

if TYPE_CHECKING:
    from ringfence.consumer.any_core import Batch
    from tests.sim.cohorts import CohortSimulation


@dataclass(frozen=True)
class StoreSettings:
    """What the consumer's settings say of a store."""

    record: CheckpointRecord
    topic: str
    report: bool = True
    on_truncated: str = "raise"

    def position(self, partition: int) -> Point | None:
        """Where the store is; None: it has nothing of the partition."""
        return self.record.store.get(partition)


class CheckpointProcess(StreamProcess):
    """One life of a member of a CHECKPOINT."""

    mode = "checkpoint"
    record: CheckpointRecord

    def __init__(
        self,
        cast: CheckpointCast,
        member: str,
        number: int,
        random: Random,
        habits: StreamHabits,
        *,
        takeover: bool,
    ) -> None:
        super().__init__(cast, member, number, random, habits, takeover=takeover)
        self.lock = nullcontext()
        self._settings = StoreSettings(cast.record, self.topic)
        self._batch: Batch | None = None

    def _new_member(self, options: MemberOptions) -> Member:
        self.core = SimCore(self, options._replace(is_checkpoint=True))
        return self.core.member

    def _step(self) -> int:
        batch, self._batch = self._batch, None
        is_saved = batch is not None and self._save(batch)
        if batch is not None and not is_saved:
            self._cast.ended(self, PositionError("the store is further", partition=batch.place.partition))
            return BEAT_US
        with clock_of(self):
            if batch is not None and not self.habits.is_auto and self._reports():
                self.core.acknowledge(batch.place)
            found = self.core.step(comes_back=is_saved)
            if isinstance(found, Task):
                self._carry(found)
                return 1_000
            if found is None and not self.habits.is_auto and self._reports():
                self.core.acknowledge(None)  # nothing came for a while, and what was given is saved
        if found is None:
            return BEAT_US
        self._batch = found
        self.record.given(self, found.place, found.rows.ids)
        return 1_000 if self.world.healed else self.random.randrange(1 + self.habits.work_us)

    def _reports(self) -> bool:
        return self.world.healed or self.random.random() < self.habits.acknowledges

    def _save(self, batch: Batch) -> bool:
        return self.record.save(batch.place, batch.rows.ids)

    def _carry(self, task: Task) -> None:
        """A callback of the consumer."""
        if task.kind in (TaskKind.ASSIGNED, TaskKind.POSITION):
            try:
                self.core.locate(task, self._settings)  # type: ignore[arg-type]
            except (PositionError, TruncatedError) as error:
                self.record.refused(self.name, error)
                return
        self.core.done(task)


class CheckpointCast(Cast):
    """Members of a CHECKPOINT."""

    mode = "checkpoint"
    record: CheckpointRecord
    acts = ("kill", "kill", "pause", "hang_up", "leave", "takeover", "lie", "lie")
    """A seek leaves the store where it is: of one incarnation only are all rows given."""

    def __init__(self, world: CohortSimulation, dice: Random, members: int) -> None:
        super().__init__(world, dice, members)
        self.record = CheckpointRecord(world, self.mode)

    def _new(self, name: str, number: int, dice: Random, *, takeover: bool) -> CheckpointProcess:
        habits = StreamHabits(
            work_us=dice.choice((5_000, 100_000, 1_000_000)),
            is_auto=dice.random() < 0.6,
            clock=dice.choice((0.99, 1.0, 1.01)),
        )
        return CheckpointProcess(self, name, number, dice, habits, takeover=takeover)

    def _lie(self, dice: Random) -> None:
        if alive := self.alive():
            dice.choice(alive).lie(dice, self.record.holds)


__all__ = ["CheckpointCast", "CheckpointProcess"]
