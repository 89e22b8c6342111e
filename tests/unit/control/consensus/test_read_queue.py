"""A read is answered at an index that holds everything that was committed before it was asked."""

from __future__ import annotations

import pytest

from ringfence.control.consensus import events
from ringfence.control.consensus.configuration_changes import Change, NodeChange, Operation
from ringfence.control.consensus.errors import ReadDroppedError
from ringfence.control.consensus.messages import Message, MessageType
from ringfence.control.consensus.options import ReadMode
from ringfence.control.consensus.read_queue import ReadQueue, ReadState
from tests.consensus.lab import Lab


def leader(**options: object) -> Lab:
    lab = Lab(1, **options)  # type: ignore[arg-type]
    lab.lead()
    return lab


def answers(lab: Lab) -> list[ReadState]:
    return [state for ready in lab.readies for state in ready.read_states]


def heartbeats(messages: list[Message]) -> list[Message]:
    return [message for message in messages if message.type is MessageType.HEARTBEAT]


def echo(lab: Lab, message: Message) -> None:
    lab.step(lab.answer(message.to, MessageType.HEARTBEAT_ANSWER, context=message.context))


def test_a_read_is_answered_once_a_quorum_has_answered_its_heartbeat() -> None:
    lab = leader()
    lab.step(events.Read(b"r"))
    first, _ = heartbeats(lab.settle())
    assert answers(lab) == []
    echo(lab, first)
    lab.settle()
    assert answers(lab) == [ReadState(lab.core.log.commit, b"r")]


def test_a_later_answer_confirms_all_reads_before_it() -> None:
    lab = leader(voters=(1, 2, 3, 4, 5))
    for context in (b"a", b"b", b"c"):
        lab.step(events.Read(context))
    sent = heartbeats(lab.settle())
    newest = [message for message in sent if message.context == sent[-1].context]
    echo(lab, newest[0])
    lab.settle()
    assert answers(lab) == []
    echo(lab, [message for message in sent if message.to == 3][1])
    lab.settle()
    assert [state.context for state in answers(lab)] == [b"a", b"b"]
    echo(lab, newest[1])
    lab.settle()
    assert [state.context for state in answers(lab)] == [b"a", b"b", b"c"]


def test_an_answer_to_an_earlier_heartbeat_confirms_nothing() -> None:
    lab = leader()
    lab.step(events.Read(b"a"))
    early = heartbeats(lab.settle())[0]
    lab.step(events.Read(b"b"))
    lab.settle()
    echo(lab, early)
    lab.settle()
    assert [state.context for state in answers(lab)] == [b"a"]


def test_an_answer_that_was_made_up_confirms_nothing() -> None:
    queue = ReadQueue(4)
    queue.add(7, 1, b"r")
    queue.acknowledge(2, (99).to_bytes(8, "little"))
    assert queue.confirmed(1, lambda acknowledged: min(acknowledged.get(2, 0), acknowledged[1])) == []


@pytest.mark.parametrize("voters", [(1,), (1, 2, 3)])
def test_a_new_leader_answers_no_read_before_it_has_committed_in_its_term(voters: tuple[int, ...]) -> None:
    """What it knows of commits may be behind what its predecessor, or itself before a crash, has answered."""
    lab = Lab(1, voters=voters, terms=(1, 1), commit=1)
    lab.step(events.Campaign())
    lab.ready()
    if len(voters) > 1:
        lab.step(lab.answer(2, MessageType.VOTE_ANSWER))
    lab.step(events.Read(b"r"))
    lab.settle()
    if len(voters) > 1:
        assert answers(lab) == []
        for message in heartbeats(lab.acknowledge()):
            echo(lab, message)
        lab.settle()
    assert answers(lab) == [ReadState(3, b"r")]


def test_a_follower_asks_the_leader_and_gets_the_answer() -> None:
    follower, first = Lab(2), leader()
    assert "knows no leader" in follower.refuses(events.Read(b"r"), ReadDroppedError)
    follower.step(Message(type=MessageType.HEARTBEAT, sender=1, to=2, term=1))
    follower.step(events.Read(b"r"))
    (question,) = (m for m in follower.settle() if m.type is MessageType.READ_INDEX)
    first.step(question)
    echo(first, heartbeats(first.settle())[0])
    (answer,) = (m for m in first.settle() if m.type is MessageType.READ_INDEX_ANSWER)
    follower.step(answer)
    follower.settle()
    assert answers(follower) == [ReadState(first.core.log.commit, b"r")]


def test_a_leader_with_a_lease_answers_at_once() -> None:
    lab = leader(check_quorum=True, read_mode=ReadMode.LEASE)
    lab.step(events.Read(b"r"))
    lab.settle()
    assert answers(lab) == [ReadState(lab.core.log.commit, b"r")]


def test_reads_of_a_leader_that_lost_its_term_are_never_answered() -> None:
    lab = leader()
    lab.step(events.Read(b"r"))
    sent = heartbeats(lab.settle())
    lab.step(Message(type=MessageType.HEARTBEAT, sender=2, to=1, term=5))
    for message in sent:
        lab.step(Message(type=MessageType.HEARTBEAT_ANSWER, sender=message.to, to=1, context=message.context))
    lab.settle()
    assert answers(lab) == []
    assert len(lab.core.reads) == 0


def test_reads_that_wait_are_answered_when_the_leader_becomes_the_only_voter() -> None:
    lab = leader(voters=(1, 2))
    lab.step(events.Read(b"r"))
    lab.settle()
    change = Change((NodeChange(Operation.REMOVE, 2),))
    lab.step(events.ProposeChange(change))
    lab.settle()
    lab.acknowledge(2)
    lab.node.apply_change(change)
    lab.settle()
    assert [state.context for state in answers(lab)] == [b"r"]
