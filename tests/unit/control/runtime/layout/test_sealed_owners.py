"""An owner that lacks records of a sealed partition hands it over; any other owner keeps it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence.control.model.ids import Epoch, PartitionId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.reassignment_commands import AbortChange, PrepareChange
from ringfence.control.model.results import Refused
from ringfence.control.runtime.layout.engine import PartitionFigures
from ringfence.control.runtime.layout.sealed_owners import SealedOwners
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.native.wire import Code
from tests.fakes.layout_log import END, LayoutLog


class Node:
    """The owner of a sealed partition, with so many records of it; `is_open`: it serves them."""

    def __init__(
        self, records: int, *, is_open: bool = False, is_quarantined: bool = False, replication: int = 3
    ) -> None:
        self.log = LayoutLog(4, replication=replication)
        self.source = self.log.active[0].partition
        self.log.done(self.log.split(self.log.active[0]))
        self.assignment = self.log.now.assignments[self.source]
        self.asked: list[PrepareChange] = []
        end = LogEnd(Epoch(1), records, 10 * records, 98)
        figures = {
            (self.log.topic, self.source): PartitionFigures(
                is_open=False, owner_epoch=0, is_quarantined=is_quarantined, stages=0, start_offset=0, end=end
            )
        }
        opened = {(self.log.topic, self.source): self.assignment.epoch} if is_open else {}
        executor: Any = SimpleNamespace(opens=SimpleNamespace(epoch=lambda key: opened.get(key, 0)))
        engine: Any = SimpleNamespace(figures=lambda: figures)
        proposer: Any = self
        self.owners = SealedOwners(proposer, executor, engine, self.assignment.owner)

    @property
    def state(self) -> Any:
        return self.log.state

    async def propose(self, command: PrepareChange) -> None:
        self.asked.append(command)
        result = self.log.do(command)
        if isinstance(result, Refused):
            raise RequestRefused(result.code, result.message)

    def look(self) -> None:
        asyncio.run(self.owners.look())


def test_what_lacks_records_is_handed_to_a_live_replica_that_the_log_accepts() -> None:
    node = Node(END.records - 1)
    node.look()
    (command,) = node.asked
    assert (command.partition, command.epoch) == (node.source, node.assignment.epoch)
    assert command.owner != node.assignment.owner.node
    assert sorted(command.replicas) == sorted(place.node for place in node.assignment.replicas)
    assert node.log.state.changes[node.source].kind == "HAND_OVER"
    node.look()
    assert len(node.asked) == 1, "one hand-over at a time"


def test_the_next_try_asks_another_replica() -> None:
    node = Node(END.records - 1)
    found = set()
    for _ in range(2):
        node.look()
        found.add(node.asked[-1].owner)
        change = node.log.state.changes[node.source].change
        node.log.must(AbortChange(partition=node.source, change=change, why="no proof"))
    assert found == {place.node for place in node.assignment.replicas} - {node.assignment.owner.node}


@pytest.mark.parametrize(
    "node",
    [
        Node(END.records),
        Node(END.records - 1, is_open=True),
        Node(END.records - 1, is_quarantined=True),
        Node(END.records - 1, replication=1),
    ],
)
def test_who_has_all_is_damaged_or_alone_hands_nothing_over(node: Node) -> None:
    node.look()
    assert node.asked == []


def test_without_a_live_replica_it_waits() -> None:
    node = Node(END.records - 1)
    for place in node.assignment.replicas[1:]:
        node.log.must(FailNode(node=place.node, changed=node.log.state.nodes[place.node].changed))
    node.look()
    assert node.asked == []


def test_a_refused_hand_over_is_tried_again() -> None:
    node = Node(END.records - 1)
    original = node.propose
    refused: list[PartitionId] = []

    async def refuse(command: PrepareChange) -> None:
        refused.append(command.partition)
        raise RequestRefused(Code.OVERLOADED, "no leader")

    node.propose = refuse  # type: ignore[method-assign]
    node.look()
    node.propose = original  # type: ignore[method-assign]
    node.look()
    assert (refused, len(node.asked)) == ([node.source], 1)
