"""The log is one log, wherever its parts are: storage, what is being written, what is new."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.control.consensus.errors import CompactedError, LogLostError
from ringfence.control.consensus.invariants import check_node
from ringfence.control.consensus.log import Log
from ringfence.control.consensus.messages import ENTRY_OVERHEAD_BYTES, Entry, Snapshot
from ringfence.control.consensus.options import Options
from ringfence.control.consensus.raft_node import Node
from ringfence.control.consensus.storage import MemoryStorage
from ringfence.control.consensus.trace import silent
from tests.consensus.lab import entries


def log_of(*terms: int, durable: int = 0) -> Log:
    """A log of entries with these terms, the first `durable` of them in storage."""
    storage = MemoryStorage()
    storage.append(entries(1, *terms[:durable]))
    log = Log(storage, silent)
    if terms[durable:]:
        log.append(entries(durable + 1, *terms[durable:]))
    return log


TERMS = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(
    lambda steps: [1 + sum(steps[: at + 1]) for at in range(len(steps))]
)


@given(TERMS, st.integers(0, 12), st.integers(0, 14), st.integers(0, 30), st.integers(0, 12))
def test_the_hint_is_the_one_that_a_scan_from_the_end_gives(
    terms: list[int], durable: int, index: int, term: int, compacted: int
) -> None:
    durable = min(durable, len(terms))
    log = log_of(*terms, durable=durable)
    if 0 < compacted <= durable:
        log.storage.compact(compacted)  # type: ignore[attr-defined]
    expected = (index, 0)
    at = index
    while at > 0:
        own = log.term(at)
        if own is None:
            expected = (at, 0)
            break
        if own <= term:
            expected = (at, own)
            break
        at -= 1
    else:
        expected = (0, 0)
    assert log.last_at_or_below_term(index, term) == expected


@given(TERMS, st.integers(0, 12), st.data())
def test_reading_gives_the_same_wherever_the_durable_part_ends(
    terms: list[int], durable: int, data: st.DataObject
) -> None:
    log = log_of(*terms, durable=min(durable, len(terms)))
    low = data.draw(st.integers(1, len(terms)))
    high = data.draw(st.integers(low, len(terms) + 1))
    assert list(log.entries(low, high)) == list(entries(1, *terms))[low - 1 : high - 1]
    size = ENTRY_OVERHEAD_BYTES + 1
    bytes_max = data.draw(st.integers(0, size * 14))
    got = log.entries(low, high, bytes_max)
    assert len(got) == min(high - low, max(bytes_max // size, 1))
    assert [log.term(at) for at in range(1, len(terms) + 2)] == [*terms, None]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(1, 4)), max_size=25))
def test_the_log_is_what_a_plain_list_would_be(steps: list[tuple[int, int, int]]) -> None:
    """Appends, replacements, writes handed out and confirmed in any order that storage keeps."""
    storage, term = MemoryStorage(), 1
    log = Log(storage, silent)
    model: list[Entry] = []
    writes: list[tuple[list[Entry], int, int]] = []
    for kind, number, count in steps:
        if kind <= 1:
            at = min(len(model), log.commit + number)
            term += kind  # a leader replaces only what another term left
            new = [Entry(term, at + i, data=b"%d" % len(writes)) for i in range(1, count + 1)]
            if kind == 0 and at < len(model):
                continue
            model[at:] = new
            log.append(new)
        elif kind == 2:
            handed = log.unstable.not_handed()
            if handed:
                log.unstable.hand_out()
                writes.append((handed, log.last_index(), log.last_term()))
        elif kind == 3 and writes:
            written, last, last_term = writes.pop(0)
            storage.append(written)
            log.unstable.confirm(last, last_term)
        elif kind == 4:
            log.commit_to(min(len(model), log.commit + number))
        elif kind == 5 and log.unstable.offset > log.commit:
            log.applied_to(log.commit, 0)
        assert list(log.entries(1, log.last_index() + 1)) == model
        assert log.last_index() == len(model)


def test_entries_that_match_are_never_replaced() -> None:
    log = log_of(1, 1, 1, 1, durable=2)
    assert log.maybe_append(1, 1, entries(2, 1, 1), 0) == 3
    assert log.last_index() == 4, "an old append cut off what followed it"
    assert log.maybe_append(1, 1, entries(2, 1, 2), 0) == 3
    assert log.last_index() == 3


def test_a_committed_entry_is_never_replaced() -> None:
    log = log_of(1, 1, durable=2)
    log.commit_to(2)
    with pytest.raises(AssertionError, match="would replace a committed one"):
        log.append(entries(2, 2))


def test_a_commit_index_never_goes_back_and_never_beyond_the_log() -> None:
    log = log_of(1, 1)
    log.commit_to(2)
    log.commit_to(1)
    assert log.commit == 2
    with pytest.raises(LogLostError):
        log.commit_to(3)


def test_compacted_entries_cannot_be_read() -> None:
    log = log_of(1, 1, 1, durable=3)
    log.storage.compact(2)  # type: ignore[attr-defined]
    assert (log.first_index(), log.term(2), log.term(1)) == (3, 1, None)
    with pytest.raises(CompactedError, match="the log begins at 3"):
        log.entries(2, 4)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_tail_that_does_not_follow_what_is_durable_is_found(by: int) -> None:
    storage = MemoryStorage()
    storage.append(entries(1, 1, 1, 1))
    node = Node(Options(id=1), storage, draw=lambda _: 0)
    check_node(node.core)
    unstable = node.core.log.unstable
    unstable.offset = unstable.handed = unstable.offset + by
    with pytest.raises(AssertionError, match="what precedes it ends at 3"):
        check_node(node.core)
    unstable.restore(Snapshot(9, 1))
    check_node(node.core)
    unstable.offset = unstable.handed = unstable.offset + by
    with pytest.raises(AssertionError, match="what precedes it ends at 9"):
        check_node(node.core)
