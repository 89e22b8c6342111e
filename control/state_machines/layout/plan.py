"""Plan a layout change: slot ranges and places of the children. The result is a command to propose.

Children take no rows yet, so their places are free to choose. The halves of a busy partition land on two
nodes in the split itself, without a move: one child keeps the nodes and the owner of its source, whose caches
and connections are warm, and the others are spread over zones and nodes like partitions of a new topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.layout import Partition
from ringfence.control.model.layout_changes import TransitionKind
from ringfence.control.model.layout_commands import PlannedChild, PrepareLayout
from ringfence.control.model.ranges import SlotRange, tile
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Topic
from ringfence.control.state_machines.metadata.layout_checks import sealed_fault
from ringfence.control.state_machines.metadata.refusals import invalid
from ringfence.control.state_machines.metadata.topic_checks import place_fault
from ringfence.control.state_machines.placement.placement import TooFewNodesError, place
from ringfence.control.state_machines.placement.zones import members_of
from ringfence.native.wire import Code

# Buckets of a sketch: weights of equal parts of a partition's range.
BUCKETS: Final = 1_024

Nodes = tuple[NodeId, ...]
# Weight of each bucket of a partition's own range; empty if its owner has no sketch.
Weights = Sequence[int]


def split(
    state: MetadataState,
    topic: Topic,
    partition: PartitionId,
    *,
    at: Sequence[int] = (),
    into: int = 2,
    weights: Weights = (),
    why: str = "",
) -> PrepareLayout | Refused:
    """Split a partition: at the slots `at`, which begin a child each, or into parts of equal weight."""
    part = _active(topic, partition)
    if isinstance(part, Refused):
        return part
    lo, hi = part.slots
    if lo == hi:
        return invalid(f"partition {partition} has one slot, it cannot be split")
    wrong = [slot for slot in at if not lo < slot <= hi]
    if wrong:
        return invalid(f"slot {wrong[0]} begins no part of partition {partition}: {lo + 1} to {hi}")
    if not at and not 2 <= into <= hi - lo + 1:
        return invalid(f"partition {partition} into {into} parts: 2 to {hi - lo + 1}, its number of slots")
    cuts = sorted({*at}) or cut_slots(part.slots, into, weights)
    ranges = [SlotRange(begin, end - 1) for begin, end in pairwise([lo, *cuts, hi + 1])]
    heaviest = max(
        range(len(ranges)), key=lambda place: (weight_of(part.slots, ranges[place], weights), -place)
    )
    return _prepared(state, topic, TransitionKind.SPLIT, [part], ranges, keeps={heaviest: part}, why=why)


def merge(
    state: MetadataState,
    topic: Topic,
    one: PartitionId,
    other: PartitionId,
    *,
    loads: Mapping[PartitionId, float] | None = None,
    why: str = "",
) -> PrepareLayout | Refused:
    """Merge two partitions, in either order. The child is placed as the one with more load."""
    parts = [_active(topic, one), _active(topic, other)]
    refused = next((part for part in parts if isinstance(part, Refused)), None)
    if refused is not None:
        return refused
    sources = sorted((part for part in parts if isinstance(part, Partition)), key=lambda part: part.slots)
    lo, hi = sources[0].slots.lo, sources[-1].slots.hi
    busier = max(sources, key=lambda part: ((loads or {}).get(part.partition, 0.0), -part.slots.lo))
    return _prepared(
        state, topic, TransitionKind.MERGE, sources, [SlotRange(lo, hi)], keeps={0: busier}, why=why
    )


def repartition(
    state: MetadataState, topic: Topic, count: int, *, even: bool = False, why: str = ""
) -> PrepareLayout | Refused | None:
    """Give a topic `count` partitions of equal ranges. None: it has that number already.

    Partitions that have one of these ranges stay as they are. `even`: ranges of other sizes are changed,
    although the number is right.
    """
    active = topic.layout.active()
    if count == len(active) and not even:
        return None
    try:
        tiles = tile(count)
    except ValueError as error:
        return invalid(str(error))
    present, wanted = {part.slots for part in active}, {*tiles}
    sources = [part for part in active if part.slots not in wanted]
    ranges = [slots for slots in tiles if slots not in present]
    if not sources:
        return None
    return _prepared(state, topic, TransitionKind.REPARTITION, sources, ranges, keeps={}, why=why)


def cut_slots(slots: SlotRange, into: int, weights: Weights) -> list[int]:
    """The slots at which parts 2, 3, ... begin. Without weights the parts have equal ranges.

    With weights the cuts are the bucket borders nearest to the quantiles. Each part has a slot at least.
    """
    lo, size = slots.lo, slots.hi - slots.lo + 1
    if not any(weights):
        # In two: the first half has the middle slot.
        return [lo + -(-size * number // into) for number in range(1, into)]
    total, cuts = sum(weights), list[int]()
    passed, bucket = 0, 0
    for number in range(1, into):
        goal = total * number / into
        while bucket < len(weights) and passed + weights[bucket] / 2 < goal:
            passed += weights[bucket]
            bucket += 1
        least = (cuts[-1] if cuts else lo) + 1
        most = slots.hi + 1 - (into - number)
        cuts.append(min(max(lo + -(-bucket * size // len(weights)), least), most))
    return cuts


def weight_of(whole: SlotRange, part: SlotRange, weights: Weights) -> int:
    """Weight of a part of the range, from the bucket of its first slot on. Cuts of `cut_slots` begin a bucket
    each, so the parts between them have the weight of all buckets.
    """
    if not weights:
        return 0
    size = whole.hi - whole.lo + 1
    first = (part.lo - whole.lo) * len(weights) // size
    last = (part.hi + 1 - whole.lo) * len(weights) // size
    return sum(weights[first:last])


def _active(topic: Topic, partition: PartitionId) -> Partition | Refused:
    part = topic.layout.find(partition)
    if part is None:
        message = f"topic {topic.name!r} has no partition {partition}"
        return Refused(code=Code.UNKNOWN_PARTITION, message=message)
    return part if part.is_active else sealed_fault(part)


def _prepared(
    state: MetadataState,
    topic: Topic,
    kind: TransitionKind,
    sources: Sequence[Partition],
    ranges: Sequence[SlotRange],
    *,
    keeps: Mapping[int, Partition],
    why: str,
) -> PrepareLayout | Refused:
    try:
        places = _places(state, topic, sources, len(ranges), keeps)
    except TooFewNodesError as error:
        return Refused(code=Code.TOO_FEW_REPLICAS, message=str(error))
    return PrepareLayout(
        topic=topic.topic,
        kind=kind,
        version=topic.layout.version if kind is TransitionKind.REPARTITION else 0,
        sources=tuple((part.partition, topic.assignments[part.partition].epoch) for part in sources),
        children=tuple(
            PlannedChild(slots.lo, slots.hi, nodes) for slots, nodes in zip(ranges, places, strict=True)
        ),
        why=why,
    )


def _places(
    state: MetadataState,
    topic: Topic,
    sources: Sequence[Partition],
    count: int,
    keeps: Mapping[int, Partition],
) -> list[Nodes]:
    """Nodes of each child, the owner first.

    Those that a child keeps count for the others, like the ACTIVE partitions of the topic that stay.
    """
    kept = {
        place: nodes
        for place, part in keeps.items()
        if (nodes := _present_nodes(topic, part)) and all(place_fault(state, node) is None for node in nodes)
    }
    gone = {part.partition for part in sources}
    staying = [_present_nodes(topic, part) for part in topic.layout.active() if part.partition not in gone]
    owned = Counter(nodes[0] for nodes in (*staying, *kept.values()))
    replicas = Counter(node for nodes in (*staying, *kept.values()) for node in nodes)
    left = [number for number in range(count) if number not in kept]
    others = (
        place(members_of(state), len(left), topic.replication, owned_counts=owned, replica_counts=replicas)
        if left
        else ()
    )
    found = kept | dict(zip(left, others, strict=True))
    return [found[number] for number in range(count)]


def _present_nodes(topic: Topic, part: Partition) -> Nodes:
    assignment = topic.assignments[part.partition]
    others = sorted(replica.node for replica in assignment.replicas if replica != assignment.owner)
    return (assignment.owner.node, *others)
