"""The metadata machine under thousands of command sequences: invariants, refusals, replay, sessions."""

from __future__ import annotations

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import Command, OpenProducers, OpenSession, SetConfig
from ringfence.control.model.entries import Entry, decode_proposal, encode_proposal
from ringfence.control.model.ids import Epoch, ProducerId, TopicId
from ringfence.control.model.results import Done, ProducersOpened, Refused, SessionOpened, TopicCreated
from ringfence.control.model.state import EMPTY, canonical_bytes, decode_state, digest
from ringfence.control.state_machines.metadata import state_machine
from ringfence.control.state_machines.metadata.config import SESSION_WINDOW, SESSIONS_MAX
from ringfence.control.state_machines.metadata.state_machine import apply, validate
from ringfence.native.wire import Code
from tests.fakes.metadata_commands import INIT, commands, create, entry, started


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_every_history_keeps_the_invariants_and_replays_to_equal_bytes(data: st.DataObject) -> None:
    state, log = EMPTY, list[Entry]()
    first = data.draw(st.sampled_from([INIT, replace(INIT, nodes_min=3), replace(INIT, level=2)]))
    for index in range(1, data.draw(st.integers(2, 30))):
        command = data.draw(commands(state)) if index > 1 else first
        session = data.draw(st.sampled_from([0, *state.sessions]))
        new = entry(index, command, session=session, sequence=data.draw(st.integers(1, 5)), time_ms=index)
        before = canonical_bytes(state)
        after, result = apply(state, new)
        invariants.check_step(state, after, index)
        assert canonical_bytes(state) == before, "apply changed the state that it was given"
        if isinstance(result, Refused):
            assert after is state, "I15: a refused command changed the state"
            assert result.message, "a refusal says nothing"
        if session == 0:
            assert (validate(state, command) is None) == (not isinstance(result, Refused))
        log.append(new)
        state = after
    replayed = EMPTY
    for old in log:
        stored = decode_proposal(encode_proposal(old.proposal))
        replayed, _ = apply(replayed, Entry(index=old.index, term=old.term, proposal=stored))
    assert digest(replayed) == digest(state)
    assert decode_state(canonical_bytes(state)) == state


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_node_that_opened_a_snapshot_goes_on_as_one_that_did_not(data: st.DataObject) -> None:
    """The order in which maps were filled must tell nothing: a snapshot has them sorted."""
    state, _ = apply(started(), entry(2, create()))
    twin = decode_state(canonical_bytes(state))
    for index in range(3, data.draw(st.integers(4, 20))):
        new = entry(index, data.draw(commands(state)))
        state, result = apply(state, new)
        twin, same = apply(twin, new)
        assert same == result
        if data.draw(st.booleans()):
            twin = decode_state(canonical_bytes(twin))
    assert digest(twin) == digest(state)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_id_is_ever_drawn_twice(data: st.DataObject) -> None:
    state, drawn = started(), list[int]()
    for index in range(2, 25):
        command = data.draw(commands(state))
        state, result = apply(state, entry(index, command))
        if isinstance(result, TopicCreated):
            drawn += [part.partition for part in state.topics[result.topic].layout.partitions]
        if isinstance(result, ProducersOpened) and result.previous_epoch == 0:
            drawn += range(result.producer, result.producer + result.count)
    assert len(set(drawn)) == len(drawn)


def test_a_retried_command_applies_once_and_gets_the_first_answer() -> None:
    state = started()
    first, result = apply(state, entry(2, create(), session=1, sequence=1))
    assert result == TopicCreated(topic=TopicId(2))
    again, repeated = apply(first, entry(3, create(), session=1, sequence=1))
    assert repeated == result
    assert again is first
    _, other = apply(first, entry(3, create(), session=1, sequence=2))
    assert isinstance(other, Refused)
    assert other.code == Code.ALREADY_EXISTS


def test_a_refused_command_is_judged_anew_when_it_is_retried() -> None:
    state = started()
    open_producer = OpenProducers(topic=TopicId(3), count=1)
    same, refused = apply(state, entry(2, open_producer, session=1, sequence=1))
    assert isinstance(refused, Refused)
    created, _ = apply(same, entry(3, create(), session=1, sequence=2))
    _, result = apply(created, entry(4, open_producer, session=1, sequence=1))
    assert result == ProducersOpened(producer=ProducerId(4 << 16), epoch=Epoch(4), count=1)


def test_a_session_remembers_its_window_and_refuses_what_left_it() -> None:
    state = started()
    config = SetConfig(values={"topics_max": 7})
    for sequence in range(1, SESSION_WINDOW + 3):
        state, result = apply(state, entry(1 + sequence, config, session=1, sequence=sequence))
        assert result == Done()
    kept, too_old = apply(state, entry(900, config, session=1, sequence=2))
    assert isinstance(too_old, Refused)
    assert too_old.code == Code.TOO_OLD
    assert kept is state
    _, known = apply(state, entry(900, config, session=1, sequence=3))
    assert known == Done()


def test_the_least_used_session_gives_way_and_is_told_so() -> None:
    state = started()
    for index in range(2, SESSIONS_MAX + 2):
        state, result = apply(state, entry(index, OpenSession()))
        assert isinstance(result, SessionOpened)
    assert len(state.sessions) == SESSIONS_MAX
    assert 1 not in state.sessions
    _, forgotten = apply(state, entry(5_000, create(), session=1, sequence=1))
    assert isinstance(forgotten, Refused)
    assert forgotten.code == Code.FORGOTTEN


def test_the_checker_finds_planted_defects() -> None:
    """A checker that cannot fail proves nothing."""
    state, _ = apply(started(), entry(2, create()))
    topic = state.topics[TopicId(2)]
    parts = topic.layout.partitions
    holes = replace(topic, layout=replace(topic.layout, partitions=parts[1:]))
    twice = replace(
        topic,
        layout=replace(topic.layout, partitions=(*parts[:-1], replace(parts[0], slots=parts[-1].slots))),
    )
    gone = replace(topic, assignments={})
    for defect, name in ((holes, "I1"), (twice, "I2"), (gone, "I4")):
        try:
            invariants.check(replace(state, topics={TopicId(2): defect}), 2)
        except AssertionError as error:
            assert str(error).startswith(name), error
        else:
            raise AssertionError(f"{name} was not found")
    try:
        invariants.check_step(state, replace(state, topics={}, names={}), 3)
    except AssertionError as error:
        assert str(error).startswith("I16"), error
    else:
        raise AssertionError("a topic that vanished was not found")


def test_every_type_of_command_belongs_to_one_family() -> None:
    kinds = [kind for family, _ in state_machine._FAMILIES for kind in get_args(family)]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == set(get_args(Command))
