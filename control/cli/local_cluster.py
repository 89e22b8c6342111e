"""Nodes of one cluster as processes of this machine, which `ringfence dev` starts, kills and stops."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.local_ports import free_ports
from ringfence.control.store.files import write_atomically
from ringfence.native.errors import ConnectError, StorageError

FIRST: Final = "node-1"
# A first start takes a second; a loaded machine may need longer.
START_S: Final = 60.0
STOP_S: Final = 30.0
LOOK_S: Final = 0.5
# Of a node's three ports, each free when it was drawn. One of 20,000 may be taken in the second until the
# node listens; five times in a row that is no chance, and another draw ends as the last one did.
DRAWS_MAX: Final = 5


class PortsTakenError(ConnectError):
    """Whatever ports are drawn for a node, somebody has one when it starts: no log tells more than that."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}: {DRAWS_MAX} times a port that was drawn for it was taken before it listened there; "
            "the same command draws others"
        )
        self.name = name


class _Local(msgspec.Struct):
    """A node's ports, kept in the folder: clients and peers find it again after a restart."""

    port: int
    control: int
    # 0: of an older program's folder; the system chooses one at each start.
    http: int = 0


class _Ready(msgspec.Struct):
    """What is needed of the line that `serve` prints when it serves."""

    node: int


@dataclass(frozen=True, slots=True)
class Process:
    """One node and where it is reached; `is_new`: its folder was made now; `node`: id, 0 until it serves."""

    name: str
    address: str
    control: str
    http: str
    pid: int
    is_new: bool
    node: int = 0


class LocalCluster:
    """Processes below one folder. Leaving the context stops them all."""

    def __init__(self, root: Path, asked: threading.Event) -> None:
        """`asked`: set when the user wants an end; nothing is waited for any longer then."""
        self.root = root
        self.nodes: dict[str, Process] = {}
        self._asked = asked
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """All at once: the last ones have no majority any more, and must not wait for one."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            _ended(process)

    def start(self, count: int) -> list[Process]:
        """Nodes 1 to `count`, all of them serving. Raises ConnectError when one does not."""
        nodes = [self.add(number) for number in range(1, count + 1)]
        for node in nodes:
            if not node.is_new:  # nodes of an existing cluster need a majority to be ready
                self._await_first_line(node.name)
        return [self.nodes[node.name] for node in nodes]

    def add(self, number: int) -> Process:
        """Start one node; a new one is waited for, at other ports if somebody took one of those drawn.

        Raises ConnectError.
        """
        name = f"node-{number}"
        for _ in range(DRAWS_MAX):
            node = self._begin(name)
            if not node.is_new:
                return node
            try:
                self._await_first_line(name)
            except ConnectError:
                if not self._lacks_port(name):
                    raise
                _ended(self._running.pop(name))
                del self.nodes[name]
                _ports_file(self.root, name).unlink()
            else:
                return self.nodes[name]
        raise PortsTakenError(name)

    def _begin(self, name: str) -> Process:
        local, is_new = _ports(_ports_file(self.root, name))
        options = [
            "--listen",
            f"tcp://127.0.0.1:{local.port}",
            "--control",
            f"tcp://127.0.0.1:{local.control}",
            "--http",
            f"127.0.0.1:{local.http}",
        ]
        if name != FIRST:
            first, _ = _ports(_ports_file(self.root, FIRST))
            options += ["--join", f"tcp://127.0.0.1:{first.control}"]
        with self._log(name).open("ab") as log:
            # A group of its own: Ctrl-C reaches us first, and we stop it in order.
            process = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
                [
                    sys.executable,
                    "-m",
                    "ringfence.control.cli",
                    "serve",
                    "--json",
                    "--data",
                    str(self.root / name),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._running[name] = process
        node = Process(name, options[1], options[3], f"http://{options[5]}", process.pid, is_new)
        self.nodes[name] = node
        return node

    def serve_command(self, name: str) -> list[str]:
        """What starts a node that has ended, for people."""
        node = self.nodes[name]
        return [
            "ringfence",
            "serve",
            "--data",
            str(self.root / name),
            "--listen",
            node.address,
            "--control",
            node.control,
            "--http",
            node.http.removeprefix("http://"),
        ]

    def kill(self, name: str) -> None:
        """Send SIGKILL, and wait until it is gone."""
        self._running[name].kill()
        _ended(self._running[name])

    def restart(self, name: str) -> None:
        """Start a node that was killed; ends when it serves. Raises ConnectError."""
        self.add(int(name.rpartition("-")[2]))
        self._await_first_line(name)

    def leave(self, name: str) -> None:
        """Stop a node in order and forget it: it is no member any more."""
        process = self._running.pop(name)
        del self.nodes[name]
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()
        _ended(process)

    def ended(self) -> dict[str, int]:
        """Exit codes of the processes that are gone."""
        found = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in found.items() if code is not None}

    def _log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def _said(self, name: str) -> str:
        return f"its log: {self._log(name)}; its last line: {self._last_line(name)}"

    def _last_line(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _lacks_port(self, name: str) -> bool:
        """Whether a node ended because it could not listen where somebody else does, by its own word."""
        try:
            code = self._running[name].wait(LOOK_S)
        except subprocess.TimeoutExpired:
            return False
        return code == Exit.USAGE and os.strerror(errno.EADDRINUSE) in self._last_line(name)

    def _await_first_line(self, name: str) -> None:
        process = self._running[name]
        assert process.stdout is not None
        began = time.monotonic()
        while not self._asked.is_set():
            readable, _, _ = select.select([process.stdout], [], [], LOOK_S)
            if readable and (line := process.stdout.readline()):
                ready = msgspec.json.decode(line, type=_Ready)
                self.nodes[name] = replace(self.nodes[name], node=ready.node)
                return
            waited = time.monotonic() - began
            if readable:
                raise ConnectError(f"{name} ended before it served, after {waited:.1f} s; {self._said(name)}")
            if waited > START_S:
                raise ConnectError(f"{name} did not serve within {START_S:g} s; {self._said(name)}")


@dataclass
class Folder:
    """Of a cluster that nobody gave one. `is_kept`: it has logs that a message names."""

    path: Path
    is_kept: bool = False


@contextlib.contextmanager
def temporary() -> Iterator[Folder]:
    """A folder that goes with the context, unless it is to be kept; a ConnectError names a log in it."""
    folder = Folder(Path(tempfile.mkdtemp(prefix="ringfence-dev-")))
    try:
        yield folder
    except PortsTakenError:
        raise
    except ConnectError:
        folder.is_kept = True
        raise
    finally:
        if not folder.is_kept:
            shutil.rmtree(folder.path, ignore_errors=True)


def _ports_file(root: Path, name: str) -> Path:
    return root / f"{name}.json"


def _ports(path: Path) -> tuple[_Local, bool]:
    if path.exists():
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Local), False
        except msgspec.DecodeError as error:
            raise StorageError(
                f"{path} does not hold a node's ports ({error}); remove it: the node gets others"
            ) from error
    local = _Local(*free_ports(3))
    write_atomically(path, msgspec.json.encode(local))
    return local, True


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
