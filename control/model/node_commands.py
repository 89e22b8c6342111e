"""Commands about members and the ring. `changed` and `version` make them compare-and-set."""

from __future__ import annotations

from msgspec import field

from ringfence.control.model.base import CommandBase
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.nodes import WEIGHT_DEFAULT, Vote


class RegisterNode(CommandBase, frozen=True, kw_only=True, tag="register_node"):
    """Make a store a node. The node's id is the entry's index; a known store gets its present id.

    The node begins as JOINING: it neither votes nor takes partitions until its first start. `level` is the
    newest one that its program knows.
    """

    cluster: bytes
    store: bytes
    addresses: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    zone: str = ""
    weight: int = WEIGHT_DEFAULT
    labels: dict[str, str] = field(default_factory=dict)
    program: str = ""
    level: int = 0


class FailNode(CommandBase, frozen=True, kw_only=True, tag="fail_node"):
    """A LIVE node was silent for the failure time-out. Moves nothing."""

    node: NodeId
    changed: Index


class RecoverNode(CommandBase, frozen=True, kw_only=True, tag="recover_node"):
    """A FAILED node sends heartbeats again. It becomes LIVE and gets no partition by that."""

    node: NodeId
    changed: Index


class SetNode(CommandBase, frozen=True, kw_only=True, tag="set_node"):
    """An administrator's settings of a node; None keeps a setting."""

    node: NodeId
    zone: str | None = None
    weight: int | None = None
    labels: dict[str, str] | None = None
    draining: bool | None = None
    vote: Vote | None = None


class RemoveNode(CommandBase, frozen=True, kw_only=True, tag="remove_node"):
    """Remove a node that is out of the ring and has no replica."""

    node: NodeId


class RenewWitness(CommandBase, frozen=True, kw_only=True, tag="renew_witness"):
    """A node's log directory has another number now. An older copy of the directory lacks the number and is
    detected.

    `started` is the node's last start: the command of a process that another one has replaced is too late.
    """

    node: NodeId
    store: bytes
    started: Index
    witness: int


class FormRing(CommandBase, frozen=True, kw_only=True, tag="form_ring"):
    """The first ring, once, at the cluster's minimum size."""

    nodes: tuple[NodeId, ...]


class AddToRing(CommandBase, frozen=True, kw_only=True, tag="add_to_ring"):
    """Add a member. `version` is the ring's before the change."""

    node: NodeId
    version: int


class RemoveFromRing(CommandBase, frozen=True, kw_only=True, tag="remove_from_ring"):
    """Remove an empty node from the ring, after its moves. From then on it is drained."""

    node: NodeId
    version: int


NodeCommand = RegisterNode | FailNode | RecoverNode | SetNode | RemoveNode | RenewWitness
RingCommand = FormRing | AddToRing | RemoveFromRing
