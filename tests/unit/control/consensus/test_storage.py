"""The storage in memory, and cuts of a list of entries by size."""

from __future__ import annotations

import pytest

from ringfence.control.consensus.errors import ConsensusError
from ringfence.control.consensus.messages import ENTRY_OVERHEAD_BYTES, Snapshot
from ringfence.control.consensus.options import UNLIMITED
from ringfence.control.consensus.storage import MemoryStorage, cut
from tests.consensus.lab import entries


def test_storage_takes_no_snapshot_that_is_not_newer_and_compacts_once() -> None:
    storage = MemoryStorage()
    storage.append(entries(1, 1, 1))
    storage.install(Snapshot(5, 2))
    assert (storage.first_index(), storage.last_index(), storage.term(5)) == (6, 5, 2)
    with pytest.raises(ConsensusError, match="older"):
        storage.install(Snapshot(5, 2))
    with pytest.raises(ConsensusError, match="compaction"):
        storage.compact(5)
    storage.append(entries(4, 2, 2, 2))
    assert (storage.last_index(), storage.term(6)) == (6, 2)


def test_a_cut_gives_at_least_one_entry_and_never_more_than_fit() -> None:
    three = entries(1, 1, 1, 1)
    size = ENTRY_OVERHEAD_BYTES + 1
    assert [len(cut(three, 0, 3, n)) for n in (0, size, 2 * size - 1, 2 * size, UNLIMITED)] == [1, 1, 1, 2, 3]
    assert list(cut(three, 1, 1, 0)) == []
