"""Stores of Raft's log in a folder, and a snapshot that another node sent."""

from __future__ import annotations

from pathlib import Path

from ringfence.control.consensus.messages import ConfigurationState, Snapshot
from ringfence.control.model.state import MetadataState
from ringfence.control.store import write_and_read_snapshot as snapshots
from ringfence.control.store.directory import open_directory
from ringfence.control.store.journal import LogPosition
from ringfence.control.store.raft_store import RaftStore

THREE = ConfigurationState(voters=(1, 4, 5), learners=(7,))


def opened(root: Path) -> RaftStore:
    directory = open_directory(root)
    directory.close()  # only the lock; a crash gives it back, too
    return RaftStore(directory)


def received(root: Path, index: int) -> Snapshot:
    """A snapshot that another node of this directory's history made."""
    identity = open_directory(root)
    identity.close()
    state = MetadataState(cluster=b"c" * 16, history=identity.identity.history)
    head, body = snapshots.pack(snapshots.Snapshot(LogPosition(index, 3), state, THREE))
    return Snapshot(index, 3, THREE, head + body)
