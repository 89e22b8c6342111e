"""Feed the counters of the native node to the rates around rebalances."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ringfence.control.model.ids import Index
from ringfence.control.model.state import MetadataState
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.rebalance.run_rates import RunRates
from ringfence.native import _node


class RunMeter:
    """Reads the counters every second, and when a run begins or ends."""

    def __init__(self, native: _node.Node, proposer: RaftProposer) -> None:
        self.rates = RunRates()
        self._native, self._proposer = native, proposer

    def read(self, counters: Mapping[str, int]) -> None:
        self.rates.read(counters, self._proposer.state.rebalance, time.monotonic_ns() // 1_000_000)

    def applied(self, before: MetadataState, after: MetadataState, _: Index) -> None:
        """Listen to entries; entries before the start of the data plane are not reported."""
        if before.rebalance is not after.rebalance and before.rebalance.state != after.rebalance.state:
            self.read(self._native.counters())
