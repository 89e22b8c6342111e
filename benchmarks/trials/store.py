"""How fast a node comes back, and whether it keeps to its memory."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from benchmarks.dataset import bodies_file, schema_of
from benchmarks.engines.base import TURN_TIMEOUT_S, Pace, TurnError, running
from benchmarks.engines.native_sender import native_turn
from benchmarks.engines.ours import TOPIC
from benchmarks.native_build import programs
from benchmarks.process import usage
from benchmarks.trials.base import command_of, directory_of

if TYPE_CHECKING:
    from benchmarks.workload import Workload

BUDGET_BYTES = 512 << 20  # the node's default
OVERLOAD_FACTOR = 3
OVERLOAD_TIME_S = 12.0


def recovery(workload: Workload, *, quick: bool) -> dict[str, Any]:
    """Fill a store, kill the node, start it again: bytes and seconds are those that it reports itself."""
    from benchmarks.node_client import NodeClient, save_lanes  # noqa: PLC0415 - needs the installed package

    directory = directory_of(workload)
    command = command_of(directory, workload)
    with running(command, directory / "stderr") as (pid, ready):
        with NodeClient(ready["address"]) as client:
            client.create_topic(
                TOPIC, schema_of(workload), key=workload.key, partitions=1, retention_bytes=None
            )
            lanes = directory / "lanes"
            save_lanes(client.lanes([TOPIC], workload.producers), lanes)
        native_turn(
            workload,
            address=ready["address"],
            framing="ringfence",
            pid=pid,
            pace=Pace(quick, TURN_TIMEOUT_S),
            more=["--lanes", str(lanes)],
        )
        os.kill(pid, signal.SIGKILL)
    begin = time.monotonic()
    log = directory / "stderr-again"
    with running(command, log):
        seconds_until_serving = time.monotonic() - begin
        said = re.search(r'\{[^}]*"event": "recovered"[^}]*\}', log.read_text())
    shutil.rmtree(directory)
    if said is None:
        raise TurnError("the node did not say what it recovered")
    told = json.loads(said[0])
    figures = {name: told[name] for name in ("bytes", "records", "seconds")}
    figures["bytes_per_s"] = round(told["bytes"] / told["seconds"])
    return figures | {"seconds_until_serving": round(seconds_until_serving, 3)}


def overload(workload: Workload, *, quick: bool) -> dict[str, Any]:
    """Senders that want OVERLOAD_FACTOR times the budget unanswered, while every sync takes longer."""
    from benchmarks.node_client import NodeClient, save_lanes  # noqa: PLC0415 - needs the installed package

    directory = directory_of(workload)
    body_bytes = bodies_file(workload).stat().st_size // workload.distinct_batches
    senders = -(-OVERLOAD_FACTOR * BUDGET_BYTES // (workload.window * body_bytes))
    with ExitStack() as stack:
        pid, ready = stack.enter_context(running(command_of(directory, workload), directory / "stderr"))
        with NodeClient(ready["address"]) as client:
            retention = 1 << 30
            client.create_topic(
                TOPIC, schema_of(workload), key=workload.key, partitions=1, retention_bytes=retention
            )
            routes = [client.lanes([TOPIC], 1) for _ in range(senders)]
        before = usage(pid)["resident_bytes_max"]
        processes = []
        for number, route in enumerate(routes):
            lanes = directory / f"lanes-{number}"
            save_lanes(route, lanes)
            command = [programs()["loadgen"], "--address", ready["address"], "--framing", "ringfence"]
            command += ["--bodies", str(bodies_file(workload)), "--lanes", str(lanes)]
            command += ["--window", str(workload.window)]
            command += [
                "--shared",
                "--requests",
                "1000000",
                "--seconds-max",
                str(OVERLOAD_TIME_S / (2 if quick else 1)),
            ]
            processes.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
        results = [_result_of(process) for process in processes]
        after = usage(pid)["resident_bytes_max"]
    shutil.rmtree(directory)
    return {
        "senders": senders,
        "unanswered_bytes_wanted": senders * workload.window * body_bytes,
        "bytes_per_s": round(sum(result["bytes_per_s"] for result in results)),
        "refused_and_sent_again": sum(result["again"] for result in results),
        "budget_bytes": BUDGET_BYTES,
        "resident_bytes_idle": before,
        "resident_bytes_max": after,
        "resident_to_budget": round(after / BUDGET_BYTES, 3),
    }


def _result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    told, errors = process.communicate(timeout=TURN_TIMEOUT_S)
    if process.returncode != 0:
        raise TurnError(errors[-2000:])
    result: dict[str, Any] = json.loads(told)
    return result
