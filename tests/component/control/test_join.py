"""Which stores a node lets join by the limits of their bodies, and what of a joining one is known at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ringfence.control.runtime.handlers.member_questions import limits_fault
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native.wire import LEVEL_NEWEST
from tests.fakes.node_bench import Bench, run
from tests.harness.processes import free_port

MIB = 1 << 20


def settings(**values: int) -> Settings:
    return Settings(data_dir=Path("data"), **values)  # type: ignore[arg-type] # sizes may be texts, too


def joining(of: Settings) -> messages.Join:
    return messages.Join(
        store=bytes(16), control=(), body_bytes=of.body_bytes_max, stored_bytes=of.stored_bytes_max
    )


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ({}, {}),
        ({"budget_bytes": 64 * MIB}, {"budget_bytes": 64 * MIB}),
        ({"message_bytes": MIB}, {"message_bytes": MIB, "budget_bytes": 16 * MIB}),
        ({"message_bytes": MIB, "segment_bytes": 4 * MIB}, {"message_bytes": 2 * MIB}),
    ],
)
def test_limits_that_differ_and_fit_each_other_are_no_fault(
    there: dict[str, int], here: dict[str, int]
) -> None:
    assert limits_fault(joining(settings(**here)), settings(**there), 1) == ""


@pytest.mark.parametrize("small", [{"budget_bytes": 16 * MIB}, {"segment_bytes": MIB}])
def test_who_has_no_room_for_what_the_other_takes_is_refused_whichever_joins(small: dict[str, int]) -> None:
    little = settings(**small)
    fault = limits_fault(joining(little), settings(), 7)
    assert f"node 7 accepts bodies of up to {64 * MIB} bytes" in fault
    assert f"room for {little.stored_bytes_max}" in fault
    assert f"budget_bytes={512 * MIB}" in fault, "the way out"
    fault = limits_fault(joining(settings()), little, 7)
    assert f"node 7 has room for {little.stored_bytes_max}" in fault
    assert f"message_bytes={little.body_bytes_max}" in fault, "the way out"
    assert limits_fault(joining(settings(message_bytes=MIB // 2)), little, 7) == ""


def test_a_program_that_does_not_tell_its_limits_joins_as_before() -> None:
    assert limits_fault(messages.Join(store=bytes(16), control=()), settings(), 1) == ""


@pytest.mark.parametrize(("given", "known"), [(300, 300), (0, 100)])
def test_the_weight_of_a_node_is_known_with_its_join(
    given: int, known: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions may be placed as soon as it is live."""
    control = f"tcp://127.0.0.1:{free_port()}"
    call = messages.encode(
        messages.Join(store=b"s" * 16, control=("tcp://127.0.0.1:1",), weight=given, level=LEVEL_NEWEST)
    )

    async def work(bench: Bench) -> None:
        joined = messages.decode_reply(await asyncio.to_thread(ask_address, control, call, 10.0))
        assert isinstance(joined, messages.Joined), joined
        nodes = bench.node.proposer.state.nodes
        assert {int(number): node.weight for number, node in nodes.items()} == {1: 700, joined.node: known}

    run(tmp_path, monkeypatch, work, control=control, weight=700)
