"""What owners say before a commit is decided: who is believed, who is asked again, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import Command
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, ScopeId
from ringfence.control.model.scopes import ExpireScope, PendingCommit
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import EXECUTION_TIMEOUT_S
from ringfence.control.runtime.transactions import publish_watch, staged_row_counts
from ringfence.control.runtime.transactions import requests as scope_requests
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.control.runtime.transactions.unpublished import REFUSALS_MIN, UnpublishedEpochs
from ringfence.native.cluster_messages import ScopeCommit
from ringfence.native.wire import Code
from tests.fakes.committing_node import OTHER, TOKEN, TOPIC, CommittingNode

Answer = Callable[[messages.CountStaged], messages.StagedCounts]


def test_what_agrees_is_fixed_at_the_records_that_were_counted() -> None:
    world = CommittingNode()
    world.answers = [world.counted(5)]
    checked = world.checked(world.commit())
    assert [(part.rows, part.upto) for part in checked.parts] == [(5, 90)]
    world.do(checked)
    assert world.state.scopes[world.begun.scope].pending == (PendingCommit(1, (TOKEN,), checked.parts),)


@pytest.mark.parametrize("there", [4, 6, 0])
def test_other_rows_are_refused_with_both_counts_and_the_place(there: int) -> None:
    world = CommittingNode()
    world.answers = [world.counted(there)]
    refusal = world.refused(world.commit())
    assert refusal.code == Code.INVALID_ARGUMENT
    assert refusal.message == (
        f"scope 's' ({world.begun.scope}), epoch 1: 5 rows are committed in partition {world.partition} of "
        f"topic 'public/default/t', {there} are staged there (node 7); nothing was committed: commit exactly "
        "what was staged, or stage it again"
    )


def test_an_owner_that_was_replaced_and_does_not_know_it_refuses_nothing() -> None:
    world = CommittingNode()
    world.newest = [lambda: world.own(NodeId(8), Epoch(world.epoch + 1))]
    world.answers = [world.counted(2), world.counted(5, world.epoch + 1)]
    assert world.checked(world.commit()).parts[0].upto == 90
    assert world.asked == [7, 8]
    # The same node under a newer epoch: what it said before it was opened anew is not believed, either.
    world = CommittingNode()
    world.newest = [lambda: world.own(OTHER, Epoch(world.epoch + 1))]
    world.answers = [world.counted(2), world.counted(5, world.epoch + 1)]
    world.checked(world.commit())


def test_an_owner_that_is_away_is_asked_again_and_then_nothing_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = CommittingNode()
    world.answers = ["nobody answers", messages.StagedCount(why="it is not open here"), world.counted(5)]
    assert world.checked(world.commit()).parts[0].upto == 90
    monkeypatch.setattr(staged_row_counts, "CHECK_S", 0.0)
    world.answers = ["nobody answers"]
    refusal = world.refused(world.commit())
    assert (refusal.code, refusal.retry_after_ms) == (Code.DEADLINE, 200)
    assert "nothing was committed" in refusal.message
    assert "nobody answers" in refusal.message


def test_what_is_decided_already_is_not_counted() -> None:
    world = CommittingNode()
    world.do(world.commit())
    assert world.checked(world.commit(rows=77)) == world.commit(rows=77), "answered by the log"
    assert world.asked == []
    # This node did not know it: the stage is gone with its publish.
    world = CommittingNode()
    world.newest = [lambda: world.do(world.commit())]
    world.answers = [world.counted(0, is_published=True)]
    assert world.checked(world.commit()) == world.commit()


def test_a_node_that_lags_lets_nothing_through_uncounted() -> None:
    world = CommittingNode()
    whole, lags = world.state, replace(world.state, scopes={}, scope_names={})

    def catches_up(state: MetadataState) -> Callable[[], None]:
        return lambda: setattr(world, "state", state)

    world.state, world.newest = lags, [catches_up(whole)]
    world.answers = [world.counted(4)]
    assert world.refused(world.commit()).code == Code.INVALID_ARGUMENT
    assert world.asked == [7]
    world.do(ExpireScope(scope=world.begun.scope, epoch=1))
    assert "expired" in world.refused(world.commit()).message
    assert "exceed the limit of" in world.refused(world.commit(rows=1 << 32, epoch=2)).message
    assert world.asked == [7]


def test_a_part_that_agreed_is_not_asked_for_again() -> None:
    world = CommittingNode(partitions=3)
    first, away, late = (part.partition for part in world.commit().parts)
    told: dict[int, list[int | str]] = {first: [11, "again"], away: ["away", 22], late: ["late", 33]}
    asked: list[tuple[int, ...]] = []

    async def ask(node: NodeId, call: messages.CountStaged, timeout_s: float) -> messages.Reply:
        assert (node, timeout_s) == (OTHER, EXECUTION_TIMEOUT_S)
        asked.append(tuple(partition for _, partition in call.parts))
        counts = []
        for _, partition in call.parts:
            found = told[partition].pop(0)
            if isinstance(found, str):
                counts.append(messages.StagedCount(why=found))
            else:
                counts.append(messages.StagedCount(rows=5, upto=found, epoch=world.epoch))
        return messages.StagedCounts(counts=tuple(counts))

    world.ask = ask  # type: ignore[method-assign]
    assert [part.upto for part in world.checked(world.commit()).parts] == [11, 22, 33]
    assert asked == [(first, away, late), (away, late)]


def test_a_count_of_this_node_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_row_counts, "EXECUTION_TIMEOUT_S", 0.02)
    monkeypatch.setattr(staged_row_counts, "CHECK_S", 0.05)
    world = CommittingNode()
    world.here = OTHER
    given = []

    async def order(give: Callable[[], int]) -> None:
        given.append(give)
        await asyncio.Event().wait()

    driver: Any = SimpleNamespace(node=SimpleNamespace(count_staged=print), order=order)
    others: Any = world
    proposer: Any = world
    world.checks = StagedRowCounts(proposer, driver, others)

    async def refused() -> RequestRefused:
        with pytest.raises(RequestRefused) as caught:
            await asyncio.wait_for(world.checks.verify(world.commit()), 5)
        return caught.value

    refusal = asyncio.run(refused())
    assert refusal.code == Code.DEADLINE
    assert "node 7 (this one) did not answer in 0.02 s" in refusal.message
    assert given
    assert world.checks._order_slots._value == staged_row_counts.ORDERS_MAX, "its place is free again"


class Stuck(CommittingNode):
    """A proposer whose entries are applied at once, and an owner that never publishes."""

    async def propose(self, command: Command) -> SimpleNamespace:
        result = self.do(command)
        self.requests.apply(self.state)
        return SimpleNamespace(result=result)

    requests: scope_requests.TransactionRequests


def test_who_commits_hears_why_an_owner_cannot_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_watch, "CHECK_S", 0.01)
    world = Stuck()
    whole = world.counted(5)
    # It has its rows, and is late; its stage is lost; it is away; published, and not yet confirmed.
    world.answers = [whole, whole, "away", world.counted(0, is_published=True), world.counted(3)]
    request = ScopeCommit(
        scope_id=world.begun.scope,
        driver=world.begun.driver,
        epoch=1,
        tokens=[TOKEN],
        parts=[(TOPIC, world.partition, 5)],
    )

    async def commit() -> None:
        here: Any = SimpleNamespace(node=world.here)
        driver: Any = SimpleNamespace()
        proposer: Any = world
        world.requests = scope_requests.TransactionRequests(
            proposer, driver, here, world.checks, UnpublishedEpochs(Health(), world.here), lambda _: None
        )
        await world.requests.commit(request)

    with pytest.raises(RequestRefused) as caught:
        asyncio.run(commit())
    assert world.answers == []
    assert caught.value.code == Code.UNKNOWN_OUTCOME
    assert "is decided and cannot be published" in caught.value.message
    assert f"partition {world.partition} of topic 'public/default/t', 3 are staged there (node 7)" in str(
        caught.value
    )


def test_status_names_what_stays_unpublished_and_its_owners_reason() -> None:
    health = Health()
    unpublished = UnpublishedEpochs(health, NodeId(7))
    place = (ScopeId(3), 4, TOPIC, PartitionId(5))
    for _ in range(REFUSALS_MIN):
        assert health.reasons == []
        unpublished.refused(place, ("s", "public/default/t"), "11 rows were committed, 10 are staged here")
    [reason] = health.reasons
    for part in (
        "scope 's' (3): epoch 4",
        "partition 5 of topic 'public/default/t'",
        "node 7",
        "10 are staged",
    ):
        assert part in reason
    unpublished.keep_only([])
    assert health.reasons == []
