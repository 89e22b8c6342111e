"""A named writer as a process that is killed: `log_named ADDRESSES TOPIC NAME WRITER FILE`.

It sends numbers 1, 2, 3, ... under its name and writes a line to FILE before and after each. A successor
opens the name again and begins at the lowest number that is not known to be stored. It also sends some again
that are known, as an application does that lost its own notes. The log must store each number once.

Lines: `["sent", number, time]` and `["ended", number, time, outcome, partition, offset]`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import ringfence
from ringfence.native.errors import RingfenceError
from tests.chaos.log_clients import IN_FLIGHT_MAX, KEYS, ROWS, TIMEOUT_S, outcome_of, rows_of
from tests.checker.log_history import History, Outcome, Send

REPEATS: Final = 5
"""Numbers that are known to be stored and sent again by a successor."""
LIFE_S: Final = (4.0, 10.0)


def key_of(number: int) -> int:
    return number * 7919 % KEYS


def main() -> None:
    addresses, topic, name, writer, file = sys.argv[1:]
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(*line: object) -> None:
        os.write(descriptor, json.dumps(line).encode() + b"\n")

    stored = {number for number, outcome in ended(Path(file)).items() if outcome[1] == Outcome.DONE.value}
    number = 1
    while number in stored:
        number += 1
    number = max(1, number - REPEATS)
    with ringfence.connect(addresses, timeout_s=TIMEOUT_S) as client:
        while True:
            try:
                number = _send_all(client, topic, name, int(writer), number, note)
            except RingfenceError:
                time.sleep(0.1)


def _send_all(client: ringfence.Client, topic: str, name: str, writer: int, number: int, note: Any) -> int:
    """Send until a send fails; the number to begin at again."""
    under_way: deque[tuple[int, Any]] = deque()
    with client.producer(topic, name=name, timeout_s=TIMEOUT_S) as producer:
        while True:
            note("sent", number, time.monotonic())
            batch = rows_of(writer, key_of(number), number * ROWS)
            under_way.append((number, producer.send(batch, note=b"%d" % number, number=number)))
            number += 1
            time.sleep(random.uniform(0.0, 0.08))
            while len(under_way) > IN_FLIGHT_MAX or under_way[0][1].done():
                first, future = under_way.popleft()
                try:
                    parts = future.result()
                except RingfenceError as error:
                    note("ended", first, time.monotonic(), outcome_of(error).value, -1, -1)
                    return first
                where = (parts[0].partition, parts[0].first_offset) if parts else (-1, -1)
                note("ended", first, time.monotonic(), Outcome.DONE.value, *where)
                if not under_way:
                    break


def ended(file: Path) -> dict[int, tuple[float, str, int, int]]:
    """Number -> (time, outcome, partition, offset) of the best that is known of it."""
    found: dict[int, tuple[float, str, int, int]] = {}
    for line in lines(file):
        if line[0] == "ended":
            _, number, moment, outcome, partition, offset = line
            known = found.get(number)
            if known is None or known[1] != Outcome.DONE.value or (known[2] < 0 <= partition):
                found[number] = (moment, outcome, partition, offset)
    return found


def lines(file: Path) -> list[Any]:
    if not file.exists():
        return []
    whole = file.read_text().split("\n")[:-1]  # a killed process may leave a part of a line
    return [json.loads(line) for line in whole if line.startswith("[") and line.endswith("]")]


class NamedWriter:
    """Starts such processes one after the other and kills each."""

    def __init__(self, addresses: str, topic: str, writer: int, folder: Path, seed: int) -> None:
        self._command = [sys.executable, "-m", "tests.chaos.log_named", addresses, topic, f"named-{writer}"]
        self._writer, self._file = writer, folder / f"named-{writer}.jsonl"
        self._command += [str(writer), str(self._file)]
        self._dice, self._stop = random.Random(seed), threading.Event()
        self.lives, self.failure = 0, list[BaseException]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def finish(self) -> None:
        self.stop()
        self._thread.join(4 * TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.lives += 1
                with subprocess.Popen(self._command) as process:
                    self._stop.wait(self._dice.uniform(*LIFE_S))
                    if process.poll() is not None:
                        self.failure.append(RuntimeError(f"a named writer ended with {process.returncode}"))
                    process.send_signal(signal.SIGKILL)
        except BaseException as error:  # noqa: BLE001 - the run shows it
            self.failure.append(error)

    def history(self) -> History:
        """After `finish`: a send for each number, with the best that is known of it."""
        begun: dict[int, float] = {}
        for line in lines(self._file):
            if line[0] == "sent":
                begun.setdefault(line[1], line[2])
        known, sends = ended(self._file), list[Send]()
        for number, first in begun.items():
            moment, outcome, partition, offset = known.get(
                number, (time.monotonic(), Outcome.UNKNOWN.value, -1, -1)
            )
            # Refused once, a number may have been stored by a later life: only "done" is certain.
            sure = Outcome.DONE if outcome == Outcome.DONE.value else Outcome.UNKNOWN
            sends.append(
                Send(
                    self._writer, key_of(number), number * ROWS, ROWS, first, moment, sure, partition, offset
                )
            )
        return History(sends=sends)


if __name__ == "__main__":
    main()
