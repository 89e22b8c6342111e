"""Names what a part of a client that sends by itself has for the link's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ringfence.native.errors import RingfenceError


class Member(Protocol):
    """Something that sends through the link by itself; called on the link's thread only."""

    def pump(self, now: float) -> None:
        """Send what may go."""

    def tick(self, now: float) -> None:
        """Look at the clock; at least every TICK_S while there is anything to do."""

    @property
    def busy(self) -> bool:
        """Whether the clock matters."""

    def abandon(self, error: RingfenceError) -> None:
        """The link ends: nothing can be sent any more."""

    def failed(self, error: Exception) -> None:
        """It raised what is no error of its requests: it ends, alone."""

    def history_changed(self) -> None:
        """The cluster's metadata was restored from a backup: every id is void."""
