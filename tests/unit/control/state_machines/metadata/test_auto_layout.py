"""Settings of automatic splits and merges: overrides of topics, their checks, and the tag of a topic."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ringfence.control.model.commands import CreateTopic, SetConfig
from ringfence.control.model.ids import TopicId
from ringfence.control.model.layout_commands import SetAutoLayout
from ringfence.control.model.results import Refused
from ringfence.control.model.state import EMPTY
from ringfence.control.state_machines.metadata import auto_layout
from ringfence.control.state_machines.metadata.auto_layout import OVERRIDES, property_fault, settings_of
from ringfence.control.state_machines.metadata.config import LIMITS, limits_of
from ringfence.control.state_machines.metadata.etags import tag_of
from tests.fakes.layout_log import LayoutLog
from tests.fakes.metadata_commands import create


def with_properties(name: str, properties: dict[str, str]) -> CreateTopic:
    return replace(create(name), properties=properties)


def test_a_topic_overrides_four_limits_and_takes_the_others_from_the_cluster() -> None:
    log = LayoutLog(3)
    assert not settings_of(log.state, log.now).is_on
    log.must(SetConfig(values={"auto_split": 1, "auto_window_s": 7, "auto_split_bytes_s": 10_000}))
    log.must(
        SetAutoLayout(topic=log.topic, values={"auto_split": 0, "auto_merge": 1, "auto_partitions_min": 3})
    )
    known = settings_of(log.state, log.now)
    assert (known.split, known.merge, known.partitions_min, known.partitions_max) == (False, True, 3, 64)
    assert (known.window_ms, known.merge_bytes_s) == (7_000, 5_000), "half of the split's"
    assert log.now.properties == {
        "ringfence.auto.split": "0",
        "ringfence.auto.merge": "1",
        "ringfence.auto.partitions_min": "3",
    }
    log.must(SetAutoLayout(topic=log.topic, values={"auto_merge": None}))
    assert not settings_of(log.state, log.now).is_on


def test_bad_settings_are_refused_and_leave_every_byte() -> None:
    log = LayoutLog(3)
    log.refuses(SetAutoLayout(topic=log.topic, values={}), "none is given")
    log.refuses(SetAutoLayout(topic=log.topic, values={"auto_window_s": 9}), "'auto_window_s'")
    log.refuses(SetAutoLayout(topic=log.topic, values={"auto_split": 2}), "ringfence.auto.split='2': 0 to 1")
    log.refuses(
        SetAutoLayout(topic=log.topic, values={"auto_split": 1, "auto_partitions_max": 0}), "1 to 4096"
    )
    log.refuses(SetAutoLayout(topic=TopicId(7), values={"auto_split": 1}), "7")
    log.refuses(with_properties("public/default/u", {"ringfence.auto.split": "yes"}), "'yes'")
    log.must(with_properties("public/default/v", {"ringfence.auto.split": "1", "team": "a"}))
    log.must(with_properties("public/default/w", {f"label{label}": "x" for label in range(64)}))
    full = max(log.state.topics)
    log.refuses(SetAutoLayout(topic=full, values={"auto_split": 1}), "65 properties")


def test_below_the_level_nothing_of_it_is_known() -> None:
    log = LayoutLog(3, level=1)
    assert not {name for name in limits_of(log.state) if name.startswith("auto_")}
    log.refuses(SetConfig(values={"auto_split": 1}))
    log.refuses(SetAutoLayout(topic=log.topic, values={"auto_split": 1}), "level is 1")
    log.must(with_properties("public/default/v", {"ringfence.auto.split": "yes"}))
    assert not settings_of(log.state, log.state.topics[TopicId(log.at)]).is_on


def test_the_tag_of_a_topic_changes_with_its_settings() -> None:
    log = LayoutLog(3)
    resource = f"topic/{log.topic}"
    tags = [tag_of(log.state, resource)]
    for value in (1, 0, None):
        log.must(SetAutoLayout(topic=log.topic, values={"auto_split": value}))
        tags.append(tag_of(log.state, resource))
    assert len({*tags}) == 3
    assert tags[0] == tags[-1]


@pytest.mark.parametrize("name", OVERRIDES)
def test_values_of_properties_are_those_of_the_limits(name: str) -> None:
    known = LIMITS[OVERRIDES[name]]
    assert property_fault(name, str(known.low)) is None
    assert property_fault(name, str(known.high)) is None
    for text in ("", "-1", "1.0", "x", str(known.high + 1), "٣", "1" * 30):
        assert property_fault(name, text) is not None
    assert property_fault("team", "anything") is None


def test_a_command_about_a_topic_that_is_gone_is_refused() -> None:
    refusal = auto_layout.settings_fault(EMPTY, SetAutoLayout(topic=TopicId(1), values={"auto_split": 1}))
    assert isinstance(refusal, Refused)
