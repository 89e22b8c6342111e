"""Whether a busy Python thread in the node's own process slows ingest: the way of a batch holds no GIL.

A node whose process has a Python thread that counts without end, switched on and off by signals, is fed by
the native load generator in turns: nothing else at work; the thread in the node's process busy; the same loop
busy in a process of its own, which cannot hold the node's lock. On two cores that are full with sender, node
and disk any busy thread costs the core that it takes: what it costs beyond the same loop elsewhere is the
lock. The share of a core that either got is told: a scheduler that groups processes need not be fair.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.dataset import schema_of
from benchmarks.engines.base import Pace, running
from benchmarks.engines.ours import RETENTION_BYTES, TOPIC, Node
from benchmarks.trials.base import directory_of, options_of

if TYPE_CHECKING:
    from benchmarks.workload import Workload

TURNS, TURNS_QUICK = 9, 7
TURN_TIME_S_MAX = 1.0
SWITCH_S = 0.05  # until a signal is seen; two that are pending at once come in the order of their numbers
SPIN = "n = 0\nwhile True: n += 1"


def busy_thread(workload: Workload, *, quick: bool) -> dict[str, Any]:
    """Medians in MB/s, and the ratios of busy to at rest."""
    from benchmarks.node_client import NodeClient  # noqa: PLC0415 - needs the installed package
    from benchmarks.servers.busy_node import NAME  # noqa: PLC0415

    directory = directory_of(workload)
    command = [sys.executable, "-m", "benchmarks.servers.busy_node", *options_of(directory, workload)]
    pace = Pace(quick, TURN_TIME_S_MAX)
    rates: dict[str, list[float]] = {"rest": [], "busy": [], "elsewhere": []}
    shares: dict[str, list[float]] = {"busy": [], "elsewhere": []}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        pid, ready = stack.enter_context(running(command, directory / "stderr"))
        with NodeClient(ready["address"]) as client:
            topics = client.create_topics(
                TOPIC,
                schema_of(workload),
                key=workload.key,
                partitions=workload.partitions,
                retention_bytes=RETENTION_BYTES,
            )
        node = Node(workload, directory, ready["address"], pid, topics)
        thread = _thread_of(pid, NAME)
        for _ in range(TURNS_QUICK if quick else TURNS):
            rates["rest"].append(node.turn(pace).bytes_per_s)
            os.kill(pid, signal.SIGUSR1)
            time.sleep(SWITCH_S)
            _beside(node, pace, (pid, thread), rates["busy"], shares["busy"])
            os.kill(pid, signal.SIGUSR2)
            time.sleep(SWITCH_S)
            with subprocess.Popen([sys.executable, "-c", SPIN]) as other:
                try:
                    _beside(node, pace, (other.pid, other.pid), rates["elsewhere"], shares["elsewhere"])
                finally:
                    other.kill()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    figures: dict[str, Any] = {f"{name}_mb_per_s": round(rate / 1e6) for name, rate in medians.items()}
    figures |= {f"{name}_share_of_a_core": round(statistics.median(shares[name]), 2) for name in shares}
    return figures | {
        "busy_to_rest": round(medians["busy"] / medians["rest"], 3),
        "busy_to_elsewhere": round(medians["busy"] / medians["elsewhere"], 3),
    }


def _beside(
    node: Node, pace: Pace, spinner: tuple[int, int], rates: list[float], shares: list[float]
) -> None:
    """A turn beside a busy thread (process, thread), and the share of a core that the thread got."""
    begin, before = time.monotonic_ns(), _cpu_ns(*spinner)
    rates.append(node.turn(pace).bytes_per_s)
    share = (_cpu_ns(*spinner) - before) / (time.monotonic_ns() - begin)
    if share == 0:
        raise RuntimeError("the busy thread did not run")
    shares.append(share)


def _thread_of(pid: int, name: str) -> int:
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise RuntimeError(f"process {pid} has no thread {name!r}")


def _cpu_ns(pid: int, thread: int) -> int:
    return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
