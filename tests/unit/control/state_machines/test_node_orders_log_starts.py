"""Log starts in the metadata: each is about the owner epochs that it was ordered under (I14)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import TruncateTopic
from ringfence.control.model.ids import Epoch, NodeId
from ringfence.control.model.reassignment_commands import ForceOwner
from ringfence.control.model.state import EMPTY, canonical_bytes, decode_state
from ringfence.control.state_machines import node_orders
from ringfence.control.state_machines.node_orders import FollowPartition, OpenPartition, TruncatePartition
from tests.fakes.metadata_log import END, MetadataLog


def begun(level: int = 1) -> MetadataLog:
    lab = MetadataLog(3, replication=3)
    lab.state = replace(lab.state, level=level)
    return lab


def start(lab: MetadataLog, offset: int, epoch: int | None = None) -> TruncateTopic:
    if epoch is None:
        return TruncateTopic(topic=lab.topic, starts={lab.partition: offset})
    epochs = {lab.partition: Epoch(epoch)}
    return TruncateTopic(topic=lab.topic, starts={lab.partition: offset}, epochs=epochs)


def known(lab: MetadataLog) -> tuple[int, int]:
    topic = lab.state.topics[lab.topic]
    return topic.starts.get(lab.partition, 0), topic.start_epoch(lab.partition)


def forced(lab: MetadataLog) -> int:
    """Node 2 becomes the owner without a majority; its epoch."""
    lab.must(lab.fail(1))
    lab.must(ForceOwner(**lab.which, owner=NodeId(2), accepts="rows that only nodes 1 and 5 have"))
    return lab.now.epoch


def test_a_start_of_a_history_that_is_given_up_names_its_epoch_and_yields_to_one_of_the_new() -> None:
    lab = begun()
    first = lab.now.epoch
    lab.must(start(lab, 1_000, first))
    assert known(lab) == (1_000, first)
    second = forced(lab)
    assert known(lab) == (1_000, first), "rows of the forced owner are of a later epoch"
    lab.must(start(lab, 300, second))
    assert known(lab) == (300, second), "the new log may be shorter than the start of the old one"
    lab.refuses(start(lab, 2_000, first), "truncated under owner epoch")
    lab.refuses(start(lab, 2_000, second + 100), "not drawn yet")
    lab.must(start(lab, 200, second))
    assert known(lab) == (300, second), "a lower one is no change"


def test_a_start_without_an_epoch_is_about_the_owner_of_the_moment() -> None:
    lab = begun()
    lab.must(start(lab, 10))
    assert known(lab) == (10, lab.now.epoch)


def test_a_start_of_level_0_gets_the_epoch_of_the_owner_that_is_given_up() -> None:
    lab = begun(level=0)
    lab.must(start(lab, 1_000))
    assert known(lab) == (1_000, 0)
    first, lab.state = lab.now.epoch, replace(lab.state, level=1)
    forced(lab)
    assert known(lab) == (1_000, first)
    again = decode_state(canonical_bytes(lab.state))
    assert again == lab.state


def test_at_level_0_nothing_is_kept_that_older_programs_do_not_know() -> None:
    lab = begun(level=0)
    lab.must(start(lab, 1_000, lab.now.epoch))
    forced(lab)
    assert known(lab) == (1_000, 0)
    assert b"start_epochs" not in canonical_bytes(lab.state)


@pytest.mark.parametrize("node", [1, 2, 5])
def test_every_start_and_hand_over_orders_it_with_its_epoch_before_the_role(node: int) -> None:
    lab = begun()
    first = lab.now.epoch
    lab.must(start(lab, 1_000, first))
    forced(lab)
    wanted = TruncatePartition(topic=lab.topic, partition=lab.partition, before_offset=1_000, epoch=first)
    phases = node_orders.between(EMPTY, lab.state, lab.place(node))
    at = next(number for number, phase in enumerate(phases) if wanted in phase)
    roles = [
        number
        for number, phase in enumerate(phases)
        for order in phase
        if isinstance(order, OpenPartition | FollowPartition)
    ]
    assert len(roles) == 1 and at < roles[0]


def test_a_clean_change_of_owners_keeps_the_start_and_tells_the_new_owner() -> None:
    lab = begun()
    first = lab.now.epoch
    lab.must(start(lab, 1_000, first))
    before = lab.state
    lab.must(lab.prepare(2, 1, 5))
    lab.must(lab.hold())
    lab.must(lab.commit({1: END, 2: END, 5: END}))
    told = [order for phase in node_orders.between(before, lab.state, lab.place(2)) for order in phase]
    wanted = TruncatePartition(topic=lab.topic, partition=lab.partition, before_offset=1_000, epoch=first)
    assert (wanted in told, known(lab)) == (True, (1_000, first))
