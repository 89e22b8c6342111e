"""Bytes from the network are messages, or are refused with a reason."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.control.consensus import codec, configuration_changes, events
from ringfence.control.consensus.configuration_changes import Change, NodeChange, Operation, Transition
from ringfence.control.consensus.errors import MalformedMessageError
from ringfence.control.consensus.messages import (
    APPEND_THREAD,
    ConfigurationState,
    Entry,
    EntryType,
    Message,
    MessageType,
    Snapshot,
)
from tests.consensus.lab import entries

GOOD = [
    Message(
        type=MessageType.APPEND,
        to=2,
        sender=1,
        term=3,
        index=4,
        log_term=2,
        entries=entries(5, 2, 3),
        commit=4,
    ),
    Message(
        type=MessageType.SNAPSHOT, to=2, sender=1, term=3, snapshot=Snapshot(4, 2, ConfigurationState((1, 2)))
    ),
    Message(type=MessageType.PROPOSE, to=1, entries=(Entry(data=b"x"),)),
    Message(type=MessageType.READ_INDEX, to=1, sender=2, entries=(Entry(data=b"context"),)),
    Message(type=MessageType.HEARTBEAT_ANSWER, to=1, sender=2, term=3, context=b"12345678"),
]


@pytest.mark.parametrize("message", GOOD, ids=lambda message: message.type.name)
def test_what_is_encoded_comes_back(message: Message) -> None:
    assert codec.decode(codec.encode(message)) == message


def altered(**fields: object) -> Message:
    return msgspec.structs.replace(GOOD[0], **fields)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (altered(entries=entries(6, 2)), "entry 6 follows 4"),
        (altered(entries=entries(5, 4)), "has term 4"),
        (altered(entries=entries(5, 1)), "has term 1"),
        (altered(entries=entries(5, 3, 2)), "has term 2"),
        (altered(sender=0), "no sender"),
        (altered(term=0, entries=()), "no term"),
        (altered(type=MessageType.VOTE), "has entries"),
        (altered(type=MessageType.SNAPSHOT, entries=()), "no snapshot"),
        (altered(sender=-1), "no such nodes"),
        (altered(to=0), "no such nodes"),
        (Message(type=MessageType.PROPOSE, to=1, sender=2), "0 entries"),
        (Message(type=MessageType.PROPOSE, to=1, sender=2, entries=entries(3, 1)), "placed"),
        (Message(type=MessageType.READ_INDEX, to=1, sender=2), "0 contexts"),
    ],
)
def test_what_no_node_sends_is_refused(message: Message, why: str) -> None:
    with pytest.raises(MalformedMessageError, match=why):
        codec.decode(msgspec.msgpack.encode(message))


def test_a_local_message_is_neither_sent_nor_taken() -> None:
    message = Message(type=MessageType.STORAGE_APPEND_ANSWER, sender=1, index=3)
    with pytest.raises(AssertionError):
        codec.encode(message)
    with pytest.raises(MalformedMessageError, match="local"):
        codec.decode(msgspec.msgpack.encode(message))


def test_long_deep_and_negative_bytes_are_refused() -> None:
    with pytest.raises(MalformedMessageError, match="is the limit"):
        codec.decode(b"x" * 11, bytes_max=10)
    deep = b"\x91" * 100_000
    with pytest.raises(MalformedMessageError):
        codec.decode(deep)
    negative = [int(MessageType.HEARTBEAT), 2, 1, -1]
    with pytest.raises(MalformedMessageError):
        codec.decode(msgspec.msgpack.encode(negative))


@pytest.mark.parametrize(
    "event",
    [
        events.Tick(),
        events.Received(GOOD[0]),
        events.Received(Message(type=MessageType.STORAGE_APPEND_ANSWER, sender=APPEND_THREAD, to=1, index=3)),
        events.Propose((b"x", b"y")),
        events.ProposeChange(Change((NodeChange(Operation.VOTER, 4),))),
        events.Read(b"r"),
        events.Transfer(2),
        events.Campaign(),
        events.ForgetLeader(),
        events.Unreachable(2),
        events.SnapshotSent(2, ok=True),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_that_was_recorded_can_be_run_again(event: events.Event) -> None:
    data = msgspec.msgpack.encode(event)
    assert msgspec.msgpack.decode(data, type=events.Event) == event


@given(st.binary(max_size=200) | st.sampled_from(GOOD).map(codec.encode), st.data())
def test_any_bytes_give_a_message_or_a_refusal(data: bytes, draw: st.DataObject) -> None:
    if data:
        at = draw.draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw.draw(st.binary(max_size=3)) + data[at + 1 :]
    try:
        codec.decode(data)
    except MalformedMessageError:
        return


@given(
    st.lists(st.builds(NodeChange, st.sampled_from(list(Operation)), st.integers(0, 1 << 40)), max_size=5),
    st.sampled_from(list(Transition)),
)
def test_a_change_comes_back_from_its_entry(operations: list[NodeChange], transition: Transition) -> None:
    change = Change(tuple(operations), transition)
    assert configuration_changes.from_entry(configuration_changes.to_entry(change)) == change


def test_an_entry_without_a_change_and_one_with_too_many_operations_are_refused() -> None:
    with pytest.raises(MalformedMessageError, match="holds no change"):
        configuration_changes.from_entry(Entry(1, 1, EntryType.CHANGE, b"\xc1"))
    many = Change(tuple(NodeChange(Operation.VOTER, node) for node in range(1, 70)))
    with pytest.raises(MalformedMessageError, match="64 is the limit"):
        configuration_changes.from_entry(configuration_changes.to_entry(many))
