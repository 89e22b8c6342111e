"""Plan the slices of a cohort's members: sticky, minimal, within one, and the same on every machine.

- A partition stays with its member while that is registered and not above its target.
- Numbers of partitions of connected members differ by one at most. The larger targets go to the members that
hold most, then by name.
- As few partitions move as the targets allow.
- A member in grace (registered, not connected) keeps what it has and gets nothing; what it keeps is left out
of the targets of the others.
- An unassigned child goes to the member that has one of its parents, if that is below its target.

The first plan is round robin. Integers and sorted lists only: no float, no order of a hash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from ringfence.control.model.ids import PartitionId

# The first slot of a partition, and its id: the order in which partitions are planned.
PlannedPartition = tuple[int, PartitionId]


def plan(
    partitions: Iterable[PlannedPartition],
    members: Iterable[str],
    held: Mapping[PartitionId, str],
    connected: Collection[str] | None = None,
    parents: Mapping[PartitionId, Sequence[PartitionId]] | None = None,
) -> dict[PartitionId, str]:
    """The member of each partition; partitions that no member can have are left out.

    `held` are the present slices by partition. `connected` None: all members are connected.
    """
    order = [number for _, number in sorted(partitions)]
    names = frozenset(members)
    taking = sorted(names if connected is None else names.intersection(connected))
    placed, own, free = _kept(order, names, taking, held)
    if not taking:
        return placed
    targets = _targets(own, taking, len(order) - len(placed))
    load = dict[str, int]()
    for name in taking:
        mine, target = own[name], targets[name]
        placed |= dict.fromkeys(mine[:target], name)
        free += mine[target:]
        load[name] = min(len(mine), target)
    rank = {number: place for place, number in enumerate(order)}
    free.sort(key=rank.__getitem__)
    rest = _to_parents_members(free, held, parents or {}, targets, load, placed)
    _fill(rest, targets, load, placed)
    return placed


def _kept(
    order: list[PartitionId], names: Collection[str], taking: list[str], held: Mapping[PartitionId, str]
) -> tuple[dict[PartitionId, str], dict[str, list[PartitionId]], list[PartitionId]]:
    """What members in grace keep, what each connected member has, and what is unassigned."""
    placed, free = dict[PartitionId, str](), list[PartitionId]()
    own: dict[str, list[PartitionId]] = {name: [] for name in taking}
    for number in order:
        name = held.get(number)
        if name is None or name not in names:
            free.append(number)
        elif name in own:
            own[name].append(number)
        else:
            placed[number] = name
    return placed, own, free


def _targets(own: Mapping[str, Sequence[PartitionId]], taking: list[str], count: int) -> dict[str, int]:
    """The number of partitions that each connected member shall have."""
    least, larger = divmod(count, len(taking))
    ranked = sorted(taking, key=lambda name: (-len(own[name]), name))
    return {name: least + (place < larger) for place, name in enumerate(ranked)}


def _to_parents_members(
    free: list[PartitionId],
    held: Mapping[PartitionId, str],
    parents: Mapping[PartitionId, Sequence[PartitionId]],
    targets: Mapping[str, int],
    load: dict[str, int],
    placed: dict[PartitionId, str],
) -> list[PartitionId]:
    """Give children to members of their parents; the partitions that are left."""
    if not parents:
        return free
    rest = []
    for number in free:
        wish = next((held[parent] for parent in parents.get(number, ()) if held.get(parent) in targets), None)
        if wish is not None and load[wish] < targets[wish]:
            placed[number] = wish
            load[wish] += 1
        else:
            rest.append(number)
    return rest


def _fill(
    rest: list[PartitionId],
    targets: Mapping[str, int],
    load: Mapping[str, int],
    placed: dict[PartitionId, str],
) -> None:
    """Give each partition to the member with the smallest load, then by name."""
    waiting = [(load[name], name) for name in sorted(targets) if load[name] < targets[name]]
    heapify(waiting)
    for number in rest:
        count, name = waiting[0]
        placed[number] = name
        if count + 1 < targets[name]:
            heapreplace(waiting, (count + 1, name))
        else:
            heappop(waiting)
