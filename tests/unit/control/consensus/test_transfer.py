"""Leadership is handed over to a follower that has everything."""

from __future__ import annotations

from ringfence.control.consensus import events
from ringfence.control.consensus.errors import ProposalDroppedError
from ringfence.control.consensus.messages import MessageType
from tests.consensus.lab import leader, of_type


def test_leadership_goes_at_once_to_a_follower_that_has_everything() -> None:
    lab = leader()
    lab.step(events.Transfer(2))
    (message,) = of_type(lab.settle(), MessageType.TIMEOUT_NOW)
    assert message.to == 2
    assert "propose again" in lab.refuses(events.Propose((b"x",)), ProposalDroppedError)


def test_leadership_waits_until_the_follower_has_caught_up() -> None:
    lab = leader()
    lab.step(events.Propose((b"x",)))
    lab.step(events.Transfer(2))
    assert of_type(lab.settle(), MessageType.TIMEOUT_NOW) == []
    assert [m.to for m in of_type(lab.acknowledge(2), MessageType.TIMEOUT_NOW)] == [2]


def test_a_hand_over_that_does_not_happen_ends_after_an_election_timeout() -> None:
    lab = leader()
    lab.step(events.Transfer(2))
    for _ in range(lab.options.election_ticks):
        lab.step(events.Tick())
    lab.step(events.Propose((b"x",)))


def test_leadership_goes_neither_to_a_learner_nor_to_a_stranger() -> None:
    lab = leader(learners=(4,))
    for to in (4, 9):
        lab.step(events.Transfer(to))
        assert lab.core.transferee == 0
