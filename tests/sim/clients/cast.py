"""The members of one cohort in a seed: processes that begin, die, come back and are replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from ringfence.native import cohort_messages as cohort
from ringfence.native import messages
from ringfence.native.wire import Opcode, Status
from tests.sim.checks.cohorts import CohortRecord
from tests.sim.clients.member import StreamHabits, StreamProcess

if TYPE_CHECKING:
    from ringfence.common.codec import Answer
    from tests.sim.checks.cohort_state import CohortState
    from tests.sim.clients.member_process import MemberProcess
    from tests.sim.cohorts import CohortSimulation
    from tests.sim.faults.plan import Strike

AWAY_US: Final = (10_000, 2_000_000, 15_000_000)
"""Of a member that was killed: right back, within the grace period, after it."""
PAUSES_US: Final = (500_000, 3_000_000, 12_000_000, 25_000_000)


class Cast(ABC):
    """Members of a cohort whose name is its mode."""

    mode: str
    record: CohortState
    acts: tuple[str, ...] = ("kill", "kill", "pause", "hang_up", "leave", "seek", "takeover", "lie", "lie")
    """What happens to members, a name as often as it is drawn."""

    def __init__(self, world: CohortSimulation, dice: Random, members: int) -> None:
        self.world, self.dice, self._members = world, dice, members
        self.processes: dict[str, MemberProcess] = {}
        self._lives = 0

    @abstractmethod
    def _new(self, name: str, number: int, dice: Random, *, takeover: bool) -> MemberProcess:
        """A process with this member."""

    @abstractmethod
    def _lie(self, dice: Random) -> None:
        """A member says something of rows that another one has."""

    def open(self) -> None:
        """The members begin."""
        for number in range(1, self._members + 1):
            self.begin(f"m{number}", takeover=False)

    def begin(self, name: str, *, takeover: bool) -> None:
        """A process with this member begins."""
        self._lives += 1
        process = self._new(name, self._lives, Random(self.dice.random()), takeover=takeover)
        self.processes[name] = process
        self.world.clients.append(process)
        self.world.tell(process.name, "begins", str(process.habits))

    def ended(self, process: MemberProcess, error: Exception) -> None:
        """A member gave up: another process has its name, or had it before."""
        self.world.count(f"member_ended_{type(error).__name__}")
        self.world.tell(process.name, "ends:", repr(error)[:160])
        process.kill()
        if self.processes.get(process.member_name) is process:
            self.world.agenda.after(500_000, partial(self.again, process.member_name))

    def again(self, name: str) -> None:
        """The member begins again, if it has not."""
        process = self.processes.get(name)
        if process is None or not process.is_alive:
            self.begin(name, takeover=True)

    def act(self, each: Strike) -> None:
        """Something happens to a member."""
        if self.world.healed:
            return
        dice = Random(each.dice)
        process = self.processes[dice.choice(sorted(self.processes))]
        self.world.count(f"member_{each.kind}")
        self.world.tell("*", each.kind, process.name)
        self.strike(each.kind, process, dice)

    def strike(self, kind: str, process: MemberProcess, dice: Random) -> None:
        """One of its acts, of this process."""
        after, name = self.world.agenda.after, process.member_name
        match kind:
            case "kill":
                process.kill()
                after(dice.choice(AWAY_US), partial(self.again, name))
            case "pause":
                process.pause(dice.choice(PAUSES_US))
            case "hang_up":
                process.hang_up(dice.choice(self.world.machines).name, dice.random())
            case "leave":
                process.member.close(leave=True)
                after(2_000_000, process.kill)
                after(dice.choice((2_100_000, 8_000_000)), partial(self.again, name))
            case "takeover":
                self.begin(name, takeover=True)  # the older process goes on
            case "seek":
                self._seek(process, dice)
            case _:
                self._lie(dice)

    def _seek(self, process: MemberProcess, dice: Random) -> None:
        machine = process.tried() if process.is_alive else None
        if machine is None:
            return
        body = messages.encode(
            cohort.CohortSeek(
                topic=self.world.topic_name,
                cohort=self.mode,
                to="earliest",
                forget_parked=self.mode == "queue",
            )
        )
        process.ask(
            machine, Opcode.COHORT_SEEK, self._sought, body=body, patience_us=7_000_000, deadline_ms=5_000
        )

    def _sought(self, answer: Answer | None) -> None:
        is_done = answer is not None and answer.header.status == Status.OK
        self.world.count("sought" if is_done else "seek_failed")

    def alive(self) -> list[Any]:
        """Processes whose members are registered."""
        return [one for _, one in sorted(self.processes.items()) if one.is_alive and one.member.state.session]

    def heal(self) -> None:
        """No faults any more: what stands still goes on, what is down begins."""
        for name, process in sorted(self.processes.items()):
            process.paused_until = 0
            if not process.is_alive:
                self.begin(name, takeover=True)


class StreamCast(Cast):
    """Members of a STREAM."""

    mode = "stream"
    record: CohortRecord

    def __init__(self, world: CohortSimulation, dice: Random, members: int) -> None:
        super().__init__(world, dice, members)
        self.record = CohortRecord(world, self.mode)

    def _new(self, name: str, number: int, dice: Random, *, takeover: bool) -> StreamProcess:
        habits = StreamHabits(
            work_us=dice.choice((5_000, 100_000, 1_000_000)),
            is_auto=dice.random() < 0.6,
            clock=dice.choice((0.99, 1.0, 1.01)),
        )
        return StreamProcess(self, name, number, dice, habits, takeover=takeover)

    def _lie(self, dice: Random) -> None:
        """Acknowledge rows of another's hold, or of an older one of its own."""
        if alive := self.alive():
            dice.choice(alive).lie(dice, self.record.holds)


__all__ = ["Cast", "StreamCast"]
