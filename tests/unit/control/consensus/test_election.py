"""Candidates, votes and refusals of votes."""

from __future__ import annotations

from ringfence.control.consensus import events
from ringfence.control.consensus.configuration_changes import LEAVE_JOINT, to_entry
from ringfence.control.consensus.core import Role
from ringfence.control.consensus.messages import ConfigurationState, Entry, Message, MessageType
from tests.consensus.lab import Lab, heartbeat, of_type


def test_who_is_told_to_campaign_is_heard_although_the_others_have_a_lease() -> None:
    lab = Lab(2, check_quorum=True, pre_vote=True)
    lab.step(heartbeat(lab, sender=1, term=1))
    lab.step(Message(type=MessageType.TIMEOUT_NOW, sender=1, to=2, term=1))
    requests = of_type(lab.settle(), MessageType.VOTE)
    assert [m.to for m in requests] == [1, 3]
    other = Lab(3, check_quorum=True)
    other.step(heartbeat(other, sender=1, term=1))
    other.step(requests[1])
    (answer,) = of_type(other.settle(), MessageType.VOTE_ANSWER)
    assert not answer.reject


def test_a_node_that_was_cut_off_does_not_raise_the_term_with_pre_vote() -> None:
    lab = Lab(3, terms=(1,), term=1, pre_vote=True)
    for _ in range(10 * lab.options.election_ticks):
        lab.step(events.Tick())
    assert (lab.core.term, lab.core.role) == (1, Role.PRE_CANDIDATE)


def test_a_refusal_tells_a_candidate_that_it_is_no_longer_one_of_many() -> None:
    """It holds the end of the joint configuration and does not know that it is committed."""
    joint = ConfigurationState((2,), (1, 2, 3), (), (3,), auto_leave=True)
    lab = Lab(2, terms=(1,), commit=1, configuration=joint, commit_by_vote=True)
    leave = to_entry(LEAVE_JOINT)
    lab.disk.append([Entry(1, 2, leave.type, leave.data)])
    lab.start()
    lab.step(events.Campaign())
    lab.settle()
    lab.step(lab.answer(1, MessageType.VOTE_ANSWER, reject=True, index=2, log_term=1))
    assert (lab.core.log.commit, lab.core.role) == (2, Role.FOLLOWER)
    lab.settle()
    lab.node.apply_change(LEAVE_JOINT)
    lab.step(events.Campaign())
    lab.settle()
    assert lab.core.role is Role.LEADER


def test_who_refuses_a_vote_says_how_far_it_is_committed() -> None:
    lab = Lab(2, terms=(1, 1, 2), commit=2)
    lab.step(Message(type=MessageType.VOTE, sender=1, to=2, term=3, index=1, log_term=1))
    (answer,) = lab.settle()
    assert (answer.reject, answer.index, answer.log_term) == (True, 2, 1)
