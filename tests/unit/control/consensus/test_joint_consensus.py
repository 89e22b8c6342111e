"""Every change of a configuration keeps the majorities of both sides together."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ringfence.control.consensus import joint_consensus, quorum
from ringfence.control.consensus.configuration import Configuration
from ringfence.control.consensus.configuration_changes import NodeChange, Operation
from ringfence.control.consensus.errors import ChangeError
from ringfence.control.consensus.progress import Progress
from ringfence.control.consensus.quorum import VoteResult
from ringfence.control.consensus.tracker import Tracker

OPERATIONS = st.lists(
    st.builds(NodeChange, st.sampled_from(list(Operation)), st.integers(0, 5)), min_size=1, max_size=4
)
STEPS = st.lists(st.tuples(st.sampled_from(["simple", "joint", "leave"]), OPERATIONS), max_size=12)


@given(STEPS)
def test_majorities_before_and_after_a_change_always_overlap(
    steps: list[tuple[str, list[NodeChange]]],
) -> None:
    tracker = Tracker(4)

    def new(*, is_learner: bool) -> Progress:
        return tracker.new_progress(3, is_learner=is_learner)

    tracker.switch(*joint_consensus.simple(Configuration(), {}, [NodeChange(Operation.VOTER, 1)], new))
    for kind, operations in steps:
        before, known = tracker.configuration, dict(tracker.progress)
        try:
            if kind == "simple":
                changed = joint_consensus.simple(before, tracker.progress, operations, new)
            elif kind == "joint":
                changed = joint_consensus.enter_joint(
                    before, tracker.progress, operations, new, auto_leave=True
                )
            else:
                changed = joint_consensus.leave_joint(before, tracker.progress)
        except ChangeError:
            assert (tracker.configuration, tracker.progress) == (before, known)
            continue
        tracker.switch(*changed)
        assert overlap(before, tracker.configuration), f"{before} and {tracker.configuration}"
        restored, progress = joint_consensus.restored(tracker.configuration.state(), new)
        assert restored == tracker.configuration
        assert {m: p.is_learner for m, p in progress.items()} == {
            m: p.is_learner for m, p in tracker.progress.items()
        }


def quorums(configuration: Configuration) -> list[frozenset[int]]:
    """All groups that decide in it."""
    everyone = configuration.voters
    groups = (frozenset(group) for size in range(len(everyone) + 1) for group in combinations(everyone, size))
    return [
        group
        for group in groups
        if quorum.joint_vote(configuration.incoming, configuration.outgoing, dict.fromkeys(group, True))
        is VoteResult.WON
    ]


def overlap(before: Configuration, after: Configuration) -> bool:
    return all(one & other for one in quorums(before) for other in quorums(after))
