"""Nodes whose states differ at an index are found, whoever is ahead."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.state import EMPTY
from ringfence.control.state_machines.membership.agreement import EVERY, KEPT_MAX, Agreement, Divergence
from ringfence.control.state_machines.metadata.state_hash import StateDigests
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.metadata_commands import INIT, create, entry

TWO, THREE = NodeId(2), NodeId(3)


def test_equal_hashes_at_equal_indexes_are_agreement() -> None:
    agreement = Agreement()
    agreement.add_own(Index(10), b"a")
    assert agreement.add_other(TWO, Index(10), b"a") is None
    assert agreement.add_other(TWO, Index(9), b"x") is None, "this node has no hash of the index"


def test_another_hash_is_found_also_of_a_node_that_is_ahead() -> None:
    agreement = Agreement()
    agreement.add_own(Index(10), b"a")
    assert agreement.add_other(TWO, Index(10), b"b") == Divergence(TWO, Index(10), b"a", b"b")
    assert agreement.add_other(TWO, Index(12), b"c") is None
    assert agreement.add_other(THREE, Index(12), b"d") is None
    assert agreement.add_own(Index(11), b"x") == ()
    assert agreement.add_own(Index(12), b"c") == (Divergence(THREE, Index(12), b"c", b"d"),)
    assert agreement.add_own(Index(13), b"y") == ()


def test_a_node_has_one_hash_an_index_and_keeps_a_limited_number() -> None:
    agreement = Agreement()
    for index in range(1, KEPT_MAX + 2):
        agreement.add_own(Index(index), b"a")
    assert agreement.add_other(TWO, Index(1), b"b") is None
    assert agreement.add_other(TWO, Index(2), b"b") is not None
    with pytest.raises(AssertionError, match="two hashes of one state"):
        agreement.add_own(Index(2), b"b")
    assert [index for index in range(1, 3 * EVERY) if Agreement.is_due(Index(index))] == [EVERY, 2 * EVERY]


def test_a_node_that_applied_one_entry_otherwise_is_found() -> None:
    """The planted defect: a replica that took another name for the same topic."""
    right, _ = apply(EMPTY, entry(1, INIT))
    right, _ = apply(right, entry(2, create()))
    (topic,) = right.topics.values()
    wrong = replace(right, topics={topic.topic: replace(topic, name="public/default/b")})
    agreement = Agreement()
    agreement.add_own(Index(2), StateDigests().of(right))
    assert agreement.add_other(TWO, Index(2), StateDigests().of(right)) is None
    assert agreement.add_other(TWO, Index(2), StateDigests().of(wrong)) is not None
