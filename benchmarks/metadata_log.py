"""A metadata log for benchmarks: commands in, states out, and how long a step takes."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from typing import Any, Final

from ringfence.control.model.commands import Command, RestartNode
from ringfence.control.model.entries import Entry, Proposal
from ringfence.control.model.ids import Epoch, Index, NodeId, SessionId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.layout_commands import CommitLayout
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import RegisterNode
from ringfence.control.model.results import Refused
from ringfence.control.model.schemas import Column
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.state_machines.metadata.state_machine import apply

CLUSTER: Final = b"c" * 16
ZONES: Final = 10
COLUMN: Final = Column("id", "int64", nullable=False)


class Log:
    """A state and the index of its last entry."""

    def __init__(self) -> None:
        self.state: MetadataState = EMPTY
        self.index = 0

    def take(self, command: Command) -> None:
        self.index += 1
        proposal = Proposal(session=SessionId(0), sequence=0, time_ms=0, command=command)
        self.state, result = apply(self.state, Entry(index=Index(self.index), term=1, proposal=proposal))
        assert not isinstance(result, Refused), result


def joined(log: Log, number: int) -> NodeId:
    store = number.to_bytes(16, "big")
    log.take(
        RegisterNode(
            cluster=CLUSTER,
            store=store,
            addresses=(f"tcp://node{number}:7070",),
            zone=f"zone{number % ZONES}",
        )
    )
    node = NodeId(log.index)
    log.take(RestartNode(node=node, store=store, addresses=(f"tcp://node{number}:7070",), program="scale"))
    return node


def seconds(work: Callable[[], Any], repeat: int = 3) -> float:
    """The least CPU time of some runs: what disturbs only adds."""
    least = math.inf
    for _ in range(repeat):
        gc.collect()
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return least


def applied(log: Log, command: Callable[[], Command]) -> Callable[[], None]:
    """Apply a command to a copy of the log's place, so that it can be applied again."""

    def work() -> None:
        copy = Log()
        copy.state, copy.index = log.state, log.index
        copy.take(command())

    return work


def committed(transition: Transition) -> CommitLayout:
    """The COMMIT of a held change."""
    number = Epoch(transition.change)
    return CommitLayout(
        change=transition.change,
        ends=tuple((source, LogEnd(Epoch(1), 7, 70, 9)) for source in transition.sources),
        created=tuple((child.partition, LogEnd(number, 2, 0, 9)) for child in transition.children),
    )
