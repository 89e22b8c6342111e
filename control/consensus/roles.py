"""Change the role: follower, candidate, leader. All changes but one reset the state of the last role."""

from __future__ import annotations

from ringfence.control.consensus import leader_log
from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import NOBODY, Entry
from ringfence.control.consensus.trace import Level


def reset(core: Core, term: int) -> None:
    """Reset the role's state for `term`, or for another role in the same term."""
    if core.term != term:
        assert term > core.term, f"node {core.id}: term {term} is below {core.term}"
        core.term = term
        core.vote = NOBODY
    core.lead = NOBODY
    core.election_elapsed_ticks = core.heartbeat_elapsed_ticks = 0
    draw_election_timeout(core)
    core.transferee = NOBODY
    core.tracker.votes.clear()
    core.tracker.reset_progress(core.id, core.log.last_index())
    core.pending_change_index = 0
    core.uncommitted_bytes = 0
    core.reads.clear()


def draw_election_timeout(core: Core) -> None:
    ticks = core.options.election_ticks
    core.election_timeout_ticks = ticks + core.draw(ticks)


def become_follower(core: Core, term: int, lead: int) -> None:
    reset(core, term)
    core.role = Role.FOLLOWER
    core.lead = lead
    core.say(Level.INFO, f"became follower at term {term}")


def become_candidate(core: Core) -> None:
    assert core.role is not Role.LEADER, f"node {core.id} leads term {core.term} and need not campaign"
    reset(core, core.term + 1)
    core.role = Role.CANDIDATE
    core.vote = core.id
    core.say(Level.INFO, f"became candidate at term {core.term}")


def become_pre_candidate(core: Core) -> None:
    """Become pre-candidate; term and vote stay, so that a pre-vote disturbs no other node."""
    assert core.role is not Role.LEADER, f"node {core.id} leads term {core.term} and need not campaign"
    core.tracker.votes.clear()
    core.role = Role.PRE_CANDIDATE
    core.lead = NOBODY
    core.say(Level.INFO, f"became pre-candidate at term {core.term}")


def become_leader(core: Core) -> None:
    """Become leader, and append an empty entry: a leader may commit only with an entry of its own term."""
    assert core.role is Role.CANDIDATE, f"node {core.id} was {core.role.name}: only a candidate is elected"
    reset(core, core.term)
    core.role = Role.LEADER
    core.lead = core.id
    own = core.tracker.progress[core.id]
    own.become_replicate()
    own.recent_active = True
    # Any entry up to here may be a change of the configuration that is not committed yet.
    core.pending_change_index = core.log.last_index()
    taken = leader_log.append(core, (Entry(),))
    assert taken, "an empty entry has no bytes, it always fits"
    core.say(Level.INFO, f"became leader at term {core.term}")
