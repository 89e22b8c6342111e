"""Transactions whose partitions are split or merged between staging and commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import ringfence
from ringfence.native import wire
from ringfence.native.wire import Opcode
from ringfence.network import request
from tests.fakes.client_topic import SCHEMA, rows
from tests.fakes.socket_node import Drop, Fault
from tests.fakes.staging_node import StagingNode

KEYS = 16


@contextmanager
def topic(
    partitions: int = 1, key: tuple[str, ...] = ("text",)
) -> Iterator[tuple[StagingNode, ringfence.Client]]:
    with StagingNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=key, partitions=partitions)
        node.topic_of("t").version = 1
        yield node, client
        node.hook = None


def keyed(start: int, count: int) -> pa.RecordBatch:
    ids = list(range(start, start + count))
    return pa.record_batch(
        [pa.array(ids, pa.int64()), pa.array([f"key {one % KEYS}" for one in ids])], schema=SCHEMA
    )


def check(node: StagingNode, count: int) -> None:
    debug(node)
    visible = node.visible("t")
    assert sorted(visible) == list(range(count))
    for key in range(KEYS):
        ids = [one for one in visible if one % KEYS == key]
        assert ids == sorted(ids), f"key {key}: {ids}"


def test_rows_of_a_split_partition_are_staged_again_and_committed() -> None:
    with topic() as (node, client):
        with client.transaction("t", scope="s") as block:
            for number in range(10):
                block.send(keyed(number * 8, 8))
            block.flush()
            node.split("t", parts=3)
        assert block.rows == 80
        check(node, 80)
        first, second = node.commits
        assert second.tokens[:-1] == first.tokens, "tokens are only added"
        assert {partition for _, partition, _ in second.parts} == {log.partition for log in node.active("t")}


def test_a_split_between_the_sends_needs_no_second_staging_of_later_rows() -> None:
    with topic() as (node, client):
        with client.transaction("t", scope="s") as block:
            for number in range(6):
                block.send(keyed(number * 8, 8))
            block.flush()
            node.split("t")
            for number in range(6, 12):
                block.send(keyed(number * 8, 8))
        check(node, 96)
        tokens = node.commits[-1].tokens
        assert len(tokens) == 2
        for log in node.active("t"):
            origins = [one.origin for one in node.staged[log.partition] if one.token == tokens[0]]
            assert set(origins) == {None}, "what was sent after the split is staged once"


def test_order_stays_over_two_splits_and_a_merge_between_stage_and_commit() -> None:
    """Origins are copied: a batch that is staged again twice keeps the place of its first staging."""
    with topic(2) as (node, client):
        begun = client.scopes.begin("s", topic="t")
        attempt = client.scopes.attempt(begun, 1)
        for number in range(6):
            attempt.send("t", keyed(number * 8, 8))
        attempt.flush()
        node.split("t", first=0)
        for number in range(6, 12):
            attempt.send("t", keyed(number * 8, 8))
        staged = attempt.finish()
        commits = itertools.count()

        def hook(header: wire.RequestHeader) -> Fault:
            if header.opcode == Opcode.COMMIT:
                turn = next(commits)
                if turn == 1:
                    node.merge("t", 2)
                if turn == 2:
                    node.split("t", first=0, parts=3)
            return None

        node.hook = hook
        assert client.scopes.commit(begun, 1, [staged])
        check(node, 96)
        assert len(node.commits[-1].tokens) == 4


def test_an_answer_of_a_commit_that_was_lost_is_asked_for_and_not_staged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "TRY_S_MAX", 0.2)
    monkeypatch.setattr(request, "ANSWER_GRACE_S", 0.2)
    with topic() as (node, client):
        block = client.transaction("t", scope="s")
        block.send(keyed(0, 8))
        block.flush()

        def hook(header: wire.RequestHeader) -> Fault:
            if header.opcode == Opcode.COMMIT and not node.commits:
                return Drop(served=True)
            if header.opcode == Opcode.COMMIT and len(node.commits) == 1:
                node.split("t")
            return None

        node.hook = hook
        block.commit()
        assert block.rows == 8
        check(node, 8)
        assert not node.sent(Opcode.STAGED_LIST)
        assert [len(one.tokens) for one in node.commits] == [1, 1]


def test_a_commit_that_did_not_arrive_and_is_then_moved_is_staged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request, "TRY_S_MAX", 0.2)
    monkeypatch.setattr(request, "ANSWER_GRACE_S", 0.2)
    with topic() as (node, client):
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
        check(node, 8)


def test_a_topic_without_key_stages_a_sealed_partition_again_in_one_child() -> None:
    with topic(key=()) as (node, client):
        with client.transaction("t", scope="s") as block:
            for number in range(5):
                block.send(rows(number * 3, 3))
            block.flush()
            node.split("t")
        assert sorted(node.visible("t")) == list(range(15))
        assert len(node.published) == 1


def test_rows_that_cannot_be_staged_again_commit_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.scopes.TIMEOUT_S", 0.5)
    with topic() as (node, client):
        block = client.transaction("t", scope="s")
        block.send(keyed(0, 8))
        block.flush()
        node.split("t")
        node.hook = lambda header: Drop(served=False) if header.opcode == Opcode.STAGED_LIST else None
        with pytest.raises(ringfence.DeadlineError, match="nothing is committed"):
            block.commit()
        assert node.visible("t") == []


def test_a_batch_on_its_way_at_the_seal_is_staged_once() -> None:
    with topic() as (node, client):
        with client.transaction("t", scope="s") as block:
            sources = node.hold("t")
            for number in range(5):
                block.send(keyed(number * 8, 8))
            node.commit("t", sources, 30_000)
        check(node, 40)
        assert [len(one.tokens) for one in node.commits] == [1], "nothing was staged in the sealed partition"


def debug(node: StagingNode) -> None:
    for partition in node.lineage_ids("t"):
        log = node.topic_of("t").logs[partition]
        print(partition, log.lo, log.hi, node.cut(partition).created, node.cut(partition).sealed)
        for one in node.staged.get(partition, []):
            print("   ", one.number, one.token[:2].hex(), one.origin, [i for i in one.ids if i % 16 == 1])
        print("   pub", [i for i in node.published.get(partition, []) if i % 16 == 1])
