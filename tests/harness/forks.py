"""Processes of the fork server: real ones, with what tests use of `subprocess.Popen`.

A process with another environment than that of the tests (RINGFENCE_* aside) is started by exec, as users
start it; `STARTS=exec` starts all of them so.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = Path(sys.executable).parent / "ringfence"
OWN: Final = ("RINGFENCE_", "PYTEST_", "_RJEM_")
"""Variables that may have another value: nothing here reads them before `main`. (polars sets its own.)"""
ANSWER_S: Final = 120.0
"""For the server's imports, on a loaded machine."""


CLOSE_S: Final = 10.0


def _has_answer(answers: socket.socket, timeout_s: float | None) -> bool:
    poll = select.poll()  # tests have descriptors that `select` does not take
    poll.register(answers, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


def _inherited(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(OWN)}


_at_start: Final = dict(os.environ)


class Process(Protocol):
    """What `subprocess.Popen` and `Fork` have in common."""

    pid: int
    stdin: IO[Any] | None
    stdout: IO[Any] | None

    @property
    def returncode(self) -> int | Any: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...
    def terminate(self) -> None: ...
    def send_signal(self, sig: int) -> None: ...


class Fork:
    """A process of the fork server."""

    def __init__(self, pid: int, answers: socket.socket, command: Sequence[str]) -> None:
        self.pid = pid
        self.stdin: IO[Any] | None = None
        self.stdout: IO[Any] | None = None
        self.returncode: int | None = None
        self._answers, self._command = answers, command

    def poll(self) -> int | None:
        """Its exit code, -N after signal N; None while it runs."""
        return self._status(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        status = self._status(timeout)
        if status is None:
            assert end is not None
            raise subprocess.TimeoutExpired(list(self._command), timeout or 0.0)
        return status

    def _status(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and _has_answer(self._answers, timeout_s):
            answer = self._answers.recv(4096)
            assert answer, "the fork server ended before this process"
            self.returncode = json.loads(answer)["status"]
            self._answers.close()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Nothing, once its end is known."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class _Server:
    """The fork server of this process; started by the first fork."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.fork_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
                env=_inherited(_at_start),
            )
        atexit.register(self.close)

    def close(self) -> None:
        if self.process == os.getpid():
            self._ours.close()
            try:
                self._running.wait(CLOSE_S)
            except subprocess.TimeoutExpired:
                self._running.kill()

    def fork(
        self, command: Sequence[str], environment: dict[str, str], folder: Path, descriptors: Sequence[int]
    ) -> Fork:
        request = {"arguments": list(command), "environment": environment, "folder": str(folder)}
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._ours, [json.dumps(request).encode()], [*descriptors, theirs.fileno()])
        assert _has_answer(answers, ANSWER_S), "the fork server does not answer"
        answer = answers.recv(4096)
        assert answer, f"the fork server ended with {self._running.poll()}"
        return Fork(json.loads(answer)["process"], answers, command)


_server: list[_Server] = []


def _forked(
    command: Sequence[str], environment: dict[str, str], folder: Path, descriptors: Sequence[int]
) -> Fork | None:
    """None: it must be started by exec."""
    if os.environ.get("STARTS") == "exec" or _inherited(environment) != _inherited(_at_start):
        return None
    if list(command[:2]) == [sys.executable, "-m"]:
        command = command[1:]
    elif command[0] != str(PROGRAM):
        return None
    if not _server or _server[0].process != os.getpid():
        _server[:] = [_Server()]
    return _server[0].fork(command, environment, folder, descriptors)


def start(
    command: Sequence[str],
    *,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
    stderr: int = 2,
    has_stdin: bool = False,
    text: bool = False,
) -> Process:
    """`PROGRAM ...` or `python -m MODULE ...`, a pipe from its stdout, and with `has_stdin` one to it."""
    whole, where = {**os.environ, **(environment or {})}, folder or Path.cwd()
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        pipes: dict[str, IO[Any]] = {}
        if has_stdin:
            stdin, own = os.pipe()
            pipes["stdin"] = ours.enter_context(os.fdopen(own, "w" if text else "wb"))
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
        theirs.callback(os.close, stdin)
        own, stdout = os.pipe()
        theirs.callback(os.close, stdout)
        pipes["stdout"] = ours.enter_context(os.fdopen(own, "r" if text else "rb"))
        process: Process | None = _forked(command, whole, where, (stdin, stdout, stderr))
        if process is None:
            process = subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=whole, cwd=where
            )
        process.stdin, process.stdout = pipes.get("stdin"), pipes["stdout"]
        ours.pop_all()
    return process


def run(
    command: Sequence[str], timeout_s: float, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with text that is captured. Raises subprocess.TimeoutExpired; it is killed then."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        Path(os.devnull).open() as none,
    ):
        descriptors = (none.fileno(), out.fileno(), err.fileno())
        process = _forked(command, environment, Path.cwd(), descriptors)
        if process is None:
            return subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
            )
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(list(command), code, out.read(), err.read())
