"""Check the invariants of one node after every step, and between two steps. A violation ends the process.

Invariants of a cluster (one leader a term, equal committed entries) need the states of all nodes: `safety`
checks them in tests and in the simulator.
"""

from __future__ import annotations

from msgspec import Struct

from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import NOBODY
from ringfence.control.consensus.progress import ProgressState


class Seen(Struct, frozen=True):
    """The values of a node after a step, for the comparison after the next one."""

    term: int
    vote: int
    role: Role
    commit: int
    applied: int


def seen(core: Core) -> Seen:
    return Seen(core.term, core.vote, core.role, core.log.commit, core.log.applied)


def check_node(core: Core) -> None:
    """Check state invariants, in O(members), so that every step of every test can."""
    log, unstable = core.log, core.log.unstable
    last_index = unstable.last_index()
    assert log.applied <= log.applying <= log.commit <= last_index, (
        f"{_name(core)}: applied {log.applied}, applying {log.applying}, commit {log.commit}, "
        f"last {last_index}"
    )
    assert unstable.offset <= unstable.handed <= unstable.offset + len(unstable.entries), (
        f"{_name(core)}: unstable from {unstable.offset}, handed {unstable.handed}, "
        f"{len(unstable.entries)} entries"
    )
    if unstable.entries:
        last = unstable.entries[-1]
        assert last.index == last_index, f"{_name(core)}: the tail has a gap"
        assert last.term <= core.term, f"{_name(core)}: its log ends in term {last.term}"
    else:
        durable = log.storage.last_index() if unstable.snapshot is None else unstable.snapshot.index
        assert durable == last_index, (
            f"{_name(core)}: unstable from {unstable.offset}, what precedes it ends at {durable}"
        )
    tracker, role = core.tracker, core.role
    assert set(tracker.members) == tracker.progress.keys(), f"{_name(core)}: {tracker.members}"
    if role is Role.CANDIDATE:
        assert core.vote == core.id, f"{_name(core)}: a candidate that voted for {core.vote}"
    if role is Role.CANDIDATE or role is Role.PRE_CANDIDATE:
        assert core.lead == NOBODY, f"{_name(core)}: a candidate that follows {core.lead}"
    if role is Role.LEADER:
        _check_leader(core, last_index)


def _check_leader(core: Core, last: int) -> None:
    assert core.lead == core.id, f"{_name(core)}: a leader that follows {core.lead}"
    assert core.log.last_term() == core.term, (
        f"{_name(core)}: a leader whose log ends in term {core.log.last_term()}"
    )
    for member, progress in core.tracker.progress.items():
        assert progress.match <= last, f"{_of(core, member)}: match {progress.match}, the log ends at {last}"
        assert progress.match < progress.next or progress.match == 0, (
            f"{_of(core, member)}: match {progress.match}, next {progress.next}"
        )
        if progress.state is not ProgressState.SNAPSHOT:
            assert progress.next <= last + 1, (
                f"{_of(core, member)}: next {progress.next}, the log ends at {last}"
            )
        under_way = len(progress.window)
        assert under_way <= progress.window.size_max, f"{_of(core, member)}: {under_way} under way"


def _name(core: Core) -> str:
    return f"node {core.id} at term {core.term}"


def _of(core: Core, member: int) -> str:
    return f"{_name(core)}: progress of {member}"


def check_step(before: Seen, core: Core) -> None:
    """Check delta invariants: term, commit, applied never fall; one vote a term; a leader commits its own."""
    log, term = core.log, core.term
    assert term >= before.term, f"node {core.id}: term {before.term} -> {term}"
    assert log.commit >= before.commit, f"node {core.id}: commit {before.commit} -> {log.commit}"
    assert log.applied >= before.applied, f"node {core.id}: applied {before.applied} -> {log.applied}"
    if term == before.term:
        assert before.vote in (NOBODY, core.vote), (
            f"node {core.id}: vote {before.vote} -> {core.vote} in a term"
        )
        if log.commit > before.commit and before.role is core.role is Role.LEADER:
            assert log.term(log.commit) == term, (
                f"node {core.id}: it leads term {term} and committed {log.commit} of term "
                f"{log.term(log.commit)} by counting"
            )
