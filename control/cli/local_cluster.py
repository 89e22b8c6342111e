"""Start, kill and stop the nodes of a local cluster as processes, for `ringfence dev`."""

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

from ringfence.control.cli import signals
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.cli.local_ports import free_ports
from ringfence.control.store.files import write_atomically
from ringfence.native.errors import ConnectError, StorageError

FIRST: Final = "node-1"
# A first start takes a second; a busy machine may need longer.
START_S: Final = 60.0
STOP_S: Final = 30.0
POLL_S: Final = 0.5
# Draws of a node's three ports. A free port is taken by another process before the node listens about once in
# 20,000 draws. Five failures in a row have another cause, and more draws would fail, too.
DRAWS_MAX: Final = 5


class PortsTakenError(ConnectError):
    """Ports of a node were taken at every draw. The node's log has no further information."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}: other processes took its port {DRAWS_MAX} times before it listened; run the command "
            "again for other ports"
        )
        self.name = name


class _NodePorts(msgspec.Struct):
    """A node's ports, stored in the directory, so that clients and peers reach it after a restart."""

    port: int
    control: int
    # 0: of an older program's folder; the system chooses one at each start.
    http: int = 0


class _ServingLine(msgspec.Struct):
    """The needed fields of the line that `serve` prints when it serves."""

    node: int


_NODE_PORTS: Final = msgspec.json.Decoder(_NodePorts)
_SERVING_LINE: Final = msgspec.json.Decoder(_ServingLine)


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """A node's process and addresses. `is_new`: its directory is new; `node`: id, 0 until it serves."""

    name: str
    address: str
    control: str
    http: str
    pid: int
    is_new: bool
    node: int = 0


class LocalCluster:
    """Processes of nodes with data below one directory. The end of the context stops all of them."""

    def __init__(self, root: Path, stop: threading.Event) -> None:
        """`stop`: set when the user ends the command; it ends all waits."""
        self.root = root
        self.nodes: dict[str, NodeProcess] = {}
        self._stop = stop
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all nodes together: without a majority, the last nodes could not stop one after the other."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            _reap(process)

    def start(self, count: int) -> list[NodeProcess]:
        """Start nodes 1 to `count` and wait until they serve. Raises ConnectError if a node does not."""
        nodes = [self.add(number) for number in range(1, count + 1)]
        for node in nodes:
            if not node.is_new:  # nodes of an existing cluster need a majority to serve
                self._await_first_line(node.name)
        return [self.nodes[node.name] for node in nodes]

    def add(self, number: int) -> NodeProcess:
        """Start a node. Wait for a new node, and start it with other ports if one of its ports was taken.

        Raises ConnectError.
        """
        name = f"node-{number}"
        for _ in range(DRAWS_MAX):
            node = self._start_process(name)
            if not node.is_new:
                return node
            try:
                self._await_first_line(name)
            except ConnectError:
                if not self._has_port_conflict(name):
                    raise
                _reap(self._running.pop(name))
                del self.nodes[name]
                _ports_file(self.root, name).unlink()
            else:
                return self.nodes[name]
        raise PortsTakenError(name)

    def _start_process(self, name: str) -> NodeProcess:
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
        with self._log(name).open("ab") as log, signals.deferred():
            # A separate session: Ctrl-C reaches only the command, which then stops the nodes.
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
        node = NodeProcess(name, options[1], options[3], f"http://{options[5]}", process.pid, is_new)
        self.nodes[name] = node
        return node

    def serve_command(self, name: str) -> list[str]:
        """Return the command that restarts an ended node."""
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
        """Send SIGKILL and wait for the end of the process."""
        self._running[name].kill()
        _reap(self._running[name])

    def restart(self, name: str) -> None:
        """Start a killed node and wait until it serves. Raises ConnectError."""
        self.add(int(name.rpartition("-")[2]))
        self._await_first_line(name)

    def leave(self, name: str) -> None:
        """Stop a removed node with SIGTERM and remove it from `nodes`."""
        process = self._running[name]
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        process.kill()
        _reap(process)
        del self._running[name], self.nodes[name]

    def ended(self) -> dict[str, int]:
        """Return the exit codes of ended processes by name."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def _log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def _log_hint(self, name: str) -> str:
        return f"log: {self._log(name)}; last line: {self._last_line(name)}"

    def _last_line(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "none"

    def _has_port_conflict(self, name: str) -> bool:
        """Return whether a node ended because another process has one of its ports, by its last log line."""
        try:
            code = self._running[name].wait(POLL_S)
        except subprocess.TimeoutExpired:
            return False
        return code == Exit.USAGE and os.strerror(errno.EADDRINUSE) in self._last_line(name)

    def _await_first_line(self, name: str) -> None:
        process = self._running[name]
        assert process.stdout is not None
        began = time.monotonic()
        while not self._stop.is_set():
            readable, _, _ = select.select([process.stdout], [], [], POLL_S)
            if readable and (line := process.stdout.readline()):
                ready = _SERVING_LINE.decode(line)
                self.nodes[name] = replace(self.nodes[name], node=ready.node)
                return
            waited = time.monotonic() - began
            if readable:
                raise ConnectError(
                    f"{name} ended before it served, after {waited:.1f} s; {self._log_hint(name)}"
                )
            if waited > START_S:
                raise ConnectError(f"{name} did not serve within {START_S:g} s; {self._log_hint(name)}")


@dataclass
class ClusterDirectory:
    """The directory of a cluster. `is_kept`: an error names logs in it, so it must not be deleted."""

    path: Path
    is_kept: bool = False


@contextlib.contextmanager
def temporary() -> Iterator[ClusterDirectory]:
    """Create a directory and delete it at the end, unless `is_kept`. A ConnectError names a log in it."""
    folder = ClusterDirectory(Path(tempfile.mkdtemp(prefix="ringfence-dev-")))
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


def _ports(path: Path) -> tuple[_NodePorts, bool]:
    if path.exists():
        try:
            return _NODE_PORTS.decode(path.read_bytes()), False
        except msgspec.DecodeError as error:
            raise StorageError(
                f"{path} does not contain a node's ports ({error}); remove the file for new ports"
            ) from error
    local = _NodePorts(*free_ports(3))
    write_atomically(path, msgspec.json.encode(local))
    return local, True


def _reap(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
