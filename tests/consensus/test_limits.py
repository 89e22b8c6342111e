"""Every queue has a limit: bytes of a message or under way, bytes not committed or being applied, reads."""

from __future__ import annotations

import pytest

from ringfence.control.consensus import events
from ringfence.control.consensus.errors import OptionsError, ProposalDroppedError, ReadDroppedError
from ringfence.control.consensus.messages import ENTRY_OVERHEAD_BYTES, Message, MessageType
from ringfence.control.consensus.options import Options, ReadMode
from ringfence.control.consensus.progress import ProgressState
from ringfence.control.consensus.window import Window
from tests.consensus.lab import Lab

ENTRY_BYTES = 10
WIRE_BYTES = ENTRY_BYTES + ENTRY_OVERHEAD_BYTES


def appends(messages: list[Message], to: int) -> list[int]:
    """How many entries each append to `to` holds."""
    return [len(m.entries) for m in messages if m.type is MessageType.APPEND and m.to == to]


def leader(**options: object) -> Lab:
    lab = Lab(1, **options)  # type: ignore[arg-type]
    lab.lead()
    return lab


def propose(lab: Lab, count: int) -> None:
    for _ in range(count):
        lab.step(events.Propose((b"x" * ENTRY_BYTES,)))


def test_a_message_holds_no_more_than_its_limit_but_at_least_one_entry() -> None:
    lab = leader(message_bytes_max=3 * WIRE_BYTES)
    lab.step(events.Propose((b"x" * ENTRY_BYTES,) * 7))
    assert appends(lab.settle(), 2) == [3]
    assert appends(lab.acknowledge_index(2, lab.core.log.last_index() - 4), 2) == [3, 1]
    tiny = leader(message_bytes_max=1)
    tiny.step(events.Propose((b"x" * 1000,) * 2))
    assert appends(tiny.settle(), 2) == [1]


def test_a_follower_has_no_more_messages_under_way_than_the_window_holds() -> None:
    lab = leader(inflight_messages_max=2)
    propose(lab, 5)
    assert appends(lab.settle(), 2) == [1, 1]
    progress = lab.core.tracker.progress[2]
    assert (progress.state, progress.pause, len(progress.window)) == (ProgressState.REPLICATE, True, 2)
    first = lab.core.log.last_index() - 4
    assert appends(lab.acknowledge_index(2, first), 2) == [3], (
        "one place is free: all that waits goes at once"
    )
    assert lab.core.log.commit == first


def test_a_follower_has_no_more_bytes_under_way_than_the_window_holds() -> None:
    lab = leader(message_bytes_max=WIRE_BYTES, inflight_bytes_max=2 * WIRE_BYTES)
    propose(lab, 5)
    assert appends(lab.settle(), 2) == [1, 1]


def test_a_full_window_is_probed_by_an_empty_append_at_each_heartbeat() -> None:
    lab = leader(inflight_messages_max=1)
    propose(lab, 3)
    lab.settle()
    lab.step(lab.answer(2, MessageType.HEARTBEAT_ANSWER))
    assert appends(lab.settle(), 2) == [0]


def test_what_is_uncommitted_is_limited_and_released_when_it_is_applied() -> None:
    lab = leader(uncommitted_bytes_max=3 * ENTRY_BYTES)
    propose(lab, 3)
    before = lab.core.log.last_index()
    text = lab.refuses(events.Propose((b"x" * ENTRY_BYTES,)), ProposalDroppedError)
    assert f"{3 * ENTRY_BYTES} is the limit" in text
    assert lab.core.log.last_index() == before, "a refused proposal is not appended"
    lab.step(
        events.Propose((b"",))
    )  # empty entries cost nothing: a leader's first, a joint configuration's end
    lab.settle()
    lab.acknowledge(2)
    assert lab.core.uncommitted_bytes == 0
    propose(lab, 3)


def test_one_proposal_always_fits() -> None:
    lab = leader(uncommitted_bytes_max=1)
    propose(lab, 1)
    lab.refuses(events.Propose((b"x",)), ProposalDroppedError)


def test_a_ready_hands_out_no_more_to_apply_than_its_limit() -> None:
    lab = leader(committed_bytes_per_ready_max=2 * WIRE_BYTES)
    propose(lab, 5)
    lab.settle()
    lab.readies.clear()
    lab.acknowledge(2)
    assert [len(ready.committed) for ready in lab.readies if ready.committed] == [2, 2, 1]


def test_nothing_more_is_handed_out_while_the_limit_is_being_applied() -> None:
    lab = Lab(1, voters=(1,), async_storage_writes=True, committed_bytes_per_ready_max=WIRE_BYTES)
    lab.step(events.Campaign())
    while lab.settle() or lab.append_work:
        if not lab.append_work:
            break
        lab.work()
    propose(lab, 3)
    lab.settle()
    applying = [work for work in lab.append_work if work.type is MessageType.STORAGE_APPLY]
    for _ in range(20):
        if not lab.append_work:
            break
        lab.work()
        lab.settle()
        pending = [work for work in lab.append_work if work.type is MessageType.STORAGE_APPLY]
        assert sum(len(work.entries) for work in pending) <= 1
        applying += pending
    assert lab.core.log.applied == lab.core.log.last_index()


def test_reads_that_wait_are_limited() -> None:
    lab = leader(pending_reads_max=2)
    for context in (b"a", b"b"):
        lab.step(events.Read(context))
    assert "2 is the limit" in lab.refuses(events.Read(b"c"), ReadDroppedError)


def test_a_window_frees_what_ends_at_or_below_an_acknowledged_index() -> None:
    window = Window(3, 100)
    for last, size in ((5, 10), (7, 20), (9, 70)):
        assert not window.full()
        window.add(last, size)
    assert window.full()
    window.free_up_to(4)
    assert len(window) == 3
    window.free_up_to(8)
    assert (len(window), window.size_bytes, window.full()) == (1, 70, False)
    window.add(11)
    window.add(12)
    with pytest.raises(AssertionError, match="the window is full"):
        window.add(13)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"id": 0}, "id is 0"),
        ({"election_ticks": 1}, "election_ticks is 1"),
        ({"inflight_messages_max": 0}, "inflight_messages_max is 0"),
        ({"inflight_bytes_max": 10, "message_bytes_max": 11}, "inflight_bytes_max is 10"),
        ({"read_mode": ReadMode.LEASE, "check_quorum": False}, "LEASE needs check_quorum"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, object], named: str) -> None:
    with pytest.raises(OptionsError, match=named):
        Options(**{"id": 1, **given})  # type: ignore[arg-type]
