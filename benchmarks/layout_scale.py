"""What layout changes cost in a large cluster: rows of `benchmarks.metadata_scale`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from benchmarks import layout_pushes
from benchmarks.metadata_log import COLUMN, Log, applied, committed, seconds
from ringfence.control.model.commands import Command, CreateTopic
from ringfence.control.model.ids import Index, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL, Transition
from ringfence.control.model.layout_commands import ConfirmLayout, FinalizeLayout, HoldLayout, PrepareLayout
from ringfence.control.model.ranges import tile
from ringfence.control.model.reassignments import ChangeId
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica, Topic
from ringfence.control.runtime.data_plane import table_bodies
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.layout import plan
from ringfence.control.state_machines.layout.adoption import NodeAdoption
from ringfence.control.state_machines.layout.coordinator import LayoutCoordinator
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.control.state_machines.placement.placement import place_in
from ringfence.native import messages

# A topic may have 4,096 partitions, sealed ones included: these, and twice as many new ones.
WIDE_PARTITIONS: Final = 1_300
# Clients' connections: ten thousand for a hundred thousand partitions.
PARTITIONS_A_CONNECTION: Final = 10
COMMIT_MS_MAX: Final = 5.0


def figures(state: MetadataState, here: Replica, replication: int) -> dict[str, float]:
    """A split of one partition; twice as many partitions for one topic; both of a wide topic."""
    log = Log()
    log.state, log.index = replace(state, level=LAYOUT_LEVEL), 10**8
    found = of_topic("", log, next(iter(state.topics)), here)
    log.take(wide_topic(log, replication))
    found |= of_topic("wide ", log, TopicId(log.index), here)
    partitions = sum(len(topic.layout.partitions) for topic in state.topics.values())
    return found | connection_figures(partitions // PARTITIONS_A_CONNECTION)


def of_topic(name: str, log: Log, number: TopicId, here: Replica) -> dict[str, float]:
    topic = log.state.topics[number]
    first, count = topic.layout.partitions[0].partition, len(topic.layout.partitions)
    return change_figures(
        f"{name}split", log, topic, here, lambda: plan.split(log.state, topic, first)
    ) | change_figures(
        f"{name}repartition", log, topic, here, lambda: plan.repartition(log.state, topic, 2 * count)
    )


def wide_topic(log: Log, replication: int) -> CreateTopic:
    return CreateTopic(
        name="public/default/wide",
        key=("id",),
        schema=b"s" * 400,
        columns=(COLUMN,),
        ranges=tile(WIDE_PARTITIONS),
        nodes=place_in(log.state, WIDE_PARTITIONS, replication),
    )


def change_figures(
    name: str, log: Log, topic: Topic, here: Replica, make: Callable[[], object]
) -> dict[str, float]:
    """What one layout change costs, at the leader that plans it and at a node, entry by entry."""
    prepare = make()
    assert isinstance(prepare, PrepareLayout), prepare
    found = {f"plan a {name} ms": 1e3 * seconds(make)}
    now = Log()
    now.state, now.index = log.state, log.index

    def take(entry: str, command: Command) -> None:
        found[f"apply {name} {entry} ms"] = 1e3 * seconds(applied(now, lambda: command))
        now.take(command)

    take("PREPARE", prepare)
    number = ChangeId(now.index)
    take("HOLD", HoldLayout(change=number))
    before, digests = now.state, StateDigests()
    digests.of(before)
    take("COMMIT", committed(before.transitions[number]))
    after = now.state
    found[f"hash after {name} ms"] = 1e3 * seconds(lambda: [digests.of(after), digests.of(before)]) / 2
    found[f"orders of {name} ms"] = 1e3 * seconds(lambda: node_orders.between(before, after, here))

    def table() -> bytes:
        return messages.encode(table_bodies.table(after, after.topics[topic.topic], 1))

    found[f"table after {name} ms"] = 1e3 * seconds(table)
    take("OPENED", ConfirmLayout(change=number))
    found[f"leader's round of {name} ms"] = leader_round_ms(now.state, now.state.transitions[number])
    take("FINALIZED", FinalizeLayout(change=number))
    return found


def leader_round_ms(state: MetadataState, transition: Transition) -> float:
    """All nodes tell that their clients have adopted the change, then the leader decides."""
    coordinator = LayoutCoordinator()
    told = NodeAdoption(
        Index(transition.adoption_generation + 1), {transition.topic: transition.adoption_generation}
    )

    def round_of_all() -> None:
        coordinator.begin()
        for node in state.nodes:
            coordinator.adoption.record(node, told)
        assert coordinator.step(state, 1).entries, "adopted and not finalized"

    return 1e3 * seconds(round_of_all)


def connection_figures(connections: int) -> dict[str, float]:
    """A node with so many connections, of which half use the topic that is split."""
    pushed = layout_pushes.measured(100, connections)
    assert (pushed["frames a follower"], pushed["frames of others"]) == (1, 0), pushed
    return {"pushes to half of the connections ms": pushed["engine us a follower"] * connections / 2 / 1e3}


def slowest_commit_ms(largest: dict[str, float]) -> float:
    """Of the changes of a topic with a hundred partitions."""
    return max(largest[f"apply {name} COMMIT ms"] for name in ("split", "repartition"))
