"""Derive a node's own steps after a change from two states of its log; no other node orders them.

    StopSync      the owner copied for a change that is over, whatever its outcome
    Adopt         the copy received for a committed change is a replica from now on; before opens and fences
    Discard       the copy received for an aborted change is dropped
    Release       the store is no replica any more, and may free the space of its rows (I16)

The last three stand in `leftovers` until the node confirms them. A node that starts gets them from
`between(EMPTY, state)`, and every step may be repeated. The runtime proposes a ConfirmLeft after each.
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
    """The owner stops copying for this change."""


class Adopt(_Step, frozen=True, kw_only=True):
    """The store's copy counts as a replica."""


class Discard(_Step, frozen=True, kw_only=True):
    """The store drops its copy."""


class Release(_Step, frozen=True, kw_only=True):
    """The store drops its rows."""


CleanupStep = StopSync | Adopt | Discard | Release


def first_steps(before: MetadataState, after: MetadataState, here: Replica) -> tuple[StopSync | Adopt, ...]:
    """Steps before any partition is opened or fenced."""
    steps: list[StopSync | Adopt] = []
    if before.changes is not after.changes:
        for partition, change in before.changes.items():
            if change is after.changes.get(partition) or not change.adds:
                continue  # the change did not end, or copied nothing
            was_owner = before.topics[change.topic].assignments[partition].owner == here
            ended = not _is_same_side(change, after.changes.get(partition))
            if was_owner and not change.is_committed and ended:
                steps.append(StopSync(**_step_fields(partition, change)))
    steps += [
        Adopt(**_step_fields(partition, left))
        for partition, left in _new_leftovers(before, after, here)
        if left.kind is LeftoverKind.ADOPT
    ]
    return tuple(steps)


def last_steps(before: MetadataState, after: MetadataState, here: Replica) -> tuple[Discard | Release, ...]:
    """Steps after all other orders of the state."""
    return tuple(
        Discard(**_step_fields(partition, left))
        if left.kind is LeftoverKind.DISCARD
        else Release(**_step_fields(partition, left))
        for partition, left in _new_leftovers(before, after, here)
        if left.kind is not LeftoverKind.ADOPT
    )


def _new_leftovers(
    before: MetadataState, after: MetadataState, here: Replica
) -> Iterator[tuple[PartitionId, Leftover]]:
    """This store's leftovers that are in `after` and not in `before`."""
    if before.leftovers is after.leftovers:
        return
    for partition, leftovers in after.leftovers.items():
        old = before.leftovers.get(partition, ())
        for left in leftovers:
            if left.place == here and left not in old:
                yield partition, left


def _is_same_side(one: Change | None, other: Change | None) -> bool:
    """Whether both are one change, on the same side of its COMMIT."""
    return (
        one is not None
        and other is not None
        and (one.change, one.is_committed) == (other.change, other.is_committed)
    )


def _step_fields(partition: PartitionId, origin: Change | Leftover) -> dict[str, Any]:
    return {"topic": origin.topic, "partition": partition, "change": origin.change, "attempt": origin.attempt}
