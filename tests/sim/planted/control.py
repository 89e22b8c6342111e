"""Bugs of the control plane, one at a time, patched into the product that a simulation runs.

Some are those of the pure walks (tests/consensus/planted.py); the others lie in what surrounds consensus: the
journal, the members, the orders to the engine. No checker reads which one is on.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest

from ringfence.control.consensus.messages import Snapshot
from ringfence.control.model.ids import Index
from ringfence.control.model.results import Done
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.data_plane import executor, native_orders
from ringfence.control.runtime.membership import members
from ringfence.control.runtime.raft import replica
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.raft.replica import Replica
from ringfence.control.state_machines.membership import cluster_time, liveness
from ringfence.control.state_machines.metadata import state_machine as machine
from ringfence.control.state_machines.node_orders import OpenPartition
from ringfence.control.store import files, journal
from ringfence.control.store.journal import HardRecord, Journal, JournalEntry
from ringfence.control.store.raft_store import RaftStore
from ringfence.native._node import Order
from tests.consensus.planted import BUGS as WALKS
from tests.sim.world.files import SimOs

Patch = pytest.MonkeyPatch


def _vote_not_persisted(patch: Patch) -> None:
    """A hard state is written with entries only."""
    original = RaftStore._write

    def write(
        self: RaftStore, group: Sequence[JournalEntry], hard: HardRecord, *, writes_commit: bool
    ) -> None:
        if group or self.journal.hard is None:
            original(self, group, hard, writes_commit=writes_commit)
        else:
            self._hard = hard

    patch.setattr(RaftStore, "_write", write)


def _ack_before_fsync(patch: Patch) -> None:
    """The journal's groups are not synced. `fdatasync` is called for nothing else."""
    patch.setattr(SimOs, "fdatasync", lambda _self, _descriptor: None)


def _fsync_retried(patch: Patch) -> None:
    """A failed sync is tried again, and then succeeds: there is nothing left to write."""

    def fdatasync(self: SimOs, descriptor: int) -> None:
        for _ in range(8):
            try:
                self.fsync(descriptor)
            except OSError:
                continue
            return
        self.fsync(descriptor)

    patch.setattr(SimOs, "fdatasync", fdatasync)


def _snapshot_committed_first(patch: Patch) -> None:
    """A received snapshot's commit index is durable before its file is there, as it once was."""
    original = RaftStore._install

    def install(self: RaftStore, snapshot: Snapshot, hard: HardRecord) -> None:
        self.journal.append([], hard)
        original(self, snapshot, hard)

    patch.setattr(RaftStore, "_install", install)


def _truncation_by_mark(patch: Patch) -> None:
    """A start drops what it does not know to be committed, as Kafka did before KIP-101."""
    original = RaftStore.__init__

    def init(self: RaftStore, *args: Any, **given: Any) -> None:
        original(self, *args, **given)
        commit = self._hard.commit
        if self.journal.last.index > commit >= self.journal.base.index:
            self.journal.truncate_after(commit)
            original(self, *args, **given)

    patch.setattr(RaftStore, "__init__", init)


def _torn_middle(patch: Patch) -> None:
    """Damage in the middle of the journal passes for a torn tail."""
    patch.setattr(journal, "_proof_of_damage", lambda *_: None)


def _rename_not_synced(patch: Patch) -> None:
    """The folder is not synced when a file was put in place of another."""
    patch.setattr(files, "sync_directory", lambda _: None)


def _page_cache_believed(patch: Patch) -> None:
    """A start takes what it can read for durable."""

    def make_durable(self: Journal, doubtful: bytes) -> None:
        os_ = vars(journal)["os"]
        if self.cut_bytes:
            os_.ftruncate(self._descriptor, self._end)
            os_.fsync(self._descriptor)
        os_.lseek(self._descriptor, self._end, os.SEEK_SET)

    patch.setattr(Journal, "_make_durable", make_durable)


def _timeout_on_wall_clock(patch: Patch) -> None:
    """Members fail by a clock that jumps."""
    wall: Callable[[], int] = lambda: time.time_ns() // 1_000_000  # noqa: E731
    patch.setattr(members, "_now_ms", wall)


def _times_not_bounded(patch: Patch) -> None:
    """An owner's and a proposer's own clock is believed, however far it is from the others'."""
    patch.setattr(cluster_time.ClusterTime, "window", lambda *_: (0, 1 << 62))


def _leader_s_clock_believed(patch: Patch) -> None:
    """The leader takes its own clock for the cluster's time."""
    original = cluster_time.ClusterTime.estimate

    def estimate(self: Any, clock_ms: int, _live: object, now_ms: int) -> int | None:
        return original(self, clock_ms, (), now_ms)

    patch.setattr(cluster_time.ClusterTime, "estimate", estimate)


def _new_leader_does_not_wait(patch: Patch) -> None:
    """Silence before its own term counts as well."""
    original = liveness.Liveness.begin

    def begin(self: Any, term: int, now_ms: int) -> None:
        original(self, term, now_ms)
        self._since_ms = now_ms - 10_000

    patch.setattr(liveness.Liveness, "begin", begin)


def _woken_leader_does_not_wait(patch: Patch) -> None:
    """A leader that stood still takes its own silence for that of the others."""
    original = liveness.Liveness.tick

    def tick(self: Any, state: Any, now_ms: int) -> Any:
        if self._since_ms is not None:
            self._ticked_ms = max(self._ticked_ms, now_ms)
        return original(self, state, now_ms)

    patch.setattr(liveness.Liveness, "tick", tick)


def _applied_twice(patch: Patch) -> None:
    """The session table is not asked: a command that came twice is applied twice."""
    original = machine.apply

    def apply(state: MetadataState, entry: Any) -> Any:
        sessions = dict(state.sessions)
        session = sessions.get(entry.proposal.session)
        if session is not None and entry.proposal.sequence in session.results:
            from msgspec.structs import replace

            forgotten = {
                key: value for key, value in session.results.items() if key != entry.proposal.sequence
            }
            sessions[entry.proposal.session] = replace(
                session, results=forgotten, last=max(forgotten, default=0)
            )
            state = replace(state, sessions=sessions)
        return original(state, entry)

    patch.setattr(replica, "apply", apply)


def _apply_differs(patch: Patch) -> None:
    """What an entry gives depends on the node's own clock."""
    original = machine.apply

    def apply(state: MetadataState, entry: Any) -> Any:
        after, result = original(state, entry)
        if after is not state and time.monotonic_ns() % 23 == 0:
            from msgspec.structs import replace

            after = replace(after, time_ms=after.time_ms + 1)
        return after, result

    patch.setattr(replica, "apply", apply)


def _change_before_it_is_durable(patch: Patch) -> None:
    """A change of the configuration takes effect before its commit is durable here."""

    def apply_in_turn(self: Replica, work: Any) -> None:
        self._apply(work.entries)
        self._respond(work)

    patch.setattr(Replica, "_apply_in_turn", apply_in_turn)


def _answer_before_commit(patch: Patch) -> None:
    """A proposal is answered as soon as it was sent to the leader."""
    original = RaftProposer._send

    def send(self: RaftProposer, sent: list[Any]) -> None:
        original(self, sent)
        state = self.replica.state
        for pending in sent:
            try:
                _, result = machine.apply(state, _as_entry(self, pending))
            except Exception:  # noqa: BLE001 - the bug is not more careful than that
                continue
            if not pending.answer.done() and isinstance(result, Done):
                from ringfence.control.runtime.raft.proposer_interface import Applied

                pending.answer.set_result(Applied(self.applied.index, result))

    patch.setattr(RaftProposer, "_send", send)


def _as_entry(proposer: RaftProposer, pending: Any) -> Any:
    from ringfence.control.model.entries import Entry

    return Entry(
        index=Index(proposer.applied.index + 1), term=proposer.replica.term, proposal=pending.proposal
    )


def _old_epoch_opened(patch: Patch) -> None:
    """Partitions are opened under the epoch before."""
    original = native_orders.to_native

    def before(order: Any) -> Any:
        if isinstance(order, OpenPartition):
            return Order.open(order.topic, order.partition, order.slots.lo, order.slots.hi, order.epoch - 1)
        return original(order)

    patch.setattr(executor, "to_native", before)


def _everybody_opens(patch: Patch) -> None:
    """A node opens what the log gives to others as well."""
    from ringfence.control.state_machines import node_orders

    original = node_orders.between

    def between(before: Any, after: Any, here: Any) -> Any:
        phases = original(before, after, here)
        for topic in after.topics.values():
            if topic.topic not in before.topics:
                owners = {assignment.owner for assignment in topic.assignments.values()} - {here}
                for owner in sorted(owners, key=lambda each: each.node):
                    theirs = original(before, after, owner)
                    opened = [
                        [o for o in phase if isinstance(o, node_orders.OpenPartition)] for phase in theirs
                    ]
                    phases = (*phases, *(tuple(phase) for phase in opened if phase))
        return phases

    patch.setattr(node_orders, "between", between)


def _commit_told_too_high(patch: Patch) -> None:
    """A leader counts a majority one short."""
    from ringfence.control.consensus.tracker import Tracker

    patch.setattr(Tracker, "committed", lambda self: max(p.match for p in self.progress.values()))


def _election_on_one_vote(patch: Patch) -> None:
    from ringfence.control.consensus import quorum

    original = quorum.majority_vote

    def majority_vote(voters: Any, votes: Any) -> Any:
        yes = [voter for voter in voters if votes.get(voter)]
        return original(yes[:1] or voters, votes)

    patch.setattr(quorum, "majority_vote", majority_vote)


def _same_producer_twice(patch: Patch) -> None:
    """Ids of producers are drawn from a counter of each process."""
    from ringfence.control.runtime.handlers.producers import ProducerRequests

    original = ProducerRequests.open

    async def opened(self: Any, request: Any) -> Any:
        from msgspec.structs import replace

        answer = await original(self, request)
        numbers = self.__dict__.setdefault("_numbers", itertools.count(1 << 20))
        return replace(answer, producer_id=next(numbers), producer_epoch=1)

    patch.setattr(ProducerRequests, "open", opened)


def _term_not_persisted(patch: Patch) -> None:
    original = RaftStore._first_hard

    def first_hard(self: RaftStore) -> HardRecord:
        hard = original(self)
        return HardRecord(self.recovered.term, 0, hard.commit)

    patch.setattr(RaftStore, "_first_hard", first_hard)


OWN: Final = (
    _vote_not_persisted,
    _term_not_persisted,
    _snapshot_committed_first,
    _ack_before_fsync,
    _fsync_retried,
    _page_cache_believed,
    _truncation_by_mark,
    _torn_middle,
    _rename_not_synced,
    _timeout_on_wall_clock,
    _times_not_bounded,
    _leader_s_clock_believed,
    _new_leader_does_not_wait,
    _woken_leader_does_not_wait,
    _applied_twice,
    _apply_differs,
    _change_before_it_is_durable,
    _answer_before_commit,
    _old_epoch_opened,
    _everybody_opens,
    _commit_told_too_high,
    _election_on_one_vote,
    _same_producer_twice,
)
FROM_WALKS: Final = (
    "old_term_commit",
    "snapshot_over_longer_log",
    "old_snapshot_accepted",
    "vote_for_shorter_log",
    "vote_twice",
    "truncate_what_matches",
    "commit_beyond_the_append",
    "heartbeat_beyond_match",
    "one_half_decides",
    "learners_count",
    "confirmed_by_index_alone",
    "change_before_own_term",
    "two_changes_at_once",
    "read_without_a_quorum",
    "read_before_own_term",
    "own_copy_counts_at_once",
)
BUGS: Final[dict[str, Callable[[Patch], None]]] = {
    **{bug.__name__.removeprefix("_"): bug for bug in OWN},
    **{name: WALKS[name] for name in FROM_WALKS},
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """With one bug switched on."""
    with pytest.MonkeyPatch.context() as patch:
        BUGS[name](patch)
        yield
