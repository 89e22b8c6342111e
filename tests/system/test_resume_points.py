"""A named producer resumes at its last stored batch, also at an owner whose log was truncated meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ringfence
from ringfence.arrow.encode import note_extension
from ringfence.native import messages, wire
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, batch, read_ids, until
from tests.harness.raw_client import RawClient, RawTopic


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path)
    try:
        yield cluster.start()
    finally:
        for place in range(3):
            if cluster.alive(place):
                cluster.nodes[place].wake()
        cluster.kill_all()


class Named:
    """Producer P of a topic with one partition, at the owner's data socket."""

    def __init__(self, client: RawClient, topic: int) -> None:
        self.client = client
        self.raw = RawTopic.existing(client, topic, "t")
        opened = client.control(wire.Opcode.PRODUCER_OPEN, messages.ProducerOpen(topic="t", name="P"))
        self.opened = opened.read(messages.ProducerOpened)

    def send(self, row: int) -> None:
        note = note_extension(f"row {row}".encode())
        body = note + batch(row, 1).serialize().to_pybytes()
        fields = self.raw.fields(
            1,
            row - 1,
            producer_id=self.opened.producer_id,
            producer_epoch=self.opened.producer_epoch,
            send=row,
            extension_bytes=len(note),
        )
        self.client.send(wire.Opcode.PUBLISH, body, **fields)

    def stored(self) -> int | None:
        """Greatest `send` that a quorum has; None where no quorum confirms the owner.

        The owner takes requests in their order.
        """
        place = self.raw.place()
        self.client.send(
            wire.Opcode.RESOLVE,
            topic=place["topic"],
            partition=place["partition"],
            producer_id=self.opened.producer_id,
        )
        while True:
            answer = self.client.receive()
            assert answer is not None
            if answer.header.opcode == wire.Opcode.RESOLVE:
                if answer.status == wire.Status.OK:
                    return int(answer.header.send)
                assert answer.header.code == wire.Code.TOO_FEW_REPLICAS, answer
                return None


def owner(three: ThreeNodes, place: int) -> int:
    [(node, _)] = three.placed(place, "t").values()
    return next(place for place in range(3) if three.id(place) == node)


@pytest.mark.timeout(300)
def test_a_batch_that_no_quorum_had_is_no_resume_point(three: ThreeNodes) -> None:
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        topic = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1, replication=3).topic
    first = owner(three, 0)
    others = [place for place in range(3) if place != first]
    with RawClient(three.nodes[first].address) as client_of_p:
        named = Named(client_of_p, topic)
        for row in range(1, 11):
            named.send(row)
        until(lambda: named.stored() == 10, what="ten rows on a quorum")
        # Killed, not frozen: what waits in the sockets of a frozen follower is stored when it goes on.
        for place in others:
            three.nodes[place].kill()
        named.send(11)
        assert named.stored() is None, "row 11 is on the owner's disk alone"
        three.nodes[first].freeze()
    three.start_at_once(others)
    until(lambda: owner(three, others[0]) != first, 60, "another owner")
    three.nodes[first].wake()
    three.until_whole()
    until(lambda: owner(three, first) != first, 60, "the first owner hears of it")
    # The third node misses a row, so that the first one has more than it has when the owner dies.
    present = owner(three, first)
    [third] = [place for place in others if place != present]
    three.nodes[third].kill()
    node = ringfence.connect(three.nodes[present].address, timeout_s=60)
    with node as client, client.producer("t") as producer:
        producer.send(batch(100, 1)).result(60)
    three.nodes[present].kill()
    three.nodes[third].start()
    until(lambda: owner(three, first) == first, 60, "the first owner again")
    three.nodes[present].start()
    three.until_whole()
    with ringfence.connect(three.nodes[first].address, timeout_s=60) as client:
        with client.producer("t", name="P") as producer:
            [point] = producer.resume.values()
            assert (point.send, point.note) == (10, b"row 10")
            producer.send(batch(11, 1), number=11, note=b"row 11").result(60)
        rows = read_ids(client, "t")
    assert [row for _, row in rows[point.partition]] == [*range(1, 11), 100, 11]
