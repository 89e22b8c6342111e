"""The creation of a topic: names, slots, and what a new topic has."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import Command, CreateTopic
from ringfence.control.model.ids import TopicId, drawn
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.names import full_topic_name, shown_topic_name
from ringfence.control.model.ranges import SlotRange, gap, tile
from ringfence.control.model.results import Refused, TopicCreated
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import ID, INIT, NODE, STORE, create, entry


def with_topic() -> MetadataState:
    state, _ = apply(EMPTY, entry(1, INIT))
    state, _ = apply(state, entry(2, create(partitions=2)))
    return state


def refused(state: MetadataState, command: Command) -> Code:
    after, result = apply(state, entry(50, command))
    assert isinstance(result, Refused), result
    assert after is state
    return result.code


def test_a_new_topic_has_ids_of_its_entry_and_one_owner_and_epoch_for_each_partition() -> None:
    state, _ = apply(EMPTY, entry(1, INIT))
    state, result = apply(state, entry(7, create(partitions=3)))
    assert result == TopicCreated(topic=TopicId(7))
    topic = state.topics[TopicId(7)]
    assert state.names[topic.name] == 7
    ids = [partition.partition for partition in topic.layout.partitions]
    assert ids == [drawn(7, ordinal) for ordinal in range(3)]
    assert [partition.slots for partition in topic.layout.partitions] == list(tile(3))
    here = Replica(node=NODE, store=STORE)
    owners = [(topic.assignments[part].owner, topic.assignments[part].epoch) for part in ids]
    assert owners == [(here, 7)] * 3


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000, 65_535, 65_536])
def test_any_number_of_partitions_tiles_the_slots(count: int) -> None:
    ranges = tile(count)
    assert gap(ranges) is None
    sizes = {hi - lo for lo, hi in ranges}
    assert max(sizes) - min(sizes) <= 1


def test_a_hole_an_overlap_and_a_missing_end_are_found() -> None:
    assert gap([]) == "slots 0..65535 are in no range"
    assert gap([(1, 65_535)]) == "range 1..65535 stands where slot 0 must begin"
    assert gap([(0, 9), (9, 65_535)]) == "range 9..65535 stands where slot 10 must begin"
    assert gap([(0, 65_534)]) == "slots 65535..65535 are in no range"


def test_names_have_a_tenant_and_a_namespace() -> None:
    assert full_topic_name("events") == "public/default/events"
    assert full_topic_name("acme/sales/orders.v2") == "acme/sales/orders.v2"
    assert shown_topic_name("public/default/events") == "events"
    assert shown_topic_name("acme/sales/events") == "acme/sales/events"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a/b/c/d", ".a", "a/.b/c", "x" * 300, "ä", "a\n", "//"])
def test_unsound_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="topic name"):
        full_topic_name(name)


def test_a_name_is_taken_once() -> None:
    assert refused(with_topic(), create()) == Code.ALREADY_EXISTS


def test_a_layout_that_does_not_tile_is_refused() -> None:
    bad = CreateTopic(
        name="public/default/x",
        key=(),
        schema=b"s",
        columns=(ID,),
        ranges=(SlotRange(0, 9),),
        nodes=((NODE,),),
    )
    assert refused(with_topic(), bad) == Code.INVALID_ARGUMENT


def test_a_topic_is_not_named_like_a_partition_from_the_level_of_layouts_on() -> None:
    """S10."""
    state = with_topic()
    part = state.topics[TopicId(2)].layout.partitions[0].name
    for name in (part, "0000-ffff-1", "00AB-00cd-9223372036854775807"):
        command = create(f"acme/sales/{name}")
        assert not isinstance(apply(state, entry(50, command))[1], Refused), "lower levels take any name"
        assert refused(replace(state, level=LAYOUT_LEVEL), command) == Code.INVALID_ARGUMENT
    for name in ("0000-ffff", "000-ffff-1", "0000-fffg-1", "0000-ffff-1-2", "0000-ffff-x"):
        made = apply(replace(state, level=LAYOUT_LEVEL), entry(50, create(f"acme/sales/{name}")))[1]
        assert not isinstance(made, Refused), made
