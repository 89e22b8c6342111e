"""kill -9 of the leader: how long until another one leads, and until it has committed a command."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import ringfence
from benchmarks.cluster.nodes import Nodes, until
from benchmarks.paths import work_directory

KILLS = 20
WORST_S = 2.0
REST_S = 1.0
"""Between a restart and the next kill: the one that came back votes again."""
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


def measure(kills: int = KILLS) -> dict[str, Any]:
    """Seconds from each kill to the next leader, and to the first topic that is created."""
    elected: list[float] = []
    served: list[float] = []
    with tempfile.TemporaryDirectory(dir=work_directory()) as folder, Nodes(Path(folder)) as nodes:
        for number in range(kills):
            leader = nodes.leader()
            rest = [node for node in nodes.all if node is not leader]
            with ringfence.connect(rest[0].address) as client:
                leader.kill()
                killed = time.monotonic()
                known = {node.node for node in rest}
                until(lambda rest=rest, known=known: nodes.leaders(rest) & known)
                elected.append(time.monotonic() - killed)
                client.create_topic(f"t{number}", schema=SCHEMA, key=["id"], partitions=1)
                served.append(time.monotonic() - killed)
            leader.start()
            nodes.until_whole()
            time.sleep(REST_S)
    return {
        "limits": {"worst_s": WORST_S},
        "kills": kills,
        "leader_s": {"median": round(median(elected), 2), "worst": round(max(elected), 2)},
        "created_s": {"median": round(median(served), 2), "worst": round(max(served), 2)},
        "all_s": [round(s, 2) for s in sorted(elected)],
    }


def held(result: dict[str, Any]) -> bool:
    return bool(result["leader_s"]["worst"] <= WORST_S)
