"""Turn unsolicited reports of the native node into reasons of health, log lines and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from ringfence.control.model.state import MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane import recovery
from ringfence.control.runtime.handlers.audit import Audit, Line
from ringfence.control.runtime.handlers.cluster_events import ClusterEvents
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.replica_counts import shares_replicas
from ringfence.native.errors import StorageError

_LOG = structlog.get_logger("ringfence.node")
# The method of an audit line about an action of the node itself.
NODE = "NODE"


class NativeEvents:
    """The handler of one node. `take` gets the outcomes that answer no request and no order."""

    def __init__(
        self,
        proposer: RaftProposer,
        here: Replica,
        health: Health,
        cluster_events: ClusterEvents,
        audit: Audit,
        fail: Callable[[Exception], None],
    ) -> None:
        self._proposer, self._here, self._fail = proposer, here, fail
        self._health, self._cluster_events, self._audit = health, cluster_events, audit

    def take(self, outcome: tuple[Any, ...]) -> None:
        match outcome:
            case ("quarantined", topic, partition, why):
                recovery.report_quarantine(self._health, topic, partition, why)
            case ("damaged", topic, partition, records, why):
                recovery.report_damage(self._health, (topic, partition), records, why)
            case ("lifted", topic, partition):
                recovery.clear_quarantine(self._health, topic, partition)
            case ("shard_failed", shard, why):
                reason = f"storage failed: shard {shard}: {why}; check the disk, then start the node again"
                self._health.set_reason(f"shard {shard}", reason)
                if shares_replicas(self._state, self._here):
                    # The node would stay the owner of partitions that it cannot store any more. Stopping
                    # it lets the leader elect other owners.
                    self._fail(StorageError(reason))
            case ("disk_full", shard, True):
                reason = f"disk full: shard {shard} has no space for rows; reads go on"
                self._health.set_reason(f"disk full {shard}", reason)
            case ("disk_full", shard, False):
                self._health.clear_reason(f"disk full {shard}")
            case ("gave_up", loss):
                self._report_loss(loss)
            case ("sync", status):
                fields = {key: status[key] for key in ("partition", "change", "node", "state", "gap", "why")}
                _LOG.info("copy", **fields)
            case _:
                _LOG.warning("unknown outcome", outcome=repr(outcome)[:200])

    @property
    def _state(self) -> MetadataState:
        return self._proposer.state

    def _report_loss(self, loss: dict[str, int]) -> None:
        """Report the records that this store has dropped because of an unclean owner election.

        The operator's choice has an audit line already; this one has the records and rows of this store.
        """
        index, values = self._proposer.applied.index, {**loss, "node": self._here.node}
        _LOG.warning("records given up", why="an owner was chosen by force that lacks them", **values)
        self._cluster_events.emit("records given up", index, values)
        action = f"give up {loss['records']} records ({loss['rows']} rows) of partition {loss['partition']}"
        detail = f"the owner of epoch {loss['forced']} was chosen by force and lacks them"
        line = Line("", "", "", NODE, f"partition/{loss['partition']}", action)
        self._audit.add_soon(line.ended(200, detail, index))
