"""Proposals at a follower."""

from __future__ import annotations

from ringfence.control.consensus import events
from ringfence.control.consensus.errors import ProposalDroppedError
from ringfence.control.consensus.messages import MessageType
from tests.consensus.lab import Lab, heartbeat, leader, of_type


def test_a_follower_forwards_proposals_to_the_leader_it_knows() -> None:
    lab = Lab(2)
    assert "no leader" in lab.refuses(events.Propose((b"x",)), ProposalDroppedError)
    lab.step(heartbeat(lab, sender=1, term=1))
    lab.step(events.Propose((b"x", b"y")))
    (message,) = of_type(lab.settle(), MessageType.PROPOSE)
    assert (message.to, message.sender, message.term) == (1, 2, 0)
    assert [entry.data for entry in message.entries] == [b"x", b"y"]
    first = leader()
    first.step(message)
    assert first.core.log.last_index() == 3


def test_a_follower_that_does_not_forward_says_where_to_propose() -> None:
    lab = Lab(2, forward_proposals=False)
    lab.step(heartbeat(lab, sender=1, term=1))
    assert "propose at the leader, 1" in lab.refuses(events.Propose((b"x",)), ProposalDroppedError)
