"""Raising a level through a whole node over a fake native one: alone at its start, else when asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ringfence.control.model.commands import RaiseLevel
from ringfence.control.runtime.handlers.commands import Outcome, at_control_address
from ringfence.control.runtime.node_process import Node
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.rpc import messages
from ringfence.control.store import identity
from ringfence.control.transport.question import ask_address
from ringfence.native.wire import LEVEL_NEWEST, Code
from tests.fakes.node_bench import Bench, control, old_directory, run


def test_a_node_alone_finalizes_at_its_start_and_the_engine_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = old_directory(tmp_path)

    async def first(bench: Bench) -> None:
        assert bench.native.settings["level"] == 0, "nothing is known of a higher one yet"
        assert bench.native.levels == [LEVEL_NEWEST]
        assert bench.node.proposer.state.level == LEVEL_NEWEST
        assert identity.read(path).level == LEVEL_NEWEST

    async def again(bench: Bench) -> None:
        assert bench.native.settings["level"] == LEVEL_NEWEST

    run(tmp_path, monkeypatch, first)
    run(tmp_path, monkeypatch, again)


async def finalize(node: Node) -> Outcome:
    context = at_control_address("cluster finalize", "cluster", "finalize")
    wait = node.handlers.completion.carried_out
    return await node.handlers.commands.submit(node.levels.plan_finalization, context, wait)


def test_a_node_that_others_can_reach_waits_until_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, address = old_directory(tmp_path), control()
    before = path.read_bytes()

    async def work(bench: Bench) -> None:
        node = bench.node
        assert (node.proposer.state.level, bench.native.levels) == (0, [])
        assert path.read_bytes() == before
        told = await node.levels.versions()
        assert (told["level"], told["newest"], told["holds"]) == (0, LEVEL_NEWEST, [])
        outcome = await finalize(node)
        assert not outcome.repeated
        assert node.proposer.state.level == identity.read(path).level == LEVEL_NEWEST
        assert bench.native.levels == [LEVEL_NEWEST]
        assert (await finalize(node)).repeated

    run(tmp_path, monkeypatch, work, control=address)


def test_a_member_that_does_not_answer_is_named_and_no_byte_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, address = old_directory(tmp_path), control()
    before = path.read_bytes()
    join = messages.Join(store=b"s" * 16, control=(control(),), program="p 1")

    async def work(bench: Bench) -> None:
        node = bench.node
        joined = messages.decode_reply(
            await asyncio.to_thread(ask_address, address, messages.encode(join), 10.0)
        )
        assert isinstance(joined, messages.Joined), joined
        with pytest.raises(RequestRefused) as refused:
            await finalize(node)
        assert refused.value.code == Code.UNSUPPORTED_VERSION
        assert f"node {joined.node}: " in refused.value.message
        assert (node.proposer.state.level, path.read_bytes()) == (0, before)

    run(tmp_path, monkeypatch, work, control=address)


def test_a_promise_without_its_entry_raises_nothing_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash between the two: the store refuses older programs, the cluster has its old level."""
    path, address = old_directory(tmp_path), control()
    promise = messages.encode(messages.PromiseLevel(level=LEVEL_NEWEST))
    newer = messages.encode(messages.PromiseLevel(level=LEVEL_NEWEST + 1))

    async def first(bench: Bench) -> None:
        refused = messages.decode_reply(await asyncio.to_thread(ask_address, address, newer, 10.0))
        assert isinstance(refused, messages.Refusal)
        assert isinstance(
            messages.decode_reply(await asyncio.to_thread(ask_address, address, promise, 10.0)), messages.Done
        )
        assert identity.read(path).level == LEVEL_NEWEST
        assert bench.node.proposer.state.level == 0

    async def again(bench: Bench) -> None:
        assert (bench.native.settings["level"], bench.native.levels) == (0, [])
        await bench.node.proposer.propose(RaiseLevel(level=LEVEL_NEWEST, nodes=(bench.node.here,)))
        assert bench.native.levels in ([], [LEVEL_NEWEST])

    run(tmp_path, monkeypatch, first, control=address)
    run(tmp_path, monkeypatch, again, control=address)


def test_a_program_below_the_level_does_not_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = control()
    older = messages.encode(messages.Join(store=b"s" * 16, control=("tcp://127.0.0.1:1",)))

    async def work(_: Bench) -> None:
        refused = messages.decode_reply(await asyncio.to_thread(ask_address, address, older, 10.0))
        assert isinstance(refused, messages.Refusal), refused
        assert refused.code == Code.UNSUPPORTED_VERSION
        assert f"the cluster has level {LEVEL_NEWEST}" in refused.message

    run(tmp_path, monkeypatch, work, control=address)
