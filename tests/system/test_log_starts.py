"""Rows that were given up stay so, whichever replica becomes the owner."""

from __future__ import annotations

from pathlib import Path

import ringfence
from ringfence.native.messages import TopicInfo
from tests.harness.cluster import ThreeNodes
from tests.harness.processes import SCHEMA, batch, read_ids


def made(three: ThreeNodes, place: int, rows: int) -> TopicInfo:
    with ringfence.connect(three.nodes[place].address, timeout_s=30) as client:
        topic = client.create_topic("t", schema=SCHEMA, key=["id"], partitions=1, replication=3)
        with client.producer("t") as producer:
            producer.send(batch(0, rows))
    return topic


def ids(three: ThreeNodes, place: int) -> list[int]:
    """Ids in the order of offsets, as a reader gets them."""
    with ringfence.connect(three.nodes[place].address, timeout_s=60) as client:
        return [known for rows in read_ids(client, "t").values() for _, known in rows]


def test_a_replica_that_was_down_during_a_truncate_never_shows_the_rows_again(tmp_path: Path) -> None:
    three = ThreeNodes(tmp_path)
    try:
        three.start()
        topic = made(three, 0, 1_000)
        part = topic.partitions[0]
        away = next(place for place in range(3) if three.id(place) != part.owner)
        rest = [place for place in range(3) if place != away]
        three.nodes[away].kill()
        with ringfence.connect(three.nodes[rest[0]].address, timeout_s=60) as client:
            client.truncate("t", before_offset=1_000)
            assert client.count("t") == 0
        # Who was down is among the first two that are there again, so that it may be the owner.
        three.kill_all()
        last = next(place for place in rest if three.id(place) == part.owner)
        back = [place for place in range(3) if place != last]
        three.start_at_once(back)
        with ringfence.connect(three.nodes[away].address, timeout_s=60) as client:
            with client.producer("t") as producer:
                producer.send(batch(5_000, 5))
            ends = client.end_offsets("t")[part.partition]
        assert (ends.start, ends.end, ids(three, away)) == (1_000, 1_005, [*range(5_000, 5_005)])
        three.nodes[last].start()
        three.until_whole()
        three.kill_all()
        three.restart_all()
        assert ids(three, away) == [*range(5_000, 5_005)]
    finally:
        three.kill_all()
