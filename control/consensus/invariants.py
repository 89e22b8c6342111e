"""What must hold of one node after every step, and between two steps. Broken, it ends the process.

What must hold of a whole cluster (one leader a term, equal committed entries) needs all nodes at once: the
tests' and the simulator's safety checker sees to that.
"""

from __future__ import annotations

from msgspec import Struct

from ringfence.control.consensus.core import Core, Role
from ringfence.control.consensus.messages import NOBODY
from ringfence.control.consensus.progress import ProgressState


class Seen(Struct, frozen=True):
    """What a node showed after a step; the next step is judged against it."""

    term: int
    vote: int
    role: Role
    commit: int
    applied: int


def seen(core: Core) -> Seen:
    return Seen(core.term, core.vote, core.role, core.log.commit, core.log.applied)


def check_node(core: Core) -> None:
    """State invariants. O(members): for every step of every test."""
    log, unstable = core.log, core.log.unstable
    name = f"node {core.id} at term {core.term}"
    assert log.applied <= log.applying <= log.commit <= log.last_index(), (
        f"{name}: applied {log.applied}, applying {log.applying}, commit {log.commit}, last "
        f"{log.last_index()}"
    )
    assert unstable.offset <= unstable.handed <= unstable.offset + len(unstable.entries), (
        f"{name}: unstable from {unstable.offset}, handed {unstable.handed}, {len(unstable.entries)} entries"
    )
    if unstable.entries:
        last = unstable.entries[-1]
        assert last.index == unstable.offset + len(unstable.entries) - 1, f"{name}: the tail has a gap"
        assert last.term <= core.term, f"{name}: its log ends in term {last.term}"
    assert set(core.tracker.members) == core.tracker.progress.keys(), f"{name}: {core.tracker.members}"
    if core.role is Role.CANDIDATE:
        assert core.vote == core.id, f"{name}: a candidate that voted for {core.vote}"
    if core.role in (Role.CANDIDATE, Role.PRE_CANDIDATE):
        assert core.lead == NOBODY, f"{name}: a candidate that follows {core.lead}"
    if core.role is Role.LEADER:
        _check_leader(core, name)


def _check_leader(core: Core, name: str) -> None:
    assert core.lead == core.id, f"{name}: a leader that follows {core.lead}"
    assert core.log.last_term() == core.term, (
        f"{name}: a leader whose log ends in term {core.log.last_term()}"
    )
    last = core.log.last_index()
    for member, progress in core.tracker.progress.items():
        where = f"{name}: progress of {member}"
        assert progress.match <= last, f"{where}: match {progress.match}, the log ends at {last}"
        assert progress.match < progress.next or progress.match == 0, (
            f"{where}: match {progress.match}, next {progress.next}"
        )
        if progress.state is not ProgressState.SNAPSHOT:
            assert progress.next <= last + 1, f"{where}: next {progress.next}, the log ends at {last}"
        assert len(progress.window) <= progress.window.size_max, f"{where}: {len(progress.window)} under way"


def check_step(before: Seen, core: Core) -> None:
    """Delta invariants: term, commit, applied never fall; one vote a term; a leader commits its own term."""
    after = seen(core)
    name = f"node {core.id}"
    assert after.term >= before.term, f"{name}: term {before.term} -> {after.term}"
    assert after.commit >= before.commit, f"{name}: commit {before.commit} -> {after.commit}"
    assert after.applied >= before.applied, f"{name}: applied {before.applied} -> {after.applied}"
    if after.term == before.term:
        assert before.vote in (NOBODY, after.vote), f"{name}: vote {before.vote} -> {after.vote} in a term"
        if before.role is after.role is Role.LEADER and after.commit > before.commit:
            assert core.log.term(after.commit) == after.term, (
                f"{name}: it leads term {after.term} and committed {after.commit} of term "
                f"{core.log.term(after.commit)} by counting"
            )
