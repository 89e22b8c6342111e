"""One member of a QUEUE as a process of its own, which a test may kill; it says what it gets on stdout.

A line is a JSON object: {"given": [[key, number], ..], ..} with rows before they are worked on, {"acked":
partition, ..} when the owner has that they are done, {"refused": .., ..} if it has not taken it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import ringfence
from ringfence.consumer.queue_rows import without
from tests.harness import forks

ROOT = Path(__file__).parents[2]
STOP_S = 30.0


class Rows(NamedTuple):
    """Rows `first` .. `end - 1` of a partition that a member got, or that are acknowledged."""

    at: float
    partition: int
    first: int
    end: int
    failures: int = 0
    rows: tuple[tuple[int, int], ...] = ()


@dataclass
class QueueMember:
    """A member process, and what it said."""

    address: str
    topic: str
    cohort: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    given: list[Rows] = field(default_factory=list)
    acked: list[Rows] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def start(self) -> Self:
        values = {"member": self.name, **self.options}
        self.process = forks.start(
            [sys.executable, "-m", "tests.harness.queue_member", self.address, self.topic, self.cohort,
             json.dumps(values)],
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
            if "error" in said:
                self.errors.append(said["error"])
                continue
            rows = tuple((key, number) for key, number in said.get("given", ()))
            one = Rows(said["at"], said["partition"], said["first"], said["end"], said["count"], rows)
            if "given" in said:
                self.given.append(one)
            elif "refused" in said:
                self.refused.append(said["refused"])
            else:
                self.acked.append(one)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._gone()

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
            if pipe is not None:
                pipe.close()


def consume(address: str, topic: str, cohort: str, values: dict[str, Any]) -> None:
    """Get deliveries and acknowledge each, until stdin is closed."""
    ends = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ends.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    # The application's pace: seconds between a batch and its acknowledgement.
    work_s = values.pop("work_s", 0.0)
    with (
        ringfence.connect(address, timeout_s=30) as client,
        client.consumer(topic, cohort=cohort, mode="queue", ack="manual", **values) as consumer,
    ):
        while not ends.is_set():
            batch = consumer.next(0.2)
            delivery = consumer.delivery
            if batch is None or delivery is None:
                continue
            place = delivery.place
            rows = zip(batch.column("producer").to_pylist(), batch.column("id").to_pylist(), strict=True)
            values = {
                "partition": place.partition,
                "first": place.first_offset,
                "end": place.end_offset,
                "count": delivery.count,
            }
            say(given=list(rows), **values)
            if ends.wait(work_s) and work_s:
                break
            acknowledge(consumer, place, values)


def acknowledge(consumer: ringfence.Consumer, place: ringfence.ConsumerPlace, values: dict[str, int]) -> None:
    try:
        consumer.ack(place, wait=True)
    except ringfence.LostRowsError as error:
        say(refused=f"{type(error).__name__}: {error}", **values)
        rows = [(place.first_offset, place.end_offset)]
        for first, end in without(rows, error.lost[place.partition]):
            say(acked=True, **values | {"first": first, "end": end})
        return
    except (ringfence.FencedError, ringfence.WaitTimeoutError) as error:
        say(refused=f"{type(error).__name__}: {error}", **values)
        if isinstance(error, ringfence.MemberError):
            raise
        return
    say(acked=True, **values)


def say(**values: Any) -> None:
    print(json.dumps({"at": time.monotonic(), **values}), flush=True)


def main() -> None:
    address, topic, cohort, values = sys.argv[1:]
    try:
        consume(address, topic, cohort, json.loads(values))
    except Exception as error:  # noqa: BLE001  # the test looks at it
        say(error=f"{type(error).__name__}: {error}")


def acked_rows(members: list[QueueMember]) -> dict[tuple[int, int], list[float]]:
    """When each row (partition, offset) was acknowledged."""
    times: dict[tuple[int, int], list[float]] = {}
    for member in members:
        for one in list(member.acked):
            for row in range(one.first, one.end):
                times.setdefault((one.partition, row), []).append(one.at)
    return times


def check_queue(
    members: list[QueueMember], stored: dict[int, list[tuple[int, int]]], *, late_s: float = 0.0
) -> None:
    """Each row is acknowledged, once, and none is given after that; rows are those that are stored.

    `late_s`: an owner was lost: rows that it gave before may still be given so late, and done a second time.
    """
    acked = acked_rows(members)
    assert set(acked) == {(one, row) for one, rows in stored.items() for row in range(len(rows))}
    for row, times in acked.items():
        assert max(times) - min(times) <= late_s, f"row {row} was acknowledged twice: {times}"
    for member in members:
        for one in member.given:
            rows = stored[one.partition][one.first : one.end]
            assert list(one.rows) == rows, f"other rows than stored: {one}"
            done = min(min(acked[one.partition, row]) for row in range(one.first, one.end))
            assert one.at < done + late_s, f"rows acknowledged at {done} came again: {one}"


if __name__ == "__main__":
    main()
