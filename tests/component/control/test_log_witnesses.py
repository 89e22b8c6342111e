"""A log directory without the last witness is an older copy: its replicas are doubted before all else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.node_commands import RemoveNode, RenewWitness
from ringfence.control.model.results import Refused
from ringfence.control.model.state import MetadataState, canonical_bytes
from ringfence.control.runtime.data_plane import log_witnesses
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.control.store.log_ends import NAME
from ringfence.native import messages
from ringfence.native.wire import Opcode
from tests.fakes.metadata_commands import cluster, entry, restart, store_of
from tests.fakes.native_node import FakeNode
from tests.fakes.node_bench import CREATE, Bench, run, soon

TWO = NodeId(2)


def level_1(nodes: int = 2) -> MetadataState:
    return replace(cluster(nodes), level=1)


def renewal(state: MetadataState, **fields: Any) -> RenewWitness:
    node = state.nodes[TWO]
    whole = {"node": TWO, "store": node.store, "started": node.started, "witness": 7, **fields}
    return RenewWitness(**whole)


def test_a_start_and_a_renewal_say_which_number_the_log_holds() -> None:
    state, _ = apply(level_1(), entry(50, replace(restart(level_1(), TWO), level=1, witness=5)))
    assert state.witnesses == {TWO: 5}
    again, _ = apply(state, entry(51, replace(restart(state, TWO), level=1)))
    assert again.witnesses == {TWO: 5}, "a full disk gave none: the last one stays"
    renewed, _ = apply(state, entry(52, renewal(state)))
    assert renewed.witnesses == {TWO: 7}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"started": Index(1)}, "of start 1"),
        ({"store": store_of(9)}, "was started by"),
        ({"witness": 0}, "1..2^63-1"),
        ({"witness": 1 << 63}, "1..2^63-1"),
        ({"node": NodeId(9)}, "not a member"),
    ],
)
def test_a_late_or_wrong_witness_is_refused(fields: dict[str, Any], words: str) -> None:
    state = level_1()
    same, result = apply(state, entry(50, renewal(state, **fields)))
    assert isinstance(result, Refused)
    assert words in result.message
    assert canonical_bytes(same) == canonical_bytes(state)


def test_nothing_of_it_is_in_the_state_of_an_older_level() -> None:
    state = cluster(2)
    for command in (renewal(state), replace(restart(state, TWO), witness=5)):
        same, result = apply(state, entry(50, command))
        assert isinstance(result, Refused)
        assert "level 0" in result.message
        assert same is state
    assert b"witnesses" not in canonical_bytes(state)


def test_a_removed_node_has_no_witness() -> None:
    state = replace(
        level_1(3), witnesses={TWO: 5, NodeId(1): 6}, ring=replace(level_1(3).ring, members=(NodeId(1),))
    )
    removed, result = apply(state, entry(50, RemoveNode(node=TWO)))
    assert not isinstance(result, Refused), result
    assert removed.witnesses == {NodeId(1): 6}


def names(orders: list[tuple[Any, ...]]) -> list[str]:
    return [order[0] for order in orders]


def test_an_older_log_is_doubted_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[list[int]] = []

    async def create(bench: Bench) -> None:
        starts.append(bench.native.witness)
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)

    def holds(numbers: list[int]) -> Any:
        def prepare(native: FakeNode) -> None:
            native.witness = list(numbers)

        return prepare

    async def known(bench: Bench) -> None:
        starts.append(bench.native.witness)
        assert "doubt" not in names(bench.native.orders)
        assert not bench.node.health.reasons

    async def older(bench: Bench) -> None:
        order = names(bench.native.orders)
        assert order[0] == "doubt"
        assert "open" in order
        topic = next(iter(bench.node.proposer.state.topics.values()))
        expected = [(int(topic.topic), int(part)) for part in sorted(topic.assignments)]
        assert bench.native.orders[0][1] == expected
        assert bench.native.kept[0] == (1, expected), "before anything is opened"
        assert any("older copy: 3 partitions" in reason for reason in bench.node.health.reasons)

    run(tmp_path, monkeypatch, create)
    run(tmp_path, monkeypatch, known, prepare=holds(starts[0]))
    run(tmp_path, monkeypatch, older, prepare=holds(starts[0]))
    assert len(starts[1]) == len(starts[0]) + 1


def test_the_number_is_renewed_while_rows_are_stored_and_the_list_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_witnesses, "RENEW_S", 0.0)
    monkeypatch.setattr(log_witnesses, "CHECK_S", 0.01)

    async def work(bench: Bench) -> None:
        native = bench.native
        first, written = native.witness, {"bytes_written": 0}
        monkeypatch.setattr(native, "counters", lambda: dict(written))
        written["bytes_written"] = 5
        await soon(lambda: native.witness != first)
        here = bench.node.here
        await soon(lambda: bench.node.proposer.state.witnesses[here] == native.witness[-1])
        count = len(native.kept)
        bench.node.parts.data_plane.log_witnesses._doubted = [(1, 2)]  # type: ignore[list-item]
        await soon(lambda: any(not doubted for _, doubted in native.kept[count:]))

    run(tmp_path, monkeypatch, work)


def test_a_log_that_ends_before_what_was_known_of_it_is_doubted_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_witnesses, "CHECK_S", 0.01)
    keys: list[tuple[int, int]] = []

    async def create(bench: Bench) -> None:
        await bench.ok(Opcode.TOPIC_CREATE, CREATE, messages.TopicInfo)
        topic = next(iter(bench.node.proposer.state.topics.values()))
        keys.extend((int(topic.topic), int(part)) for part in sorted(topic.assignments))
        bench.native.ends = b"as far as this"
        await soon((tmp_path / NAME).exists)
        bench.native.ends = b"and at the stop"

    def lacks(native: FakeNode) -> None:
        native.lacks = [keys[1], (99, 99)]

    async def short(bench: Bench) -> None:
        assert bench.native.ends == b"and at the stop", "what was written is told to the engine"
        assert bench.native.orders[0] == ("doubt", [keys[1]]), "what is held here, before all else"
        assert any("older copy: 1 partition" in reason for reason in bench.node.health.reasons)

    run(tmp_path, monkeypatch, create)
    run(tmp_path, monkeypatch, short, prepare=lacks)
