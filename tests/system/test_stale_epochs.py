"""Z9: no write and no change of the ring passes with an epoch or a version that is not the newest one.

PUBLISH is tried in `test_bad_input.py`; here STAGE, FENCE and REPLICATE at every replica, and commands about
the ring. Each loop ends with the same message under the right epoch, which passes: so the epoch was refused.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

import ringfence
from ringfence.control.consensus import codec
from ringfence.control.consensus.messages import Entry, Message, MessageType
from ringfence.control.model.commands import Command
from ringfence.control.model.entries import Proposal, encode_proposal
from ringfence.control.model.ids import Epoch, NodeId, PartitionId, SessionId, TopicId
from ringfence.control.model.node_commands import AddToRing, FormRing, RemoveFromRing
from ringfence.control.model.reassignment_commands import PrepareChange
from ringfence.control.transport import envelope
from ringfence.control.transport.envelope import Envelope, Kind
from ringfence.native import wire
from tests.harness.admin_cluster import AdminCluster
from tests.harness.admin_http import ask
from tests.harness.load import Load
from tests.harness.loaded_cluster import grown
from tests.harness.processes import SCHEMA, batch, check_identity, cli, read_ids, until
from tests.harness.raw_client import Answer, RawClient, RawTopic

Code, Op, Status = wire.Code, wire.Opcode, wire.Status


@pytest.fixture(scope="module")
def desk(module_folder: Path) -> Iterator[AdminCluster]:
    made = AdminCluster(module_folder)
    try:
        made.three.start()
        yield made
    finally:
        made.three.kill_all()


def staged(scope: int, driver: int) -> bytes:
    """The extension of a STAGE, in front of its body."""
    identity = struct.pack("<QQQII", scope, driver, 1, 0, 0) + bytes(range(16))
    item = struct.pack("<HHI", wire.ExtensionKind.STAGE, 0, len(identity)) + identity
    return item + bytes(-len(item) % wire.BODY_ALIGN_BYTES)


def test_a_stage_is_taken_under_the_open_epoch_alone(desk: AdminCluster) -> None:
    """Z9: STAGE with stale, zero and future epochs."""
    with ringfence.connect(desk.three.nodes[0].address, timeout_s=30) as client:
        topic = client.create_topic("staged", schema=SCHEMA, key=["id"], partitions=1, replication=3)
        begun = client.scopes.begin("night", topic="staged")
        [part] = topic.partitions
        owner = next(place for place in range(3) if desk.three.id(place) == part.owner)
        extension = staged(begun.scope, begun.driver)
        body = extension + batch(0, 3).serialize().to_pybytes()
        with RawClient(desk.three.nodes[owner].address) as raw:
            place = RawTopic.existing(raw, topic.topic, "staged").place()

            def stage(epoch: int) -> Answer:
                fields = {**place, "owner_epoch": epoch, "deadline_ms": 300}
                return raw.ask(Op.STAGE, body, sequence=0, rows=3, extension_bytes=len(extension), **fields)

            open_epoch = place["owner_epoch"]
            for stale in (0, 1, open_epoch - 1):
                answer = stage(stale)
                assert answer.status == Status.REDIRECT, (stale, answer)
                assert answer.reason == wire.RedirectReason.STALE_EPOCH, answer
            for future in (open_epoch + 1, 2**64 - 1):
                assert stage(future).code == Code.AHEAD
            assert stage(open_epoch).status == Status.STAGED
        assert [row for part in client.read("staged") for row in part["id"].to_pylist()] == []


def test_a_fence_and_records_of_another_epoch_reach_no_replica(desk: AdminCluster) -> None:
    """Z9: FENCE and REPLICATE with stale, zero and future epochs at the owner and at both followers."""
    three = desk.three
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        topic = client.create_topic("followed", schema=SCHEMA, key=["id"], partitions=1, replication=3)
    [part] = topic.partitions
    owner = next(place for place in range(3) if three.id(place) == part.owner)
    load = Load(three.nodes[owner].address, "followed", 0).start()
    until(lambda: load.errors or len(load.acknowledged) > 500, what="rows on all replicas")
    open_epoch = part.epoch
    for place in (owner, *(other for other in range(3) if other != owner)):
        with RawClient(three.nodes[place].address) as stranger:

            def sent(
                opcode: wire.Opcode, epoch: int, sequence: int, stranger: RawClient = stranger
            ) -> Answer:
                return stranger.ask(
                    opcode, topic=topic.topic, partition=part.partition, owner_epoch=epoch, sequence=sequence
                )

            for opcode in (Op.FENCE, Op.REPLICATE):
                for stale in (0, 1, open_epoch - 1):
                    for sequence in (0, 1):
                        assert sent(opcode, stale, sequence).code == Code.HELD, (place, opcode, stale)
                for future in (open_epoch + 1, 2**64 - 1):
                    assert sent(opcode, future, 0).code == Code.AHEAD, (place, opcode, future)
            # An owner opens its session so. Its own epoch is not one that it follows.
            right = sent(Op.FENCE, open_epoch, 0)
            assert right.status == (Status.REFUSED if place == owner else Status.OK), right
    until(grown([load], 500), what="rows after them")
    load.finish()
    assert load.errors == []
    for place in range(3):
        with ringfence.connect(three.nodes[place].address, timeout_s=30) as client:
            check_identity(read_ids(client, "followed"), {0: load.acknowledged}, {0: load.sent})
            assert client.topic("followed").partitions[0].epoch == open_epoch, "nobody took over"

    def is_sound() -> bool:
        return cli("fsck", "--cluster", "--control", three.controls[0]).returncode == 0

    until(is_sound, what="equal replicas")


class Proposer:
    """Sends commands to the leader as another node forwards them: unchecked, into the log."""

    def __init__(self, desk: AdminCluster) -> None:
        self.desk = desk
        self.cluster = bytes.fromhex(desk.three.nodes[0].ready["cluster"])

    def commit(self, command: Command) -> None:
        """Returns once the entry is applied, the metadata tells whether the command was refused."""
        three = self.desk.three
        leader = three.leader()
        before = three.listed(leader)["index"]
        proposal = Proposal(SessionId(0), secrets.randbits(62), time.time_ns() // 1_000_000, command)
        message = Message(
            type=MessageType.PROPOSE, to=three.id(leader), entries=(Entry(data=encode_proposal(proposal)),)
        )
        forwarded = Envelope(
            envelope.VERSION, Kind.RAFT, self.cluster, 0, three.id(leader), "", 0, codec.encode(message)
        )
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 5_000)
            socket.connect(three.controls[leader])
            socket.send(envelope.encode(forwarded))
        until(lambda: three.listed(leader)["index"] > before, what="the entry of the command")
        three.until_equal()


def test_a_ring_changes_by_a_command_of_its_present_version_alone(desk: AdminCluster) -> None:
    """Z9: commands that stand in the log with stale, zero and future versions of the ring change nothing."""
    proposer, three = Proposer(desk), desk.three
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        for topic in client.topics():
            client.delete_topic(topic.name)
    # No leader adds the node again by itself.
    desk.configure(ring_joins=0)

    def ring() -> dict[str, Any]:
        rings = [desk.ring(place) for place in range(3)]
        assert rings[0] == rings[1] == rings[2]
        return dict(rings[0])

    def with_version(version: int, node: NodeId) -> list[Command]:
        return [RemoveFromRing(node=node, version=version), AddToRing(node=node, version=version)]

    node = NodeId(next(three.id(place) for place in range(3) if place != three.leader()))
    before = ring()
    version = before["version"]
    for wrong in (0, version - 1, version + 1, 2**63 - 1):
        for command in with_version(wrong, node):
            proposer.commit(command)
            assert ring() == before, command
    proposer.commit(FormRing(nodes=(node,)))
    assert ring() == before, "a ring is formed once"
    remove, add = with_version(version, node)
    proposer.commit(remove)
    without = ring()
    assert (without["version"], node in without["members"]) == (version + 1, False), without
    for command in (remove, add):
        proposer.commit(command)
        assert ring() == without, "the version before is stale now"
    assert ask(desk.doors[0], "POST", f"/admin/nodes/{node}/undrain").status == 200
    proposer.commit(AddToRing(node=node, version=version + 1))
    assert ring()["members"] == before["members"]
    desk.configure(ring_joins=1)


def test_a_change_begins_under_the_epoch_of_its_partition_alone(desk: AdminCluster) -> None:
    """Z9: PREPARE with stale, zero and future epochs stands in the log and begins nothing."""
    proposer, three = Proposer(desk), desk.three
    partition, _, target = desk.create("prepared", 100)
    shown = ask(desk.doors[0], "GET", f"/admin/partitions/{partition}").body

    def prepare(epoch: int) -> PrepareChange:
        goal = NodeId(three.id(target))
        return PrepareChange(
            topic=TopicId(shown["topic"]),
            partition=PartitionId(partition),
            epoch=Epoch(epoch),
            owner=goal,
            replicas=(goal,),
        )

    for wrong in (0, 1, shown["epoch"] - 1, shown["epoch"] + 1, 2**63 - 1):
        proposer.commit(prepare(wrong))
        assert ask(desk.doors[0], "GET", f"/admin/partitions/{partition}").body == shown, wrong
    proposer.commit(prepare(shown["epoch"]))
    until(lambda: desk.owner("prepared") == three.id(target), what="the change under the right epoch")
