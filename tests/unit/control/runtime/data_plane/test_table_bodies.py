"""The largest topic's description fits a body, whatever is wrong with its partitions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ringfence.control.model.ids import TopicId
from ringfence.control.model.state import EMPTY
from ringfence.control.runtime.data_plane.table_bodies import topic_info
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native import messages
from ringfence.native.wire import CONTROL_BYTES_MAX
from tests.fakes.metadata_commands import INIT, create, entry

PARTITIONS, SCHEMA_BYTES = 4_096, 262_144  # of a topic, by default and at most


@pytest.mark.parametrize(
    "figures",
    [None, {"start_offset": 2**40, "end_offset": 2**41, "bytes": 2**40, "quarantined": "x" * 500}],
    ids=["unknown", "quarantined"],
)
def test_reasons_of_all_partitions_fit(figures: dict[str, Any] | None) -> None:
    state, _ = apply(EMPTY, entry(1, INIT))
    state, _ = apply(state, entry(2, replace(create(partitions=PARTITIONS), schema=b"s" * SCHEMA_BYTES)))
    topic = state.topics[TopicId(2)]
    hosted = {} if figures is None else {(2, int(number)): figures for number in topic.assignments}
    info = topic_info(state, topic, hosted)
    assert len(messages.encode(info)) < CONTROL_BYTES_MAX
    for part in info.partitions:
        assert (part.unknown or "").startswith("node 1 is ") is (figures is None)
        assert bool(part.quarantined) is (figures is not None)


def test_a_topic_whose_owner_was_removed_meanwhile_is_described() -> None:
    """The topic was looked up before the owners were asked, the state is read after their answers."""
    state, _ = apply(EMPTY, entry(1, INIT))
    state, _ = apply(state, entry(2, create(partitions=1)))
    info = topic_info(replace(state, nodes={}), state.topics[TopicId(2)], {})
    assert [part.unknown for part in info.partitions] == ["node 1 was removed"]
