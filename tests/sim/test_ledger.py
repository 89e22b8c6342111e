"""The ledger is shown each kind of broken promise, and a log that keeps them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.checks.ledger import Batch, Ledger, Stored
from tests.sim.checks.violation import ViolationError
from tests.sim.clients.content import body_of

PARTITION = 11


def stored(batch: Batch, offset: int, epoch: int = 3) -> Stored:
    return Stored(offset, batch.rows, batch.first, epoch, body_of(batch.first, batch.rows))


def told(**changes: Any) -> list[dict[str, Any]]:
    return [{"partition": PARTITION, "quarantined": None, "end_offset": 20, **changes}]


class Case:
    """Two batches of one producer, acknowledged at 0 and 10, and the log that holds them."""

    def __init__(self) -> None:
        self.ledger = Ledger([PARTITION])
        self.one, self.two = (self.ledger.sent(0, PARTITION, 10) for _ in range(2))
        self.ledger.ended(self.one, "done", 0)
        self.ledger.ended(self.two, "done", 10)
        self.log = [stored(self.one, 0), stored(self.two, 10)]
        self.ledger.told(told())

    def check(self) -> None:
        self.ledger.check(PARTITION, self.log)


def test_a_log_that_keeps_every_promise_passes() -> None:
    case = Case()
    case.check()
    case.ledger.truncated(PARTITION, 10)
    case.log = case.log[1:]
    case.check()


def twice(case: Case) -> None:
    case.log.append(stored(case.two, 20))
    case.ledger.partitions[PARTITION].seen.clear()


def gone(case: Case) -> None:
    case.log.pop()


def moved(case: Case) -> None:
    case.log = [stored(case.one, 0), stored(case.two, 12)]


def foreign(case: Case) -> None:
    case.log.append(Stored(20, 1, 999, 3, body_of(999, 1)))


def changed(case: Case) -> None:
    case.log[1].body = body_of(50, 10)


def refused_and_stored(case: Case) -> None:
    batch = case.ledger.sent(1, PARTITION, 5)
    case.ledger.ended(batch, "refused")
    case.log.append(stored(batch, 20))


def out_of_order(case: Case) -> None:
    case.one.offset, case.two.offset = 10, 0
    case.log = [stored(case.two, 0), stored(case.one, 10)]


def epoch_goes_back(case: Case) -> None:
    case.log[1].epoch = 2


def read_and_gone(case: Case) -> None:
    batch = case.ledger.sent(1, PARTITION, 5)
    case.ledger.read(PARTITION, stored(batch, 20))


def mark_goes_back(case: Case) -> None:
    case.ledger.told(told(end_offset=19))


def quarantined_without_rot(case: Case) -> None:
    case.ledger.told(told(quarantined="damaged"))


def old_epoch(case: Case) -> None:
    case.ledger.opened(PARTITION, 7)
    case.ledger.admitted(PARTITION, 6, case.ledger.partitions[PARTITION].fenced)


def forgotten(case: Case) -> None:
    case.ledger.answered(PARTITION, (1, 1), 4)
    case.ledger.expected(PARTITION, (1, 1), 5)
    case.ledger.expected(PARTITION, (1, 1), 4)


def forgotten_by_the_next_owner(case: Case) -> None:
    case.ledger.answered(PARTITION, (1, 1), 4, opened=7)
    case.ledger.answered(PARTITION, (1, 1), 9, opened=8)
    case.ledger.expected(PARTITION, (1, 1), 5, opened=7)  # what the owner before said comes late
    case.ledger.expected(PARTITION, (1, 1), 9, opened=8)


@pytest.mark.parametrize(
    ("invariant", "harm"),
    [
        ("I6", twice),
        ("I5", gone),
        ("I5", moved),
        ("I5", foreign),
        ("I5", changed),
        ("I15", refused_and_stored),
        ("I7", out_of_order),
        ("I4", epoch_goes_back),
        ("I14", read_and_gone),
        ("I14", mark_goes_back),
        ("I5", quarantined_without_rot),
        ("I4", old_epoch),
        ("I6", forgotten),
        ("I6", forgotten_by_the_next_owner),
    ],
)
def test_a_broken_promise_is_called_by_its_name(invariant: str, harm: Callable[[Case], None]) -> None:
    case = Case()

    def run() -> None:
        harm(case)
        case.check()

    with pytest.raises(ViolationError) as broken:
        run()
    assert broken.value.invariant == invariant


def test_what_rot_took_is_forgiven_below_the_mark_and_nothing_above() -> None:
    case = Case()
    case.ledger.rots.append(("file", 5000, 1))
    case.ledger.told(told(quarantined="damaged"))
    case.ledger.released(PARTITION)
    case.ledger.told(told(end_offset=15))
    later = case.ledger.sent(0, PARTITION, 5)
    case.ledger.ended(later, "done", 20)
    case.log = [case.log[0], stored(later, 20)]
    case.check()
    case.log.pop()
    with pytest.raises(ViolationError, match="gone"):
        case.check()
