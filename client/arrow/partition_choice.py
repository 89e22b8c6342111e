"""Track partitions whose owner is unavailable, so that batches without a key avoid them.

The I/O thread updates the set; the encoder reads it. It is a hint for the next batch only. A batch stays at
its partition once chosen: it may be stored there, and a partition keeps the order of the sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ringfence.common.locks import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.common.routing import Layout

# Delay with which the end of a connection may be noticed; a look costs a few us for each owner.
LOOK_S = 0.005
# Pause for each partition: with 10,000 partitions the looks take a few percent of the thread's time.
PARTITION_S = 50e-6
# Connecting takes milliseconds. A slower owner counts as unavailable until it answers.
KNOWN_S_MAX = 0.5


class SentPartitions(Protocol):
    """The pending batches of a topic's partitions."""

    @property
    def partitions(self) -> int:
        """Number of partitions to look at."""

    def held(self, now: float) -> Iterator[int]:
        """Partitions whose owner does not store the batches that it has."""


class Owner(Protocol):
    """State of the connection to a partition's owner."""

    @property
    def answers(self) -> bool:
        """Whether it is connected and not silent."""

    @property
    def was_tried(self) -> bool:
        """Whether one connection has succeeded or failed."""


class Owners(Protocol):
    """Finds the connection to an owner: the I/O thread."""

    def peer_of(self, layout: Layout, node: int) -> Owner: ...


class PartitionChoice:
    """`away`: partitions whose owner has no connection, says nothing, or does not take what it was sent."""

    def __init__(self) -> None:
        self.unavailable: frozenset[int] = frozenset()  # replaced as a whole when it changes
        self.looking = False  # the first connections to the owners are being made
        self._known = Flag()
        self._until = 0.0
        self._next = 0.0
        self._layout: Layout | None = None
        self._owned: dict[int, list[int]] = {}

    def wait(self) -> None:
        """Wait for the first connections: else the first batches could go to an owner that is down."""
        self._known.wait(KNOWN_S_MAX)

    # ---- on the I/O thread ------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Connect to all owners before the first batch."""
        self.looking, self._until = True, now + KNOWN_S_MAX

    def look(self, owners: Owners, layout: Layout, sent: SentPartitions, now: float) -> None:
        """Update `unavailable`, at most every LOOK_S."""
        if now < self._next:
            return
        self._next = now + max(LOOK_S, sent.partitions * PARTITION_S)
        if layout is not self._layout:
            self._layout, self._owned = layout, {}
            for entry in layout.active:
                self._owned.setdefault(entry.owner, []).append(entry.partition)
        unavailable, unknown = set(sent.held(now)), False
        for owner, partitions in self._owned.items():
            peer = owners.peer_of(layout, owner)
            if not peer.answers:
                unavailable.update(partitions)
                unknown = unknown or not peer.was_tried
        if unavailable != self.unavailable:
            self.unavailable = frozenset(unavailable)
        if self.looking and (not unknown or now >= self._until):
            self.looking = False
            self._known.set()
