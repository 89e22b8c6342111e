"""Named producers in the metadata: opened, known to be everywhere, given back."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from ringfence.control.invariants.metadata import check as check_invariants
from ringfence.control.model.commands import (
    Command,
    ConfirmNamedProducer,
    DeleteTopic,
    ForgetNamedProducer,
    OpenNamedProducer,
)
from ringfence.control.model.ids import Epoch, ProducerId, TopicId
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.results import Done, ProducersOpened, Refused
from ringfence.control.model.state import MetadataState, canonical_bytes
from ringfence.control.model.topics import ProducerRule
from ringfence.control.state_machines.metadata.producers import has_lost_entries
from ringfence.control.state_machines.metadata.state_machine import apply
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import create, entry, started


def test_a_named_producer_keeps_its_id_and_raises_its_epoch() -> None:
    state, _ = apply(started(), entry(2, create()))
    command = OpenNamedProducer(topic=TopicId(2), name="loader")
    state, first = apply(state, entry(5, command))
    state, second = apply(state, entry(9, command))
    assert first == ProducersOpened(producer=ProducerId(5 << 16), epoch=Epoch(5))
    assert second == ProducersOpened(producer=ProducerId(5 << 16), epoch=Epoch(9), previous_epoch=Epoch(5))


NAME: dict[str, Any] = {"topic": TopicId(2), "name": "loader"}


def refused(state: MetadataState, index: int, command: Command) -> Refused:
    same, result = apply(state, entry(index, command))
    assert isinstance(result, Refused), result
    assert same is state
    return result


def test_a_name_is_known_to_be_everywhere_once_an_open_of_it_has_reached_all_partitions() -> None:
    state, _ = apply(replace(started(), level=1), entry(2, create()))
    for index in (5, 6):  # the first one ended half-way
        state, _ = apply(state, entry(index, OpenNamedProducer(**NAME)))
        assert not has_lost_entries(state, TopicId(2), "loader"), "a partition without an entry may be new"
    assert refused(state, 7, ConfirmNamedProducer(**NAME, epoch=Epoch(5))).code == Code.FENCED_PRODUCER
    state, _ = apply(state, entry(7, ConfirmNamedProducer(**NAME, epoch=Epoch(6))))
    assert has_lost_entries(state, TopicId(2), "loader")
    again, _ = apply(state, entry(8, ConfirmNamedProducer(**NAME, epoch=Epoch(6))))
    assert again is state
    state, _ = apply(state, entry(9, OpenNamedProducer(**NAME)))
    assert has_lost_entries(state, TopicId(2), "loader"), "also while a later open is under way"
    assert not has_lost_entries(state, TopicId(2), "another")


def test_a_forgotten_name_is_opened_with_a_new_identity() -> None:
    state, _ = apply(replace(started(), level=1), entry(2, create()))
    assert "no producer named" in refused(state, 3, ForgetNamedProducer(**NAME, epoch=Epoch(3))).message
    state, first = apply(state, entry(5, OpenNamedProducer(**NAME)))
    assert refused(state, 6, ForgetNamedProducer(**NAME, epoch=Epoch(4))).code == Code.FENCED_PRODUCER
    state, result = apply(state, entry(6, ForgetNamedProducer(**NAME, epoch=Epoch(5))))
    assert (result, state.producers, state.unopened) == (Done(), {}, {})
    state, second = apply(state, entry(9, OpenNamedProducer(**NAME)))
    assert isinstance(first, ProducersOpened)
    assert second == ProducersOpened(producer=ProducerId(9 << 16), epoch=Epoch(9))
    assert second.producer != first.producer
    assert not has_lost_entries(state, TopicId(2), "loader")


def test_below_level_1_no_name_is_given_back_and_nothing_is_told_of_opens() -> None:
    state, _ = apply(replace(started(), level=0), entry(2, create()))
    state, _ = apply(state, entry(5, OpenNamedProducer(**NAME)))
    assert not state.unopened
    assert not has_lost_entries(state, TopicId(2), "loader")
    for command in (
        ForgetNamedProducer(**NAME, epoch=Epoch(5)),
        ConfirmNamedProducer(**NAME, epoch=Epoch(5)),
    ):
        answer = refused(state, 6, command)
        assert answer.code == Code.UNSUPPORTED_VERSION
        assert "finalize" in answer.message
    assert has_lost_entries(replace(state, level=1), TopicId(2), "loader"), "names of before count as opened"


# ---- rules of names in topics without a key -------------------------------------------------------------


def at_level(level: int, *, key: tuple[str, ...] = ()) -> MetadataState:
    state, _ = apply(replace(started(), level=level), entry(2, create(key=key)))
    return state


def test_the_entry_that_creates_a_name_draws_its_rule_and_the_rule_stays() -> None:
    state = at_level(LAYOUT_LEVEL)
    state, _ = apply(state, entry(5, OpenNamedProducer(**NAME)))
    state, _ = apply(state, entry(6, OpenNamedProducer(topic=TopicId(2), name="wide", spread=True)))
    assert state.producer_rules == {2: {"loader": ProducerRule.LINE, "wide": ProducerRule.SPREAD}}
    again, _ = apply(state, entry(7, OpenNamedProducer(**NAME)))
    assert again.producer_rules == state.producer_rules
    assert "`line`" in refused(state, 8, OpenNamedProducer(**NAME, spread=True)).message
    wide = OpenNamedProducer(topic=TopicId(2), name="wide")
    assert "spread=True" in refused(state, 8, wide).message
    check_invariants(state, 8)


def test_a_name_in_a_topic_with_key_has_no_rule() -> None:
    state = at_level(LAYOUT_LEVEL, key=("id",))
    state, _ = apply(state, entry(5, OpenNamedProducer(**NAME)))
    assert state.producer_rules == {}
    assert refused(state, 6, OpenNamedProducer(**NAME, spread=True)).code == Code.INVALID_ARGUMENT


def test_a_name_of_before_the_level_keeps_its_choice_of_partitions() -> None:
    state = at_level(1)
    state, _ = apply(state, entry(5, OpenNamedProducer(**NAME)))
    assert refused(state, 6, OpenNamedProducer(**NAME, spread=True)).code == Code.NOT_SUPPORTED
    state = replace(state, level=LAYOUT_LEVEL)
    state, _ = apply(state, entry(6, OpenNamedProducer(**NAME)))
    assert state.producer_rules == {}
    assert "older" in refused(state, 7, OpenNamedProducer(**NAME, spread=True)).message


def test_a_rule_ends_with_its_name_and_with_its_topic() -> None:
    state = at_level(LAYOUT_LEVEL)
    state, _ = apply(state, entry(5, OpenNamedProducer(**NAME, spread=True)))
    forgotten, _ = apply(state, entry(6, ForgetNamedProducer(**NAME, epoch=Epoch(5))))
    assert forgotten.producer_rules == {}
    other, _ = apply(forgotten, entry(7, OpenNamedProducer(**NAME)))
    assert other.producer_rules == {2: {"loader": ProducerRule.LINE}}
    deleted, _ = apply(state, entry(6, DeleteTopic(topic=TopicId(2))))
    assert deleted.producer_rules == {}


def test_below_the_level_the_bytes_of_a_state_and_of_a_command_are_as_before() -> None:
    state = at_level(1)
    state, _ = apply(state, entry(5, OpenNamedProducer(**NAME)))
    assert b"producer_rules" not in canonical_bytes(state)
    assert b"spread" not in msgspec.msgpack.encode(OpenNamedProducer(**NAME))
