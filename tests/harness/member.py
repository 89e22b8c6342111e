"""One member of a cohort as a process of its own, which a test may kill; it says what it gets on stdout.

A line is a JSON object: {"given": [[key, number], ..], ..} with the rows of a batch before they are
acknowledged, {"told": partition, "through": offset, ..} before an acknowledgement leaves, {"acked": ..} alike
when the owner has it, {"error": ..} at the end. All have "at": seconds of the machine's clock, which all
processes share.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import ringfence
from tests.harness import forks
from tests.harness.processes import freeze

ROOT = Path(__file__).parents[2]
STOP_S = 30.0


@dataclass(frozen=True)
class Given:
    """A batch that a member got. `rows`: (key, number)."""

    at: float
    member: str
    partition: int
    first: int
    end: int
    token: int
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Acked:
    """An acknowledgement that left the member, or that the owner has: rows before `through`."""

    at: float
    member: str
    partition: int
    through: int
    token: int


@dataclass
class Member:
    """A member process, and what it said."""

    address: str
    topic: str
    cohort: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    token_file: str | None = None
    given: list[Given] = field(default_factory=list)
    told: list[Acked] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def start(self) -> Self:
        values = {"member": self.name, **self.options}
        self.process = forks.start(
            [sys.executable, "-m", "tests.harness.member", self.address, self.topic, self.cohort,
             json.dumps(values), self.token_file or ""],
            folder=ROOT, has_stdin=True, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # a line that kill -9 has cut
            if "given" in said:
                rows = tuple((key, number) for key, number in said["given"])
                given = Given(
                    said["at"], self.name, said["partition"], said["first"], said["end"], said["token"], rows
                )
                self.given.append(given)
            elif "error" in said:
                self.errors.append(said["error"])
            else:
                list_of, partition = (
                    (self.acked, said["acked"]) if "acked" in said else (self.told, said["told"])
                )
                list_of.append(Acked(said["at"], self.name, partition, said["through"], said["token"]))

    @property
    def partitions(self) -> set[int]:
        """Partitions of which it got rows."""
        return {one.partition for one in self.given}

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._gone()

    def freeze(self) -> None:
        """SIGSTOP: its connections stand, and it does nothing."""
        freeze(self.process.pid)

    def wake(self) -> None:
        """SIGCONT."""
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """It leaves the cohort, and ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._gone()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def _gone(self) -> None:
        self.process.wait(STOP_S)
        self._reader.join(STOP_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


Begun = Callable[..., Member]
"""The fixture that starts members: address, topic, cohort, name, options of `Client.consumer`."""


def consume(address: str, topic: str, cohort: str, values: dict[str, Any], token_file: str | None) -> None:
    """Get batches and acknowledge each, until stdin is closed."""
    ends = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ends.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    # The application's pace: seconds between a batch and its acknowledgement.
    work_s = values.pop("work_s", 0.0)
    with (
        ringfence.connect(address, timeout_s=30, token_file=token_file) as client,
        client.consumer(topic, cohort=cohort, ack="manual", **values) as consumer,
    ):
        while not ends.is_set():
            batch = consumer.next(0.2)
            at = time.monotonic()  # before anything else: whoever freezes the process may do so from here on
            if batch is None:
                continue
            place = consumer.place
            assert place is not None
            rows = zip(batch.column("producer").to_pylist(), batch.column("id").to_pylist(), strict=True)
            say(at=at, given=list(rows), partition=place.partition, first=place.first_offset,
                end=place.end_offset, token=place.fencing_token)  # fmt: skip
            if ends.wait(work_s) and work_s:
                break
            acknowledge(consumer, place)


def acknowledge(consumer: ringfence.Consumer, place: ringfence.ConsumerPlace) -> None:
    through = {"through": place.end_offset, "token": place.fencing_token}
    say(told=place.partition, **through)
    try:
        consumer.ack(place, wait=True)
    except (ringfence.FencedError, ringfence.WaitTimeoutError) as error:
        say(refused=f"{type(error).__name__}: {error}")
        if isinstance(error, ringfence.MemberError):
            raise
        return
    say(acked=place.partition, **through)


def say(**values: Any) -> None:
    if "refused" in values:
        print(values["refused"], file=sys.stderr, flush=True)
        return
    print(json.dumps({"at": time.monotonic(), **values}), flush=True)


def main() -> None:
    address, topic, cohort, values, token_file = sys.argv[1:]
    try:
        consume(address, topic, cohort, json.loads(values), token_file or None)
    except Exception as error:  # noqa: BLE001  # the test looks at it
        say(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
