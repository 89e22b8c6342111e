"""What an operator gave up by a choice of an owner may be gone; the ledger forgives nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.checks.ledger import Forced
from tests.sim.checks.violation import ViolationError
from tests.sim.test_ledger import PARTITION, Case, stored

FORCED = Forced(epoch=9, last_epoch=3, end=10)


def chosen() -> Case:
    """The owner that was forced lacks the second batch; a third one came to its offset."""
    case = Case()
    for batch in (case.one, case.two):
        batch.epochs = 3, 3
    for record in case.log:
        case.ledger.read(PARTITION, record)
    case.ledger.forced(PARTITION, FORCED)
    later = case.ledger.sent(0, PARTITION, 10)
    later.epochs = 9, 9
    case.ledger.ended(later, "done", 10)
    case.log = [case.log[0], stored(later, 10, 9)]
    return case


def test_rows_above_the_end_of_a_forced_owner_may_be_gone_and_their_offsets_are_others() -> None:
    case = chosen()
    case.check()
    assert case.ledger.partitions[PARTITION].end == 20


def test_what_a_former_owner_acknowledges_later_is_given_up_too() -> None:
    case = chosen()
    late = case.ledger.sent(1, PARTITION, 10)
    late.epochs = 3, 3
    case.ledger.ended(late, "done", 20)
    case.ledger.answered(PARTITION, (1, 1), 4, 3)
    case.ledger.expected(PARTITION, (1, 1), 4)
    case.ledger.read(PARTITION, stored(late, 20))
    case.check()


def test_rows_of_an_epoch_that_the_forced_owner_never_had_may_be_gone_below_its_end() -> None:
    assert FORCED.gives_up((4, 4), 5)
    assert not FORCED.gives_up((3, 3), 10)
    assert FORCED.gives_up((3, 3), 11)
    assert not FORCED.gives_up((9, 9), 100)


def kept_and_gone(case: Case) -> None:
    case.log.pop(0)


def later_and_gone(case: Case) -> None:
    case.log.pop()


def back(case: Case) -> None:
    case.log.insert(1, stored(case.two, 10))


def skipped(case: Case) -> None:
    """A reader had read the given up rows, and was given what came later without a refusal."""
    case.ledger.took(PARTITION, (20, 3), stored(case.one, 20, 9))
    later = case.ledger.sent(0, PARTITION, 10)
    later.epochs = 9, 9
    case.ledger.ended(later, "done", 20)
    case.log.append(stored(later, 20, 9))


def in_the_middle(case: Case) -> None:
    """The same, with an offset in the middle of a later batch."""
    case.ledger.took(PARTITION, (15, 3), case.log[1])


def second_choice(case: Case) -> None:
    """The next forced owner has all of it."""
    case.ledger.forced(PARTITION, Forced(epoch=12, last_epoch=9, end=20))
    case.log.clear()


@pytest.mark.parametrize(
    ("invariant", "harm"),
    [
        ("I14", kept_and_gone),
        ("I5", later_and_gone),
        ("I5", back),
        ("I14", skipped),
        ("I14", in_the_middle),
        ("I14", second_choice),
    ],
)
def test_nothing_else_is_forgiven(invariant: str, harm: Callable[[Case], None]) -> None:
    case = chosen()
    harm(case)
    with pytest.raises(ViolationError) as broken:
        case.check()
    assert broken.value.invariant == invariant, broken.value


def test_a_truncate_of_the_history_that_was_given_up_says_nothing_of_the_later_one() -> None:
    case = Case()
    for batch in (case.one, case.two):
        batch.epochs = 3, 3
    asked = case.ledger.truncated(PARTITION, 20)
    case.ledger.given_up(asked)
    case.ledger.forced(PARTITION, FORCED)
    part = case.ledger.partitions[PARTITION]
    assert (part.start, part.gone) == (10, 10)
    later = case.ledger.sent(0, PARTITION, 10)
    later.epochs = 9, 9
    case.ledger.ended(later, "done", 10)
    case.log = []
    with pytest.raises(ViolationError, match="gone"):
        case.check()


def test_a_log_of_the_later_history_begins_no_later_than_an_operator_said_since_the_choice() -> None:
    case = Case()
    case.ledger.given_up(case.ledger.truncated(PARTITION, 20))
    case.ledger.begins(PARTITION, 20, 3)
    case.ledger.forced(PARTITION, FORCED)
    case.ledger.begins(PARTITION, 20, 3)  # a former owner that has not heard of the choice
    case.ledger.begins(PARTITION, 10, 9)
    with pytest.raises(ViolationError, match="begins at 11, rows below 10 were given up"):
        case.ledger.begins(PARTITION, 11, 9)
    case.ledger.truncated(PARTITION, 15)
    case.ledger.begins(PARTITION, 15, 9)


def test_a_truncate_that_the_metadata_had_before_the_choice_is_about_the_former_history() -> None:
    case = Case()
    asked = case.ledger.truncated(PARTITION, 20)
    case.ledger.applied(PARTITION, 12)
    assert not asked.ended
    case.ledger.applied(PARTITION, 20)
    case.ledger.forced(PARTITION, FORCED)
    with pytest.raises(ViolationError, match="rows below 10 were given up"):
        case.ledger.begins(PARTITION, 20, 9)


def test_a_truncate_without_an_answer_may_be_about_either_history() -> None:
    case = Case()
    asked = case.ledger.truncated(PARTITION, 20)
    case.ledger.forced(PARTITION, FORCED)
    case.ledger.given_up(asked)
    part = case.ledger.partitions[PARTITION]
    assert (part.start, part.gone) == (20, 0)
