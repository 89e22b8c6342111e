"""A member that reads elsewhere tells owners how far it is, once each, and asks for no rows."""

from __future__ import annotations

from ringfence.consumer.calls import Fetch, Fetched, NotTaken, Read, Refusal, Settle, Settled, Settlement, Why
from ringfence.consumer.fetching import POLL_PAUSED_S
from ringfence.consumer.gate import Phase
from ringfence.consumer.reporter import Reporter
from ringfence.consumer.values import Point
from ringfence.native.errors import TruncatedError
from tests.fakes.consumer_alone import Alone


class Reporting(Alone):
    """A reporter of partitions that are all at node 1."""

    member: Reporter
    kind = Reporter

    def __init__(self, *partitions: int) -> None:
        super().__init__(*partitions, is_checkpoint=True, is_auto=False, skips=True)

    def report(self, partition: int, offset: int, epoch: int = 1) -> None:
        self.member.report({partition: Point(offset, epoch)})
        self.turn()

    def told(self) -> Settlement:
        """What the acknowledgement that is under way says, which is answered as taken."""
        call = self.newest(Settle)
        (entry,) = call.entries
        self.answer(call, Settled())
        return entry


def test_a_partition_is_opened_where_the_reader_is_and_that_is_told() -> None:
    one = Reporting(1)
    first = one.call(Fetch)
    assert (first.offset, first.reopen) == (0, True)
    one.member.unanswered(first.number, one.now)
    one.report(1, 40)
    one.turn(1.0)
    one.answer(one.newest(Fetch), Fetched(7, 0, 10, 1, bytes=100))
    assert one.told() == Settlement(1, 7, Point(40, 1), False)
    assert one.member.state.bytes == 0


def test_what_is_known_before_the_plan_is_asked_for_there() -> None:
    one = Reporting()
    one.report(1, 40)
    one.table({1: 1})
    one.plan(1, generation=2)
    one.answer(one.made_attach(), one.attached())
    fetch = one.call(Fetch)
    assert (fetch.offset, fetch.epoch, fetch.poll_s) == (40, 1, POLL_PAUSED_S)
    one.answer(fetch, Fetched(7, 40, 40, 1))
    assert one.told() == Settlement(1, 7, Point(40, 1), False)


def test_rows_are_not_asked_for_again_and_a_report_goes_out_once() -> None:
    one = Reporting(1)
    one.open(1, hold=7)
    one.report(1, 500)
    assert one.told().through == Point(500, 1)
    one.report(1, 500)
    one.report(1, 300)
    one.turn(30.0)
    assert [*one.calls(Settle), *one.calls(Read), *one.calls(Fetch)] == []
    one.report(1, 501)
    assert one.told().through == Point(501, 1)


def test_a_report_that_got_no_answer_is_made_again() -> None:
    one = Reporting(1)
    one.open(1)
    one.report(1, 20)
    one.member.unanswered(one.call(Settle).number, one.now)
    one.turn(1.0)
    assert one.told().through == Point(20, 1)


def test_rows_that_are_not_in_the_log_are_told_once() -> None:
    one = Reporting(1)
    one.open(1)
    one.report(1, 20)
    refused = NotTaken(1, 1, Why.TRUNCATED, TruncatedError("gone"))
    one.answer(one.call(Settle), Settled((refused,)))
    one.turn(5.0)
    fetch = one.newest(Fetch)
    assert (fetch.reopen, fetch.offset) == (True, 0)
    one.answer(fetch, Fetched(2, 0, 10, 1, bytes=100))
    one.turn(5.0)
    assert one.calls(Settle) == []


def test_the_end_of_a_sealed_partition_is_told_before_it_counts_as_drained() -> None:
    one = Reporting()
    one.report(1, 10)
    one.table({1: 1}, 1)
    one.plan(1, generation=2)
    one.answer(one.made_attach(), one.attached())
    one.answer(one.call(Fetch), Fetched(7, 10, 10, 1, sealed_end=10))
    phases = [one.member.state.gates[1].phase]
    assert one.told().through == Point(10, 1)
    phases.append(one.member.state.gates[1].phase)
    assert phases == [Phase.HELD, Phase.DRAINED]


def test_what_the_owner_asks_of_the_store_is_answered_without_an_application() -> None:
    one = Reporting(1)
    one.answer(one.call(Fetch), Refusal(Why.POSITION, details={"settled": 5, "begin": 0}))
    one.turn(2.0)
    assert one.newest(Fetch).offset == 0


def test_it_leaves_without_a_report_of_rows() -> None:
    one = Reporting(1)
    one.open(1)
    one.report(1, 9)
    one.told()
    one.member.close(leave=True)
    one.turn()
    assert one.newest(Settle).entries[0].release
