"""Identities. All are metadata indexes or are drawn from one, so none is used twice in a history.

An entry at index i draws up to 65,536 ids of one kind: `i << 16 | ordinal`. Indexes stay below 2**47, so
that every id fits a signed 64-bit integer, the type `long` of Spark and Arrow.
"""

from __future__ import annotations

from typing import Final, NewType

Index = NewType("Index", int)
NodeId = NewType("NodeId", int)
TopicId = NewType("TopicId", int)
PartitionId = NewType("PartitionId", int)
ProducerId = NewType("ProducerId", int)
ScopeId = NewType("ScopeId", int)
# An owner's or a producer's epoch: the index of the entry that drew it.
Epoch = NewType("Epoch", int)
# The index of the entry that opened the session; 0: none, and repeats of such an entry are not detected.
SessionId = NewType("SessionId", int)

# Ids that one entry may draw, as bits: one partition for each slot at most.
DRAW_BITS: Final = 16
DRAW_MAX: Final = 1 << DRAW_BITS
INDEX_MAX: Final = (1 << 47) - 1
# Length of cluster, history and store ids, which are random and drawn once.
UUID_BYTES: Final = 16


def drawn(index: int, ordinal: int) -> int:
    """The id number `ordinal` of those that the entry at `index` draws. ValueError outside of the ranges."""
    if not (0 < index <= INDEX_MAX and 0 <= ordinal < DRAW_MAX):
        raise ValueError(f"no id for index {index}, ordinal {ordinal}: 1..{INDEX_MAX} and 0..{DRAW_MAX - 1}")
    return index << DRAW_BITS | ordinal


def drawn_at(drawn_id: int) -> Index:
    """The index of the entry that drew an id."""
    return Index(drawn_id >> DRAW_BITS)
