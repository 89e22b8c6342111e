"""The durable log of consensus: crashes at every step, damage at every byte, snapshots from others."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringfence.control.consensus.messages import (
    APPEND_THREAD,
    ConfigurationState,
    Entry,
    EntryType,
    HardState,
    MessageType,
    Snapshot,
    StorageMessage,
)
from ringfence.control.model.commands import Command, InitCluster
from ringfence.control.model.entries import Proposal, encode_proposal
from ringfence.control.model.ids import NodeId, SessionId
from ringfence.control.model.node_commands import RemoveNode
from ringfence.control.model.state import MetadataState, digest
from ringfence.control.store import install_mark, raft_store, records
from ringfence.control.store.directory import open_directory
from ringfence.control.store.files import write_atomically
from ringfence.control.store.journal import Journal, JournalEntry, LogPosition
from ringfence.control.store.raft_store import FIRST_CONFIGURATION, RaftStore
from ringfence.native.errors import RecordError
from tests.fakes.metadata_commands import INIT, entry, register
from tests.fakes.raft_stores import THREE, opened, received


def work(
    *entries: Entry, term: int = 0, vote: int = 0, commit: int = 0, snapshot: Snapshot | None = None
) -> StorageMessage:
    return StorageMessage(
        type=MessageType.STORAGE_APPEND,
        to=APPEND_THREAD,
        sender=1,
        entries=entries,
        term=term,
        vote=vote,
        commit=commit,
        snapshot=snapshot,
    )


def run(term: int, first: int, last: int) -> list[Entry]:
    """Entries that are no commands: what they hold does not matter here."""
    return [
        Entry(term, index, EntryType.CHANGE, bytes([index % 256]) * 9) for index in range(first, last + 1)
    ]


def persisted(root: Path, *batches: list[StorageMessage]) -> RaftStore:
    store = opened(root)
    for batch in batches:
        store.persist(batch)
        store.note(batch)
    return store


def held(store: RaftStore) -> tuple[HardState, ConfigurationState, list[Entry]]:
    low, high = store.first_index(), store.last_index() + 1
    entries = list(store.entries(low, high, 1 << 40)) if high > low else []
    return (*store.initial_state(), entries)


def test_a_new_store_is_an_empty_log_of_one_voter(tmp_path: Path) -> None:
    assert held(opened(tmp_path / "d")) == (HardState(), FIRST_CONFIGURATION, [])


def test_what_was_persisted_is_there_after_a_crash(tmp_path: Path) -> None:
    store = persisted(
        tmp_path / "d",
        [work(*run(2, 1, 3), term=2, vote=4)],
        [work(term=3, vote=5), work(*run(3, 4, 6), term=3, vote=5, commit=5)],
    )
    assert [store.term(index) for index in range(8)] == [0, 2, 2, 2, 3, 3, 3, None]
    store.close()
    again = opened(tmp_path / "d")
    hard, configuration, entries = held(again)
    assert (hard.term, hard.vote) == (3, 5)
    assert configuration == FIRST_CONFIGURATION
    assert entries == [*run(2, 1, 3), *run(3, 4, 6)]


def test_a_conflicting_tail_is_replaced_durably(tmp_path: Path) -> None:
    store = persisted(tmp_path / "d", [work(*run(2, 1, 6), term=2)], [work(*run(3, 4, 5), term=3, vote=4)])
    expected = [*run(2, 1, 3), *run(3, 4, 5)]
    assert held(store)[2] == expected
    store.close()
    hard, _, entries = held(opened(tmp_path / "d"))
    assert entries == expected
    assert (hard.term, hard.vote) == (3, 4)


def test_a_batch_that_replaces_what_it_appended_keeps_the_last(tmp_path: Path) -> None:
    store = persisted(tmp_path / "d", [work(*run(2, 1, 5), term=2), work(*run(3, 2, 3), term=3)])
    store.close()
    assert held(opened(tmp_path / "d"))[2] == [*run(2, 1, 1), *run(3, 2, 3)]


def test_a_commit_index_alone_is_not_written_each_time(tmp_path: Path) -> None:
    store = persisted(tmp_path / "d", [work(*run(2, 1, 3), term=2)])
    size = store.journal.size_bytes
    store.persist([work(term=2, commit=3)])
    assert store.journal.size_bytes == size


def write_a_life(root: Path) -> None:
    """Votes, appends, a replaced tail."""
    persisted(
        root,
        [work(*run(1, 1, 2), term=1, vote=1)],
        [work(term=2, vote=4)],
        [work(*run(2, 3, 4), term=2, vote=4, commit=2)],
        [work(*run(3, 4, 6), term=3, vote=0, commit=3)],
        [work(term=4, vote=5)],
    ).close()


def test_every_flipped_byte_of_a_durable_journal_is_damage_and_changes_nothing(tmp_path: Path) -> None:
    write_a_life(tmp_path / "d")
    journal = tmp_path / "d" / "metadata" / "journal"
    whole = journal.read_bytes()
    durable = len(whole) - records.HEAD_BYTES  # the last seal may be lost
    for position in range(durable):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        journal.write_bytes(damaged)
        with pytest.raises(Exception) as caught:  # the head has errors of its own
            opened(tmp_path / "d")
        assert caught.type.__name__ in {"RecordError", "StoreIdentityError"}, position
        assert journal.read_bytes() == damaged, f"changed at {position}"


def test_a_last_group_torn_at_any_byte_loses_no_older_promise(tmp_path: Path) -> None:
    root = tmp_path / "d"
    store = persisted(root, [work(*run(1, 1, 2), term=1, vote=1)], [work(term=2, vote=4)])
    begin = store.journal.size_bytes
    store.persist([work(*run(3, 3, 4), term=3, vote=5)])
    end = store.journal.size_bytes - records.HEAD_BYTES
    store.close()
    journal = root / "metadata" / "journal"
    whole = journal.read_bytes()
    for length in range(begin, end):
        journal.write_bytes(whole[:length])
        hard, _, entries = held(opened(root))
        assert entries[:2] == run(1, 1, 2)
        expected = (2, 4) if len(entries) == 2 else (3, 0)
        assert (hard.term, hard.vote) == expected, f"torn at {length}"
        journal.write_bytes(whole[:length])


class CrashError(Exception):
    """The process ends here."""


def crashing(monkeypatch: pytest.MonkeyPatch, steps: int) -> Callable[[], int]:
    """Let the process end before durable step `steps` of writing; how many there were."""
    done = 0

    def counted(real: Any) -> Any:
        def call(*values: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done > steps:
                raise CrashError
            return real(*values, **named)

        return call

    monkeypatch.setattr(raft_store, "write_atomically", counted(write_atomically))
    monkeypatch.setattr(install_mark, "mark", counted(install_mark.mark))
    monkeypatch.setattr(install_mark, "unmark", counted(install_mark.unmark))
    monkeypatch.setattr(Journal, "append", counted(Journal.append))
    monkeypatch.setattr(Journal, "rewrite", counted(Journal.rewrite))
    return lambda: done


@pytest.mark.parametrize("last", [3, 8, 9, 10, 12], ids="the old log ends at {}".format)
def test_a_crash_at_every_step_of_installing_leaves_the_old_log_or_the_snapshot(
    tmp_path: Path, last: int
) -> None:
    """What the old log holds behind its commit is of no majority: no start may take it for committed."""
    seen = set()
    for steps in range(8):
        root = tmp_path / f"d{steps}"
        old = held(persisted(root, [work(*run(2, 1, last), term=2, vote=4, commit=2)]))
        install = [
            work(term=3, commit=9, snapshot=received(root, 9)),
            work(*run(3, 10, 11), term=3, commit=9),
        ]
        with pytest.MonkeyPatch.context() as patch:
            store = opened(root)
            count = crashing(patch, steps)
            try:
                store.persist(install)
            except CrashError:
                assert count() == steps + 1
        again = opened(root)
        hard, configuration, entries = held(again)
        assert hard.term >= old[0].term
        if again.base.index == 9:
            assert configuration == THREE
            assert again.first_index() == 10
            assert entries in ([], run(3, 10, 11))
            assert again.term(9) == 3
            assert again.snapshot() == Snapshot(9, 3, THREE)
        else:
            assert (configuration, entries) == old[1:]
            assert hard.commit == 2, "entries of the old log count as committed"
        assert not (root / "metadata" / "installing").exists()
        seen.add((again.base.index, len(entries)))
    assert seen == {(0, last), (9, 0), (9, 2)}


def test_a_full_disk_in_the_middle_of_installing_commits_nothing_of_the_old_log(tmp_path: Path) -> None:
    root = tmp_path / "d"
    store = persisted(root, [work(*run(2, 1, 12), term=2, vote=4, commit=2)])
    install = [work(term=3, commit=9, snapshot=received(root, 9))]

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raft_store, "write_atomically", full)
        with pytest.raises(OSError, match="no space"):
            store.persist(install)
    shutil.copytree(root, tmp_path / "crashed")
    hard, _, entries = held(opened(tmp_path / "crashed"))
    assert (hard.term, hard.commit, len(entries)) == (3, 2, 12)
    store.persist(install)
    store.note(install)
    assert (store.last_index(), store.term(9)) == (9, 3)
    store.close()
    assert held(opened(root))[0].commit == 9


def test_a_damaged_mark_is_none(tmp_path: Path) -> None:
    path = tmp_path / "installing"
    assert install_mark.marked_position(path) is None
    install_mark.mark(path, LogPosition(45, 3))
    assert install_mark.marked_position(path) == LogPosition(45, 3)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert install_mark.marked_position(path) in {None, LogPosition(45, 3)}, at
    path.write_bytes(b"")
    assert install_mark.marked_position(path) is None
    install_mark.unmark(path)
    assert not path.exists()


def test_a_journal_that_ends_before_its_snapshot_has_lost_its_end(tmp_path: Path) -> None:
    root = tmp_path / "d"
    persisted(root, [work(*run(2, 1, 3), term=2, vote=4)]).close()
    journal = (root / "metadata" / "journal").read_bytes()
    store = persisted(root, [work(*run(2, 4, 9), term=2, vote=4)])
    store.write_snapshot(LogPosition(9, 2), received_state(root), THREE)
    store.close()
    (root / "metadata" / "journal").write_bytes(journal)
    with pytest.raises(RecordError, match="has lost its durable end"):
        opened(root)


def received_state(root: Path) -> MetadataState:
    directory = open_directory(root)
    directory.close()
    return MetadataState(cluster=b"c" * 16, history=directory.identity.history)


def test_compaction_keeps_hard_state_configuration_and_the_trail(tmp_path: Path) -> None:
    root = tmp_path / "d"
    store = persisted(root, [work(*run(2, 1, 9), term=2, vote=4)])
    state = received_state(root)
    store.write_snapshot(LogPosition(7, 2), state, THREE)
    store.note_snapshot(LogPosition(7, 2), THREE, store.compact(5))
    assert store.first_index() == 6
    store.write_snapshot(LogPosition(3, 2), MetadataState(), THREE)  # an older one comes late
    store.close()
    again = opened(root)
    hard, configuration, entries = held(again)
    assert (hard.term, hard.vote, hard.commit) == (2, 4, 7)
    assert configuration == THREE
    assert entries == run(2, 6, 9)
    assert again.base == LogPosition(7, 2)
    assert digest(again.state) == digest(state)
    assert again.unpack_snapshot(again.snapshot_bytes()).configuration == THREE


def test_a_directory_of_the_first_version_is_the_first_node_with_all_committed(tmp_path: Path) -> None:
    root = tmp_path / "d"
    directory = open_directory(root)
    identity = directory.identity
    old = Journal(directory.journal, history=identity.history)
    init = InitCluster(
        cluster=identity.cluster, history=identity.history, node=NodeId(1), store=identity.store
    )
    proposal = Proposal(session=SessionId(0), sequence=0, time_ms=1, command=init)
    old.append([JournalEntry(1, 5, encode_proposal(proposal))])
    old.close()
    directory.close()
    store = opened(root)
    hard, configuration, entries = held(store)
    assert hard == HardState(5, 0, 1)
    assert configuration == FIRST_CONFIGURATION
    assert entries == [Entry(5, 1, EntryType.NORMAL, encode_proposal(proposal))]
    assert store.end_state().nodes[NodeId(1)].store == identity.store


def test_the_state_of_what_is_committed_leaves_out_what_may_not_be(tmp_path: Path) -> None:
    root = tmp_path / "d"
    log: list[Command] = [INIT, register(2), RemoveNode(node=NodeId(2))]
    entries = [
        Entry(1, index, EntryType.NORMAL, encode_proposal(entry(index, command).proposal))
        for index, command in enumerate(log, start=1)
    ]
    persisted(root, [work(*entries, term=1, vote=1, commit=2)]).close()
    store = opened(root)
    assert store.end_state().removed.keys() == {2}
    known = store.end_state(committed=True)
    assert known.nodes.keys() == {1, 2}
    assert not known.removed
    store.persist([work(term=2, vote=1, commit=3)])
    assert store.end_state(committed=True) == store.end_state()


@pytest.mark.parametrize("kind", ["journal", "snapshot"])
def test_directories_that_the_first_version_wrote_open_and_stay_whole(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "d"
    shutil.copytree(Path(__file__).parent / "directories_1" / kind, root)
    before = opened(root)
    state, last = before.end_state(), before.recovered
    before.persist([work(term=last.term + 1, vote=1)])
    before.persist([work(*run(last.term + 1, last.index + 1, last.index + 1), term=last.term + 1, vote=1)])
    before.close()
    after = opened(root)
    assert digest(after.end_state()) == digest(state)
    assert after.recovered == LogPosition(last.index + 1, last.term + 1)
    assert after.journal.format == 2


def test_a_snapshot_damaged_anywhere_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "d"
    snapshot = received(root, 9)
    store = opened(root)
    for position in range(len(snapshot.data)):
        damaged = bytearray(snapshot.data)
        damaged[position] ^= 1
        with pytest.raises(Exception) as caught:
            store.unpack_snapshot(bytes(damaged))
        assert caught.type.__name__ in {"RecordError", "StoreIdentityError"}, position
    assert msgspec.structs.replace(snapshot, data=b"").configuration == THREE
