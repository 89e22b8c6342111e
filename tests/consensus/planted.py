"""Bugs that the checkers must find, switched on one at a time. Nothing that checks reads which one is on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.consensus import (
    configuration_rules,
    election,
    follower_log,
    leader_log,
    linearizable_reads,
    quorum,
    replication,
    roles,
    terms,
)
from ringfence.control.consensus.core import Core
from ringfence.control.consensus.log import Log
from ringfence.control.consensus.messages import (
    ConfigurationState,
    Entry,
    HardState,
    Message,
    MessageType,
    Snapshot,
)
from ringfence.control.consensus.ready import Ready
from ringfence.control.consensus.storage import MemoryStorage
from ringfence.control.consensus.tracker import Tracker
from ringfence.control.consensus.unstable import UnstableTail

Patch = pytest.MonkeyPatch


def _old_term_commit(patch: Patch) -> None:
    """A leader commits entries of earlier terms by counting (paper, figure 8)."""

    def maybe_commit(self: Log, index: int, _term: int) -> bool:
        if index > self.commit and self.term(index) is not None:
            self.commit = index
            return True
        return False

    patch.setattr(Log, "maybe_commit", maybe_commit)


def _vote_not_persisted(patch: Patch) -> None:
    original = MemoryStorage.initial_state

    def initial_state(self: MemoryStorage) -> tuple[HardState, ConfigurationState]:
        hard_state, configuration = original(self)
        return replace(hard_state, vote=0), configuration

    patch.setattr(MemoryStorage, "initial_state", initial_state)


def _answer_before_sync(patch: Patch) -> None:
    """Promises leave with everything else, before the disk has what they promise."""
    patch.setattr(Ready, "messages_at_once", lambda self: list(self.messages))
    patch.setattr(Ready, "messages_after_sync", lambda _self: [])


def _snapshot_over_longer_log(patch: Patch) -> None:
    """A snapshot is installed although the log holds it and more."""
    patch.setattr(follower_log, "_holds", lambda _core, _snapshot: False)


def _vote_for_shorter_log(patch: Patch) -> None:
    patch.setattr(Log, "is_up_to_date", lambda _self, _index, _term: True)


def _vote_twice(patch: Patch) -> None:
    """A vote is forgotten as soon as it was cast."""
    original = election.on_request

    def on_request(core: Core, message: Message) -> None:
        if core.role.name == "FOLLOWER":
            core.vote = core.lead = 0
        original(core, message)

    patch.setattr(election, "on_request", on_request)


def _truncate_what_matches(patch: Patch) -> None:
    """An old append cuts off what followed it: entries that were acknowledged vanish."""
    patch.setattr(Log, "_first_that_differs", lambda _self, _entries: 0)


def _commit_beyond_the_append(patch: Patch) -> None:
    """A follower believes a leader's commit index for entries that the leader has not compared."""
    original = Log.maybe_append

    def maybe_append(self: Log, index: int, term: int, entries: tuple[Entry, ...], commit: int) -> int | None:
        last = original(self, index, term, entries, commit)
        if last is not None:
            self.commit_to(min(commit, self.last_index()))
        return last

    patch.setattr(Log, "maybe_append", maybe_append)


def _heartbeat_beyond_match(patch: Patch) -> None:
    """A heartbeat tells the leader's commit index to a log that may be another one."""
    original = Core.send

    def send(self: Core, message: Message) -> None:
        if message.type is MessageType.HEARTBEAT:
            message = replace(message, commit=self.log.commit)
        original(self, message)

    patch.setattr(Core, "send", send)


def _one_half_decides(patch: Patch) -> None:
    """In a joint configuration only the new voters are asked."""
    patch.setattr(
        quorum, "joint_committed", lambda incoming, _outgoing, acks: quorum.majority_committed(incoming, acks)
    )
    patch.setattr(
        quorum, "joint_vote", lambda incoming, _outgoing, votes: quorum.majority_vote(incoming, votes)
    )


def _learners_count(patch: Patch) -> None:
    def committed(self: Tracker) -> int:
        matches = {member: progress.match for member, progress in self.progress.items()}
        return quorum.majority_committed(self.members, matches)

    patch.setattr(Tracker, "committed", committed)
    patch.setattr(Tracker, "_vote", lambda self, votes: quorum.majority_vote(self.members[:2], votes))


def _confirmed_by_index_alone(patch: Patch) -> None:
    """Storage confirms entries that were replaced while they were being written.

    Term is looked at nowhere.
    """
    original = UnstableTail.confirm
    step = terms.step

    def confirm(self: UnstableTail, index: int, _term: int) -> None:
        own = self.term(index)
        if own is not None:
            original(self, index, own)

    def at_any_term(core: Core, message: Message) -> None:
        if message.type is MessageType.STORAGE_APPEND_ANSWER:
            message = replace(message, term=0)
        step(core, message)

    patch.setattr(UnstableTail, "confirm", confirm)
    patch.setattr(terms, "step", at_any_term)


def _change_before_own_term(patch: Patch) -> None:
    """A new leader takes a change of the configuration before it has committed anything (raft-dev, 2015)."""
    original = roles.become_leader

    def become_leader(core: Core) -> None:
        original(core)
        core.pending_change_index = 0

    patch.setattr(roles, "become_leader", become_leader)
    patch.setattr(configuration_rules, "committed_in_term", lambda _core: True)


def _two_changes_at_once(patch: Patch) -> None:
    original = configuration_rules.why_not

    def why_not(core: Core, change: Any) -> str | None:
        core.pending_change_index = 0
        return original(core, change)

    patch.setattr(configuration_rules, "why_not", why_not)


def _read_without_a_quorum(patch: Patch) -> None:
    """A leader answers reads without asking whether it still leads."""

    def confirm(core: Core, requester: int, context: bytes) -> None:
        linearizable_reads._answer(core, requester, core.log.commit, context)

    patch.setattr(linearizable_reads, "_confirm", confirm)


def _read_before_own_term(patch: Patch) -> None:
    """A new leader answers reads at a commit index that may be behind the one its predecessor reached."""
    patch.setattr(replication, "committed_in_term", lambda _core: True)


def _own_copy_counts_at_once(patch: Patch) -> None:
    """A leader counts its own copy before it is durable."""
    original = leader_log.append

    def append(core: Core, entries: tuple[Entry, ...]) -> bool:
        taken = original(core, entries)
        core.tracker.progress[core.id].maybe_update(core.log.last_index())
        return taken

    patch.setattr(leader_log, "append", append)


def _old_snapshot_accepted(patch: Patch) -> None:
    """A snapshot below what is committed takes the place of the log."""
    original = follower_log._restore

    def restore(core: Core, snapshot: Snapshot) -> bool:
        kept = core.log.commit
        core.log.commit = min(kept, snapshot.index - 1)
        restored = original(core, snapshot)
        core.log.commit = max(core.log.commit, kept if not restored else 0)
        return restored

    patch.setattr(follower_log, "_restore", restore)


def _entries_lost_on_truncation(patch: Patch) -> None:
    """The disk keeps a tail that a leader had replaced."""

    def append(self: MemoryStorage, entries: Any) -> None:
        for entry in entries:
            at = entry.index - self._base[0] - 1
            if 0 <= at < len(self._entries):
                self._entries[at] = entry
            elif at >= 0:
                self._entries.append(entry)

    patch.setattr(MemoryStorage, "append", append)


BUGS: dict[str, Callable[[Patch], None]] = {
    bug.__name__.removeprefix("_"): bug
    for bug in (
        _old_term_commit,
        _vote_not_persisted,
        _answer_before_sync,
        _snapshot_over_longer_log,
        _vote_for_shorter_log,
        _vote_twice,
        _truncate_what_matches,
        _commit_beyond_the_append,
        _heartbeat_beyond_match,
        _one_half_decides,
        _learners_count,
        _confirmed_by_index_alone,
        _change_before_own_term,
        _two_changes_at_once,
        _read_without_a_quorum,
        _read_before_own_term,
        _own_copy_counts_at_once,
        _old_snapshot_accepted,
        _entries_lost_on_truncation,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """With one bug switched on."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        yield
