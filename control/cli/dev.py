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

from ringfence.control.cli.demo_steps import generate
from ringfence.control.cli.dev_story import Process, Story, StoryError
from ringfence.control.cli.exits import Exit
from ringfence.control.cli.output import emit, json_option, show_table
from ringfence.native.errors import ConnectError

START_S = 60.0
"""A first start takes a second; a loaded machine may need longer."""
STOP_S = 30.0
LOOK_S = 0.5
VOTERS_MIN = 3


class _Local(msgspec.Struct):
    """A node's ports, kept in the folder: clients and peers find it again after a restart."""

    port: int
    control: int
    http: int = 0
    """0: of an older program's folder; the system chooses one at each start."""


@click.command()
@click.option("--nodes", "count", type=click.IntRange(1, 9), default=3, show_default=True,
              help="Processes.")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path, file_okay=False),
              help="Folder for data and logs that stays; by default a temporary one.")  # fmt: skip
@click.option(
    "--demo", is_flag=True, help="Send lineitem through all nodes, kill -9 the leader meanwhile, compare."
)
@click.option("--scale", type=click.FloatRange(0.001, 100), default=0.1, show_default=True,
              help="TPC-H scale of --demo: 0.1 is 600,572 rows.")  # fmt: skip
@click.option("--input", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A lineitem Parquet file for --demo. [default: made by tpchgen-cli]")  # fmt: skip
@json_option
def command(
    *, count: int, data: Path | None, demo: bool, scale: float, file: Path | None, as_json: bool
) -> int:
    """Run a cluster of local processes until Ctrl-C.

    One line tells when all nodes serve, with their addresses. A process that ends is told; the others go on.
    With --demo the cluster tells a story instead, and ends with 0 when no row and no command was lost.

    \b
    Example:
      ringfence dev --nodes 3 --data ./cluster
      ringfence dev --nodes 3 --demo
    """  # noqa: D301
    if demo and count < VOTERS_MIN:
        raise click.UsageError(f"--demo kills a node: --nodes {VOTERS_MIN} at least, so a majority is left")
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
        if demo:
            source = file if file is not None else generate(scale, root)
            return _demo(root, told, running, asked, source, as_json=as_json)
        _tell(root, told, as_json=as_json)
        _watch(running, asked, as_json=as_json)
    return Exit.OK


def _demo(
    root: Path,
    told: list[dict[str, Any]],
    running: dict[str, subprocess.Popen[bytes]],
    asked: threading.Event,
    source: Path,
    *,
    as_json: bool,
) -> int:
    def kill(name: str) -> None:
        running[name].kill()
        _ended(running[name])

    def restart(name: str) -> None:
        _started(root, int(name.rpartition("-")[2]), running, asked)
        _await_first_line(running[name], root / f"{name}.log", asked)

    nodes = [Process(node["name"], node["address"], node["control"]) for node in told]
    scenes = []
    try:
        for scene in Story(nodes, kill=kill, restart=restart).tell(source):
            scenes.append(scene)
            if as_json:
                emit({"scene": scene.what, "seen": scene.seen, "seconds": round(scene.seconds, 3)})
            else:
                click.echo(f"{scene.what}: {scene.seen}", err=True)
    except StoryError as error:
        click.echo(f"the demo failed: {error}; logs are in {root}", err=True)
        return Exit.DEFECT
    if not as_json:
        rows = [[scene.what, scene.seen, f"{scene.seconds:.2f}"] for scene in scenes]
        show_table("", ("what", "seen", "seconds"), rows)
        click.echo("no acknowledged row and no command was lost")
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
    options = ["--listen", f"tcp://127.0.0.1:{local.port}", "--control", f"tcp://127.0.0.1:{local.control}",
               "--http", f"127.0.0.1:{local.http}"]  # fmt: skip
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
    told = {"name": name, "address": options[1], "control": options[3], "http": f"http://{options[5]}",
            "pid": process.pid, "new": is_new}  # fmt: skip
    if is_new:
        _await_first_line(process, root / f"{name}.log", asked)
    return told


def _ports(path: Path) -> tuple[_Local, bool]:
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=_Local), False
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        local = _Local(*(each.getsockname()[1] for each in (one, two, three)))
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
        doors = f"{node['address']}  control {node['control']}  admin {node['http']}"
        click.echo(f"{node['name']}: {doors}  pid {node['pid']}")
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
        _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
