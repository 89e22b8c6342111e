"""S5: what an operator sees of a copy is what was copied, at any poll."""

from __future__ import annotations

import asyncio

import pytest

from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.reassignment import leader_loop
from ringfence.control.state_machines.reassignment.messages import (
    ReassignmentAnswer,
    ReassignmentOrder,
    Sync,
    Synced,
    SyncState,
)
from ringfence.native.wire import Code
from tests.fakes.reassignment_cluster import ReassignmentCluster, prepare

# Bytes that the owner copies in a turn of the loop, and turns between two looks.
STEP = 1_000_003
TURNS = (1, 3, 17, 40, 2, 90)


class Copying(ReassignmentCluster):
    """Copies do not end; `copied` bytes are on their way by now. A slow owner answers late."""

    copied = 0
    is_silent = False

    async def ask(self, term: int, order: ReassignmentOrder) -> ReassignmentAnswer:
        if not isinstance(order, Sync):
            return await super().ask(term, order)
        if self.is_silent:
            raise RequestRefused(Code.INTERNAL, "no answer")
        return Synced(state=SyncState.COPYING, rows=self.copied // 100, bytes=self.copied, gap=9)


def shown(small: Copying) -> int:
    progress = small.leader.coordinator.progress(small.partitions[0])
    return 0 if progress is None else sum(sync.bytes for _, sync in progress.syncs)


def test_a_look_is_within_five_percent_of_the_counters_at_any_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the refresh the last regular answer is shown: it may be of any age.
    monkeypatch.setattr(leader_loop, "POLL_S", 3_600.0)

    async def run() -> None:
        async with Copying(3) as small:
            await small.log.propose(prepare(small, 2))
            await small.until(lambda: any(isinstance(order, Sync) for order in small.leader._requests))
            late = 0
            for turns in TURNS:
                for _ in range(turns):
                    small.copied += STEP
                    await asyncio.sleep(0)
                late += abs(shown(small) - small.copied) > 0.05 * small.copied
                await small.leader.refresh()
                assert abs(shown(small) - small.copied) <= 0.05 * small.copied, (shown(small), small.copied)
            assert late, "the answers of before were as good: the test shows nothing"
            small.is_silent = True
            before = shown(small)
            small.copied *= 2
            await small.leader.refresh()
            assert shown(small) == before, "an owner that does not answer keeps what it said"

    asyncio.run(run())
