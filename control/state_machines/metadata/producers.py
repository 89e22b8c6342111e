"""Commands that give producers their identity.

A name keeps its id, and each open draws a higher epoch. A new name is `unopened` until one open has
reached every partition. Before that, a partition without an entry may never have had one. Afterwards, a
missing entry has been lost.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from ringfence.control.model import names
from ringfence.control.model.commands import (
    ConfirmNamedProducer,
    ForgetNamedProducer,
    OpenNamedProducer,
    OpenProducers,
    ProducerCommand,
)
from ringfence.control.model.ids import DRAW_MAX, Epoch, Index, ProducerId, TopicId, drawn
from ringfence.control.model.layout_changes import LAYOUT_LEVEL
from ringfence.control.model.results import Done, ProducersOpened, Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import NamedProducer, ProducerRule
from ringfence.control.state_machines.metadata.config import limit
from ringfence.control.state_machines.metadata.refusals import conflict, invalid, unknown_topic
from ringfence.native.wire import Code

# From this level on the metadata records which names were opened at all partitions, and names can be
# forgotten.
LEVEL_OF_NAMES: Final = 1


def validate(state: MetadataState, command: ProducerCommand) -> Refused | None:
    match command:
        case OpenProducers():
            return check_open(state, command)
        case OpenNamedProducer():
            return check_open_named(state, command)
        case _:
            return check_current(state, command)


def execute(state: MetadataState, command: ProducerCommand, index: Index) -> tuple[MetadataState, Result]:
    match command:
        case OpenProducers():
            return open_unnamed(state, command, index)
        case OpenNamedProducer():
            return open_named(state, command, index)
        case ConfirmNamedProducer(topic=topic, name=name):
            return without_unopened(state, topic, name), Done()
        case ForgetNamedProducer():
            return forget(state, command), Done()


def check_open(state: MetadataState, command: OpenProducers) -> Refused | None:
    if command.topic not in state.topics:
        return unknown_topic(command.topic)
    return (
        None if 1 <= command.count <= DRAW_MAX else invalid(f"{command.count} producer ids: 1 to {DRAW_MAX}")
    )


def open_unnamed(state: MetadataState, command: OpenProducers, index: Index) -> tuple[MetadataState, Result]:
    """Draw ids. The state does not change; the index is used up.

    New ids have a new epoch, above every epoch that a partition has forgotten. Ids from a block that was
    drawn long ago would be taken for forgotten ones.
    """
    result = ProducersOpened(producer=ProducerId(drawn(index, 0)), epoch=Epoch(index), count=command.count)
    return state, result


def check_open_named(state: MetadataState, command: OpenNamedProducer) -> Refused | None:
    if command.topic not in state.topics:
        return unknown_topic(command.topic)
    try:
        names.check_label(command.name, "producer name")
    except ValueError as error:
        return invalid(str(error))
    named = state.producers.get(command.topic, {})
    if command.name not in named and len(named) >= limit(state, "topic_producers_max"):
        return invalid(
            f"the topic has {len(named)} named producers, its limit `topic_producers_max`; forget names "
            "that are not used any more: ringfence producer forget TOPIC NAME"
        )
    return check_rule(state, command)


def check_rule(state: MetadataState, command: OpenNamedProducer) -> Refused | None:
    """Refuse another rule than that of the name."""
    if command.spread is UNSET and state.level < LAYOUT_LEVEL:
        return None
    if state.level < LAYOUT_LEVEL:
        message = (
            f"the cluster's level is {state.level}, `spread` needs {LAYOUT_LEVEL}: run `ringfence cluster "
            "finalize` once all nodes have the new program"
        )
        return Refused(code=Code.NOT_SUPPORTED, message=message)
    is_spread = command.spread is True
    if state.topics[command.topic].key:
        return invalid("`spread` is for topics without a key") if is_spread else None
    if command.name not in state.producers.get(command.topic, {}):
        return None
    rule = rule_of(state, command.topic, command.name)
    if is_spread == (rule is ProducerRule.SPREAD):
        return None
    if rule is ProducerRule.SPREAD:
        return conflict(
            f"producer {command.name!r} has the rule `spread` since it was created; open it with spread=True "
            "and number its sends, or use another name"
        )
    drawn_as = "`line`" if rule is ProducerRule.LINE else "none: it is older than these rules"
    return conflict(
        f"producer {command.name!r} cannot be opened with spread=True: its rule is {drawn_as}; use another "
        "name, or forget this one: ringfence producer forget TOPIC NAME"
    )


def rule_of(state: MetadataState, topic: TopicId, name: str) -> ProducerRule:
    """How sends of the name choose partitions."""
    return state.producer_rules.get(topic, {}).get(name, ProducerRule.NONE)


def with_rule(state: MetadataState, command: OpenNamedProducer) -> MetadataState:
    """Draw the rule of a new name."""
    if state.level < LAYOUT_LEVEL or state.topics[command.topic].key:
        return state
    rule = ProducerRule.SPREAD if command.spread is True else ProducerRule.LINE
    rules = {**state.producer_rules.get(command.topic, {}), command.name: rule}
    return replace(state, producer_rules={**state.producer_rules, command.topic: rules})


def without_rule(state: MetadataState, topic: TopicId, name: str) -> MetadataState:
    if name not in state.producer_rules.get(topic, {}):
        return state
    rules = {each: rule for each, rule in state.producer_rules[topic].items() if each != name}
    kept = {number: each for number, each in state.producer_rules.items() if number != topic}
    if rules:
        kept[topic] = rules
    return replace(state, producer_rules=kept)


def open_named(
    state: MetadataState, command: OpenNamedProducer, index: Index
) -> tuple[MetadataState, Result]:
    named = state.producers.get(command.topic, {})
    before = named.get(command.name)
    producer = ProducerId(drawn(index, 0)) if before is None else before.producer
    opened = NamedProducer(producer=producer, epoch=Epoch(index))
    state = replace(state, producers={**state.producers, command.topic: {**named, command.name: opened}})
    if before is None and state.level >= LEVEL_OF_NAMES:
        unopened = (*state.unopened.get(command.topic, ()), command.name)
        state = replace(state, unopened={**state.unopened, command.topic: unopened})
    if before is None:
        state = with_rule(state, command)
    previous = Epoch(0) if before is None else before.epoch
    result = ProducersOpened(producer=producer, epoch=Epoch(index), previous_epoch=previous)
    return state, result


def check_current(
    state: MetadataState, command: ConfirmNamedProducer | ForgetNamedProducer
) -> Refused | None:
    """Refuse a name that does not exist, or was opened again since."""
    if state.level < LEVEL_OF_NAMES:
        message = (
            f"the cluster's level is {state.level}, names can be forgotten from level {LEVEL_OF_NAMES} on: "
            "run `ringfence cluster finalize` once all nodes have the new program"
        )
        return Refused(code=Code.UNSUPPORTED_VERSION, message=message)
    if command.topic not in state.topics:
        return unknown_topic(command.topic)
    producer = state.producers.get(command.topic, {}).get(command.name)
    if producer is None:
        return invalid(f"the topic has no producer named {command.name[:300]!r}")
    if producer.epoch != command.epoch:
        message = (
            f"producer {command.name!r} was opened again: its epoch is {producer.epoch}, not {command.epoch}"
        )
        return Refused(code=Code.FENCED_PRODUCER, message=message)
    return None


def forget(state: MetadataState, command: ForgetNamedProducer) -> MetadataState:
    remaining = {name: each for name, each in state.producers[command.topic].items() if name != command.name}
    producers = {number: each for number, each in state.producers.items() if number != command.topic}
    if remaining:
        producers[command.topic] = remaining
    state = without_rule(replace(state, producers=producers), command.topic, command.name)
    return without_unopened(state, command.topic, command.name)


def without_unopened(state: MetadataState, topic: TopicId, name: str) -> MetadataState:
    waiting = state.unopened.get(topic, ())
    if name not in waiting:
        return state
    unopened = {number: each for number, each in state.unopened.items() if number != topic}
    left = tuple(each for each in waiting if each != name)
    if left:
        unopened[topic] = left
    return replace(state, unopened=unopened)


def has_lost_entries(state: MetadataState, topic: TopicId, name: str) -> bool:
    """Whether a partition without an entry of this name has lost it: an open of the name has reached all
    partitions.

    At level 0 that is unknown; the answer is False.
    """
    is_open = state.level >= LEVEL_OF_NAMES and name in state.producers.get(topic, {})
    return is_open and name not in state.unopened.get(topic, ())
