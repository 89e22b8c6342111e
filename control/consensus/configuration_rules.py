"""Validate changes of the configuration, and compute the next one."""

from __future__ import annotations

from ringfence.control.consensus import joint_consensus
from ringfence.control.consensus.configuration_changes import Change
from ringfence.control.consensus.core import Core
from ringfence.control.consensus.errors import ChangeError
from ringfence.control.consensus.joint_consensus import Changed
from ringfence.control.consensus.progress import Progress
from ringfence.control.consensus.replication import committed_in_term


def why_not(core: Core, change: Change) -> str | None:
    """The reason why the leader must not append `change` now; None if it may.

    Only one change at a time is allowed, and none before an applied entry of this term. Without such an
    entry, the majority of a change that the leader does not know may share no voter with its own (Ongaro,
    raft-dev, 2015-07-10). The index that `become_leader` notes is below the leader's first entry, so this
    function requires that entry as well; etcd does not.
    """
    if core.pending_change_index > core.log.applied:
        pending, applied = core.pending_change_index, core.log.applied
        return f"possible unapplied conf change at index {pending} (applied to {applied})"
    if not committed_in_term(core):
        return f"no entry of term {core.term} is committed yet (committed to {core.log.commit})"
    is_joint = core.tracker.configuration.is_joint
    if is_joint and not change.leaves_joint:
        return "must transition out of joint config first"
    if not is_joint and change.leaves_joint:
        return "not in joint state; refusing empty conf change"
    try:
        outcome(core, change)
    except ChangeError as error:
        # If it were committed, no node could apply it, and every node would stop.
        return error.reason
    return None


def outcome(core: Core, change: Change) -> Changed:
    """The configuration after `change`.

    Raises:
        ChangeError: the change is not possible in the present one.
    """
    tracker, last_index = core.tracker, core.log.last_index()

    def new_progress(*, is_learner: bool) -> Progress:
        return tracker.new_progress(last_index, is_learner=is_learner)

    if change.leaves_joint:
        return joint_consensus.leave_joint(tracker.configuration, tracker.progress)
    if change.enters_joint:
        return joint_consensus.enter_joint(
            tracker.configuration,
            tracker.progress,
            change.operations,
            new_progress,
            auto_leave=change.auto_leave,
        )
    return joint_consensus.simple(tracker.configuration, tracker.progress, change.operations, new_progress)
