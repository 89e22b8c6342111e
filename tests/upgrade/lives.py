"""What a cluster of an older program goes through before it is upgraded, and how its rows are told apart.

Nodes have addresses of their own in 127.77.0.0/16, so that a recorded cluster finds its members again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import PROGRAM, SCHEMA, NodeProcess, batch, read_ids

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SMALL: Final = (
    "--segment-bytes",
    "1MiB",
    "--budget-bytes",
    "16MiB",
    "--message-bytes",
    "128KiB",
    "--reserve-bytes",
    "64KiB",
    "--no-direct",
)
"""Files that compress to little; none of it is in the data."""
HOSTS: Final = ("127.77.0.1", "127.77.0.2", "127.77.0.3")
PORT: Final = 27_411
CONTROL: Final = 27_421

LOADER: Final = "läder ñ 東京 🚀"
"""Of other scripts than the code's: its letters are judged when the log is applied."""

Rows = dict[str, dict[int, list[list[int]]]]
"""By topic and partition: (producer, id) of each row in the order of the log."""


def one(root: Path, program: Path = PROGRAM, *options: str) -> NodeProcess:
    """A node alone."""
    return NodeProcess(root / "one", options=(*SMALL, *options), program=program)


def three(root: Path, program: Path = PROGRAM, *, http: Sequence[str] = ()) -> ThreeNodes:
    """Three nodes at addresses that do not change; `http` are those of their admin APIs."""
    cluster = ThreeNodes(root, hosts=HOSTS, options=("--insecure",))
    cluster.controls = [f"tcp://{host}:{CONTROL}" for host in HOSTS]
    for place, node in enumerate(cluster.nodes):
        node.port, node.program = PORT, program
        api = ("--http", http[place]) if http else ()
        node.options = ("--control", cluster.controls[place], *cluster.join(place), *SMALL, *api)
    return cluster


def lived(address: str, replication: int) -> None:
    """Plain, named and transactional writers, a truncated topic, a deleted one."""
    with ringfence.connect(address, timeout_s=60) as client:
        client.create_topic("plain", schema=SCHEMA, key=["id"], partitions=3, replication=replication)
        client.create_topic("named", schema=SCHEMA, key=["id"], partitions=2, replication=replication)
        client.create_topic("gone", schema=SCHEMA, key=["id"], partitions=1, replication=replication)
        with client.producer("plain") as producer:
            for start in range(0, 400, 50):
                producer.send(batch(start, 50, 1)).result(60)
        with client.producer("named", name=LOADER) as producer:
            for number in range(1, 11):
                producer.send(batch(number * 10, 10, 2), note=b"row %d" % number, number=number).result(60)
        with client.transaction("plain", scope="daily", epoch=7) as transaction:
            transaction.send(batch(1_000, 40, 3))
        client.truncate(
            "plain",
            partition=min(part.partition for part in client.topic("plain").partitions),
            before_offset=10,
        )
        client.delete_topic("gone")


def rows(address: str) -> Rows:
    """All rows of all topics."""
    with ringfence.connect(address, timeout_s=60) as client:
        topics = sorted(known.name for known in client.topics())
        return {
            topic.rpartition("/")[2]: {
                part: [list(pair) for pair in got] for part, got in read_ids(client, topic).items()
            }
            for topic in topics
        }


def used(address: str, start: int) -> None:
    """Rows behind those that were there: a named producer goes on, its last send is not stored twice."""
    with ringfence.connect(address, timeout_s=60) as client:
        with client.producer("named", name=LOADER) as producer:
            assert producer.resume, "the resume point is gone"
            last = max(point.send for point in producer.resume.values())
            producer.send(batch(last * 10, 10, 2), number=last).result(60)
            producer.send(batch((last + 1) * 10, 10, 2), note=b"later", number=last + 1).result(60)
        with client.producer("plain") as producer:
            producer.send(batch(start, 50, 4)).result(60)
        with client.transaction("plain", scope="daily", epoch=7) as again:
            again.send(batch(1_000, 40, 3))
        assert again.already, "an epoch that was committed before the upgrade"


def tree(root: Path) -> dict[str, bytes]:
    """Every file of a data directory but logs of events, which are no part of the store."""
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def plainly(told: Rows) -> dict[str, Any]:
    """As JSON has it: partitions as texts."""
    return {topic: {str(part): kept for part, kept in parts.items()} for topic, parts in told.items()}
