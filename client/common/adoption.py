"""Decide what a client does with a routing table that a node gave: use it, keep the held one, or doubt. Pure.

A body carries the index at which it was made. The header of its frame carries the index up to which the table
is known to be unchanged. Bodies decide what is newer. The header's index is what the client acknowledges, and
what it names when it asks whether there is news.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.common.routing import Layout


class Verdict(Enum):
    """What to do with an offered table."""

    APPLY = "newer, or with other loads: use it"
    KEEP = "the same or older: the held one stays"
    DOUBT = "it contradicts the held one, or its own frame: ask another node"


@dataclass(frozen=True, slots=True)
class Held:
    """The table of one topic that a client uses; it is known to be unchanged up to `generation`."""

    layout: Layout
    generation: int

    def raised(self, generation: int) -> Held:
        """The same table, known to be unchanged up to a later generation."""
        return self if generation <= self.generation else Held(self.layout, generation)


@dataclass(frozen=True, slots=True)
class Offer:
    """A table from a node; `generation`: of the header of its frame, 0 if it has none."""

    layout: Layout
    generation: int = 0

    @property
    def as_of(self) -> int:
        """The table is unchanged up to this generation."""
        return self.generation or self.layout.generation


def judge(held: Held | None, offer: Offer) -> Verdict:
    """Compare an offered table with the held one.

    A table that its node cannot have yet, one of another history or topic, and one whose version does not fit
    to its generation are doubtful: no node that works gives such a table.
    """
    offered = offer.layout
    if offered.generation > offer.as_of:
        return Verdict.DOUBT
    if held is None:
        return Verdict.APPLY
    known = held.layout
    if (offered.history, offered.topic) != (known.history, known.topic):
        return Verdict.DOUBT
    if offered.generation > known.generation:
        return Verdict.APPLY if offered.version >= known.version else Verdict.DOUBT
    if offer.as_of < known.generation:
        return Verdict.KEEP  # its node was behind
    if offered.version != known.version:  # unchanged over the index at which the held one was made
        return Verdict.DOUBT
    has_news = offered.generation == known.generation and offered.loads != known.loads
    return Verdict.APPLY if has_news else Verdict.KEEP


def adopted(held: Held | None, offer: Offer, verdict: Verdict) -> Held | None:
    """What the client holds after a verdict; None: still nothing."""
    if verdict is Verdict.APPLY:
        generation = offer.as_of if held is None else max(offer.as_of, held.generation)
        return Held(offer.layout, generation)
    if verdict is Verdict.KEEP and held is not None:
        return held.raised(offer.as_of)
    return held
