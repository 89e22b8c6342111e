"""As `test_runtime`, with replicas: hand-overs, moves of replicated owners, failovers."""

from __future__ import annotations

import asyncio

from ringfence.control.model.ids import NodeId
from ringfence.control.model.node_commands import FailNode
from tests.fakes.reassignment_cluster import ReassignmentCluster, idle, moved, prepare


def test_a_move_of_a_replicated_owner_and_a_hand_over() -> None:
    asyncio.run(moved(4, 3, 8, 2, 5))
    asyncio.run(moved(3, 3, 2, 1, 5))


def test_a_killed_owner_is_followed_by_one_that_has_every_acknowledged_row() -> None:
    async def run() -> None:
        async with ReassignmentCluster(3, replication=3, partitions=2) as small:
            for value in range(1, 20):
                assert small.append(value, value % 2)
            small.disks.cut.add(1)
            node = small.log.state.nodes[NodeId(1)]
            await small.log.propose(FailNode(node=NodeId(1), changed=node.changed))
            await small.until(lambda: idle(small) and all(small.now(n).owner.node != 1 for n in (0, 1)))
            for partition in (0, 1):
                owner = small.now(partition).owner.node
                assert owner != 1
                assert small.rows(owner, partition) == [v for v in range(1, 20) if v % 2 == partition]
                assert small.append(100 + partition, partition)
            assert not small.disks.nodes[1].append((small.topic, small.partitions[0]), 999)
            assert {small.now(0).owner.node, small.now(1).owner.node} == {2, 5}, "owners are spread"

    asyncio.run(run())


def test_a_target_that_answers_later_than_another_one_of_its_change_is_copied_to() -> None:
    async def run() -> None:
        async with ReassignmentCluster(5, replication=3) as small:
            owner, *_, first, second = sorted(small.disks.nodes)
            small.dead.add(second)
            await small.log.propose(prepare(small, owner, first, second))
            await small.until(lambda: any(node == first for _, node in small.owner().sync))
            small.dead.discard(second)
            await small.until(lambda: idle(small))
            assert {place.node for place in small.now().replicas} == {owner, first, second}

    asyncio.run(run())
