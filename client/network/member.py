"""Interface of producers and others that the I/O thread calls in each round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ringfence.native.errors import RingfenceError


class Member(Protocol):
    """A part of the client that sends by itself; called on the I/O thread only."""

    def pump(self, now: float) -> None:
        """Send as much as fits."""

    def tick(self, now: float) -> None:
        """Check deadlines; called at least every TICK_S while `busy`."""

    @property
    def busy(self) -> bool:
        """Whether `tick` must be called regularly."""

    def abandon(self, error: RingfenceError) -> None:
        """The I/O thread ends: nothing can be sent any more."""

    def failed(self, error: Exception) -> None:
        """End this member because of a defect in it; other members continue."""

    def history_changed(self) -> None:
        """The cluster's metadata was restored from a backup: all ids are invalid."""
