"""Rows of a transaction whose owner does not give them in time are fetched again, without an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ringfence.consumer import core, queue_core
from ringfence.consumer.any_core import AnyCore
from ringfence.consumer.calls import Fetch, Fetched
from ringfence.consumer.core import Core
from ringfence.consumer.queue_calls import What
from ringfence.consumer.queue_core import QueueCore
from ringfence.native.errors import ConnectError, ProtocolError, RerouteError, RetriableError, RingfenceError
from tests.fakes.consumer_alone import Alone
from tests.fakes.queue_alone import QueueAlone

AWAY = (RerouteError("the node redirects"), RetriableError("no majority"), ConnectError("no node answers"))


class Answers:
    """In place of the decoder: it wants a transaction's rows, which do not come."""

    def __init__(self, error: RingfenceError) -> None:
        self.error = error

    def of(self, *_: Any) -> Iterator[Any]:
        yield from self._none()

    def _none(self) -> list[Any]:
        raise self.error


class Lock:
    lock = threading.RLock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (core, queue_core):
        monkeypatch.setattr(module, "now_s", lambda: 0.0)


def core_of(kind: type[AnyCore], alone: Alone | QueueAlone, error: RingfenceError) -> Any:
    class Made(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.options, self.topic, self.is_closed = alone.member.state.options, "t", False
            self.identity = type("Identity", (), {"cohort": "c"})
            self.member, self._lock, self._answers = alone.member, Lock(), Answers(error)

        def check(self) -> None:
            """Any call can be served."""

        def turn(self) -> None:
            alone.turn()

    return Made()


def queue_with_rows() -> QueueAlone:
    alone = QueueAlone()
    alone.lease(0, 10)
    return alone


def stream_with_rows() -> Alone:
    alone = Alone(1)
    alone.open(1)
    return alone


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_a_stream_fetches_them_again(error: RingfenceError) -> None:
    alone = stream_with_rows()
    assert core_of(Core, alone, error).step() is None
    assert alone.member.state.gates[1].given.offset == 0
    behind, wanted = alone.calls(Fetch)
    assert (behind.offset, wanted.offset) == (10, 0)
    alone.answer(behind, Fetched(1, 10, 20, 1))  # it was under way
    assert alone.member.state.gates[1].fetched.offset == 0, "its rows are not the wanted ones"
    assert alone.member.take_error() is None


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
def test_a_queue_gives_them_back_and_counts_no_failure(error: RingfenceError) -> None:
    alone = queue_with_rows()
    assert core_of(QueueCore, alone, error).step() is None
    assert alone.told(What.RELEASED) == [(0, 10)]
    assert alone.told(What.FAILED) == []


def test_damaged_rows_are_an_error() -> None:
    for kind, alone in ((Core, stream_with_rows()), (QueueCore, queue_with_rows())):
        with pytest.raises(ProtocolError, match="damaged"):
            core_of(kind, alone, ProtocolError("damaged")).step()
