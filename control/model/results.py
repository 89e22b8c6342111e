"""The result of one entry. Results are part of the session table, so they are small and have a fixed form.

The exception is `Refused`: it is never stored there, because a refused entry leaves the state as it is
(I15).
"""

from __future__ import annotations

import msgspec

from ringfence.control.model.ids import Epoch, Index, NodeId, ProducerId, ScopeId, SessionId, TopicId
from ringfence.native.wire import Code


class _Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="is"):
    """Base of all results."""


class Refused(_Result, frozen=True, kw_only=True, tag="refused"):
    """The command changed nothing (I15). `code` is the wire's, `message` names the values and the way out.

    The text is not part of the state, unless the reason of an ended rebalance quotes it: see
    `state_machines.metadata.refusals`.
    """

    code: Code
    message: str


class Done(_Result, frozen=True, kw_only=True, tag="done"):
    """The command was applied and has no values to return."""


class SessionOpened(_Result, frozen=True, kw_only=True, tag="session_opened"):
    """The number of the new session."""

    session: SessionId


class NodeRestarted(_Result, frozen=True, kw_only=True, tag="node_restarted"):
    """`partitions` of the store have `epoch` now; the session is the node's."""

    session: SessionId
    epoch: Epoch
    partitions: int


class NodeRegistered(_Result, frozen=True, kw_only=True, tag="node_registered"):
    node: NodeId


class RingChanged(_Result, frozen=True, kw_only=True, tag="ring_changed"):
    version: int


class ChangesPrepared(_Result, frozen=True, kw_only=True, tag="changes_prepared"):
    """`change` is the number of all of them; `partitions` is 0 if all necessary changes are already open."""

    change: int
    partitions: int


class RebalanceStarted(_Result, frozen=True, kw_only=True, tag="rebalance_started"):
    run: int


class TopicCreated(_Result, frozen=True, kw_only=True, tag="topic_created"):
    topic: TopicId


class SchemaAdded(_Result, frozen=True, kw_only=True, tag="schema_added"):
    schema_id: int


class ProducersOpened(_Result, frozen=True, kw_only=True, tag="producers_opened"):
    """Ids `producer` .. `producer + count - 1` with `epoch`; `previous_epoch` is 0 for the first open."""

    producer: ProducerId
    epoch: Epoch
    count: int = 1
    previous_epoch: Epoch = Epoch(0)


class ScopeBegun(_Result, frozen=True, kw_only=True, tag="scope_begun"):
    """Epochs up to `decided` are committed or expired; stages of epochs up to `committed` are not needed any
    more.
    """

    scope: ScopeId
    driver: Index
    committed: int
    decided: int


class ScopeDecided(_Result, frozen=True, kw_only=True, tag="scope_decided"):
    """`already`: the epoch was committed before."""

    already: bool


Result = (
    Refused
    | Done
    | SessionOpened
    | NodeRestarted
    | NodeRegistered
    | RingChanged
    | ChangesPrepared
    | RebalanceStarted
    | TopicCreated
    | SchemaAdded
    | ProducersOpened
    | ScopeBegun
    | ScopeDecided
)
