"""A snapshot comes while a change of the configuration that is part of it still waits for the disk."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ringfence.control.consensus import configuration_changes, events
from ringfence.control.consensus.configuration_changes import Change, NodeChange, Operation
from ringfence.control.consensus.messages import ConfigurationState, Entry, Message, MessageType
from ringfence.control.runtime.raft.replica import Replica, ReplicaListener
from tests.fakes.raft_members import until
from tests.fakes.raft_stores import THREE, opened, received

LEADER, HERE = 1, 4
JOINT = Change(
    tuple(
        NodeChange(kind, node)
        for kind, node in ((Operation.VOTER, 4), (Operation.LEARNER, 5), (Operation.LEARNER, 7))
    )
)


def of_leader(kind: MessageType, **fields: object) -> events.Received:
    return events.Received(Message(type=kind, sender=LEADER, to=HERE, term=3, **fields))  # type: ignore[arg-type]


def used(replica: Replica) -> ConfigurationState:
    return replica.node.core.tracker.configuration.state()


def test_a_change_that_a_snapshot_overtook_leaves_the_snapshots_configuration(tmp_path: Path) -> None:
    """Found by a simulated cluster: the change was applied to it once more, the next met a joint one."""
    failures: list[Exception] = []

    async def overtake() -> None:
        store = opened(tmp_path / "d")
        replica = Replica(
            store, HERE, listener=ReplicaListener(), send=lambda _: None, on_failed=failures.append
        )
        change = configuration_changes.to_entry(JOINT)
        entry = Entry(3, 1, change.type, change.data)
        replica.start()
        replica.step(of_leader(MessageType.APPEND, entries=(entry,)))
        await until(lambda: store.last_index() == 1)
        replica.step(of_leader(MessageType.APPEND, index=1, log_term=3, commit=1))
        replica.step(of_leader(MessageType.SNAPSHOT, snapshot=received(tmp_path / "d", 9)))
        assert replica.applied.index == 0, "the change waits for the disk"
        assert used(replica) == THREE
        await until(lambda: replica.applied.index == 9)
        assert used(replica) == replica.configuration == THREE
        await replica.close()

    asyncio.run(overtake())
    assert failures == []
