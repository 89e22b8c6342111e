"""What a failover of many partitions costs, counted: entries, questions to nodes, tables installed.

Counts and no times: a slow machine does not change them, and what grows faster than the partitions shows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from math import ceil
from typing import Any, ClassVar, NamedTuple

import msgspec

from ringfence.control.model.ids import NodeId
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.reassignment.leader_loop import until_common_time_s
from ringfence.control.runtime.reassignment.participant import Participant
from ringfence.control.runtime.rpc.messages import ORDERS_MAX
from ringfence.control.state_machines.metadata.reassignments import STEPS_MAX
from ringfence.control.state_machines.reassignment.coordinator import REPROPOSE_MS, Coordinator
from ringfence.control.state_machines.reassignment.messages import ReassignmentAnswer, ReassignmentOrder
from tests.fakes.reassignment_cluster import ReassignmentCluster, idle

LIVE = (2, 5)


class Counts(NamedTuple):
    entries: int
    commits: int
    questions: int
    tables: tuple[int, ...]
    """Entries that changed the topic; tables by live node."""


class Counted(ReassignmentCluster):
    """Node 1 owns all partitions and dies: its process answers no question, not even by a refusal."""

    def __init__(self, partitions: int, level: int) -> None:
        super().__init__(3, replication=3, partitions=partitions, level=level)
        self.commits, self.alone, self.together = 0, 0, 0
        self.log.listeners.append(self.changed)

    def changed(self, before: MetadataState, after: MetadataState, _: int) -> None:
        self.commits += before.topics[self.topic] is not after.topics[self.topic]

    async def ask(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        self.alone += order.to.node != 1
        return await super().ask(term, order)

    async def ask_many(
        self, term: int, orders: tuple[ReassignmentOrder, ...]
    ) -> tuple[ReassignmentAnswer | None, ...]:
        assert len(orders) <= ORDERS_MAX
        self.together += orders[0].to.node != 1
        return await super().ask_many(term, orders)

    async def reached(self, node: int) -> Participant:
        if node == 1:
            await asyncio.sleep(3_600)
        return await super().reached(node)


def failed_over(partitions: int, level: int) -> tuple[Counts, Counted]:
    async def run() -> tuple[Counts, Counted]:
        async with asyncio.timeout(120), Counted(partitions, level) as small:
            small.disks.cut.add(1)
            entries, tables = small.log.index, installed(small)
            node = small.log.state.nodes[NodeId(1)]
            await small.log.propose(FailNode(node=NodeId(1), changed=node.changed))
            await small.until(
                lambda: idle(small) and all(small.now(n).owner.node != 1 for n in range(partitions)), 100.0
            )
            await small.settled()
            counts = Counts(
                entries=small.log.index - entries,
                commits=small.commits,
                questions=small.alone + small.together,
                tables=tuple(now - before for now, before in zip(installed(small), tables, strict=True)),
            )
            return counts, small

    return asyncio.run(run())


def installed(small: ReassignmentCluster) -> list[int]:
    return [small.disks.nodes[node].calls.count("install_table") for node in LIVE]


def test_entries_questions_and_tables_of_a_failover_grow_by_the_hundred_partitions() -> None:
    for partitions in (64, 256, 768):
        parts = ceil(partitions / STEPS_MAX)
        counts, _ = failed_over(partitions, 1)
        # FAIL and FAIL_OVER; COMMIT, OPEN and CLEAN: three a part, and as many more as answers come in apart.
        assert counts.entries <= 2 + 6 * parts, counts
        assert counts.commits <= 2 * parts, counts
        # Fences at two nodes, and looks at what opens there: four a part.
        assert counts.questions <= 8 * parts, counts
        assert counts.tables == (counts.commits,) * len(LIVE), "one table an entry, not one a partition"


def test_a_cluster_of_level_0_is_asked_and_written_as_its_programs_know_it() -> None:
    partitions = 40
    counts, small = failed_over(partitions, 0)
    assert small.together == 0
    assert counts.entries == 2 + 3 * partitions
    assert counts.commits == partitions


class HashedOften(msgspec.Struct, frozen=True):
    """Stands for a command with hundreds of steps: its hash is what costs."""

    number: int
    hashes: ClassVar[Counter[int]] = Counter()

    def __hash__(self) -> int:
        self.hashes[self.number] += 1
        return self.number


def test_a_round_hashes_each_command_once() -> None:
    coordinator, rounds = Coordinator(), 5
    commands: list[Any] = [HashedOften(number) for number in range(3)]
    for now_ms in range(rounds):
        due = coordinator._without_repeats(commands, now_ms)
        assert due == (() if now_ms else tuple(commands))
    assert HashedOften.hashes == dict.fromkeys(range(3), rounds)
    assert coordinator._without_repeats(commands, REPROPOSE_MS) == tuple(commands), "the first is old"


def test_pauses_of_orders_end_together() -> None:
    pauses = [(now, until_common_time_s(now, 0.02)) for now in (10.0001, 10.003, 10.0099)]
    assert len({round(now + pause, 6) for now, pause in pauses}) == 1
    assert all(0.01 <= pause <= 0.02 for _, pause in pauses)
