"""B12: a proof that a member was given under one token is refused under another, between real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import ringfence
from ringfence.native import cohort_messages, messages
from ringfence.native.wire import Code, Opcode, Status
from tests.harness.deliveries import KEYS, publish
from tests.harness.processes import SCHEMA
from tests.harness.raw_client import Answer, RawClient
from tests.harness.token_node import TokenNode


@pytest.fixture
def locked(tmp_path: Path) -> TokenNode:
    return TokenNode(tmp_path)


def test_a_proof_holds_for_its_token_only(locked: TokenNode) -> None:
    with locked.node:
        locked.make("root", "admin")
        for name in ("one", "two"):
            locked.make(name, "consumer")
        with locked.connect("root") as client:
            client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=2)
            publish(client, "t", range(5))
        with RawClient(locked.node.address) as one, RawClient(locked.node.address) as two:
            for raw, name in ((one, "one"), (two, "two")):
                token = (locked.files / name).read_text().strip()
                hello = messages.Hello(version_min=1, version_max=1, client="raw", credential=token)
                assert raw.control(Opcode.HELLO, hello).status == Status.READY
            join = cohort_messages.Join(topic="t", cohort="c", mode="stream", member="m", instance=b"i" * 16)
            joined = one.control(Opcode.JOIN, join).read(cohort_messages.Joined)
            assert isinstance(joined.proof, bytes)
            with locked.connect("root") as client:
                topic = client.topic("t").topic

            def attached(raw: RawClient, proof: bytes) -> Answer:
                session, cohort = joined.session, joined.cohort
                return raw.ask(Opcode.ATTACH, proof, producer_id=session, producer_epoch=cohort, topic=topic)

            refused = attached(two, joined.proof)
            assert (refused.status, refused.code) == (Status.REFUSED, Code.UNAUTHORIZED)
            assert attached(two, b"").code == Code.UNAUTHORIZED, "without any proof"
            assert attached(one, joined.proof).status == Status.OK


def test_a_consumer_with_a_token_reads_and_one_without_the_right_does_not(locked: TokenNode) -> None:
    with locked.node:
        for name, role in (("root", "admin"), ("member", "consumer"), ("viewer", "viewer")):
            locked.make(name, role)
        with locked.connect("root") as client:
            client.create_topic("t", schema=SCHEMA, key=["producer"], partitions=2)
            publish(client, "t", range(5))
        with locked.connect("member") as client, client.consumer("t", cohort="c") as consumer:
            rows = 0
            while rows < 5 * KEYS:
                batch = consumer.next(10)
                assert batch is not None
                rows += batch.num_rows
        with (
            locked.connect("viewer") as client,
            client.consumer("t", cohort="c") as consumer,
            pytest.raises(ringfence.UnauthorizedError),
        ):
            consumer.next(10)
