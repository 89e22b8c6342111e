"""`ringfence dev`: a cluster of local processes, to try things out."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from ringfence.control.cli.exits import Exit
from ringfence.control.cli.output import emit, json_option
from ringfence.native.errors import ConnectError

START_S = 60.0
"""A first start takes a second; a loaded machine may need longer."""
STOP_S = 30.0
LOOK_S = 0.5


class _Local(msgspec.Struct):
    """A node's ports, kept in the folder: clients and peers find it again after a restart."""

    port: int
    control: int


@click.command()
@click.option("--nodes", "count", type=click.IntRange(1, 9), default=3, show_default=True,
              help="Processes.")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path, file_okay=False),
              help="Folder for data and logs that stays; by default a temporary one.")  # fmt: skip
@json_option
def command(count: int, data: Path | None, as_json: bool) -> int:  # noqa: FBT001 - click's
    """Run a cluster of local processes until Ctrl-C.

    One line tells when all nodes serve, with their addresses. A process that ends is told; the others go on.

    \b
    Example:
      ringfence dev --nodes 3 --data ./cluster
    """  # noqa: D301
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    with contextlib.ExitStack() as stack:
        root = data if data is not None else Path(stack.enter_context(_temporary()))
        root.mkdir(parents=True, exist_ok=True)
        running: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(_stop, running)
        told = [_started(root, number, running, asked) for number in range(1, count + 1)]
        for node in told:
            if not node.pop("new"):
                _await_first_line(running[node["name"]], root / f"{node['name']}.log", asked)
        if asked.is_set():
            return Exit.OK
        _tell(root, told, as_json=as_json)
        _watch(running, asked, as_json=as_json)
    return Exit.OK


@contextlib.contextmanager
def _temporary() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ringfence-dev-") as folder:
        yield folder


def _started(
    root: Path, number: int, running: dict[str, subprocess.Popen[bytes]], asked: threading.Event
) -> dict[str, Any]:
    """Start one node; a new one is waited for, those of an existing cluster need a majority to be ready."""
    name = f"node-{number}"
    local, is_new = _ports(root / f"{name}.json")
    options = ["--listen", f"tcp://127.0.0.1:{local.port}", "--control", f"tcp://127.0.0.1:{local.control}"]
    if number > 1:
        first, _ = _ports(root / "node-1.json")
        options += ["--join", f"tcp://127.0.0.1:{first.control}"]
    with (root / f"{name}.log").open("ab") as log:
        # A group of its own: Ctrl-C reaches us first, and we stop it in order.
        process = subprocess.Popen(  # noqa: S603 - our own program with our own arguments
            [sys.executable, "-m", "ringfence.control.cli", "serve", "--json", "--data", str(root / name),
             *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
        )  # fmt: skip
    running[name] = process
    told = {"name": name, "address": options[1], "control": options[3], "pid": process.pid, "new": is_new}
    if is_new:
        _await_first_line(process, root / f"{name}.log", asked)
    return told


def _ports(path: Path) -> tuple[_Local, bool]:
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=_Local), False
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        local = _Local(one.getsockname()[1], two.getsockname()[1])
    path.write_bytes(msgspec.json.encode(local))
    return local, True


def _await_first_line(process: subprocess.Popen[bytes], log: Path, asked: threading.Event) -> None:
    assert process.stdout is not None
    end = time.monotonic() + START_S
    while not asked.is_set():
        readable, _, _ = select.select([process.stdout], [], [], LOOK_S)
        if readable and process.stdout.readline():
            return
        if readable or time.monotonic() > end:
            said = log.read_text(errors="replace").strip().splitlines()
            raise ConnectError(f"{log.stem} did not start: {said[-1] if said else 'it said nothing'}")


def _tell(root: Path, told: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        emit({"event": "serving", "data": str(root), "nodes": told})
        return
    for node in told:
        click.echo(f"{node['name']}: {node['address']}  control {node['control']}  pid {node['pid']}")
    click.echo(f"{len(told)} nodes; data and logs in {root}; Ctrl-C stops them")


def _watch(running: dict[str, subprocess.Popen[bytes]], asked: threading.Event, *, as_json: bool) -> None:
    """Until asked to stop, or nobody is left; tell of each process that ends."""
    gone: set[str] = set()
    while not asked.wait(LOOK_S) and len(gone) < len(running):
        for name, process in running.items():
            if name not in gone and process.poll() is not None:
                gone.add(name)
                if as_json:
                    emit({"event": "ended", "name": name, "code": process.returncode})
                else:
                    click.echo(f"{name} ended with {process.returncode}")


def _stop(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """All at once: the last ones have no majority any more, and must not wait for one."""
    for process in running.values():
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in running.values():
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
