"""What a transaction takes of a member: claims, what is given again, and what waits meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringfence.consumer.calls import (
    Claim,
    ClaimedRange,
    Fetch,
    Fetched,
    NotTaken,
    Refusal,
    Settle,
    Settled,
    Why,
)
from ringfence.consumer.consuming import Consuming
from ringfence.consumer.gate import Gate, Phase
from ringfence.consumer.giving import Giving
from ringfence.consumer.values import Point
from ringfence.native.errors import ConflictError, FencedError, InvalidArgumentError, UnknownOutcomeError
from tests.fakes.consumer_alone import Alone

IDENTITY = b"i" * 48
Heard = list[Exception | None]


def reading(*partitions: int, **options: object) -> Alone:
    """A member with a hold and rows of each partition, whose application acknowledges by itself."""
    alone = Alone(*partitions, is_auto=False, **options)
    for partition in partitions:
        alone.open(partition, hold=partition * 10, rows=100)
    return alone


def claimed(alone: Alone, *taken: int) -> tuple[Claim, Heard]:
    """A transaction with these numbers of rows, whose claim is under way."""
    for rows in taken:
        alone.gave(rows)
    consuming, heard = alone.member.consuming, Heard()
    consuming.begin()
    consuming.claim(IDENTITY, consuming.ranges(), heard.append)
    return alone.call(Claim), heard


def refused(partition: int, hold: int, why: Why, error: Exception | None = None) -> Settled:
    return Settled((NotTaken(partition, hold, why, error),))


def story_of_a_commit() -> None:
    alone = reading(1, 2)
    call, heard = claimed(alone, 10, 20, 30)
    first, second = ClaimedRange(1, 10, 0, Point(40, 1)), ClaimedRange(2, 20, 0, Point(20, 1))
    assert (call.identity, call.ranges, heard) == (IDENTITY, (first, second), [])
    alone.answer(call, Settled())
    assert heard == [None]
    assert alone.calls(Settle) == [], "nothing is settled without the commit"
    alone.member.consuming.committed(call.ranges)
    alone.turn()
    gates = alone.member.state.gates
    assert [gates[one].settled.offset for one in (1, 2)] == [40, 20]
    assert alone.calls(Settle) == []
    call, _ = claimed(alone, 5)
    (only,) = call.ranges
    assert only.through.offset - only.first == 5, "the next one begins where this one ended"


def story_of_an_abort() -> None:
    alone = reading(1)
    claimed(alone, 10)
    fetches = len(alone.made(Fetch))
    alone.member.consuming.aborted()
    assert alone.give() is None, "what was fetched goes on after them"
    call = alone.made(Fetch)[fetches]
    assert (call.hold, call.offset) == (10, 0)
    alone.answer(call, Fetched(10, 0, 100, 1, bytes=100))
    assert alone.gave(10).first_offset == 0
    assert alone.member.consuming.ranges() == (ClaimedRange(1, 10, 0, Point(10, 1)),)


def story_of_a_hold_that_was_lost() -> None:
    alone = reading(1)
    alone.gave(10)
    alone.member.consuming.begin()
    alone.member.holding.lost(alone.member.state.gates[1])
    alone.turn()
    alone.answer(alone.newest(Fetch), Fetched(11, 0, 100, 1, bytes=100))
    alone.gave(10)
    with pytest.raises(FencedError):
        alone.member.consuming.ranges()
    fetches = len(alone.made(Fetch))
    alone.member.consuming.aborted()
    assert alone.member.consuming.ranges() == ()
    call = alone.made(Fetch)[fetches]
    assert (call.hold, call.offset) == (11, 0), "rows of the newer hold were in no transaction that committed"
    alone.answer(call, Fetched(11, 0, 100, 1, bytes=100))
    assert alone.gave(20).first_offset == 0
    claim, heard = claimed(alone)
    assert claim.ranges == (ClaimedRange(1, 11, 0, Point(20, 1)),)
    alone.answer(claim, Settled())
    assert heard == [None]


def story_of_a_hold_that_is_lost_under_the_claim() -> None:
    alone = reading(1)
    _, heard = claimed(alone, 10)
    alone.member.holding.lost(alone.member.state.gates[1])
    alone.turn()
    assert [type(one) for one in heard] == [FencedError]


def story_of_an_unknown_outcome() -> None:
    alone = reading(1)
    claimed(alone, 10)
    alone.member.consuming.is_uncertain = True
    with pytest.raises(UnknownOutcomeError):
        alone.member.consuming.check_give()
    alone.member.consuming.committed(())
    alone.member.consuming.check_give()


def story_of_a_partition_that_is_taken_away() -> None:
    alone = reading(1, 2)
    call, heard = claimed(alone, 10)
    alone.plan(2, generation=2)
    assert alone.member.state.gates[1].phase is Phase.LEAVING
    assert alone.tasks() == [], "it is released after the end of the transaction"
    alone.answer(call, Settled())
    assert heard == [None]
    alone.member.consuming.committed(call.ranges)
    assert alone.tasks() == ["revoked 1"]
    (entry,) = alone.call(Settle).entries
    assert (entry.through.offset, entry.release) == (10, True)


def story_of_a_batch_that_the_application_has_not_got() -> None:
    alone = reading(1)
    alone.gave(10)
    assert alone.give(20, is_seen=False) is not None
    call, _ = claimed(alone)
    assert call.ranges == (ClaimedRange(1, 10, 0, Point(10, 1)),), "only what it has"
    alone.answer(call, Settled())
    alone.member.consuming.committed(call.ranges)
    assert alone.member.consuming.ranges() == ()
    assert alone.member.giving.seen()
    assert alone.member.consuming.ranges() == (ClaimedRange(1, 10, 10, Point(30, 1)),), "of the next one"


def story_of_a_batch_that_comes_again_before_the_application_has_got_it() -> None:
    alone = reading(1)
    alone.gave(10)
    alone.give(20, is_seen=False)
    alone.member.consuming.begin()
    alone.member.consuming.aborted()
    alone.turn()
    assert not alone.member.giving.seen(), "it would come twice"
    alone.answer(alone.newest(Fetch), Fetched(10, 0, 100, 1, bytes=100))
    assert alone.gave(10).first_offset == 0


STORIES: list[Callable[[], None]] = [
    story_of_a_batch_that_comes_again_before_the_application_has_got_it,
    story_of_a_batch_that_the_application_has_not_got,
    story_of_a_commit,
    story_of_an_abort,
    story_of_a_hold_that_was_lost,
    story_of_a_hold_that_is_lost_under_the_claim,
    story_of_an_unknown_outcome,
    story_of_a_partition_that_is_taken_away,
]


@pytest.mark.parametrize("story", STORIES)
def test_a_story(story: Callable[[], None]) -> None:
    story()


def test_refusals_that_pass_are_repeated_and_others_end_the_claim() -> None:
    for why, hold, error, ends in (
        (Why.RETRY, 10, None, None),
        (Why.REDIRECT, 0, None, None),
        (Why.NOT_ASSIGNED, 9, None, None),
        (Why.NOT_ASSIGNED, 10, None, FencedError),
        (Why.NOT_ASSIGNED, 11, None, FencedError),
        (Why.FINAL, 10, ConflictError("x"), ConflictError),
    ):
        alone = reading(1)
        call, heard = claimed(alone, 10)
        alone.answer(call, refused(1, hold, why, error))
        assert [type(one) for one in heard] == ([] if ends is None else [ends]), why
        alone.turn(0.2)
        assert (len(alone.calls(Claim)) == 1) is (ends is None), why


@pytest.mark.parametrize("way", ["refused", "unanswered", "down"])
def test_a_claim_without_an_answer_is_made_again(way: str) -> None:
    alone = reading(1)
    call, heard = claimed(alone, 10)
    if way == "refused":
        alone.answer(call, Refusal(Why.RETRY))
    elif way == "unanswered":
        alone.member.unanswered(call.number, alone.now)
    else:
        alone.member.down(1, alone.now)
        alone.member.up(1)
    alone.turn(1.0)
    if way == "down":
        alone.answer(alone.made_attach(), alone.attached())
    alone.answer(alone.newest(Claim), Settled())
    assert heard == [None]


def test_who_waits_for_an_owner_hears_that_the_member_was_replaced() -> None:
    alone, error = reading(1), FencedError("a newer process has this name")
    settled = Heard()
    alone.member.acknowledge(alone.gave(10), settled.append)
    alone.answer(alone.call(Settle), Settled())
    assert settled == [None]
    place = alone.gave(10)
    alone.member.acknowledge(place, settled.append)
    call, heard = claimed(reading_on := reading(1), 10)
    for member, under_way in ((alone, alone.call(Settle)), (reading_on, call)):
        member.answer(under_way, Refusal(Why.REPLACED, error=error))
    assert (settled, heard) == ([None, error], [error])
    alone.member.acknowledge(place, settled.append)
    assert settled == [None, error, error], "also who begins to wait after it"


def test_what_was_acknowledged_before_is_settled_first() -> None:
    alone = reading(1)
    alone.member.acknowledge(alone.gave(10))
    alone.gave(10)
    consuming = alone.member.consuming
    consuming.begin()
    consuming.claim(IDENTITY, consuming.ranges(), Heard().append)
    assert alone.calls(Claim) == []
    alone.answer(alone.call(Settle), Settled())
    assert alone.call(Claim).ranges == (ClaimedRange(1, 10, 10, Point(20, 1)),)


def test_one_transaction_at_a_time_and_no_acknowledgement_beside_it() -> None:
    alone = reading(1)
    consuming = alone.member.consuming
    consuming.check_acknowledge()
    consuming.begin()
    with pytest.raises(InvalidArgumentError, match="another transaction"):
        consuming.begin()
    with pytest.raises(InvalidArgumentError, match="a transaction is open"):
        consuming.check_acknowledge()
    consuming.aborted()
    consuming.begin()


def test_what_was_acknowledged_without_a_transaction_belongs_to_none() -> None:
    alone = reading(1)
    alone.member.acknowledge(alone.gave(10))
    alone.member.consuming.begin()
    assert alone.member.consuming.ranges() == ()


# ---- planted faults -------------------------------------------------------------------------------------


def keeps_the_newest_hold(patch: pytest.MonkeyPatch) -> None:
    def gave(self: Consuming, gate: Gate) -> None:
        self._holds[gate.partition] = gate.hold

    patch.setattr(Consuming, "gave", gave)


def goes_on_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gate, "rewind", lambda _: 0)


def keeps_what_a_newer_hold_gave(patch: pytest.MonkeyPatch) -> None:
    aborted = Consuming.aborted

    def aborted_of_the_first_holds(self: Consuming) -> None:
        gates = self._state.gates
        self._holds = {
            one: hold for one, hold in self._holds.items() if one in gates and gates[one].hold == hold
        }
        aborted(self)

    patch.setattr(Consuming, "aborted", aborted_of_the_first_holds)


def gives_while_unknown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consuming, "check_give", lambda _: None)


def settles_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consuming, "committed", lambda self, _: self._end())


def acknowledges_what_it_gave(patch: pytest.MonkeyPatch) -> None:
    give = Giving.give

    def gave(self: Giving, *given: object) -> object:
        place = give(self, *given)  # type: ignore[arg-type]
        if place is not None:
            self.acknowledge(place)
        return place

    patch.setattr(Giving, "give", gave)


@pytest.mark.parametrize(
    "fault",
    [
        keeps_the_newest_hold,
        goes_on_after_an_abort,
        keeps_what_a_newer_hold_gave,
        gives_while_unknown,
        settles_nothing,
        acknowledges_what_it_gave,
    ],
)
def test_each_planted_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    failed = 0
    for story in STORIES:
        try:
            story()
        except BaseException:  # noqa: BLE001  # a failed assertion, or pytest's own
            failed += 1
    assert failed, f"{fault.__name__} is not found"
