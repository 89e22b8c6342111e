"""One story for each system: a backlog, a steady flow, a member that joins, leaves, is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from benchmarks.cluster.nodes import until
from benchmarks.cohorts import figures, receipts
from benchmarks.cohorts.figures import Span
from benchmarks.cohorts.groups import System
from benchmarks.cohorts.messages import STREAMS, keys_of_partitions, rows_of
from benchmarks.cohorts.running import GROUP, TOPIC, Running
from benchmarks.paths import ROOT, work_directory

WAIT_S: Final = 120.0
MEMBERS: Final = 2
"""That read the backlog; a third one joins, leaves, joins again and is killed."""


@dataclass(frozen=True)
class Size:
    """`rows` of a message; `messages` of the backlog, `each_s` between two of the steady flow."""

    rows: int = 1_000
    messages: int = 8_000
    steady_rows: int = 100
    each_s: float = 0.004
    span_s: float = 8.0
    killed_s: float = 25.0


QUICK: Final = Size(messages=400, span_s=3.0, killed_s=20.0)


class Members:
    """Processes by name, and what they received."""

    def __init__(self, system: System, address: str, folder: Path) -> None:
        self._system, self._address, self._folder = system, address, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._names: list[str] = []

    def start(self) -> str:
        name = f"member-{len(self._names)}"
        self._names.append(name)
        command = [sys.executable, "-m", "benchmarks.cohorts.member", self._system.reader, self._address]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                [*command, TOPIC, GROUP, str(self._folder / name)], cwd=ROOT, stdout=log, stderr=log
            )
        return name

    def end(self, name: str, how: signal.Signals) -> None:
        """Send a signal, and wait until it is gone. Raises RuntimeError if it had ended before."""
        process = self._running.pop(name)
        if process.poll() is not None:
            log = (self._folder / f"{name}.log").read_text(errors="replace")
            raise RuntimeError(f"{name} ended with {process.returncode}: {log[-2_000:]}")
        process.send_signal(how)
        process.wait(WAIT_S)

    def received(self) -> dict[str, receipts.Receipts]:
        return {name: receipts.read(self._folder / name) for name in self._names}

    def all_received(self) -> receipts.Receipts:
        return np.concatenate(list(self.received().values()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


class Flow:
    """Sends a message of the next stream each `each_s`, until the context ends."""

    def __init__(self, running: Running, keys: list[int], size: Size, serials: list[int]) -> None:
        self._running, self._keys, self._size, self._serials = running, keys, size, serials
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        stream, due = 0, time.monotonic()
        try:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                send(self._running, self._keys, stream, self._serials, self._size.steady_rows)
                stream = (stream + 1) % STREAMS
                due = max(due + self._size.each_s, time.monotonic() - self._size.each_s)
        except BaseException as error:  # noqa: BLE001 - raised where the context ends
            self._errors.append(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        if self._errors:
            raise self._errors[0]


def send(running: Running, keys: list[int], stream: int, serials: list[int], rows: int) -> None:
    """One message of a stream, with its next serial."""
    running.send(stream, rows_of(keys[stream], stream, serials[stream], rows))
    serials[stream] += 1


def told(system: System, size: Size) -> dict[str, Any]:
    """The figures of one system."""
    with tempfile.TemporaryDirectory(dir=work_directory(), ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with system.run(folder) as running, Members(system, running.address, folder) as members:
            return _told(system, size, running, members)


def _told(system: System, size: Size, running: Running, members: Members) -> dict[str, Any]:
    keys, serials = keys_of_partitions(STREAMS), [0] * STREAMS
    for number in range(size.messages):
        send(running, keys, number % STREAMS, serials, size.rows)
    running.flush()
    backlog = dict.fromkeys(
        ((stream, serial) for stream in range(STREAMS) for serial in range(serials[stream])), size.rows
    )
    began_ns = time.monotonic_ns()
    for _ in range(MEMBERS):
        members.start()
    if _until_received(members, len(backlog)) < len(backlog):
        raise RuntimeError(f"the backlog was not read within {WAIT_S:g} s")
    drained = Span(int(members.all_received()[:, figures.RECEIVED].min()), time.monotonic_ns())
    result: dict[str, Any] = {
        "first_rows_s": round((drained.begin_ns - began_ns) / 1e9, 2),
        "backlog_rows_per_s": round(figures.rows_per_s(members.all_received(), drained)),
    }
    with Flow(running, keys, size, serials):
        result |= _events(size, members)
    running.flush()
    sent = backlog | {
        (stream, serial): size.steady_rows
        for stream in range(STREAMS)
        for serial in range(size.messages // STREAMS, serials[stream])
    }
    _until_received(members, len(sent))
    return result | _judged(system, members, sent)


def _events(size: Size, members: Members) -> dict[str, Any]:
    time.sleep(1.0)  # the first messages behind the backlog
    calm = _span(size.span_s)
    result: dict[str, Any] = {"calm": members_gaps(members, calm)}
    result["latency_ms"] = figures.latency_ms(members.all_received(), calm)
    third = ""
    for name, span_s in (("joins", size.span_s), ("leaves", size.span_s), ("killed", size.killed_s)):
        if name == "killed":
            third = _joined(members)
            time.sleep(size.span_s)
        event_ns = time.monotonic_ns()
        if name == "joins":
            third = _joined(members)
        else:
            members.end(third, signal.SIGTERM if name == "leaves" else signal.SIGKILL)
        span = _span(span_s)
        span = Span(event_ns, span.end_ns)
        result[f"{name}_pause_ms"] = figures.pauses_ms(members.received(), span, event_ns)
    return result


def _joined(members: Members) -> str:
    """A new member that has received something. Raises RuntimeError."""
    name = members.start()
    until(lambda: len(members.received()[name]) > 0, WAIT_S)
    return name


def members_gaps(members: Members, span: Span) -> float:
    """The longest pause of any stream in a span."""
    return round(max(figures.gaps_ms(members.all_received(), span).values()), 1)


def _span(seconds: float) -> Span:
    begin_ns = time.monotonic_ns()
    time.sleep(seconds)
    return Span(begin_ns, time.monotonic_ns())


def _until_received(members: Members, messages: int) -> int:
    """Wait until so many were received, at most WAIT_S. Returns how many were."""
    end = time.monotonic() + WAIT_S
    while (found := len(figures.received_rows(members.all_received()))) < messages:
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    return found


def _judged(system: System, members: Members, sent: dict[tuple[int, int], int]) -> dict[str, Any]:
    found = figures.received_rows(members.all_received())
    lost = sum(rows - min(rows, found.get(name, 0)) for name, rows in sent.items())
    again = sum(max(0, found.get(name, 0) - rows) for name, rows in sent.items())
    result = {"rows": sum(sent.values()), "rows_lost": lost, "rows_again": again}
    if system.in_order:
        result["out_of_order"] = sum(figures.out_of_order(one) for one in members.received().values())
    return result
