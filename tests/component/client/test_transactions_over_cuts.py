"""Transactions whose partitions are split or merged between staging and commit."""

from __future__ import annotations

import pytest

import ringfence
from ringfence.native import wire
from ringfence.native.wire import Opcode
from ringfence.network import request
from tests.fakes.client_topic import rows
from tests.fakes.socket_node import Drop, Fault
from tests.fakes.staged_topic import (
    check_visible,
    commit_over_cuts,
    commit_with_a_lost_answer,
    keyed,
    staged_topic,
)


def test_rows_of_a_split_partition_are_staged_again_and_committed() -> None:
    with staged_topic() as (node, client):
        with client.transaction("t", scope="s") as block:
            for number in range(10):
                block.send(keyed(number * 8, 8))
            block.flush()
            node.split("t", parts=3)
        assert block.rows == 80
        check_visible(node, 80)
        first, second = node.commits
        assert second.tokens[:-1] == first.tokens, "tokens are only added"
        assert {partition for _, partition, _ in second.parts} == {log.partition for log in node.active("t")}


def test_a_split_between_the_sends_needs_no_second_staging_of_later_rows() -> None:
    with staged_topic() as (node, client):
        with client.transaction("t", scope="s") as block:
            for number in range(6):
                block.send(keyed(number * 8, 8))
            block.flush()
            node.split("t")
            for number in range(6, 12):
                block.send(keyed(number * 8, 8))
        check_visible(node, 96)
        tokens = node.commits[-1].tokens
        assert len(tokens) == 2
        for log in node.active("t"):
            origins = [one.origin for one in node.staged[log.partition] if one.token == tokens[0]]
            assert set(origins) == {None}, "what was sent after the split is staged once"


@pytest.mark.parametrize("fetches", [0, 1])
def test_an_owner_that_does_not_know_yet_that_it_is_sealed_is_asked_again(fetches: int) -> None:
    """The node that refuses the commit may have heard of the layout change some ms before the owner."""
    with staged_topic() as (node, client):
        with client.transaction("t", scope="s") as block:
            block.send(keyed(0, 8))
            block.flush()
            node.split("t")

            def hook(header: wire.RequestHeader) -> Fault:
                if header.opcode == (Opcode.FETCH if fetches else Opcode.STAGED_LIST) and not asked:
                    asked.append(header.opcode)
                    node.unsealed_answers = 3
                return None

            asked: list[int] = []
            node.hook = hook
        assert asked, "nothing was staged again"
        check_visible(node, 8)
        last = node.commits[-1].tokens[-1]
        again = [one for log in node.active("t") for one in node.staged[log.partition] if one.token == last]
        version = node.topic_of("t").version
        assert [one.origin for one in again] == [(version, 1)] * len(again) != [], "where it was sealed"


def test_order_stays_over_two_splits_and_a_merge_between_stage_and_commit() -> None:
    """Origins are copied: a batch that is staged again twice keeps the place of its first staging."""
    commit_over_cuts()


def soon(patch: pytest.MonkeyPatch) -> None:
    """An answer that does not come is given up within half a second."""
    patch.setattr(request, "TRY_S_MAX", 0.2)
    patch.setattr(request, "ANSWER_GRACE_S", 0.2)


def test_an_answer_of_a_commit_that_was_lost_is_asked_for_and_not_staged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch)
    commit_with_a_lost_answer()


def test_a_commit_that_did_not_arrive_and_is_then_moved_is_staged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch)
    with staged_topic() as (node, client):
        block = client.transaction("t", scope="s")
        block.send(keyed(0, 8))
        block.flush()
        lost: list[int] = []

        def hook(header: wire.RequestHeader) -> Fault:
            if header.opcode == Opcode.COMMIT and not lost:
                lost.append(1)
                node.split("t")
                return Drop(served=False)
            return None

        node.hook = hook
        block.commit()
        check_visible(node, 8)


def test_a_topic_without_key_stages_a_sealed_partition_again_in_one_child() -> None:
    with staged_topic(key=()) as (node, client):
        with client.transaction("t", scope="s") as block:
            for number in range(5):
                block.send(rows(number * 3, 3))
            block.flush()
            node.split("t")
        assert sorted(node.visible("t")) == list(range(15))
        assert len(node.published) == 1


def test_rows_that_cannot_be_staged_again_commit_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.scopes.TIMEOUT_S", 0.5)
    with staged_topic() as (node, client):
        block = client.transaction("t", scope="s")
        block.send(keyed(0, 8))
        block.flush()
        node.split("t")
        node.hook = lambda header: Drop(served=False) if header.opcode == Opcode.STAGED_LIST else None
        with pytest.raises(ringfence.DeadlineError, match="nothing is committed"):
            block.commit()
        assert node.visible("t") == []


def test_a_batch_on_its_way_at_the_seal_is_staged_once() -> None:
    with staged_topic() as (node, client):
        with client.transaction("t", scope="s") as block:
            sources = node.hold("t")
            for number in range(5):
                block.send(keyed(number * 8, 8))
            node.commit("t", sources, 30_000)
        check_visible(node, 40)
        assert [len(one.tokens) for one in node.commits] == [1], "nothing was staged in the sealed partition"


def test_a_commit_of_rows_that_were_staged_again_is_repeated_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The decided commit has one more token than the rows of the block; a repeat must name it as well."""
    soon(monkeypatch)
    with staged_topic() as (node, client):
        monkeypatch.setattr(client, "_timeout_s", 2.0)
        block = client.transaction("t", scope="s")
        block.send(keyed(0, 8))
        block.flush()
        node.split("t")
        node.hook = lambda header: (
            Drop(served=True) if header.opcode == Opcode.COMMIT and node.sent(Opcode.STAGED_LIST) else None
        )
        with pytest.raises(ringfence.UnknownOutcomeError):
            block.commit()
        check_visible(node, 8)
        node.hook = None
        block.commit()
        assert block.rows == 8, "T4: told that nothing is stored, and it is decided"
        check_visible(node, 8)


def test_attempts_of_a_moved_commit_are_known_as_committed_by_another_call_of_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch)
    with staged_topic() as (node, client):
        begun = client.scopes.begin("s", topic="t")
        attempt = client.scopes.attempt(begun, 1)
        attempt.send("t", keyed(0, 8))
        staged = attempt.finish()
        node.split("t")
        node.hook = lambda header: (
            Drop(served=True) if header.opcode == Opcode.COMMIT and node.sent(Opcode.STAGED_LIST) else None
        )
        monkeypatch.setattr(client, "_timeout_s", 2.0)
        with pytest.raises(ringfence.UnknownOutcomeError):
            client.scopes.commit(begun, 1, [staged])
        node.hook = None
        assert client.scopes.commit(begun, 1, [staged])


def test_a_process_that_did_not_stage_the_rows_again_cannot_tell_whose_commit_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    soon(monkeypatch)
    with staged_topic() as (node, client):
        begun = client.scopes.begin("s", topic="t")
        attempt = client.scopes.attempt(begun, 1)
        attempt.send("t", keyed(0, 8))
        staged = attempt.finish()
        node.split("t")
        assert client.scopes.commit(begun, 1, [staged])
        with ringfence.connect(node.address, timeout_s=10) as other:
            with pytest.raises(ringfence.UnknownOutcomeError, match="split or merged"):
                other.scopes.commit(begun, 1, [staged])
            assert other.scopes.commit_told(begun, 1, [staged]) is None
        check_visible(node, 8)


def test_rows_that_a_sealed_partition_has_lost_are_not_committed_without_them() -> None:
    """An owner was chosen by force before the split: an ACTIVE partition would refuse the commit, too."""
    with staged_topic() as (node, client):
        block = client.transaction("t", scope="s")
        block.send(keyed(0, 8))
        block.flush()
        block.send(keyed(8, 8))
        block.flush()
        (log,) = node.active("t")
        node.staged[log.partition].pop()
        node.split("t")
        with pytest.raises(ringfence.InvalidArgumentError, match="8 are staged"):
            block.commit()
        assert node.visible("t") == []


def test_an_owner_that_has_not_applied_the_layout_change_is_asked_again() -> None:
    """The node that refuses the commit may be ahead of the owner, which tells no version of the seal then."""
    with staged_topic() as (node, client):
        with client.transaction("t", scope="s") as block:
            block.send(keyed(0, 8))
            block.flush()
            (log,) = node.active("t")
            node.split("t")
            node.behind[log.partition] = 3
        assert node.behind[log.partition] == 0
        check_visible(node, 8)
        assert all(one.origin is None or one.origin[0] > 0 for own in node.staged.values() for one in own)
