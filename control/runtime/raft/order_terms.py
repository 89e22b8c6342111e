"""Check the terms of orders: only the newest leader's are executed, and no other sender can displace it."""

from __future__ import annotations

from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.native.wire import Code


class OrderTerms:
    """The terms of the orders that one part of a node has accepted."""

    def __init__(self, proposer: RaftProposer) -> None:
        self._proposer = proposer
        # The newest term of an order; orders of older terms are refused.
        self._newest = 0

    def check(self, term: int) -> None:
        """Accept an order of `term`.

        A term that consensus has not told this node is refused, and not remembered: a forged or damaged one
        would lock out the leader for as long as the node runs. A new leader's first orders may be early by
        one message; it repeats them.

        Raises:
            RequestRefused: TOO_OLD, or AHEAD, which a repeat may change.
        """
        if term < self._newest:
            message = f"the order is of term {term}, but this node has seen term {self._newest}"
            raise RequestRefused(Code.TOO_OLD, message)
        known = self._proposer.replica.term
        if term > known:
            message = f"the order is of term {term}, but this node knows terms up to {known}; ask again"
            raise RequestRefused(Code.AHEAD, message)
        self._newest = term
