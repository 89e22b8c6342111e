"""What an owner that is chosen without a majority may lose, as an operator is told before."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.model.ids import Epoch, NodeId, PartitionId, TopicId
from ringfence.control.model.log_end import LogEnd
from ringfence.control.model.reassignments import Change, ChangeId, ChangeKind, Proof
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.reassignment.unclean_election import Candidate, candidates
from tests.fakes.metadata_commands import cluster

STATE = cluster(3)
ONE, TWO, FIVE = (Replica(NodeId(node), STATE.nodes[NodeId(node)].store) for node in (1, 2, 5))
CHANGE = Change(
    change=ChangeId(30),
    kind=ChangeKind.FAILOVER,
    topic=TopicId(20),
    partition=PartitionId(1),
    epoch=Epoch(21),
    owner=ONE,
    replicas=(FIVE, ONE, TWO),
)


def end(records: int, epoch: int = 5) -> LogEnd:
    return LogEnd(Epoch(epoch), records, records * 10, 0)


def told(*proofs: Proof) -> dict[int, Candidate]:
    found = candidates(STATE, CHANGE, proofs)
    assert [one.node for one in found] == [1, 2, 5], "each replica, by its number"
    return {one.node: one for one in found}


def test_a_replica_that_has_not_answered_has_no_end() -> None:
    silent = told()[2]
    assert (silent.end, silent.lost_records) == (None, 0)
    assert "has not answered" in silent.may_lose


def test_of_one_that_answered_alone_rows_of_all_silent_ones_may_be_lost() -> None:
    only = told(Proof(TWO, end(7)))[2]
    assert (only.end, only.lost_records, only.cut) == (end(7), 0, False)
    assert "ends at record 7 of epoch 5" in only.may_lose
    assert "only on nodes 1, 5 are lost" in only.may_lose
    assert "a majority" not in only.may_lose


def test_records_that_another_replica_is_known_to_have_are_counted_within_one_epoch() -> None:
    both = told(Proof(ONE, end(9)), Proof(TWO, end(7)))
    assert (both[1].lost_records, both[2].lost_records) == (0, 2)
    assert "2 of its records are certainly lost" in both[2].may_lose
    assert "certainly lost" not in both[1].may_lose
    diverged = told(Proof(ONE, end(3, epoch=6)), Proof(TWO, end(7)))[2]
    assert diverged.lost_records is None
    assert "some of its records are certainly lost" in diverged.may_lose


def test_a_majority_without_a_cut_log_needs_no_choice() -> None:
    words = "the failover completes by itself"
    assert words in told(Proof(ONE, end(9)), Proof(TWO, end(7)))[1].may_lose
    cut = told(Proof(ONE, end(9)), Proof(TWO, end(7), cut=True))
    assert all(words not in one.may_lose for one in cut.values())
    assert "has lost records at the end" in cut[2].may_lose


def test_proofs_of_stores_that_are_no_replicas_count_for_nothing() -> None:
    stranger = Proof(Replica(NodeId(2), b"x" * 16), end(99))
    assert told(stranger, Proof(TWO, end(7)))[2].lost_records == 0


def test_a_node_that_was_removed_is_gone() -> None:
    nodes = {number: node for number, node in STATE.nodes.items() if number != 5}
    found = candidates(replace(STATE, nodes=nodes), CHANGE, [Proof(FIVE, end(7))])
    assert [one.life for one in found] == ["LIVE", "LIVE", "gone"]
