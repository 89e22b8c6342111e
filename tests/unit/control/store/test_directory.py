"""Data directories: made once, never overwritten, recovered whole."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import RestartNode
from ringfence.control.model.conversions import CONVERSIONS
from ringfence.control.model.entries import encode_proposal
from ringfence.control.model.ids import Index, NodeId, TopicId
from ringfence.control.model.nodes import Life, Ring
from ringfence.control.model.rebalances import Action
from ringfence.control.model.results import ScopeBegun
from ringfence.control.model.scopes import BeginScope, CommitScope
from ringfence.control.model.state import (
    EMPTY,
    STATE_FORMAT,
    MetadataState,
    canonical_bytes,
    decode_state,
    digest,
    sorted_maps,
)
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.state_machines.rebalance.plans import ChosenMove, preview
from ringfence.control.store import identity
from ringfence.control.store import write_and_read_snapshot as snapshots
from ringfence.control.store.directory import DataDirectory, open_directory, open_or_join
from ringfence.control.store.journal import Journal, JournalEntry, LogPosition
from ringfence.control.store.raft_store import FIRST_CONFIGURATION, RaftStore
from ringfence.control.store.write_and_read_snapshot import Snapshot
from ringfence.native.errors import (
    NewerFormatError,
    RecordError,
    StorageError,
    StoreIdentityError,
    StoreLockedError,
)
from tests.fakes.metadata_commands import INIT, NODE, STORE, create, entry
from tests.fakes.metadata_log import MetadataLog

GOLDEN = Path(__file__).parent / "snapshot_format_7.bin"
GOLDEN_6 = Path(__file__).parent / "snapshot_format_6.bin"
GOLDEN_5 = Path(__file__).parent / "snapshot_format_5.bin"
GOLDEN_4 = Path(__file__).parent / "snapshot_format_4.bin"
GOLDEN_3 = Path(__file__).parent / "snapshot_format_3.bin"
GOLDEN_2 = Path(__file__).parent / "snapshot_format_2.bin"
DIRECTORIES_1 = Path(__file__).parent / "directories_1"
GOLDEN_1 = Path(__file__).parent / "snapshot_format_1.bin"
GOLDEN_DIGEST = "9897ced1c37056bbb16a2fa64ac200ce"

HOLDER = """
import pathlib, sys
from ringfence.control.store.directory import open_directory
directory = open_directory(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def filled(directory: DataDirectory, last: int) -> MetadataState:
    """A store with topics created by entries 2..last, as a node alone once wrote them; the state."""
    store = RaftStore(directory)
    state, recovered = store.end_state(), store.recovered
    store.close()
    journal = Journal(directory.journal, history=directory.identity.history)
    for index in range(recovered.index + 1, last + 1):
        first = msgspec.structs.replace(INIT, history=directory.identity.history)
        new = entry(index, first if index == 1 else create(f"public/default/t{index}"), time_ms=index)
        journal.append([JournalEntry(new.index, new.term, encode_proposal(new.proposal))])
        state, _ = apply(state, new)
    journal.close()
    return state


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_an_empty_directory_becomes_a_store_and_keeps_its_identity(tmp_path: Path) -> None:
    first = open_directory(tmp_path / "a")
    assert first.is_new
    made = first.identity
    first.close()
    second = open_directory(tmp_path / "a")
    assert not second.is_new
    assert second.identity == made
    second.close()
    assert len({made.cluster, made.history, made.store}) == 3


def test_nobody_but_the_nodes_user_reads_the_metadata(tmp_path: Path) -> None:
    """Hashes of tokens stand in it, and what the node shows to others. Older programs wrote 640."""
    umask = os.umask(0)
    try:
        root = tmp_path / "data"
        open_directory(root).close()
        assert modes(root) == {}
        for path in (root / "store.toml", root / "lock", root / "metadata" / "journal"):
            path.chmod(0o640)
        (root / "metadata").chmod(0o755)
        open_directory(root).close()
        assert modes(root) == {}, "a directory of an older program is made private by the next start"
    finally:
        os.umask(umask)


def modes(root: Path) -> dict[str, str]:
    """Of what group or others may use."""
    found = {path: path.stat().st_mode for path in (root, *root.rglob("*"))}
    return {str(path): oct(mode) for path, mode in found.items() if mode & 0o077}


def test_a_second_process_is_refused_and_told_the_pid(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(StoreLockedError, match=f"process {holder.pid} uses"):
        open_directory(tmp_path)
    holder.kill()
    holder.communicate()
    open_directory(tmp_path).close()


def test_a_directory_with_strangers_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for opens in (open_directory, open_or_join):
        with pytest.raises(StorageError, match=r"thesis\.txt"):
            opens(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_rows_without_metadata_end_the_start(tmp_path: Path) -> None:
    """I16: a lost journal must not become an empty one."""
    directory = open_directory(tmp_path)
    filled(directory, 3)
    directory.log.mkdir()
    (directory.log / "segment").write_bytes(b"rows")
    directory.close()
    directory.journal.unlink()
    before = tree(tmp_path)
    with pytest.raises(StorageError, match="is missing"):
        open_directory(tmp_path)
    assert tree(tmp_path) == before


def test_a_first_start_that_crashed_after_the_identity_goes_on(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    made = directory.identity
    directory.close()
    directory.journal.unlink()
    again = open_directory(tmp_path)
    assert again.identity == made
    assert RaftStore(again).end_state() == EMPTY
    again.close()


@pytest.mark.parametrize(
    "text", ["", "format = 1\n", "no toml at all [", 'format = 1\ncluster = "zz"\nnode = 1\n']
)
def test_a_damaged_identity_ends_the_start(tmp_path: Path, text: str) -> None:
    open_directory(tmp_path).close()
    (tmp_path / "store.toml").write_text(text)
    with pytest.raises(StorageError):
        open_directory(tmp_path)
    assert (tmp_path / "store.toml").read_text() == text


def test_a_newer_identity_is_refused_untouched(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    newer = (tmp_path / "store.toml").read_text().replace("format = 2", "format = 3")
    (tmp_path / "store.toml").write_text(newer)
    before = tree(tmp_path)
    with pytest.raises(NewerFormatError):
        identity.read(tmp_path / "store.toml")
    with pytest.raises(NewerFormatError):
        open_directory(tmp_path)
    assert tree(tmp_path) == before


def test_the_state_is_the_same_after_reopening_with_and_without_a_snapshot(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    state = filled(directory, 6)
    store = RaftStore(directory)
    assert digest(store.end_state()) == digest(state)
    store.write_snapshot(LogPosition(6, 1), store.end_state(), FIRST_CONFIGURATION)
    store.compact(6)
    assert store.journal.entries == []
    store.close()
    after = filled(directory, 9)
    last = RaftStore(directory)
    assert last.recovered == LogPosition(9, 1)
    assert digest(last.end_state()) == digest(after)
    last.close()
    directory.close()


def test_a_crash_between_snapshot_and_journal_is_harmless(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    state = filled(directory, 6)
    snapshots.write(directory.snapshot, Snapshot(LogPosition(6, 1), state))
    (directory.journal.parent / "journal.new").write_bytes(b"half written")
    directory.close()
    again = open_directory(tmp_path)
    store = RaftStore(again)
    assert digest(store.end_state()) == digest(state)
    assert not (again.journal.parent / "journal.new").exists()
    store.close()
    again.close()


def test_a_journal_that_lost_its_end_or_its_middle_ends_the_start(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    state = filled(directory, 6)
    old = directory.journal.read_bytes()
    store = RaftStore(directory)
    store.write_snapshot(LogPosition(6, 1), state, FIRST_CONFIGURATION)
    store.compact(6)
    store.close()
    compacted = directory.journal.read_bytes()
    short = RaftStore(directory)
    short.close()
    snapshots.write(directory.snapshot, Snapshot(LogPosition(8, 1), state))
    with pytest.raises(RecordError, match="has lost its durable end"):
        RaftStore(directory)
    directory.snapshot.unlink()
    with pytest.raises(RecordError, match="entries between are missing"):
        RaftStore(directory)
    assert directory.journal.read_bytes() == compacted != old
    directory.close()


def test_a_snapshot_damaged_at_any_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    state, _ = apply(EMPTY, entry(1, INIT))
    snapshots.write(path, Snapshot(LogPosition(1, 1), state))
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x01
        path.write_bytes(damaged)
        with pytest.raises(StorageError):
            snapshots.read(path, history=INIT.history)
        assert path.read_bytes() == damaged


def test_newer_snapshots_are_refused_and_older_states_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "snapshot"
    state, _ = apply(EMPTY, entry(1, INIT))
    monkeypatch.setattr(snapshots, "format_of", lambda _: STATE_FORMAT + 1)
    snapshots.write(path, Snapshot(LogPosition(1, 1), state))
    monkeypatch.undo()
    newer = path.read_bytes()
    with pytest.raises(NewerFormatError, match=rf"1\.{STATE_FORMAT + 1}"):
        snapshots.read(path, history=INIT.history)
    assert path.read_bytes() == newer

    snapshots.write(path, Snapshot(LogPosition(1, 1), state))
    monkeypatch.setattr(snapshots, "STATE_FORMAT", STATE_FORMAT + 1)
    monkeypatch.setitem(CONVERSIONS, STATE_FORMAT, lambda data: data.replace(b"h" * 16, b"H" * 16))
    read = snapshots.read(path, history=INIT.history)
    assert read.state.history == b"H" * 16
    monkeypatch.undo()
    with pytest.raises(StoreIdentityError):
        snapshots.read(path, history=b"x" * 16)


def first_entries() -> MetadataState:
    """What the golden snapshots were made of."""
    state = EMPTY
    for index in range(1, 4):
        state, _ = apply(state, entry(index, INIT if index == 1 else create(f"public/default/t{index}")))
    return state


@pytest.mark.parametrize("golden", [GOLDEN_1, GOLDEN_2, GOLDEN_3, GOLDEN_4, GOLDEN_5, GOLDEN_6, GOLDEN])
def test_a_snapshot_of_any_format_opens_for_ever_and_equals_its_log(golden: Path) -> None:
    read = snapshots.read(golden, history=INIT.history)
    assert read.position == LogPosition(3, 1)
    assert digest(read.state) == GOLDEN_DIGEST == digest(first_entries())
    assert read.state == first_entries()
    assert read.state.topics[TopicId(2)].name == "public/default/t2"
    assert read.state.ring == Ring(version=1, members=(NodeId(1),), changed=Index(1))


def test_the_golden_snapshot_is_what_this_program_writes(tmp_path: Path) -> None:
    snapshots.write(tmp_path / "s", Snapshot(LogPosition(3, 1), first_entries()))
    assert (tmp_path / "s").read_bytes() == GOLDEN.read_bytes()


ADDED = (
    "ring",
    "removed",
    "requests",
    "tokens",
    "changes",
    "leftovers",
    "rebalance",
    "moves",
    "runs",
    "kept",
    "scopes",
    "scope_names",
    "scopes_gone",
)


def converted(data: bytes) -> bytes:
    """A state of format 1 through all conversions."""
    for number in sorted(CONVERSIONS):
        data = CONVERSIONS[number](data)
    return data


def test_a_node_of_format_1_that_was_restarted_equals_its_log(tmp_path: Path) -> None:
    """As the program of format 1 wrote it: without the fields that format 2 added."""
    restart = RestartNode(node=NODE, store=STORE, addresses=("tcp://h:1",), program="p")
    state, _ = apply(first_entries(), entry(9, restart))
    plain = msgspec.msgpack.decode(canonical_bytes(state))
    for field in ADDED:
        del plain[field]
    for field in ("control", "http", "zone", "weight", "labels", "life", "draining", "vote", "changed"):
        del plain["nodes"][1][field]
    assert converted(msgspec.msgpack.encode(sorted_maps(plain))) == canonical_bytes(state)
    nothing = msgspec.msgpack.decode(canonical_bytes(EMPTY))
    for field in ADDED:
        del nothing[field]
    assert converted(msgspec.msgpack.encode(nothing)) == canonical_bytes(EMPTY)


def test_what_was_under_way_in_format_4_goes_on() -> None:
    """As the program of format 4 wrote it: without the fields that format 5 added."""
    lab = MetadataLog(3, partitions=2, hold_s=300)
    chosen = [ChosenMove(lab.partition, (NodeId(2),))]
    lab.must(preview(lab.state, Action.MOVE, chosen=chosen).command)
    lab.must(replace(lab.prepare(2), run=lab.state.rebalance.run))
    state = replace(lab.state, changes={lab.partition: replace(lab.change, before=())})
    plain = msgspec.msgpack.decode(canonical_bytes(state))
    del plain["kept"], plain["rebalance"]["gaps"], plain["scopes"], plain["scope_names"], plain["scopes_gone"]
    del plain["changes"][lab.partition]["before"], plain["changes"][lab.partition]["stopped_us"]
    del plain["moves"][lab.partition]["gap_us"]
    plain["runs"] = [plain["rebalance"]]
    data = msgspec.msgpack.encode(sorted_maps(plain))
    for number in range(4, STATE_FORMAT):
        data = CONVERSIONS[number](data)
    assert decode_state(data) == replace(state, runs=(state.rebalance,))


def test_scopes_of_format_6_equal_their_log() -> None:
    """As the program of format 6 wrote it: no commit of its log says that it is to be kept."""
    state, begun = first_entries(), None
    for index, name in enumerate(("begun", "committed"), 4):
        state, begun = apply(state, entry(index, BeginScope(name=name)))
    assert isinstance(begun, ScopeBegun)
    commit = CommitScope(scope=begun.scope, driver=begun.driver, epoch=8, tokens=(), parts=())
    state, _ = apply(state, entry(6, commit))
    plain = msgspec.msgpack.decode(canonical_bytes(state))
    for scope in plain["scopes"].values():
        del scope["kept"], scope["unkept"]
    assert CONVERSIONS[6](msgspec.msgpack.encode(sorted_maps(plain))) == canonical_bytes(state)


@pytest.mark.parametrize("kind", ["journal", "snapshot"])
def test_a_data_directory_of_the_first_version_opens_as_a_cluster_of_one(kind: str, tmp_path: Path) -> None:
    """Written by the program before there were clusters: init, restart, two topics, one of them deleted."""
    root = tmp_path / kind
    shutil.copytree(DIRECTORIES_1 / kind, root)
    directory = open_directory(root)
    store = RaftStore(directory)
    state = store.end_state()
    invariants.check(state, store.recovered.index)
    assert store.recovered == LogPosition(7, 1)
    assert state.ring == Ring(version=1, members=(NODE,), changed=Index(1))
    node = state.nodes[NODE]
    assert (node.life, node.started, node.changed, node.store) == (Life.LIVE, 2, 2, directory.identity.store)
    assert [topic.name for topic in state.topics.values()] == ["public/default/a"]
    assert list(state.tombstones) == [4]
    restarted = RestartNode(node=NODE, store=node.store, addresses=("tcp://h:2",), program="new")
    later = [entry(8, restarted), entry(9, create("public/default/c"))]
    store.journal.append([JournalEntry(new.index, 1, encode_proposal(new.proposal)) for new in later])
    store.close()
    again = RaftStore(directory)
    state = again.end_state()
    assert {assignment.epoch for assignment in state.topics[TopicId(3)].assignments.values()} == {8}
    assert state.names["public/default/c"] == 9
    again.close()
    directory.close()


def test_a_link_into_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(tmp_path / "disk" / "data")
    with pytest.raises(StorageError, match=r"links to .*disk/data, which does not exist; mount it"):
        open_directory(tmp_path / "data")
    (tmp_path / "disk" / "data").mkdir(parents=True)
    open_directory(tmp_path / "data").close()
    assert (tmp_path / "disk" / "data" / "store.toml").exists()


def test_an_identity_whose_folder_was_not_synced_is_made_durable_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    sync, synced = os.fsync, set[int]()

    def fails(to: int) -> None:
        if stat.S_ISDIR(os.fstat(to).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        sync(to)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(StorageError, match="Input/output error"):
            open_directory(root)
    assert (root / "store.toml").exists()

    def noted(to: int) -> None:
        sync(to)
        synced.add(os.fstat(to).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    open_directory(root).close()
    assert root.stat().st_ino in synced


def test_a_full_disk_keeps_nobody_from_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_directory(tmp_path).close()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        held = open_directory(tmp_path)
    with pytest.raises(StoreLockedError, match="another process"):
        open_directory(tmp_path)
    held.close()
