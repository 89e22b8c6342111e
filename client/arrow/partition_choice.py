"""Which partitions would keep a batch waiting: of a topic without key the next one goes to another.

The link's thread looks; whoever encodes reads what it found. It is a hint for the next batch: one that was
chosen for a partition stays there, for it may be stored, and a partition keeps the order of the sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ringfence.common.locks import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.common.routing import Layout

LOOK_S = 0.005  # how late a connection that ended may be seen; a look costs some us an owner
LANE_S = 50e-6  # and so much a lane: with 10,000 of them a look takes a few percent of the thread
KNOWN_S_MAX = 0.5  # connecting takes milliseconds; an owner that takes longer is left out until it answers


class Lanes(Protocol):
    """What was sent to a topic's partitions and has no outcome yet."""

    @property
    def lanes(self) -> int:
        """How many there are to look at."""

    def held(self, now: float) -> Iterator[int]:
        """Partitions where a further batch would wait behind others that are not taken."""


class Owner(Protocol):
    """What is known of the connection to a partition's owner."""

    @property
    def answers(self) -> bool:
        """Whether it stands, and answers."""

    @property
    def was_tried(self) -> bool:
        """Whether connecting has come to an end once."""


class Owners(Protocol):
    """Finds what is known of an owner: the I/O thread."""

    def peer_of(self, layout: Layout, node: int) -> Owner: ...


class Reach:
    """`away`: partitions whose owner has no connection, says nothing, or does not take what it was sent."""

    def __init__(self) -> None:
        self.away: frozenset[int] = frozenset()  # replaced whole, and only by another one
        self.looking = False  # owners are being connected for the first time
        self._known = Flag()
        self._until = 0.0
        self._next = 0.0
        self._layout: Layout | None = None
        self._owned: dict[int, list[int]] = {}

    def wait(self) -> None:
        """Until each owner answers, or does not: else the first batches would go to one that is down."""
        self._known.wait(KNOWN_S_MAX)

    # ---- on the link's thread ---------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Connect to all owners, though nothing is to be sent yet."""
        self.looking, self._until = True, now + KNOWN_S_MAX

    def look(self, owners: Owners, layout: Layout, sent: Lanes, now: float) -> None:
        """Find `away` anew, at most every LOOK_S."""
        if now < self._next:
            return
        self._next = now + max(LOOK_S, sent.lanes * LANE_S)
        if layout is not self._layout:
            self._layout, self._owned = layout, {}
            for entry in layout.active:
                self._owned.setdefault(entry.owner, []).append(entry.partition)
        away, unknown = set(sent.held(now)), False
        for owner, partitions in self._owned.items():
            peer = owners.peer_of(layout, owner)
            if not peer.answers:
                away.update(partitions)
                unknown = unknown or not peer.was_tried
        if away != self.away:
            self.away = frozenset(away)
        if self.looking and (not unknown or now >= self._until):
            self.looking = False
            self._known.set()
