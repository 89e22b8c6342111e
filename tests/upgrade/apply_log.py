"""Applies the recorded metadata log; `python -m tests.upgrade.apply_log` prints the hash at its end.

Needs msgspec and the built package on the path: any Python that is supported gives the recorded hash.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from ringfence.control.consensus.messages import Entry, EntryType
from ringfence.control.model.state import EMPTY
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.store import identity, records
from ringfence.control.store.journal import Journal
from ringfence.control.store.raft_store import metadata_entry

DATA: Final = Path(__file__).parent / "data"


def recorded() -> tuple[int, str]:
    """Index and hash that the older program told."""
    told = json.loads((DATA / "rows.json").read_text())["metadata"]
    return int(told["index"]), str(told["hash"])


def applied(index: int) -> str:
    """The hash of the state after the entry at `index`, from the log of the cluster's first node."""
    state = EMPTY
    with tempfile.TemporaryDirectory(prefix="ringfence-log-") as folder:
        with tarfile.open(DATA / "three.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        root = Path(folder) / "a"
        journal = Journal(
            root / "metadata" / "journal", history=identity.read(root / "store.toml").history, read_only=True
        )
        try:
            for payload in journal.entries:
                if payload.index <= index and payload.kind == records.ENTRY and payload.data:
                    entry = Entry(payload.term, payload.index, EntryType.NORMAL, payload.data)
                    state, _ = apply(state, metadata_entry(entry, "the recorded log"))
        finally:
            journal.close()
    return StateDigests().of(state).hex()


if __name__ == "__main__":
    print(applied(recorded()[0]))
