"""F16: owners are killed in turn; the most caught-up follower takes over, and no acknowledged row is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringfence
from tests.harness.cluster import ThreeNodes
from tests.harness.load import Load
from tests.harness.loaded_cluster import grown
from tests.harness.processes import check_identity, read_ids, until

ROUNDS = 3
"""`--soak 7` makes 21 of them."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    cluster = ThreeNodes(tmp_path)
    try:
        yield cluster.start()
    finally:
        cluster.kill_all()


def owner(three: ThreeNodes, asked: int, partition: int) -> int:
    """Place of the partition's owner, as the node at `asked` has it."""
    number, _ = three.placed(asked, "t")[partition]
    return next(place for place in range(3) if three.id(place) == number)


@pytest.mark.timeout(0)
def test_the_follower_with_every_acknowledged_row_takes_over_round_after_round(
    three: ThreeNodes, soak: int
) -> None:
    """F16: a follower is down while rows are acknowledged without it, and back once the owner is dead."""
    topic = three.create(0, "t", partitions=1, replication=3)
    number = topic.partitions[0].partition
    # A routing table names owners alone: who knows one node waits until that one is back.
    addresses = ",".join(node.address for node in three.nodes)
    load = Load(addresses, "t", 0, pause_s=0.002).start()
    until(grown([load], 500), what="rows")
    for round_number in range(ROUNDS * soak):
        old = owner(three, 0, number)
        followers = [place for place in range(3) if place != old]
        behind, level = followers if round_number % 2 else followers[::-1]
        three.nodes[behind].kill()
        until(grown([load], 500), what="rows that one follower lacks")
        began_s = time.monotonic()
        three.nodes[old].kill()
        three.nodes[behind].start()
        until(lambda old=old, level=level: owner(three, level, number) != old, what="another owner")
        assert owner(three, level, number) == level, "an owner that lacks rows"
        until(grown([load], 500), what="rows at the new owner")
        assert load.errors == []
        print(f"round {round_number + 1}: {1e3 * load.pause_s(began_s):.0f} ms without an acknowledgement")
        three.nodes[old].start()
        three.until_whole()
    load.finish()
    assert load.errors == []
    for place in range(3):
        with ringfence.connect(three.nodes[place].address, timeout_s=30) as client:
            check_identity(read_ids(client, "t"), {0: load.acknowledged}, {0: load.sent})
