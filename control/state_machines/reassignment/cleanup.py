"""What a node does for changes without being asked: it follows from two states of its own log.

    StopSync      it was the owner that copied for a change which is over, whatever came of it
    Adopt         what it received for a change that is committed is its replica now; before OPENs, fences
    Discard       what it received for a change that was aborted is nothing
    Release       it is no replica any more, and may give its rows back (I16)

The last three stand in `leftovers` until the node confirms: one that starts finds them by
`between(EMPTY, state)`, and every step may be done again. After each the runtime proposes ConfirmLeft.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.model.reassignments import Change, ChangeId, Leftover, LeftoverKind
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    topic: TopicId
    partition: PartitionId
    change: ChangeId
    attempt: int


class StopSync(_Step, frozen=True, kw_only=True):
    pass


class Adopt(_Step, frozen=True, kw_only=True):
    pass


class Discard(_Step, frozen=True, kw_only=True):
    pass


class Release(_Step, frozen=True, kw_only=True):
    pass


Step = StopSync | Adopt | Discard | Release


def first(before: MetadataState, after: MetadataState, here: Replica) -> tuple[StopSync | Adopt, ...]:
    """Before anything is opened or fenced."""
    found: list[StopSync | Adopt] = []
    if before.changes is not after.changes:
        for partition, change in before.changes.items():
            if change is after.changes.get(partition) or not change.adds:
                continue  # nothing of it has ended, or nothing was copied for it
            was_owner = before.topics[change.topic].assignments[partition].owner == here
            ended = not _same(change, after.changes.get(partition))
            if was_owner and not change.is_committed and ended:
                found.append(StopSync(**_of(partition, change)))
    found += [
        Adopt(**_of(partition, left))
        for partition, left in _new(before, after, here)
        if left.kind is LeftoverKind.ADOPT
    ]
    return tuple(found)


def last(before: MetadataState, after: MetadataState, here: Replica) -> tuple[Discard | Release, ...]:
    """When everything else is done."""
    return tuple(
        Discard(**_of(partition, left))
        if left.kind is LeftoverKind.DISCARD
        else Release(**_of(partition, left))
        for partition, left in _new(before, after, here)
        if left.kind is not LeftoverKind.ADOPT
    )


def _new(
    before: MetadataState, after: MetadataState, here: Replica
) -> Iterator[tuple[PartitionId, Leftover]]:
    if before.leftovers is after.leftovers:
        return
    for partition, known in after.leftovers.items():
        old = before.leftovers.get(partition, ())
        for left in known:
            if left.place == here and left not in old:
                yield partition, left


def _same(one: Change | None, other: Change | None) -> bool:
    """One change, on the same side of its COMMIT."""
    return (
        one is not None
        and other is not None
        and (one.change, one.is_committed) == (other.change, other.is_committed)
    )


def _of(partition: PartitionId, one: Change | Leftover) -> dict[str, Any]:
    return {"topic": one.topic, "partition": partition, "change": one.change, "attempt": one.attempt}
