"""A peer's server as a child process: on the loopback, waited for, ended with the run however that ends."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ringfence.control.cli.local_ports import free_ports

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
"""A broker starts in 5 s on an idle machine, and in 40 where ten processes want two cores."""
STOP_TIMEOUT_S = 20.0
LOG_TAIL_CHARS = 2000


class ServerError(RuntimeError):
    """A server did not start; the message has its last words."""


def unwind_on_term() -> None:
    """Let SIGTERM end this program as Ctrl-C does: servers are ended and directories removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def free_port() -> int:
    """A port that nobody listens to now. If another process takes it meanwhile, the server's start fails."""
    return free_ports(1)[0]


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def spawn(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a server. The kernel ends it with this process, where setpriv (util-linux) is installed."""
    setpriv = shutil.which("setpriv")
    tied = [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)
    with log.open("ab") as out:
        return subprocess.Popen(
            tied, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment
        )


def wait_until(process: subprocess.Popen[bytes], log: Path, ready: Callable[[], bool]) -> None:
    """Raises ServerError with the server's last words when it ended or is not ready in time."""
    end = time.monotonic() + START_TIMEOUT_S
    while not ready():
        ended, late = process.poll() is not None, time.monotonic() > end
        if ended or late:
            why = f"ended with {process.returncode}" if ended else f"is not ready after {START_TIMEOUT_S:g} s"
            raise ServerError(f"{process.args!r} {why}:\n{log.read_text(errors='replace')[-LOG_TAIL_CHARS:]}")
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop, then kill it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def serving(
    command: Sequence[str], log: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A server that listens to `port` of the loopback; yields its pid."""
    process = spawn(command, log, environment)
    try:
        wait_until(process, log, lambda: listens(port))
        yield process.pid
    finally:
        end(process)
