"""The policy: off by default, strict at its limit, evens loads, empties nobody, and says why."""

from __future__ import annotations

from collections import Counter
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ringfence.control.model.commands import SetConfig
from ringfence.control.model.ids import NodeId, PartitionId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.rebalances import Action, PlannedMove
from ringfence.control.state_machines.metadata.config import LIMITS
from ringfence.control.state_machines.metadata.ring_decisions import RingConsensus
from ringfence.control.state_machines.rebalance.loads import LoadBoard, LoadSource
from ringfence.control.state_machines.rebalance.policy import Memory, decide, evaluate, ratio_of
from tests.fakes.metadata_commands import register, restart
from tests.fakes.metadata_log import MetadataLog
from tests.fakes.rebalance_leader import Leader, started


def even(nodes: int, partitions: int) -> MetadataLog:
    lab = MetadataLog(nodes, partitions=partitions)
    started(lab, Action.BALANCE)
    Leader(lab).until_over()
    return lab


def owned(lab: MetadataLog) -> dict[int, list[PartitionId]]:
    held: dict[int, list[PartitionId]] = {node: [] for node in lab.nodes}
    for partition, assignment in lab.state.topics[lab.topic].assignments.items():
        held[assignment.owner.node].append(partition)
    return held


def test_the_defaults_are_those_of_the_documents() -> None:
    assert {name: limit.default for name, limit in LIMITS.items() if name.startswith("policy")} == {
        "policy_enabled": 0,
        "policy_imbalance_percent": 200,
        "policy_check_interval_s": 60,
        "policy_cooldown_s": 300,
        "policy_grace_s": 120,
        "policy_partition_bytes_s": 1_000,
    }


def test_it_is_off_then_waits_for_grace_interval_and_cool_down() -> None:
    lab = even(2, 8)
    busy, idle = owned(lab)[1], owned(lab)[2]
    loads = {**dict.fromkeys(busy, 30.0), **dict.fromkeys(idle, 1.0)}
    memory = Memory(began_ms=0)
    assert decide(lab.state, loads, 10_000_000, memory) == (None, memory)
    lab.must(SetConfig(values={"policy_enabled": 1}))
    assert decide(lab.state, loads, 119_999, memory) == (None, memory)
    decision, memory = decide(lab.state, loads, 120_000, memory)
    assert decision is not None
    assert decision.start is not None
    assert decide(lab.state, loads, 179_999, memory)[0] is None
    decision, memory = decide(lab.state, loads, 180_000, memory)
    assert decision is not None
    assert (decision.start, decision.why) == (None, "in the cool-down for 240 s more")
    decision, _ = decide(lab.state, loads, 420_000, memory)
    assert decision is not None
    assert decision.start is not None


def test_the_limit_must_be_passed_and_a_minimum_of_nothing_is_defined() -> None:
    lab = even(2, 8)
    busy, idle = owned(lab)[1], owned(lab)[2]
    at = {**dict.fromkeys(busy, 2.0), **dict.fromkeys(idle, 1.0)}
    assert evaluate(lab.state, at).start is None
    assert "is not above 2" in evaluate(lab.state, at).why
    above = {**at, busy[0]: 2.1}
    assert evaluate(lab.state, above).start is not None
    assert evaluate(lab.state, dict.fromkeys(busy, 1.0)).start is not None
    assert evaluate(lab.state, {}).start is None
    assert ratio_of({NodeId(1): 0.0, NodeId(2): 0.0}) == 1
    assert ratio_of({NodeId(1): 0.0, NodeId(2): 5.0}) == inf


def test_a_hot_partition_alone_on_its_node_stays_and_one_node_has_nothing_to_even() -> None:
    lab = even(2, 2)
    hot = owned(lab)[1][0]
    decision = evaluate(lab.state, {hot: 100.0, owned(lab)[2][0]: 1.0})
    assert decision.start is None
    assert "no move balances them" in decision.why
    assert evaluate(MetadataLog(1, partitions=4).state, {}).why.startswith("1 nodes take partitions")


def test_a_replica_takes_over_before_anything_is_copied() -> None:
    lab = MetadataLog(3, partitions=4, replication=3)
    partitions = sorted(lab.state.topics[lab.topic].assignments)
    decision = evaluate(lab.state, dict.fromkeys(partitions, 10.0))
    assert decision.start is not None
    for move in decision.start.moves:
        assert set(move.after) == set(move.before)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1_000), min_size=12, max_size=12), st.integers(2, 4))
def test_every_decision_evens_the_loads_and_leaves_each_node_something(
    values: list[float], nodes: int
) -> None:
    lab = even(nodes, 12)
    partitions = sorted(lab.state.topics[lab.topic].assignments)
    loads = dict(zip(partitions, values, strict=True))
    decision = evaluate(lab.state, loads)
    if decision.start is None:
        return
    held = owned(lab)
    totals = {node: sum(loads[part] for part in parts) for node, parts in held.items()}
    before = max(totals.values()) - min(totals.values())
    for move in decision.start.moves:
        assert isinstance(move, PlannedMove)
        source, target = move.before[0], move.after[0]
        held[source].remove(move.partition)
        held[target].append(move.partition)
        totals[source] -= loads[move.partition]
        totals[target] += loads[move.partition]
    assert all(held.values()), "a healthy node was emptied"
    assert max(totals.values()) - min(totals.values()) < before + 1e-6
    lab.must(decision.start)


def test_what_is_not_named_counts_for_its_node_and_moves_nowhere() -> None:
    lab = even(2, 4)
    one, two = sorted(owned(lab))
    loads = dict.fromkeys(owned(lab)[one], 10.0) | dict.fromkeys(owned(lab)[two], 10.0)
    assert evaluate(lab.state, loads).start is None
    decision = evaluate(lab.state, loads, {NodeId(one): 100.0})
    assert decision.start is not None
    assert {move.before[0] for move in decision.start.moves} == {one}
    assert f"node {one}: 120 B/s" in decision.why


def test_an_idle_cluster_is_judged_by_numbers_of_partitions() -> None:
    lab = MetadataLog(3, partitions=9)
    assert {node: len(parts) for node, parts in owned(lab).items()} == {1: 9, 2: 0, 5: 0}
    assert evaluate(lab.state, {}).start is None, "below the level only loads are judged"
    lab.state = replace(lab.state, level=LAYOUT_LEVEL)
    decision = evaluate(lab.state, {})
    assert decision.start is not None
    moved = Counter(move.after[0] for move in decision.start.moves)
    assert 9 - sum(moved.values()) <= 2 * min(moved[NodeId(2)], moved[NodeId(5)]), moved
    lab.must(SetConfig(values={"policy_partition_bytes_s": 0}))
    assert evaluate(lab.state, {}).start is None


def test_a_join_alone_leads_to_a_run_within_the_grace_period_and_an_interval() -> None:
    lab = even(2, 8)
    lab.state = replace(lab.state, level=LAYOUT_LEVEL)
    lab.must(SetConfig(values={"policy_enabled": 1}))
    loads = {part: 5_000.0 for parts in owned(lab).values() for part in parts}
    memory, joined, start, now_ms = Memory(began_ms=0), NodeId(0), None, 0
    while start is None:
        now_ms += 100
        if now_ms == 200_000:
            lab.must(replace(register(6), level=LAYOUT_LEVEL))
            lab.must(replace(restart(lab.state, lab.at), level=LAYOUT_LEVEL))
            joined = NodeId(lab.at - 1)
            lab.must(RingConsensus.propose_add(lab.state, joined))
        decision, memory = decide(lab.state, loads if now_ms < 200_000 else {}, now_ms, memory)
        start = None if decision is None else decision.start
        assert now_ms <= 260_000, "no run within the interval"
    assert now_ms >= 200_000
    assert {move.after[0] for move in start.moves} == {joined}


def test_loads_outweigh_numbers_where_there_are_loads() -> None:
    lab = even(2, 8)
    lab.state = replace(lab.state, level=LAYOUT_LEVEL)
    one, two = sorted(owned(lab))
    parts = owned(lab)
    # One partition of a node has as much as all of the other: moving some for the numbers would undo that.
    loads = {parts[one][0]: 80_000_000.0} | dict.fromkeys(parts[two], 20_000_000.0)
    assert evaluate(lab.state, loads).start is None


def test_the_source_of_loads_can_be_replaced() -> None:
    class Requests:
        """Judges batches instead of bytes."""

        def by_partition(self, now_ms: int) -> dict[PartitionId, float]:
            return {PartitionId(7): 3.0 + now_ms}

        def unlisted(self, now_ms: int) -> dict[NodeId, float]:
            return {NodeId(1): float(now_ms)}

    source: LoadSource = Requests()
    board: LoadSource = LoadBoard()
    assert (source.by_partition(1), board.by_partition(1)) == ({7: 4.0}, {})
