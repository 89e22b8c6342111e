"""Identities. All of them are metadata indexes or drawn from one, so none is ever used twice in a history.

An entry at index i draws up to 65,536 ids of one kind: `i << 16 | ordinal`. Indexes stay below 2**47, so that
every id fits a signed 64-bit integer, which is what Spark and Arrow call a long.
"""

from __future__ import annotations

from typing import Final, NewType

Index = NewType("Index", int)
NodeId = NewType("NodeId", int)
TopicId = NewType("TopicId", int)
PartitionId = NewType("PartitionId", int)
ProducerId = NewType("ProducerId", int)
ScopeId = NewType("ScopeId", int)
Epoch = NewType("Epoch", int)
"""An owner's or a producer's epoch: the index of the entry that drew it."""
SessionId = NewType("SessionId", int)
"""The index of the entry that opened the session; 0 = none, such an entry is never deduplicated."""

DRAW_BITS: Final = 16
"""Ids that one entry may draw, as bits: one partition a slot at the most."""
DRAW_MAX: Final = 1 << DRAW_BITS
INDEX_MAX: Final = (1 << 47) - 1
UUID_BYTES: Final = 16
"""Length of cluster, history and store ids: random, made once."""


def drawn(index: int, ordinal: int) -> int:
    """The id number `ordinal` of those that the entry at `index` draws. ValueError outside of the ranges."""
    if not (0 < index <= INDEX_MAX and 0 <= ordinal < DRAW_MAX):
        raise ValueError(f"no id for index {index}, ordinal {ordinal}: 1..{INDEX_MAX} and 0..{DRAW_MAX - 1}")
    return index << DRAW_BITS | ordinal


def drawn_at(drawn_id: int) -> Index:
    """The index of the entry that drew an id."""
    return Index(drawn_id >> DRAW_BITS)
