"""Three nodes on hosts of their own: stopped, cut off, out of space, restarted; nothing acknowledged is lost.

One cluster serves the whole file: every test leaves it whole again, and says so by the next one's start.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import ringfence
from ringfence.control.cli.exit_codes import Exit
from ringfence.native import messages
from ringfence.native.wire import Status
from tests.harness.isolated_cluster import IsolatedCluster, copied, epochs, isolated_cluster, owned_by, says
from tests.harness.load import Load
from tests.harness.processes import SCHEMA, batch, check_identity, read_ids, until
from tests.harness.raw_client import Answer, RawClient, RawTopic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STOP_S = 4.0
"""A stop of a node: longer than an election and than `failure_ms`; ten seconds with --soak."""
FULL = "no space for the metadata journal"


@pytest.fixture(scope="module")
def started(module_folder: Path) -> Iterator[IsolatedCluster]:
    with isolated_cluster(module_folder) as world:
        yield world


@pytest.fixture
def world(started: IsolatedCluster) -> IsolatedCluster:
    started.three.until_whole()
    return started


@pytest.mark.timeout(120)
def test_a_stopped_leader_is_replaced_fails_and_lives_again_through_the_log(
    world: IsolatedCluster, soak: int
) -> None:
    three = world.three
    leader = three.leader()
    rest = world.others(leader)
    before = epochs(world, "t", rest[0])
    term = three.listed(rest[0])["term"]
    three.nodes[leader].freeze()
    try:
        time.sleep(STOP_S if soak == 1 else 10.0)
        until(lambda: three.led_by_one_of(rest), what="a leader among the others")
        until(lambda: three.life(leader, seen_by=rest[0]) == "FAILED", what="the stopped node has failed")
        three.create(rest[1], "while-stopped", partitions=2)
    finally:
        three.nodes[leader].wake()
    until(lambda: three.life(leader, seen_by=leader) == "LIVE", what="it lives again, and knows it")
    assert three.listed(leader)["term"] > term
    three.until_equal()
    # Failing and living again moved nothing and opened nothing (J11): epochs are drawn by entries.
    assert epochs(world, "t", leader) == before


@pytest.mark.timeout(120)
def test_a_leader_that_is_cut_off_leads_no_more_and_its_rows_go_on(world: IsolatedCluster) -> None:
    three = world.three
    leader = three.leader()
    rest = world.others(leader)
    mine = owned_by(world, "t", leader)
    assert mine
    with ringfence.connect(three.nodes[leader].address, timeout_s=30) as client:
        producer = client.producer("t")
        producer.send(batch(0, 600)).result(30)
        world.network.cut(leader, rest)
        try:
            until(lambda: three.led_by_one_of(rest), what="a leader among the others")
            until(lambda: three.listed(leader)["leader"] == 0, what="the old leader knows of nobody")
            # Its data plane needs no leader, and clients reach it (F25).
            producer.send(batch(600, 600)).result(30)
            with (
                ringfence.connect(three.nodes[leader].address, timeout_s=2) as other,
                pytest.raises(ringfence.RingfenceError),
            ):
                other.create_topic("in-the-minority", schema=SCHEMA, key=["id"])
            three.create(rest[0], "in-the-majority", partitions=2)
        finally:
            world.network.heal()
        producer.send(batch(1_200, 600)).result(30)
        producer.close()
    until(lambda: three.led_by_one_of([0, 1, 2]), what="one leader of all")
    three.until_equal()
    assert "public/default/in-the-majority" in three.topics(leader)


@pytest.mark.timeout(120)
def test_without_any_leader_every_partition_takes_and_gives_rows(world: IsolatedCluster) -> None:
    three = world.three
    three.create(0, "headless", partitions=6)
    with ringfence.connect(three.nodes[1].address, timeout_s=30) as client:
        producer = client.producer("headless")
        producer.send(batch(0, 600)).result(30)
        for place in range(3):
            world.network.cut(place, world.others(place))
        try:
            until(lambda: all(three.listed(place)["leader"] == 0 for place in range(3)), what="nobody leads")
            for start in range(600, 3_600, 600):
                producer.send(batch(start, 600)).result(30)
        finally:
            world.network.heal()
        producer.close()
        rows = read_ids(client, "headless")
    check_identity(rows, {0: range(3_600)}, {0: 3_600})
    until(lambda: three.led_by_one_of([0, 1, 2]), what="one leader of all")


@pytest.mark.timeout(120)
def test_an_owner_that_was_cut_off_takes_no_append_when_it_is_back(world: IsolatedCluster) -> None:
    """F15: partition, promote, heal. The old owner refuses appends, and then names the new one."""
    three = world.three
    topic = three.create(0, "fenced", partitions=1, replication=3)
    [part] = topic.partitions
    old = next(place for place in range(3) if three.id(place) == part.owner)
    rest = world.others(old)
    load = Load(three.nodes[rest[0]].address, "fenced", 0).start()
    until(lambda: load.errors or len(load.acknowledged) > 500, what="rows")
    with RawClient(three.nodes[old].address) as client:
        raw = RawTopic.existing(client, topic.topic, "fenced")
        assert raw.publish(batch(0, 1, producer=9), 0).status == Status.OK, "else it is refused anyhow"

        def append() -> Answer:
            answer: Answer | None = raw.publish(batch(1, 1, producer=9), 1, deadline_ms=500)
            while answer is not None and answer.status == Status.PUSH:  # of the newer table
                answer = client.receive()
            assert answer is not None
            return answer

        world.network.cut(old, rest)
        try:
            until(
                lambda: three.placed(rest[0], "fenced")[part.partition][0] != part.owner, what="another owner"
            )
            seen = len(load.acknowledged)
            until(lambda: load.errors or len(load.acknowledged) > seen + 500, what="rows at the new owner")
            alone = [append() for _ in range(3)]
        finally:
            world.network.heal()
        healed: list[Answer] = []

        def is_redirected() -> bool:
            healed.append(append())
            return healed[-1].status == Status.REDIRECT

        until(is_redirected, what="a redirect to the new owner")
        told = [answer.status for answer in [*alone, *healed[:-1]]]
        assert told == [Status.REFUSED] * len(told), (alone, healed)
        owner, epoch = three.placed(rest[0], "fenced")[part.partition]
        assert healed[-1].read(messages.Redirected).owner == owner != part.owner
        assert epoch > part.epoch
    load.finish()
    assert load.errors == []
    with ringfence.connect(three.nodes[old].address, timeout_s=30) as reader:
        rows = read_ids(reader, "fenced")
    # The second row of producer 9 was never acknowledged, and nowhere stored.
    check_identity(rows, {0: load.acknowledged, 9: [0]}, {0: load.sent, 9: 1})


@pytest.mark.timeout(120)
def test_a_leader_that_hears_nobody_steps_down(world: IsolatedCluster) -> None:
    three = world.three
    leader = three.leader()
    world.network.cut(leader, world.others(leader), one_way=True)
    try:
        until(lambda: three.led_by_one_of(world.others(leader)), what="a leader among the others")
    finally:
        world.network.heal()
    until(lambda: three.led_by_one_of([0, 1, 2]), what="one leader of all")


@pytest.mark.timeout(120)
def test_a_voter_whose_disk_is_full_waits_and_goes_on(world: IsolatedCluster) -> None:
    three = world.three
    filler = world.disk.fill()
    try:
        # Two of three are a majority. The journal's last page takes a few small entries before it is full.
        for number in range(8):
            three.create(0, f"full-{number}", partitions=1)
        until(lambda: three.listed(2)["index"] < three.listed(0)["index"], what="the third lags")
        assert three.alive(2)
        until(lambda: says(world, 2, FULL), what="it says so")
    finally:
        filler.unlink()
    three.until_equal()
    until(lambda: not says(world, 2, FULL), what="it is mended")


@pytest.mark.timeout(120)
def test_a_truncate_is_not_done_while_an_owner_has_no_space_to_do_it(world: IsolatedCluster) -> None:
    three = world.three
    three.create(0, "cut", partitions=6)
    three.create(0, "late", partitions=6)
    [mine, *_] = owned_by(world, "cut", 2)
    with ringfence.connect(three.nodes[0].address, timeout_s=10) as client:
        with client.producer("cut") as producer:
            producer.send(batch(0, 600)).result(30)
        with client.producer("late") as producer:
            producer.send(batch(0, 600)).result(30)
        assert client.end_offsets("cut")[mine].end > 0
        filler = world.disk.fill()
        try:
            for number in range(8):
                three.create(0, f"cut-{number}", partitions=1)
            until(lambda: says(world, 2, FULL), what="it says so")
            with pytest.raises(ringfence.UnknownOutcomeError, match="in the metadata, not on disk"):
                client.truncate("cut", partition=mine, before_offset=1)
            assert client.end_offsets("cut")[mine].start == 0
            # Once more without offsets: a client that repeats it by itself takes what came since.
            entry = three.listed(0)["index"]
            with pytest.raises(ringfence.UnknownOutcomeError, match="in the metadata, not on disk"):
                client.truncate("late")
            assert three.listed(0)["index"] == entry + 1
            lines = (three.nodes[0].data / "audit" / "audit.log").read_text().splitlines()
            told = [line for line in map(json.loads, lines) if line["path"].endswith("/late")]
            assert told[-1]["index"] == entry + 1
        finally:
            filler.unlink()
        # It was committed: the owner carries it out when it can.
        until(lambda: client.end_offsets("cut")[mine].start == 1, what="it is carried out")
        client.truncate("cut", partition=mine, before_offset=2)
        assert client.end_offsets("cut")[mine].start == 2
    three.until_equal()


@pytest.mark.timeout(120)
def test_a_leader_whose_disk_is_full_hands_over_and_metadata_goes_on(world: IsolatedCluster) -> None:
    three = world.three

    def third_leads() -> bool:
        """Who leads is stopped until the one on the small disk wins an election."""
        leads = three.leader()
        if leads != 2:
            three.nodes[leads].freeze()
            try:
                until(lambda: three.led_by_one_of(world.others(leads)), what="a leader among the others")
            finally:
                three.nodes[leads].wake()
            three.until_whole()
        return three.led_by_one_of([0, 1, 2]) and three.leader() == 2

    until(third_leads, what="the third leads")
    filler = world.disk.fill()
    try:
        for number in range(8):
            three.create(0, f"led-full-{number}", partitions=1)
        until(lambda: three.led_by_one_of([0, 1]), what="a leader among those with space")
        term = three.listed(0)["term"]
        until(lambda: says(world, 2, FULL), what="it says so")
        time.sleep(STOP_S)
        assert three.led_by_one_of([0, 1])
        assert three.listed(0)["term"] == term, "who has no space does not ask for votes"
        three.create(1, "led-by-another", partitions=1)
    finally:
        filler.unlink()
    three.until_equal()
    until(lambda: not says(world, 2, FULL), what="it is mended")


@pytest.mark.timeout(120)
def test_a_voter_that_starts_on_a_full_disk_waits_for_space_and_then_serves(world: IsolatedCluster) -> None:
    three = world.three
    third = three.nodes[2]
    third.kill()
    world.network.cut(2, [0, 1])
    told = len(third.log.read_text())
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(third.start)
        # What a recovery gives back is taken too: by then it has ended, and nobody was heard.
        until(
            lambda: "no answer from a join address" in third.log.read_text()[told:],
            what="it waits for a majority",
        )
        filler = world.disk.fill()
        try:
            for number in range(8):
                three.create(0, f"full-start-{number}", partitions=1)
            world.network.heal()
            until(lambda: third.log.read_text()[told:].count("no space for metadata") >= 3, what="it says so")
            assert not starting.done()
        finally:
            filler.unlink()
            world.network.heal()
        starting.result()
    three.until_whole()
    three.until_equal()


@pytest.mark.timeout(180)
def test_a_rolling_restart_under_load_shows_producers_no_error(world: IsolatedCluster) -> None:
    three = world.three
    three.create(0, "rolled", partitions=6)
    loads = [
        Load(node.address, "rolled", place, rows=60, window=4).start()
        for place, node in enumerate(three.nodes)
    ]
    until(lambda: all(load.acknowledged for load in loads), what="all producers under way")
    for place in range(3):
        assert three.nodes[place].stop() == 0
        three.nodes[place].start()
        three.until_whole()
    for load in loads:
        load.finish()
        assert load.errors == []
    with ringfence.connect(three.nodes[0].address, timeout_s=30) as client:
        rows = read_ids(client, "rolled")
    check_identity(
        rows,
        {load.producer: load.acknowledged for load in loads},
        {load.producer: load.sent for load in loads},
    )


@pytest.mark.timeout(120)
def test_a_copied_directory_is_refused_while_the_original_lives(
    world: IsolatedCluster, tmp_path: Path
) -> None:
    three = world.three
    before = three.listed(0)["index"]
    copy = copied(world, 1, tmp_path)
    with pytest.raises(AssertionError, match="exit code 7") as refused:
        copy.start()
    assert "another process is node" in str(refused.value)
    until(
        lambda: any(says(world, place, "two processes say that they are node") for place in (0, 2)),
        what="another node tells of it",
    )
    # The original noticed nothing, and no start of the copy stands in the log.
    assert three.alive(1)
    assert three.life(1, seen_by=0) == "LIVE"
    assert three.listed(0)["index"] == before
    three.create(1, "not-the-copy", partitions=2)


@pytest.mark.timeout(120)
def test_a_stopped_node_that_a_copy_took_over_from_ends_when_it_wakes(
    world: IsolatedCluster, tmp_path: Path
) -> None:
    three = world.three
    original = three.nodes[1]
    original.freeze()
    try:
        copy = copied(world, 1, tmp_path).start()
    finally:
        original.wake()
    until(lambda: not three.alive(1), what="the original has ended")
    assert original.stop() == Exit.NODE_FAILED
    assert "another process is node" in original.log.read_text()
    # The first directory is the stale one from now on: it is refused, and left as it is.
    with pytest.raises(AssertionError, match="exit code 7"):
        original.start()
    three.nodes[1], three.controls[1] = copy, copy.ready["control"]
