"""Defects of a member of a QUEUE that the walks of `queue_walk.py` must find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ringfence.consumer import queue_fetching, queue_telling
from ringfence.consumer.queue_calls import Told, What
from ringfence.consumer.queue_fetching import QueueFetching
from ringfence.consumer.queue_hands import QueueHands, Verdict
from ringfence.consumer.queue_rows import StoredRows
from ringfence.consumer.queue_telling import QueueTelling
from ringfence.consumer.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from ringfence.consumer.calls import Refusal
    from ringfence.consumer.queue_calls import Leased, QueueFetch, QueueSettle

Patch = tuple[Any, str, Any]


def nothing(*arguments: Any, **options: Any) -> None:
    """Leave a step out."""
    del arguments, options


def leases_are_not_extended() -> list[Patch]:
    return [(QueueHands, "_extend", nothing)]


def rows_over_their_lease_are_given() -> list[Patch]:
    def turn(self: QueueHands, now: float) -> StoredRows | None:
        del now
        return next((one for one in self._fetching.stored if one.may_begin), None)

    def verdict(self: QueueHands, stored: StoredRows, first: int, now: float) -> Verdict:
        del self, stored, first, now
        return Verdict.GIVE

    return [(QueueHands, "turn", turn), (QueueHands, "verdict", verdict)]


def rows_that_come_again_are_given_unasked() -> list[Patch]:
    return [(StoredRows, "may_begin", property(lambda _: True))]


def acknowledgements_without_an_answer_are_forgotten() -> list[Patch]:
    def failed(self: QueueTelling, call: QueueSettle, refusal: Refusal | None, now: float) -> None:
        del refusal, now
        self._ended(call)

    return [(QueueTelling, "failed", failed)]


def refused_rows_are_said_to_be_done() -> list[Patch]:
    return [(queue_telling, "common", lambda *_: ())]


def acknowledged_when_given() -> list[Patch]:
    give = QueueHands.give

    def giving(self: QueueHands, stored: StoredRows, first: int, rows: int, epoch: int, **how: Any) -> Any:
        given = give(self, stored, first, rows, epoch, **how)
        told = Told(0, 0, 0, What.DONE)
        self.settle(given[0], [(first, first + rows)], told)
        return given

    return [(QueueHands, "give", giving)]


def rows_of_before_a_seek_are_given() -> list[Patch]:
    def fetched(self: QueueFetching, call: QueueFetch, reply: Leased, made_at: float, now: float) -> None:
        self._is_awaited(call)
        del now
        if reply.lines:
            until = made_at + self._state.rows_lease_s
            self._store(StoredRows(call.node, reply, reply.lines, until=until, extend_at=made_at))

    return [(QueueFetching, "fetched", fetched)]


def bytes_are_never_freed() -> list[Patch]:
    return [(QueueFetching, "freed", nothing)]


def whole_lines_are_released() -> list[Patch]:
    """What was given of a line is released with the rest of it."""

    def release(self: QueueFetching, stored: StoredRows) -> None:
        lines = [line._replace(first=min(stored.start, line.first)) for line in stored.lines]
        self._release(stored.partition, stored.incarnation, lines, stored.until)
        self.drop([stored])

    return [(QueueFetching, "release", release)]


def requests_wait_longer_than_a_lease() -> list[Patch]:
    """An answer may bring rows whose lease is over, counted from the request on; again and again."""
    return [(queue_fetching, "POLLS_A_LEASE", 0.2)]


def what_is_done_is_given_with_its_next_lease() -> list[Patch]:
    """Not one of `PLANTED`: walks hardly come to it, a story does."""
    return [(QueueFetching, "done", nothing)]


def tables_are_not_asked_for() -> list[Patch]:
    """Rows of a partition that the member's table does not have are given, and nothing is told of them."""
    return [(Routes, "is_known", lambda *_: True)]


PLANTED: Final = (
    leases_are_not_extended,
    rows_over_their_lease_are_given,
    rows_that_come_again_are_given_unasked,
    acknowledgements_without_an_answer_are_forgotten,
    refused_rows_are_said_to_be_done,
    acknowledged_when_given,
    rows_of_before_a_seek_are_given,
    bytes_are_never_freed,
    whole_lines_are_released,
    requests_wait_longer_than_a_lease,
)


def plant(monkeypatch: pytest.MonkeyPatch, defect: Callable[[], list[Patch]]) -> None:
    for owner, name, value in defect():
        monkeypatch.setattr(owner, name, value)
