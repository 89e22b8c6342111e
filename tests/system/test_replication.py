"""Three real processes, one topic on all of them: what is acknowledged is on two disks, whoever dies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.control.runtime.rpc import messages
from ringfence.control.transport.question import ask_address
from ringfence.native import _node
from ringfence.native.errors import DeadlineError, RingfenceError
from tests.harness.cluster import ThreeNodes
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, batch, check_identity, read_ids, until

ROWS = 500


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path)
    try:
        yield cluster.start()
    finally:
        for place in range(3):
            if cluster.alive(place):
                cluster.nodes[place].kill()


@pytest.mark.timeout(300)
def test_a_node_whose_disk_fails_ends_and_its_partitions_go_on_elsewhere(three: ThreeNodes) -> None:
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        client.create_topic("t", schema=SCHEMA, key=["id"], partitions=6, replication=3)
    failing = next(place for place in range(3) if place != three.leader())
    node, sound = three.nodes[failing], three.nodes[failing].options
    node.stop()
    node.options = (*sound, "--faults", "fail_sync=60")
    node.start()
    assert node.process is not None
    load = Load(three.nodes[three.leader()].address, "t", 0).start()
    until(lambda: node.process.poll() is not None, 60, "it ends, for it can store nothing more")
    assert node.process.returncode == Exit.NODE_FAILED, node.log.read_text()[-2000:]
    seen = len(load.acknowledged)
    until(lambda: len(load.acknowledged) > seen + 1_000, 60, "rows are acknowledged without it")
    node.options = sound
    node.kill()  # it is gone; its output is closed
    node.start()
    three.until_whole()
    load.finish()
    assert load.errors == []
    with ringfence.connect(node.address, timeout_s=30) as client:
        check_identity(read_ids(client, "t"), {0: load.acknowledged}, {0: load.sent})


class Story:
    """One producer of one topic with one partition; it knows what was acknowledged."""

    def __init__(self, cluster: ThreeNodes) -> None:
        self.cluster = cluster
        with ringfence.connect(cluster.nodes[0].address, timeout_s=30) as client:
            info = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1, replication=3)
        assert info.replication == 3
        owner = info.partitions[0].owner
        self.owner = next(place for place in range(3) if cluster.id(place) == owner)
        self.others = [place for place in range(3) if place != self.owner]
        self.acknowledged: list[int] = []
        self.next = 0

    def client(self, timeout_s: float) -> ringfence.Client:
        return ringfence.connect(self.cluster.nodes[self.owner].address, timeout_s=timeout_s)

    def send(self, producer: ringfence.Producer, timeout_s: float = 30) -> None:
        """A batch, acknowledged; raises what the client raises."""
        start, self.next = self.next, self.next + ROWS
        producer.send(batch(start, ROWS)).result(timeout_s)
        self.acknowledged += range(start, start + ROWS)

    def publish(self, timeout_s: float = 30) -> None:
        """A batch of a producer of its own."""
        with self.client(timeout_s) as client, client.producer("t", timeout_s=timeout_s) as producer:
            self.send(producer, timeout_s)

    def check(self) -> None:
        with self.client(30) as client:
            rows = read_ids(client, "t")
        check_identity(rows, {0: self.acknowledged}, {0: self.next})

    def level(self) -> bool:
        """All replicas take the owner's records."""
        try:
            self.publish(timeout_s=5)
        except RingfenceError:
            return False
        return True

    def ends(self) -> list[int]:
        """Where the rows end that each node knows to be on two disks."""
        found = []
        for control in self.cluster.controls:
            reply = messages.decode_reply(
                ask_address(control, messages.encode(messages.ListHosted(topic=0)), 2.0)
            )
            assert isinstance(reply, messages.Counters)
            found += [known["end_offset"] for known in reply.values]
        return found

    def logs(self) -> list[dict[str, Any]]:
        """Of the stopped nodes: where each one's copy ends, and its chain."""
        found = []
        for node in self.cluster.nodes:
            node.stop()
            parts = _node.fsck(str(node.data / "log"))["partitions"]
            found += [{name: part[name] for name in ("records", "end_offset", "chain")} for part in parts]
        return found


def level(story: Story, producer: ringfence.Producer) -> bool:
    try:
        story.send(producer)
    except RingfenceError:
        return False
    return True


def test_what_no_other_replica_has_is_neither_acknowledged_nor_read(three: ThreeNodes) -> None:
    """F17: both followers stand still while a batch is appended; readers of old ends wait, too."""
    story = Story(three)
    got: list[int] = []

    def follow() -> None:
        with story.client(60) as client:
            for part in client.read("t", follow=True):
                got.extend(part["id"].to_pylist())
                if len(got) >= 2 * ROWS:
                    return

    reading = threading.Thread(target=follow, daemon=True)
    with story.client(60) as client, client.producer("t", timeout_s=60) as producer:
        story.send(producer)
        reading.start()
        until(lambda: len(got) == ROWS, what="the reader has what is on two disks")
        for place in story.others:
            three.nodes[place].freeze()
        try:
            sending = producer.send(batch(story.next, ROWS))
            with pytest.raises(ringfence.WaitTimeoutError):
                sending.result(1.5)
            assert len(got) == ROWS, "a reader has rows that may be lost"
        finally:
            for place in story.others:
                three.nodes[place].wake()
        sending.result(60)
        story.acknowledged += range(story.next, story.next + ROWS)
        story.next += ROWS
    reading.join(60)
    assert got == list(range(2 * ROWS))
    story.check()


def test_it_goes_on_without_one_replica_refuses_without_two_and_catches_up(three: ThreeNodes) -> None:
    story = Story(three)
    first, second = story.others
    # Its id is drawn while there is a majority to draw from.
    with story.client(30) as client:
        producer = client.producer("t", timeout_s=4)
        until(lambda: level(story, producer), what="publishing")
        three.nodes[first].kill()
        story.send(producer)
        story.send(producer)
        three.nodes[second].kill()
        with pytest.raises(DeadlineError, match="nothing was stored"):
            story.send(producer)
        with contextlib.suppress(RingfenceError):
            producer.close()
    three.nodes[first].start()
    three.nodes[second].start()
    until(story.level, what="publishing with all three")
    story.check()
    three.nodes[story.owner].kill()
    three.nodes[story.owner].start()
    until(story.level, what="publishing after the owner's restart")
    story.check()
    three.kill_all()
    three.restart_all()
    until(story.level, what="publishing after a restart of all")
    story.check()
    until(lambda: len(set(story.ends())) == 1 and len(story.ends()) == 3, what="equal ends")
    logs = story.logs()
    assert len(logs) == 3
    assert logs[0] == logs[1] == logs[2]
