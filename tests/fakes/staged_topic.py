"""A topic on a `StagingNode`, rows with keys, and transactions that meet layout changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

import ringfence
from ringfence.native import wire
from ringfence.native.wire import Opcode
from tests.fakes.client_topic import SCHEMA
from tests.fakes.socket_node import Drop, Fault
from tests.fakes.staging_node import StagingNode

KEYS = 16


@contextmanager
def staged_topic(
    partitions: int = 1, key: tuple[str, ...] = ("text",)
) -> Iterator[tuple[StagingNode, ringfence.Client]]:
    with StagingNode() as node, ringfence.connect(node.address, timeout_s=10) as client:
        client.create_topic("t", schema=SCHEMA, key=key, partitions=partitions)
        node.topic_of("t").version = 1
        yield node, client
        node.hook = None


def keyed(start: int, count: int) -> pa.RecordBatch:
    """Ids that ascend, each with one of KEYS keys."""
    ids = list(range(start, start + count))
    texts = [f"key {one % KEYS}" for one in ids]
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(texts)], schema=SCHEMA)


def check_visible(node: StagingNode, count: int) -> None:
    """T1, T2: each row once, those of a key in the order of the sends."""
    visible = node.visible("t")
    assert sorted(visible) == list(range(count)), "T1"
    for key in range(KEYS):
        ids = [one for one in visible if one % KEYS == key]
        assert ids == sorted(ids), f"T2: key {key}: {ids}"


def commit_over_cuts() -> None:
    """Two splits and a merge, the last two while the commit is under way."""
    with staged_topic(2) as (node, client):
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
            turn = next(commits) if header.opcode == Opcode.COMMIT else 0
            if turn == 1:
                node.merge("t", 2)
            if turn == 2:
                node.split("t", first=0, parts=3)
            return None

        node.hook = hook
        assert client.scopes.commit(begun, 1, [staged])
        check_visible(node, 96)
        last = node.commits[-1].tokens
        assert len(last) == 4
        assert last[0] == staged.token, "T5: the token of a claim is left out"


def commit_with_a_lost_answer() -> None:
    """The first commit is decided, its answer is lost, and then its partition is split."""
    with staged_topic() as (node, client):
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
        check_visible(node, 8)
        assert block.rows == 8, "T4: told that nothing is stored, and it is decided"
        assert not node.sent(Opcode.STAGED_LIST)
        assert [len(one.tokens) for one in node.commits] == [1, 1]
