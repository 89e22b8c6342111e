"""The stepped node: nothing happens between calls, equal calls give equal results, and no crash is mild."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ringfence.common.codec import request_header
from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.runtime.layout.engine import figures_of
from ringfence.control.state_machines.layout.plan import BUCKETS
from ringfence.native import _node
from ringfence.native._node import Order, SimDisk, SimNode
from ringfence.native.errors import ClosedError, ConfigError, StorageError, StoreLockedError
from ringfence.native.frame import open_answer
from ringfence.native.wire import LEVEL_NEWEST, Opcode, Status
from tests.sim.clients.content import SCHEMA, body_of

IDENTITY = {"cluster": b"c" * 16, "history": b"h" * 16, "store": b"s" * 16}
TOPIC, PARTITION = 7, 9


def node(disk: SimDisk, **changes: Any) -> SimNode:
    settings: dict[str, Any] = {"node": 1, **IDENTITY, **changes}
    return SimNode(disk, **settings)


def drain(made: SimNode) -> None:
    """Carry out all disk work."""
    while any(work := made.turn()):
        for shard in work[0]:
            made.run_job(shard)
        for ticket in work[1]:
            made.run_read(ticket)
        made.check()


def serving(made: SimNode, epoch: int, key: Sequence[int] = ()) -> None:
    made.recover(1_000_000, 1_000)
    made.connect(1)
    made.order(Order.install_topic(TOPIC, [SCHEMA], key, 0, 0))
    made.order(Order.install_table(TOPIC, epoch, 1, b"\x80", [(PARTITION, 0, 65_535, 1, epoch)], b"\x80"))
    made.order(Order.open(TOPIC, PARTITION, 0, 65_535, epoch))
    drain(made)
    assert [outcome[:3] for outcome in made.poll()] == [("order", number, None) for number in (1, 2, 3)]


def test_a_level_is_raised_by_an_order_and_an_unknown_one_is_refused() -> None:
    made = node(SimDisk(1), level=0)
    made.recover(1_000_000, 1_000)
    made.order(Order.set_level(LEVEL_NEWEST))
    made.order(Order.set_level(LEVEL_NEWEST + 1))
    drain(made)
    outcomes = [outcome[2] for outcome in made.poll()]
    assert outcomes[0] is None
    assert f"this program knows up to {LEVEL_NEWEST}" in outcomes[1]
    with pytest.raises(ConfigError, match=f"level is {LEVEL_NEWEST + 1}, allowed are 0..={LEVEL_NEWEST}"):
        node(SimDisk(1), level=LEVEL_NEWEST + 1)


def test_a_level_that_the_caller_knows_is_opened_and_no_other() -> None:
    made = node(SimDisk(1), level_newest=COHORT_LEVEL)
    made.recover(1_000_000, 1_000)
    made.order(Order.set_level(COHORT_LEVEL))
    made.order(Order.set_level(COHORT_LEVEL + 1))
    drain(made)
    outcomes = [outcome[2] for outcome in made.poll()]
    assert outcomes[0] is None
    assert f"this program knows up to {COHORT_LEVEL}" in outcomes[1]
    assert node(SimDisk(2), level=COHORT_LEVEL, level_newest=COHORT_LEVEL).recover(1_000_000, 1_000)
    for newest in (LEVEL_NEWEST - 1, COHORT_LEVEL + 1):
        with pytest.raises(ConfigError, match=f"level_newest is {newest}"):
            node(SimDisk(3), level=0, level_newest=newest)


def publish(made: SimNode, sequence: int, epoch: int) -> None:
    body = body_of(1 + sequence * 10, 10)
    header = request_header(
        Opcode.PUBLISH,
        sequence + 1,
        topic=TOPIC,
        partition=PARTITION,
        layout_version=1,
        owner_epoch=epoch,
        producer_id=5,
        producer_epoch=5,
        sequence=sequence,
        rows=10,
        body_bytes=len(body),
        body_crc=_node.crc32c(body),
    )
    assert made.request(1, bytes(header), body)


def statuses(made: SimNode) -> list[int]:
    return [open_answer(header).status for _, header, _ in made.take_answers()]


@pytest.mark.parametrize("level", [LAYOUT_LEVEL - 1, LAYOUT_LEVEL, LEVEL_NEWEST])
def test_a_busy_partition_has_a_sketch_from_the_level_of_layout_changes_on(level: int) -> None:
    made = node(SimDisk(1), level=level)
    serving(made, 1, key=[0])
    for sequence in range(200):
        publish(made, sequence, 1)
        drain(made)
        made.tick(1_000_000 + 2_000 * sequence, 1_000 + 2_000 * sequence)
        drain(made)
    assert statuses(made) == [Status.OK] * 200
    [counters] = made.partitions()
    if level < LAYOUT_LEVEL:
        assert "sketch" not in counters
        return
    assert type(counters["sketch"]) is bytes
    weights = figures_of(counters).weights
    assert len(weights) == BUCKETS
    # A tenth of the rows is hashed, more or less, and old ones count less.
    assert 20 < sum(weights) < 500
    made.order(Order.fence(TOPIC, PARTITION, 2))
    drain(made)
    assert "sketch" not in made.partitions()[0]


def test_an_answer_goes_out_behind_the_sync_and_not_before() -> None:
    disk = SimDisk(1)
    made = node(disk)
    serving(made, 3)
    publish(made, 0, 3)
    assert made.turn() == ([0], []) and statuses(made) == []
    publish(made, 1, 3)
    made.run_job(0)
    assert statuses(made) == [Status.OK], "the second batch is in the next group"
    drain(made)
    assert statuses(made) == [Status.OK]
    assert made.counters()["rows"] == 20 and made.partitions()[0]["end_offset"] == 20


def test_what_children_inherit_is_told_at_any_level_and_taken_from_its_own_on() -> None:
    made = node(SimDisk(2), level=LAYOUT_LEVEL - 1)
    serving(made, 3)
    for sequence in range(2):
        publish(made, sequence, 3)
    orders = (
        Order.table_out(TOPIC, PARTITION, 0, 99, 0, 0, 1 << 16),
        Order.table_out(TOPIC, PARTITION, 0, 99, 0, 5, 1 << 16),
        Order.sources(TOPIC, PARTITION),
        Order.gates_out(TOPIC, PARTITION, 9, 3),
        Order.fence(TOPIC, PARTITION, 9),
        Order.gates_out(TOPIC, PARTITION, 9, 3),
        Order.table_in(TOPIC, PARTITION, 3, 8, 0, 99, 2, True, b""),
        Order.gates_in(TOPIC, PARTITION, 3, 8, b""),
    )
    numbers = [made.order(order) for order in orders]
    drain(made)
    ended = {outcome[1]: outcome[2:] for outcome in made.poll() if outcome[0] == "order"}
    (_, page), (_, rest), (_, sources), (early, _), _, (_, gates), (refused, _), (also, _) = (
        ended[number] for number in numbers
    )
    figures = {"records": 3, "forgotten_epoch": 0, "more": False}
    assert figures.items() <= page.items() and page["last"] == 5
    assert int.from_bytes(page["page"][52:56], "little") == 1, "one producer"
    assert rest["last"] == 5 and int.from_bytes(rest["page"][52:56], "little") == 0
    assert sources == {"sources": []} and gates == {"gates": b"", "known": 0}
    assert "ask again after its HOLD" in early
    assert "layout changes need 2" in refused and "layout changes need 2" in also


def test_equal_calls_give_equal_bytes_on_the_disk() -> None:
    def played() -> tuple[list[tuple[str, bytes]], int, list[Any]]:
        disk = SimDisk(4)
        made = node(disk, shards=2)
        serving(made, 3)
        for sequence in range(20):
            publish(made, sequence, 3)
            made.turn()
        drain(made)
        answers: list[Any] = made.take_answers()
        return [(name, disk.content(name)) for name, _ in disk.files()], made.state_hash(), answers

    assert played() == played()


def test_what_was_answered_survives_the_power_and_the_rest_may_not() -> None:
    kept = set()
    for seed in range(40):
        disk = SimDisk(seed)
        made = node(disk)
        serving(made, 3)
        publish(made, 0, 3)
        drain(made)
        assert statuses(made) == [Status.OK]
        publish(made, 1, 3)
        made.turn()
        made.run_job(0, calls=seed % 3)
        made.crash()
        assert not made.running
        disk.crash()
        report = made.recover(2_000_000, 1_000)
        kept.add(report["partitions"][0]["end_offset"])
    assert kept == {10, 20}


def test_a_disk_reports_what_rotted_and_the_node_notices() -> None:
    noticed = 0
    for seed in range(30):
        disk = SimDisk(seed)
        made = node(disk)
        serving(made, 3)
        for sequence in range(4):
            publish(made, sequence, 3)
            drain(made)
        made.crash()
        rot = disk.rot()
        assert rot is not None
        file, position, mask = rot
        copy = disk.copy()
        assert copy.content(file)[position] == disk.content(file)[position]
        assert mask.bit_count() == 1
        noticed += bool(disk.fsck()["damage"])
    assert noticed == 30, "every byte in front of the last group is covered by a checksum"


def test_faults_of_the_disk_are_told_by_name_and_end_when_they_are_off() -> None:
    disk = SimDisk(1, sync_errors_per_mille=1000)
    made = node(disk)
    with pytest.raises(StorageError, match="Input/output"):
        made.recover(1_000_000, 1_000)
    disk.set_faults()
    serving(made, 3)
    disk.set_faults(sync_errors_per_mille=1000)
    publish(made, 0, 3)
    drain(made)
    assert [outcome[0] for outcome in made.poll()] == ["shard_failed"]
    assert statuses(made) == [Status.REFUSED]
    assert disk.tally()["failures"] > 1


def test_a_failed_disk_is_told_of_before_the_orders_that_were_under_way() -> None:
    disk = SimDisk(1)
    made = node(disk)
    serving(made, 3)
    disk.set_faults(sync_errors_per_mille=1000)
    number = made.order(Order.open(TOPIC, PARTITION, 0, 65_535, 4))
    drain(made)
    failed, ended = made.poll()
    assert failed[0] == "shard_failed"
    assert ended[:2] == ("order", number)
    assert ended[2] is not None


def test_the_power_can_go_in_the_middle_of_a_start() -> None:
    disk = SimDisk(1)
    made = node(disk)
    serving(made, 3)
    for calls in range(12):
        made.crash()
        disk.crash()
        with pytest.raises(StorageError, match="power"):
            made.recover(1_000_000, 1_000, calls)
        assert not made.running
    disk.crash()
    assert made.recover(1_000_000, 1_000)["partitions"][0]["quarantined"] is None


def test_a_disk_is_not_cut_from_a_node_that_runs_and_two_nodes_do_not_share_one() -> None:
    disk = SimDisk(1)
    made = node(disk)
    made.recover(1_000_000, 1_000)
    with pytest.raises(StoreLockedError, match="crash it first"):
        disk.crash()
    with pytest.raises(StoreLockedError):
        node(disk).recover(1_000_000, 1_000)
    with pytest.raises(ClosedError, match="runs"):
        made.recover(1_000_000, 1_000)


def test_what_cannot_be_is_refused_with_a_reason() -> None:
    disk = SimDisk(1)
    with pytest.raises(ConfigError, match="segment_bytes"):
        node(disk, segment_bytes=1)
    made = node(disk)
    with pytest.raises(ClosedError):
        made.order(Order.remove_topic(1))
    made.recover(1_000_000, 1_000)
    with pytest.raises(ClosedError, match="connection 4"):
        made.request(4, bytes(128), b"")
    with pytest.raises(ClosedError, match="no job"):
        made.run_job(0)
    with pytest.raises(ClosedError, match="read 9"):
        made.run_read(9)
    made.stop(1.0)
    made.stop(1.0)
    assert not made.running and made.partitions() == [] and made.counters() == {}


def test_the_stepped_node_has_every_method_of_the_real_one() -> None:
    public = {name for name in dir(_node.Node) if not name.startswith("_")}
    assert public <= set(dir(SimNode))
