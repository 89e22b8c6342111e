"""Leaders without space, leases, removed leaders, lost stores, changes of the configuration."""

from __future__ import annotations

from ringfence.control.consensus import events
from ringfence.control.consensus.configuration_changes import (
    LEAVE_JOINT,
    Change,
    NodeChange,
    Operation,
    Transition,
    to_entry,
)
from ringfence.control.consensus.core import Role
from ringfence.control.consensus.errors import (
    LocalMessageError,
    LogLostError,
    MalformedMessageError,
    UnknownPeerError,
)
from ringfence.control.consensus.messages import (
    ConfigurationState,
    Entry,
    EntryType,
    Message,
    MessageType,
    Snapshot,
)
from ringfence.control.consensus.progress import ProgressState
from tests.consensus.lab import Lab, entries, heartbeat, leader, of_type, snapshot


def test_a_leader_without_space_hands_over_to_the_voter_that_has_the_most() -> None:
    lab = leader(learners=(4,))
    lab.step(events.Propose((b"x",)))
    lab.settle()
    lab.acknowledge(3, 4)
    lab.step(events.StorageFull(full=True))
    assert [m.to for m in of_type(lab.settle(), MessageType.TIMEOUT_NOW)] == [3]
    lab.step(events.StorageFull(full=True))
    assert of_type(lab.settle(), MessageType.TIMEOUT_NOW) == [], "it is under way"


def test_a_leader_without_space_that_nobody_takes_over_from_steps_down() -> None:
    lab = leader(check_quorum=True)
    lab.step(events.StorageFull(full=True))
    for _ in range(lab.options.election_ticks):
        assert lab.core.role is Role.LEADER
        lab.step(events.Tick())
    assert (lab.core.role, lab.core.lead) == (Role.FOLLOWER, 0)


def test_a_leader_without_space_leads_on_while_the_others_are_no_majority() -> None:
    pair = leader(voters=(1, 2))
    pair.step(events.StorageFull(full=True))
    assert pair.core.transferee == 0
    lab = leader(check_quorum=True)
    for _ in range(lab.options.election_ticks):
        lab.step(events.Tick())  # from here on both count as silent until they are heard again
    lab.step(lab.answer(3, MessageType.HEARTBEAT_ANSWER))
    lab.step(events.StorageFull(full=True))
    assert (lab.core.role, lab.core.transferee) == (Role.LEADER, 0)
    lab.step(lab.answer(2, MessageType.HEARTBEAT_ANSWER))
    lab.step(events.StorageFull(full=True))
    assert lab.core.transferee in {2, 3}


def test_who_has_no_space_does_not_campaign_and_does_so_with_some() -> None:
    lab = Lab(2)
    lab.step(events.StorageFull(full=True))
    lab.step(heartbeat(lab, sender=1, term=1))
    lab.step(Message(type=MessageType.TIMEOUT_NOW, sender=1, to=2, term=1))
    for _ in range(5 * lab.options.election_ticks):
        lab.step(events.Tick())
    assert (lab.core.role, lab.core.term) == (Role.FOLLOWER, 1)
    lab.step(events.StorageFull(full=False))
    for _ in range(2 * lab.options.election_ticks):
        lab.step(events.Tick())
    assert lab.core.role is Role.CANDIDATE


def test_a_leader_without_a_quorum_steps_down_after_an_election_timeout() -> None:
    lab = leader(check_quorum=True)
    for _ in range(2 * lab.options.election_ticks):
        lab.step(events.Tick())
    assert lab.core.role is Role.FOLLOWER
    kept = leader(check_quorum=True)
    for _ in range(5 * kept.options.election_ticks):
        kept.step(events.Tick())
        kept.step(kept.answer(2, MessageType.HEARTBEAT_ANSWER))
    assert kept.core.role is Role.LEADER


def test_a_message_from_outside_is_never_a_local_one() -> None:
    lab = leader()
    for kind in (MessageType.HUP, MessageType.UNREACHABLE, MessageType.STORAGE_APPEND_ANSWER):
        lab.refuses(Message(type=kind, sender=2, to=1), LocalMessageError)


def test_an_answer_of_a_stranger_is_refused() -> None:
    lab = leader()
    assert "not in the configuration" in lab.refuses(
        Message(type=MessageType.APPEND_ANSWER, sender=9, to=1, term=1, index=1), UnknownPeerError
    )


def test_a_store_that_lost_what_it_acknowledged_is_found_out_and_nothing_is_changed() -> None:
    lab = Lab(2, terms=(1, 1), commit=1)
    assert "let it join again" in lab.refuses(heartbeat(lab, sender=1, term=1, commit=5), LogLostError)
    assert (lab.core.log.commit, lab.core.log.last_index()) == (1, 2)


def test_a_removed_leader_steps_down_when_the_change_is_applied() -> None:
    lab = leader()
    change = Change((NodeChange(Operation.REMOVE, 1),))
    lab.step(events.ProposeChange(change))
    lab.settle()
    lab.acknowledge(2, 3)
    lab.node.apply_change(change)
    assert (lab.core.role, lab.core.is_promotable()) == (Role.FOLLOWER, False)


def test_a_change_that_could_not_be_applied_becomes_an_empty_entry() -> None:
    lab = leader(voters=(1,))
    lab.step(events.ProposeChange(Change((NodeChange(Operation.REMOVE, 1),))))
    lab.settle()
    assert lab.disk.entries(2, 3, 1)[0] == Entry(1, 2)
    assert any("removed all voters" in line for line in lab.lines)


def test_a_proposal_that_says_it_is_a_change_and_is_none_changes_nothing() -> None:
    lab = leader()
    before = (lab.core.pending_change_index, lab.core.log.last_index(), lab.core.uncommitted_bytes)
    good = to_entry(Change((NodeChange(Operation.LEARNER, 4),)))
    bad = Entry(type=EntryType.CHANGE, data=b"\xc1")
    message = Message(type=MessageType.PROPOSE, sender=2, to=1, entries=(good, bad))
    assert "holds no change" in lab.refuses(message, MalformedMessageError)
    assert (lab.core.pending_change_index, lab.core.log.last_index(), lab.core.uncommitted_bytes) == before


def test_a_refusal_commits_nothing_where_the_logs_differ() -> None:
    lab = Lab(2, terms=(1, 2), commit=1)
    lab.step(events.Campaign())
    lab.settle()
    lab.step(lab.answer(1, MessageType.VOTE_ANSWER, reject=True, index=2, log_term=1))
    assert lab.core.log.commit == 1


def test_the_only_voter_learns_from_who_is_none_any_more_that_it_is_one() -> None:
    """The leader handed its place over to one that died before it heard that the change is committed."""
    joint = ConfigurationState((2,), (1,), (), (1,), auto_leave=True)
    for rejects in (True, False):
        lab = Lab(
            2,
            terms=(1,),
            commit=1,
            configuration=ConfigurationState((1,), (), (2,)),
            commit_by_vote=True,
            pre_vote=True,
        )
        enter = to_entry(Change((NodeChange(Operation.VOTER, 2), NodeChange(Operation.LEARNER, 1))))
        leave = to_entry(LEAVE_JOINT)
        lab.disk.append([Entry(1, 2, enter.type, enter.data), Entry(1, 3, leave.type, leave.data)])
        lab.start()
        for _ in range(lab.core.election_timeout_ticks - 1):
            lab.step(events.Tick())
        assert lab.settle() == []
        lab.step(events.Tick())
        (asked,) = lab.settle()
        assert (asked.type, asked.to, asked.term, asked.index) == (MessageType.PRE_VOTE, 1, 2, 3)
        assert (lab.core.role, lab.core.term) == (Role.FOLLOWER, 1)
        knower = Lab(
            1,
            terms=(1, 1, 1) + (1,) * rejects,
            commit=3,
            configuration=ConfigurationState((2,), (), (1,)),
            commit_by_vote=True,
        )
        knower.step(asked)
        (told,) = knower.settle()
        assert (told.reject, told.index, told.log_term) == (rejects, 3, 1)
        assert (knower.core.term, knower.core.vote) == (1, 0), "a question changes nothing"
        lab.step(told)
        assert lab.core.log.commit == 3
        lab.settle()
        lab.node.apply_change(Change((NodeChange(Operation.VOTER, 2), NodeChange(Operation.LEARNER, 1))))
        assert lab.core.tracker.configuration.state() == joint
        lab.node.apply_change(LEAVE_JOINT)
        for _ in range(3 * lab.core.election_timeout_ticks):
            lab.step(events.Tick())
            lab.settle()
        assert lab.core.role is Role.LEADER


def test_a_learner_without_a_change_that_may_be_committed_asks_nothing() -> None:
    lab = Lab(4, terms=(1, 1), commit=1, learners=(4,), commit_by_vote=True)
    for _ in range(5 * lab.core.election_timeout_ticks):
        lab.step(events.Tick())
    assert lab.settle() == []


def test_how_far_it_is_committed_is_heard_from_a_node_of_an_older_term() -> None:
    lab = Lab(
        2, terms=(1,), commit=1, term=7, configuration=ConfigurationState((1,), (), (2,)), commit_by_vote=True
    )
    promote = to_entry(Change((NodeChange(Operation.VOTER, 2),)))
    lab.disk.append([Entry(1, 2, promote.type, promote.data)])
    lab.start()
    lab.step(
        Message(type=MessageType.PRE_VOTE_ANSWER, sender=1, to=2, term=3, index=2, log_term=2, reject=True)
    )
    assert lab.core.log.commit == 1, "another log"
    lab.step(
        Message(type=MessageType.PRE_VOTE_ANSWER, sender=1, to=2, term=3, index=2, log_term=1, reject=True)
    )
    assert (lab.core.log.commit, lab.core.term) == (2, 7)


def test_a_snapshot_of_which_nothing_is_heard_is_given_up() -> None:
    lab = leader(snapshot_timeout_ticks=5)
    lab.disk.compact(1)
    lab.disk.set_snapshot(snapshot(1, 1))
    lab.core.tracker.progress[3].become_snapshot(1)
    lab.core.tracker.progress[3].match = 0
    for _ in range(5):
        lab.step(events.Tick())
    assert lab.core.tracker.progress[3].state is ProgressState.PROBE


def test_a_follower_that_a_snapshot_does_not_include_makes_the_leader_want_a_newer_one() -> None:
    lab = leader()
    lab.disk.compact(1)
    lab.disk.set_snapshot(snapshot(1, 1))
    lab.step(events.ProposeChange(Change((NodeChange(Operation.LEARNER, 4),))))
    lab.settle()
    lab.acknowledge(2, 3)
    lab.node.apply_change(Change((NodeChange(Operation.LEARNER, 4),)))
    lab.settle()
    lab.step(lab.answer(4, MessageType.APPEND_ANSWER, index=1, reject=True, reject_hint=0))
    assert lab.node.wants_snapshot()
    newer = lab.core.tracker.configuration.state()
    lab.disk.set_snapshot(Snapshot(2, 1, newer))
    lab.step(lab.answer(4, MessageType.HEARTBEAT_ANSWER))
    assert [m.snapshot.index for m in of_type(lab.settle(), MessageType.SNAPSHOT) if m.snapshot] == [2]
    assert not lab.node.wants_snapshot()


def test_a_joint_configuration_that_must_be_left_by_hand_is() -> None:
    lab = leader(voters=(1,))
    change = Change((NodeChange(Operation.LEARNER, 2),), Transition.JOINT_EXPLICIT)
    lab.step(events.ProposeChange(change))
    lab.settle()
    lab.node.apply_change(change)
    assert lab.core.tracker.configuration.is_joint
    lab.step(events.ProposeChange(LEAVE_JOINT))
    lab.settle()
    lab.node.apply_change(LEAVE_JOINT)
    assert lab.core.tracker.configuration.learners == {2}


def test_a_restarted_node_goes_on_where_its_disk_stands() -> None:
    lab = Lab(2, terms=(1, 1, 2), term=4, commit=2)
    core = lab.core
    assert (core.term, core.vote, core.log.commit, core.log.applied, core.log.last_index()) == (4, 0, 2, 2, 3)
    lab.step(
        Message(
            type=MessageType.APPEND,
            sender=1,
            to=2,
            term=4,
            index=3,
            log_term=2,
            entries=entries(4, 4),
            commit=4,
        )
    )
    lab.settle()
    assert [entry.index for entry in lab.applied] == [3, 4]


def test_a_new_leader_changes_the_configuration_only_behind_an_entry_of_its_own_term() -> None:
    # Found by a simulated cluster: with an empty tail the index that election notes was applied already.
    lab = Lab(1)
    lab.lead(acknowledged=False)
    before = lab.core.log.last_index()
    assert lab.core.log.term(lab.core.log.commit) != lab.core.term
    lab.step(events.ProposeChange(Change((NodeChange(Operation.LEARNER, 4),))))
    lab.settle()
    appended = lab.core.log.entries(before + 1, before + 2, 1 << 20)
    assert [entry.type for entry in appended] == [EntryType.NORMAL]
