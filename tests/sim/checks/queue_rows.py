"""What was said of each row of a QUEUE, and which leases of it last by the owner's clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

LATE_S: Final = 0.5
"""A lease began so long before its answer left, at most: the rows are read in between."""
CONNECTION_S: Final = 1.9
"""Leases outlive their connection by two seconds; what ticks take is left."""


class Node(NamedTuple):
    """One life of one machine."""

    name: str
    life: int


@dataclass(slots=True)
class Lease:
    """An answer with rows on lease. Seconds are by the owner's clock, microseconds by the world's.

    `owners`: how often the gate's owner had changed. `until_s`: it lasts at least until then.
    """

    process: str
    node: Node
    owners: int
    left_us: int
    until_s: float
    rate: float


class End(NamedTuple):
    """A process sent what became of a row; `call`: 0 once an owner has answered."""

    process: str
    call: int
    sent_us: int


@dataclass(slots=True)
class RowState:
    """One row in one incarnation.

    Attributes:
        lease: the newest one. by_process: the newest one of each process.
        end: what was sent last that ends a lease.
        done_us: when a process heard that it is done; -1: none has.
        is_told: a member sent that it is done. is_gone: that it is below the log start.
        tries: deliveries that may have counted as failed. failed: those whose member heard so, since a retry.
        is_given_up: a member sent that it is to be parked.
        parked_us: when a member heard that it is parked; -1: none has, or it may be no more.
        put_back_us: when an operator asked for it last; -1: never.
        discarded_us: when an operator heard that it is discarded; -1: never. is_discarded: it asked for it.
    """

    lease: Lease | None = None
    by_process: dict[str, Lease] = field(default_factory=dict)
    end: End | None = None
    done_us: int = -1
    is_told: bool = False
    is_gone: bool = False
    tries: int = 0
    failed: int = 0
    is_given_up: bool = False
    parked_us: int = -1
    put_back_us: int = -1
    discarded_us: int = -1
    is_discarded: bool = False

    def leased(self, lease: Lease) -> None:
        """It is on lease; an end that is under way to the owner may be of this one."""
        if self.end is not None and self.end.call and self.end.process == lease.process:
            lease = replace(lease, until_s=0.0)
        self.lease = self.by_process[lease.process] = lease

    def ends(self, process: str, call: int, sent_us: int) -> None:
        """The process says what became of the row, so its lease may be over."""
        self.end = End(process, call, sent_us)
        if self.lease is not None and self.lease.process == process:
            self.lease = None

    def ended(self, process: str, call: int) -> None:
        """An owner has answered."""
        if self.end is not None and (self.end.process, self.end.call) == (process, call):
            self.end = self.end._replace(call=0)


__all__ = ["CONNECTION_S", "LATE_S", "End", "Lease", "Node", "RowState"]
