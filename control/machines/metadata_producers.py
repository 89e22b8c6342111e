"""Commands that give producers their identity."""

from __future__ import annotations

from msgspec.structs import replace

from ringfence.control.machines.config import limit
from ringfence.control.machines.refusals import invalid, unknown_topic
from ringfence.control.model import names
from ringfence.control.model.commands import OpenNamedProducer, OpenProducers, ProducerCommand
from ringfence.control.model.ids import DRAW_MAX, Epoch, Index, ProducerId, drawn
from ringfence.control.model.results import ProducersOpened, Refused, Result
from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import NamedProducer


def validate(state: MetadataState, command: ProducerCommand) -> Refused | None:
    if isinstance(command, OpenProducers):
        return check_open(state, command)
    return check_open_named(state, command)


def execute(state: MetadataState, command: ProducerCommand, index: Index) -> tuple[MetadataState, Result]:
    if isinstance(command, OpenProducers):
        return open_unnamed(state, command, index)
    return open_named(state, command, index)


def check_open(state: MetadataState, command: OpenProducers) -> Refused | None:
    if command.topic not in state.topics:
        return unknown_topic(command.topic)
    return (
        None if 1 <= command.count <= DRAW_MAX else invalid(f"{command.count} producer ids: 1 to {DRAW_MAX}")
    )


def open_unnamed(state: MetadataState, command: OpenProducers, index: Index) -> tuple[MetadataState, Result]:
    """Draw ids; nothing of it is kept in the state, the index is spent.

    Fresh ids carry a fresh epoch, above every epoch that a partition has forgotten: ids out of a block that
    was drawn long ago would be taken for forgotten ones.
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
    known = state.producers.get(command.topic, {})
    if command.name not in known and len(known) >= limit(state, "topic_producers_max"):
        return invalid(f"the topic has {len(known)} named producers, its limit `topic_producers_max`")
    return None


def open_named(
    state: MetadataState, command: OpenNamedProducer, index: Index
) -> tuple[MetadataState, Result]:
    known = state.producers.get(command.topic, {})
    before = known.get(command.name)
    producer = ProducerId(drawn(index, 0)) if before is None else before.producer
    opened = NamedProducer(producer=producer, epoch=Epoch(index))
    producers = {**state.producers, command.topic: {**known, command.name: opened}}
    previous = Epoch(0) if before is None else before.epoch
    result = ProducersOpened(producer=producer, epoch=Epoch(index), previous_epoch=previous)
    return replace(state, producers=producers), result
