"""Commands one after the other, each step held against the invariants of the metadata."""

from __future__ import annotations

from ringfence.control.invariants import metadata as invariants
from ringfence.control.model.commands import Command
from ringfence.control.model.ids import NodeId
from ringfence.control.model.results import Refused, Result
from ringfence.control.model.state import EMPTY, MetadataState, canonical_bytes
from ringfence.control.state_machines.metadata.state_machine import apply
from tests.fakes.metadata_commands import INIT, entry, register

ONE, TWO, FIVE = NodeId(1), NodeId(2), NodeId(5)


def after(state: MetadataState, index: int, *commands: Command) -> MetadataState:
    """The state after commands that must all be applied, the first at `index`."""
    for at, command in enumerate(commands, start=index):
        new, result = apply(state, entry(at, command))
        assert not isinstance(result, Refused), result
        invariants.check_step(state, new, at)
        state = new
    return state


def told(state: MetadataState, index: int, command: Command) -> Result:
    return apply(state, entry(index, command))[1]


def refused(state: MetadataState, command: Command) -> Refused:
    before = canonical_bytes(state)
    same, result = apply(state, entry(900, command))
    assert isinstance(result, Refused), result
    assert same is state
    assert canonical_bytes(state) == before
    return result


def two() -> MetadataState:
    """Node 1 in the ring, node 2 registered by entry 2."""
    return after(EMPTY, 1, INIT, register(2))
