"""Calls of a member of a QUEUE."""

from __future__ import annotations

from ringfence.consumer.queue_calls import QueueSettle, Told, What


def test_only_what_is_said_of_leases_may_go_beside_another_acknowledge() -> None:
    def said(*whats: What) -> bool:
        lines = tuple(Told(at, at + 1, 1, what) for at, what in enumerate(whats))
        return QueueSettle(1, 1, 1, 1, lines).is_of_leases

    assert said(What.BEGUN, What.EXTENDED)
    assert not said(What.BEGUN, What.DONE)
    assert not any(said(what) for what in What if what not in {What.BEGUN, What.EXTENDED})
