"""What every engine offers: start a server, let it take one turn, say what that turn cost."""

from __future__ import annotations

import json
import select
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from benchmarks.workload import Workload

START_TIMEOUT_S = 120.0  # the probe writes its whole file of 4 GiB the first time
TURN_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Pace:
    """How much one turn does: the quick numbers of requests or the full ones.

    It takes at most `seconds_max` of warming up and as many of measuring; one that is cut has fewer requests.
    """

    quick: bool
    seconds_max: float


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One measured run of a workload against one server.

    `server` are the differences over the measured part of what /proc says of the server process: user_ns,
    system_ns, faults_minor, faults_major, read_calls, write_calls, storage_write_bytes; and
    resident_bytes_max so far.
    """

    requests: int
    rows: int
    body_bytes: int
    seconds: float
    ack_p50_ms: float
    ack_p99_ms: float
    server: Mapping[str, int]

    @property
    def bytes_per_s(self) -> float:
        return self.body_bytes / self.seconds

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def server_cpu_ns_per_byte(self) -> float:
        return (self.server["user_ns"] + self.server["system_ns"]) / self.body_bytes

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Turn:
        """From the JSON object that a sender prints."""
        names = ("requests", "rows", "body_bytes", "seconds", "ack_p50_ms", "ack_p99_ms")
        return cls(**{name: result[name] for name in names}, server=result["server"])


class Server(Protocol):
    """A running server of one engine for one workload and transport."""

    @property
    def pid(self) -> int: ...

    def turn(self, pace: Pace) -> Turn:
        """Unmeasured requests, then the measured ones.

        Raises TurnError when an answer was wrong or is missing.
        """


class Engine(Protocol):
    """`name` as in result rows; `durability` says what an answer promises."""

    @property
    def name(self) -> str: ...

    @property
    def durability(self) -> str: ...

    @property
    def transports(self) -> tuple[str, ...]: ...

    def serve(self, workload: Workload, transport: str, directory: Path) -> AbstractContextManager[Server]:
        """A server with an empty store in `directory`, which is the engine's own."""


class TurnError(Exception):
    """A turn did not end as it must; the message has the sender's or server's last words."""


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[int, Any]]:
    """Start a server and wait for its first line, a JSON object.

    Yields (pid, that object); stops it afterwards.
    """
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)
    assert process.stdout is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
        line = process.stdout.readline() if readable else b""
        if not line:
            raise TurnError(f"{command[0]} did not start:\n{log.read_text()[-2000:]}")
        yield process.pid, json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def send(command: Sequence[str]) -> dict[str, Any]:
    """Run a sender to its end and return the JSON object on its last line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TURN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TurnError(f"{command[0]} did not end within {TURN_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise TurnError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def sizes_of(workload: Workload, pace: Pace) -> list[str]:
    """Requests, requests before them, and seconds: the last arguments of a sender in Python."""
    requests, warmup, _ = workload.sizes(quick=pace.quick)
    return [str(requests), str(warmup), str(pace.seconds_max)]


def address_for(transport: str, directory: Path) -> str:
    """Where a server shall listen: a drawn port, or a socket in its directory."""
    return "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{directory / 'socket'}"
