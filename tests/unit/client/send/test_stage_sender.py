"""What the batches of an attempt become: rows by partition, the first refusal, batches of a layout change."""

from __future__ import annotations

from ringfence.arrow.encode import Body
from ringfence.native.errors import DeadlineError, OverloadedError, RefusedError, WaitTimeoutError
from ringfence.send.failures import deadline_error, unknown_error
from ringfence.send.stage_sender import StagedSoFar, StagedTopic
from ringfence.send.wait_reasons import WaitReason


def body(partition: int, rows: int) -> Body:
    return Body(partition, bytearray(b"x"), 0, rows, 0, 0, None)


def test_rows_are_counted_where_they_are_on_disk() -> None:
    so_far = StagedSoFar()
    one, other = StagedTopic(7, "public/default/t", so_far), StagedTopic(8, "public/default/u", so_far)
    so_far.add(4)
    for sink, partition, rows in ((one, 1, 3), (one, 1, 2), (one, 2, 5), (other, 1, 4)):
        assert sink.stored(body(partition, rows), 0) is False
    assert so_far.parts == {(7, 1): 5, (7, 2): 5, (8, 1): 4}
    assert (so_far.pending, so_far.error) == (0, None)


def test_the_first_refusal_stays() -> None:
    so_far = StagedSoFar()
    sink = StagedTopic(7, "public/default/t", so_far)
    first = RefusedError("first")
    so_far.add(2)
    sink.failed(body(1, 1), first)
    sink.failed(None, DeadlineError("second"))
    so_far.set_error(DeadlineError("third"))
    assert so_far.error is first
    assert so_far.pending == 0


def test_rows_without_an_outcome_in_time_are_late_and_may_be_staged_again() -> None:
    """Not unknown: rows that are not committed are never seen, so a repeat cannot double them."""
    waited = WaitReason(1, 3, "tcp://n:1", "unanswered", "")
    late = deadline_error("public/default/t", 1, None, waited)
    for error in (late, unknown_error("public/default/t", 1, 4, late)):
        so_far = StagedSoFar()
        so_far.add(1)
        StagedTopic(7, "public/default/t", so_far).failed(body(1, 1), error)
        assert isinstance(so_far.error, WaitTimeoutError)
        told = so_far.error
        assert (told.topic, told.partitions, told.node) == ("public/default/t", (1,), 3)
        assert (told.address, told.reason) == ("tcp://n:1", "unanswered")
        assert "(tcp://n:1)" in told.message
        assert "run it again" in told.message
        assert "twice" not in told.message
    refused = RefusedError("no")
    so_far = StagedSoFar()
    so_far.add(1)
    StagedTopic(7, "public/default/t", so_far).failed(None, unknown_error(None, 1, 4, refused))
    assert so_far.error is refused


def test_late_rows_tell_what_their_owner_answered_last() -> None:
    full = OverloadedError("1 batches are staged here and not committed")
    wait = WaitReason(1, 3, "tcp://n:1", "refused", f"the node answered: {full.message}")
    late = deadline_error("public/default/t", 1, full, wait)
    unknown = unknown_error("public/default/t", 1, 4, late)
    assert full.message in unknown.message
    for error in (late, unknown):
        so_far = StagedSoFar()
        so_far.add(1)
        StagedTopic(7, "public/default/t", so_far).failed(body(1, 1), error)
        assert isinstance(so_far.error, WaitTimeoutError)
        assert full.message in so_far.error.message


def test_a_layout_change_makes_other_batches_of_pending_ones() -> None:
    so_far = StagedSoFar()
    sink = StagedTopic(7, "public/default/t", so_far)
    so_far.add(1)
    sink.replaced([body(1, 5)], [body(2, 3), body(3, 2)])
    assert so_far.pending == 2
    sink.stored(body(2, 3), 0)
    sink.stored(body(3, 2), 0)
    assert (so_far.pending, so_far.parts) == (0, {(7, 2): 3, (7, 3): 2})
