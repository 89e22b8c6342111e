"""Adoption: what live nodes tell of their clients' tables, and what nobody may take for a yes."""

from __future__ import annotations

import sys

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index, NodeId, TopicId
from ringfence.control.model.layout_changes import Transition
from ringfence.control.model.node_commands import FailNode
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.layout.adoption import AdoptionBoard, NodeAdoption
from tests.fakes.layout_log import LayoutLog


def opened() -> tuple[LayoutLog, Transition, Index]:
    log = LayoutLog(3)
    log.done(log.split(log.active[0]), upto="opened")
    return log, log.transition, log.transition.adoption_generation


def told(log: LayoutLog, index: int, *floors: int | None) -> AdoptionBoard:
    """Each node tells a floor, or None: no client."""
    board = AdoptionBoard()
    for node, floor in zip(log.nodes, floors, strict=False):
        known = {} if floor is None else {log.topic: Index(floor)}
        board.record(node, NodeAdoption(Index(index), known))
    return board


def test_all_clients_of_all_live_nodes_count() -> None:
    log, transition, generation = opened()
    assert told(log, log.at, generation, generation, None).is_adopted(log.state, transition)
    behind = told(log, log.at, generation, generation - 1, None)
    assert not behind.is_adopted(log.state, transition)
    assert behind.waits(log.state, transition) == (log.nodes[1],)


def test_without_any_client_nobody_has_adopted() -> None:
    log, transition, _ = opened()
    assert not told(log, log.at, None, None, None).is_adopted(log.state, transition)


def test_a_live_node_without_a_heartbeat_of_this_term_counts_as_no() -> None:
    log, transition, generation = opened()
    board = told(log, log.at, generation, generation)
    assert board.waits(log.state, transition) == (log.nodes[2],)
    assert not board.is_adopted(log.state, transition)
    changed = log.state.nodes[log.nodes[2]].changed
    log.must(FailNode(node=log.nodes[2], changed=changed))
    assert board.is_adopted(log.state, transition), "clients of a dead node do not count"


def test_a_node_that_has_not_applied_the_commit_knows_nothing_of_it() -> None:
    log, transition, generation = opened()
    assert not told(log, generation - 1, generation, None, None).is_adopted(log.state, transition)
    assert not told(log, generation - 1, None, None, None).is_adopted(log.state, transition)


def test_a_heartbeat_replaces_all_that_its_node_told_before_and_a_late_one_nothing() -> None:
    log, transition, generation = opened()
    board = told(log, log.at, generation, generation - 1, None)
    board.record(log.nodes[1], NodeAdoption(Index(log.at), {}))
    assert board.is_adopted(log.state, transition), "it lost its clients"
    board.record(log.nodes[1], NodeAdoption(Index(log.at - 1), {log.topic: Index(1)}))
    assert board.is_adopted(log.state, transition)
    other = NodeAdoption(Index(log.at), {TopicId(99): Index(1)})
    board.record(NodeId(log.nodes[2]), other)
    assert board.is_adopted(log.state, transition), "another topic"


# ---- planted bugs -------------------------------------------------------------------------------------


class NoBeatCounts(AdoptionBoard):
    """A live node without a heartbeat of this term counts as adopted."""

    def waits(self, state: MetadataState, transition: Transition) -> tuple[NodeId, ...]:
        return tuple(node for node in super().waits(state, transition) if node in self._nodes)


class FloorWithoutIndex(AdoptionBoard):
    """What a node tells counts, whether it has applied the COMMIT or not."""

    def record(self, node: NodeId, adoption: NodeAdoption) -> None:
        super().record(node, adoption._replace(applied=Index(1 << 40)))


class NobodyIsEverybody(AdoptionBoard):
    """Without any client all have adopted."""

    def is_adopted(self, state: MetadataState, transition: Transition) -> bool:
        return not self.waits(state, transition)


class DeadCounts(AdoptionBoard):
    """Clients of a node that failed hold the change."""

    def waits(self, state: MetadataState, transition: Transition) -> tuple[NodeId, ...]:
        nodes = {number: replace(node, life=Life.LIVE) for number, node in state.nodes.items()}
        return super().waits(replace(state, nodes=nodes), transition)


class Grows(AdoptionBoard):
    """A heartbeat adds to what its node told before: a node that lost its clients waits for them for good."""

    def record(self, node: NodeId, adoption: NodeAdoption) -> None:
        known = self._nodes.get(node)
        floors = {**({} if known is None else known.floors), **adoption.floors}
        super().record(node, adoption._replace(floors=floors))


@pytest.mark.parametrize("board", [NoBeatCounts, FloorWithoutIndex, NobodyIsEverybody, DeadCounts, Grows])
def test_one_of_these_scenarios_finds_each_planted_bug(
    board: type[AdoptionBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "AdoptionBoard", board)
    found = 0
    for scenario in (
        test_all_clients_of_all_live_nodes_count,
        test_without_any_client_nobody_has_adopted,
        test_a_live_node_without_a_heartbeat_of_this_term_counts_as_no,
        test_a_node_that_has_not_applied_the_commit_knows_nothing_of_it,
        test_a_heartbeat_replaces_all_that_its_node_told_before_and_a_late_one_nothing,
    ):
        try:
            scenario()
        except AssertionError:
            found += 1
    assert found
