"""Run a member of a QUEUE on its I/O thread: as `link.py`, with other requests for rows and about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.consumer import bodies, queue_bodies
from ringfence.consumer.link import Link
from ringfence.consumer.queue_calls import QueueFetch, QueueSettle, RowsParked

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringfence.common.codec import Answer
    from ringfence.consumer.calls import Effect, NodeCall, Reply


class QueueLink(Link):
    """Drives one member of a QUEUE. `on_parked`: called with rows that what it said has parked."""

    on_parked: Callable[[RowsParked], None] | None = None

    def _carry_out(self, effect: Effect) -> None:
        if not isinstance(effect, RowsParked):
            super()._carry_out(effect)
        elif self.on_parked is not None:
            self.on_parked(effect)

    def sent(self, call: NodeCall) -> bodies.Sent:
        """The request of a call."""
        if isinstance(call, QueueFetch | QueueSettle):
            session = self._member.state.session
            return queue_bodies.sent(call, self._layout.topic, session, self._layout.version)
        return super().sent(call)

    def reply_of(self, call: NodeCall, answer: Answer) -> Reply:
        """The reply of an answer OK."""
        match call:
            case QueueFetch():
                return queue_bodies.leased_of(answer)
            case QueueSettle():
                return queue_bodies.settled_of(answer)
            case _:
                return super().reply_of(call, answer)
