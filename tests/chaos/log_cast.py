"""Members of one cohort as processes, one of which is killed, frozen or replaced now and then."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import Any, Final

import numpy as np

from tests.chaos.log_record import Absence, Line
from tests.checker.log_history import Outcome, Values
from tests.checker.transformed import Attempt
from tests.harness.processes import freeze

STOP_S: Final = 40.0
"""For a member to settle what it has in hand, and to leave."""
EVERY_S: Final = (6.0, 14.0)
FIRST_S: Final = 120.0
"""For the first rows of any member, once the others' faults are over."""
FROZEN_S: Final = (1.0, 14.0)
"""Shorter and longer than a member may hold partitions without a word, which is 10 s."""
GONE_S: Final = (35.0, 42.0)
"""Longer than the grace period: others have its partitions when it wakes."""
OUTCOMES: Final = {"committed": Outcome.DONE, "aborted": Outcome.REFUSED, "lost": Outcome.REFUSED}


class LogMember:
    """A process, and what it said. `id` is another one for each process of a name."""

    def __init__(self, addresses: str, kind: str, options: dict[str, Any], name: str, life: int) -> None:
        self.name, self.id = name, f"{name}.{life}"
        self.lines = list[Line]()
        self.rows = list[tuple[Values, Values]]()
        """Values and keys of each line "given"."""
        self.attempts: dict[int, Attempt] = {}
        self.errors = list[str]()
        self.again, self.lost = Counter[str](), Counter[str]()
        values = json.dumps({**options, "member": name, "life": life})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.log_member", addresses, kind, values],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # a line that kill -9 has cut
            self._take(said)

    def _take(self, said: dict[str, Any]) -> None:
        match said["what"]:
            case "began":
                self.attempts[said["attempt"]] = Attempt(said["rows"], Outcome.UNKNOWN)
            case "committed" | "aborted" | "lost" as what:
                begun = self.attempts[said["attempt"]]
                self.attempts[said["attempt"]] = begun._replace(outcome=OUTCOMES[what])
                if what == "lost":
                    self.lost[said["why"].partition(":")[0]] += 1
            case "error":
                self.errors.append(said["why"])
            case "again":
                self.again[said["why"].partition(":")[0]] += 1
            case what:
                where = (said["partition"], said["first"], said["end"], said["token"])
                if what == "given":
                    self.rows.append((np.array(said["values"], np.int64), np.array(said["keys"], np.int64)))
                self.lines.append(Line(said["at"], what, self.id, *where))

    @property
    def has_settled(self) -> bool:
        """Whether it has rows behind it."""
        return any(one.outcome is Outcome.DONE for one in list(self.attempts.values())) or any(
            line.what == "acked" for line in list(self.lines)
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._gone()

    def freeze(self) -> None:
        """SIGSTOP: its connections stand, and it does nothing."""
        freeze(self._process.pid)

    def wake(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def tell_to_leave(self) -> None:
        """It will leave the cohort, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stop(self) -> None:
        """It leaves the cohort, and ends."""
        self.tell_to_leave()
        self._gone()

    def _gone(self) -> None:
        self._process.wait(STOP_S)
        self._reader.join(STOP_S)


class Cast:
    """A thread; it ends processes and begins others.

    Attributes:
        members: all processes that there were.
        away: those that were killed, told to leave, or frozen, and when.
        deaths: processes that were killed after they had settled rows.
    """

    def __init__(
        self, addresses: str, kind: str, options: dict[str, Any], count: int, seed: int, *, is_long: bool
    ) -> None:
        self.kind, self.topic, self.cohort = kind, options["topic"], options["cohort"]
        self.members, self.away = list[LogMember](), list[Absence]()
        self.deaths, self.failure = 0, list[BaseException]()
        self._addresses, self._options, self._count = addresses, options, count
        self._dice, self._stop, self._lives = random.Random(seed), threading.Event(), seed * 1_000
        self._kinds = ["restart", "replace", "leave", "freeze", *(["away"] if is_long else [])]
        self._bag = ["freeze", "restart", "leave"]  # from its end: a hand-over and a death come first
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No more harm to members, after one death at least: `calm` waits for that."""
        self._stop.set()

    def calm(self) -> None:
        """Wait until no member is harmed any more."""
        self.stop()
        self._thread.join(FIRST_S + STOP_S + GONE_S[1])
        if self._thread.is_alive():
            self.failure.append(TimeoutError(f"a member of {self.cohort} does not end"))

    def renew(self) -> None:
        """After `calm`: others work on. A member that an owner did not answer for 30 s is away for 300 s."""
        begun = time.monotonic()
        left = self._living()
        self.finish()
        self.away += [Absence(member.id, begun, time.monotonic(), ends=True) for member in left]
        for _ in left:
            self._join(f"{self.cohort}-{len(self.members)}")

    def finish(self) -> None:
        """After `calm`: the members leave, all at the same time."""
        left = self._living()
        for member in left:
            member.tell_to_leave()
        for member in left:
            try:
                member.stop()
            except subprocess.TimeoutExpired as error:
                self.failure.append(error)
                member.kill()

    def errors(self) -> list[str]:
        """What ended a member, or this thread."""
        told = [
            f"{member.id} of {self.cohort}: {error}" for member in self.members for error in member.errors
        ]
        return [*told, *(f"members of {self.cohort}: {error!r}" for error in self.failure)]

    def lines(self) -> list[Line]:
        """What all said, in the order of time."""
        lines = (line for member in self.members for line in member.lines)
        return sorted(lines, key=lambda line: line.at)

    def _run(self) -> None:
        try:
            for number in range(self._count):
                self._join(f"{self.cohort}-{number}")
            while not self._stop.wait(self._dice.uniform(*EVERY_S)):
                self._one()
            end = time.monotonic() + FIRST_S
            while not self.deaths and time.monotonic() < end:
                self._one()
                time.sleep(0.2)
        except BaseException as error:  # noqa: BLE001 - the run shows it
            self.failure.append(error)

    def _join(self, name: str) -> None:
        self._lives += 1
        self.members.append(LogMember(self._addresses, self.kind, self._options, name, self._lives))

    def _living(self) -> list[LogMember]:
        return [member for member in self.members if member.is_alive]

    def _one(self) -> None:
        chosen = [member for member in self._living() if member.has_settled]
        if not chosen:
            return
        if not self._bag:
            self._bag = self._dice.sample(self._kinds, len(self._kinds))
        what, member, begun = self._bag.pop(), self._dice.choice(chosen), time.monotonic()
        match what:
            case "freeze" | "away":
                member.freeze()
                self._stop.wait(self._dice.uniform(*(GONE_S if what == "away" else FROZEN_S)))
                member.wake()
                self.away.append(Absence(member.id, begun, time.monotonic(), ends=False))
                return
            case "leave":
                member.stop()
            case _:
                member.kill()
                self.deaths += 1
        self.away.append(Absence(member.id, begun, time.monotonic(), ends=True))
        self._join(member.name if what == "restart" else f"{self.cohort}-{len(self.members)}")
