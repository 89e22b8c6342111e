"""kill -9 of a node that owns a third of a wide topic: how long until all of its partitions answer again."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import ringfence
from benchmarks.cluster.nodes import Nodes
from benchmarks.paths import work_directory
from ringfence.native.errors import ConnectError

WIDTHS = (128, 512, 1_024, 2_048)
WORST_S = 5.0
"""Of the widest: two seconds of silence, after which a node counts as failed, are in it."""
WAIT_S = 300.0
SCHEMA = pa.schema([("value", pa.int64())])


def measure(widths: tuple[int, ...] = WIDTHS) -> dict[str, Any]:
    """Seconds from the kill until the end of every partition was told by its new owner."""
    seen = {width: round(_failed_over_s(width), 2) for width in widths}
    return {
        "limits": {"worst_s": WORST_S},
        "all_answer_s": {str(width): took for width, took in seen.items()},
    }


def _failed_over_s(width: int) -> float:
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
        addresses = ",".join(node.address for node in nodes.all)
        with ringfence.connect(addresses, timeout_s=WAIT_S) as client:
            client.create_topic("wide", schema=SCHEMA, partitions=width, replication=3)
            assert len(client.end_offsets("wide")) == width
            leader = nodes.leader()
            victim = next(node for node in nodes.all if node is not leader)
            left = ",".join(node.address for node in nodes.all if node is not victim)
        with ringfence.connect(left, timeout_s=WAIT_S) as client:
            began = time.perf_counter()
            victim.kill()
            while not _all_answer(client, width):
                time.sleep(0.05)
            return time.perf_counter() - began


def _all_answer(client: ringfence.Client, width: int) -> bool:
    try:
        return len(client.end_offsets("wide")) == width
    except ConnectError:  # an owner that is FAILED, and has no successor yet
        return False


def held(result: dict[str, Any]) -> bool:
    took = [float(seconds) for seconds in result["all_answer_s"].values()]
    return took[-1] <= WORST_S
