"""What the native node tells without being asked: reasons of health, lines in the log, events."""

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
NODE = "NODE"
"""A line's method where the node tells of what it did itself."""


class NativeEvents:
    """Of one node. `take` gets what no request and no order is about."""

    def __init__(
        self,
        proposer: RaftProposer,
        here: Replica,
        health: Health,
        happenings: ClusterEvents,
        audit: Audit,
        fail: Callable[[Exception], None],
    ) -> None:
        self._proposer, self._here, self._fail = proposer, here, fail
        self._health, self._happenings, self._audit = health, happenings, audit

    def take(self, outcome: tuple[Any, ...]) -> None:
        match outcome:
            case ("quarantined", topic, partition, why):
                recovery.quarantined(self._health, topic, partition, why)
            case ("damaged", topic, partition, records, why):
                recovery.damaged(self._health, (topic, partition), records, why)
            case ("lifted", topic, partition):
                recovery.lifted(self._health, topic, partition)
            case ("shard_failed", shard, why):
                reason = f"storage failed: shard {shard}: {why}; check the disk, then start the node again"
                self._health.worsen(f"shard {shard}", reason)
                if shares_replicas(self._state, self._here):
                    # It would stay the owner of what it cannot store any more: others can, once it is silent.
                    self._fail(StorageError(reason))
            case ("disk_full", shard, True):
                reason = f"disk full: shard {shard} has no space for rows; reads go on"
                self._health.worsen(f"disk full {shard}", reason)
            case ("disk_full", shard, False):
                self._health.mend(f"disk full {shard}")
            case ("gave_up", known):
                self._gave_up(known)
            case ("sync", status):
                told = {key: status[key] for key in ("partition", "change", "node", "state", "gap", "why")}
                _LOG.info("copy", **told)
            case _:
                _LOG.warning("unknown outcome", outcome=repr(outcome)[:200])

    @property
    def _state(self) -> MetadataState:
        return self._proposer.state

    def _gave_up(self, known: dict[str, int]) -> None:
        """The operator's choice was audited when it was made; this says what it took from this store."""
        index, told = self._proposer.applied.index, {**known, "node": self._here.node}
        _LOG.warning("records given up", why="an owner was chosen by force that lacks them", **told)
        self._happenings.tell("records given up", index, told)
        action = (
            f"give up {known['records']} records ({known['rows']} rows) of partition {known['partition']}"
        )
        detail = f"the owner of epoch {known['forced']} was chosen by force and lacks them"
        line = Line("", "", "", NODE, f"partition/{known['partition']}", action)
        self._audit.add_soon(line.ended(200, detail, index))
