"""Whether 10,000 active partitions cost what one costs: calls and syncs a batch, memory and files when idle.

Counted, not timed. One request is under way at a time, so that each is a commit group of its own and the
counts do not depend on what came together. The calls are those of the engine's and the writers' threads, by
strace. Instructions a batch come from callgrind over the engine in a process of its own
(`benchmarks.resources`).
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import resources
from benchmarks.dataset import schema_of
from benchmarks.engines.base import TURN_TIMEOUT_S, Pace, TurnError, running
from benchmarks.engines.native_sender import native_turn
from benchmarks.engines.ours import RETENTION_BYTES, TOPIC
from benchmarks.trials.base import command_of, directory_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.workload import Workload

COUNTS = (1, 10_000)
THREADS = ("rf-engine", "rf-writer")  # of the way of a batch
SYNCS = ("fdatasync", "fsync")
WRITES = ("pwritev", "pwritev2", "pwrite64")
SETTLE_S = 1.0  # until what opening partitions left behind is done


def partitions(workload: Workload, *, quick: bool) -> dict[str, Any]:
    """For each of COUNTS, and both together as ratios."""
    figures: dict[str, Any] = {}
    for count in COUNTS:
        counted = _count(replace(workload, partitions=count), quick=quick)
        engine = resources.count(count)
        if engine.instructions_per_batch is not None:
            counted["instructions_a_batch"] = engine.instructions_per_batch
        figures |= {f"{name}_at_{count}": value for name, value in counted.items()}
    one, many = COUNTS
    for name in ("syncs_a_batch", "writes_a_batch", "calls_a_batch", "instructions_a_batch"):
        if f"{name}_at_{one}" in figures:
            figures[f"{name}_ratio"] = round(figures[f"{name}_at_{many}"] / figures[f"{name}_at_{one}"], 4)
    return figures


def _count(workload: Workload, *, quick: bool) -> dict[str, Any]:
    from benchmarks.node_client import NodeClient, save_lanes  # noqa: PLC0415 - needs the installed package

    directory = directory_of(workload)
    counted: dict[str, Any] = {}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        pid, ready = stack.enter_context(running(command_of(directory, workload), directory / "stderr"))
        with NodeClient(ready["address"]) as client:
            schema, lanes = schema_of(workload), directory / "lanes"
            options: dict[str, Any] = {"key": workload.key, "retention_bytes": RETENTION_BYTES}

            def turn(names: list[str], load: Workload) -> None:
                save_lanes(client.lanes(names, 1), lanes)
                native_turn(
                    load,
                    address=ready["address"],
                    framing="ringfence",
                    pid=pid,
                    pace=Pace(quick, TURN_TIMEOUT_S),
                    more=["--lanes", str(lanes)],
                )

            client.create_topic("warm", schema, partitions=1, **options)
            turn(["warm"], workload)
            time.sleep(SETTLE_S)
            memory, files = _resident_bytes(pid), _open_files(pid)
            names = client.create_topics(TOPIC, schema, partitions=workload.partitions, **options)
            time.sleep(SETTLE_S)
            idle = _resident_bytes(pid) - memory
            counted["idle_partition_bytes"] = round(idle / workload.partitions)
            counted["files_opened"] = _open_files(pid) - files
            with _calls(pid, directory) as calls:
                turn(names, workload)
            requests, warmup, _ = workload.sizes(quick=quick)
            total = requests + warmup
    if calls:
        counted["syncs_a_batch"] = round(sum(calls.get(name, 0) for name in SYNCS) / total, 3)
        counted["writes_a_batch"] = round(sum(calls.get(name, 0) for name in WRITES) / total, 3)
        counted["calls_a_batch"] = round(sum(calls.values()) / total, 2)
    return counted


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise TurnError(f"/proc/{pid}/status has no VmRSS")


def _open_files(pid: int) -> int:
    """Regular files only: sockets come and go with the sender."""
    links = [entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    return sum(link.is_absolute() and link.is_file() for link in links)


@contextmanager
def _calls(pid: int, directory: Path) -> Iterator[dict[str, int]]:
    """Calls of the threads meanwhile, by name; filled when the block ends, empty without strace."""
    found: dict[str, int] = {}
    strace = shutil.which("strace")
    if strace is None:
        yield found
        return
    tasks = Path(f"/proc/{pid}/task")
    threads = [
        task.name for task in tasks.iterdir() if (task / "comm").read_text().strip().startswith(THREADS)
    ]
    out = directory / "strace"
    command = [strace, "-c", "-o", str(out), *(word for thread in threads for word in ("-p", thread))]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        time.sleep(SETTLE_S)  # it attaches
        try:
            yield found
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(30)
    for line in out.read_text().splitlines():
        words = line.split()  # % time, seconds, usecs/call, calls, [errors,] syscall
        if len(words) in {5, 6} and words[3].isdigit() and words[-1] != "total":
            found[words[-1]] = int(words[3])
