"""Call the parts of a node for each applied metadata entry that changed the state."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from ringfence.control.model.ids import Index
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.runtime.raft.level_gate import check_level
from ringfence.native.errors import NewerFormatError

_LOG = structlog.get_logger("ringfence.cluster")

# The states before and after an entry, and its index.
Listener = Callable[[MetadataState, MetadataState, Index], None]


class EntryListeners:
    """Listeners of one node, called in the order in which they were added."""

    def __init__(self, on_failed: Callable[[Exception], None]) -> None:
        """`on_failed` gets the error if the cluster's level is too new for this program."""
        self._on_failed = on_failed
        self._listeners: list[Listener] = []
        # Called only after `begin`: before that the partitions of this node have no epoch.
        self._started_listeners: list[Listener] = []
        self._is_started = False

    def add(self, *listeners: Listener) -> None:
        self._listeners += listeners

    def add_started(self, *listeners: Listener) -> None:
        """Add listeners that are called from `begin` on."""
        self._started_listeners += listeners

    def begin(self, state: MetadataState, index: Index) -> None:
        """The start of this node is applied: bring the added listeners from nothing to `state`."""
        self._is_started = True
        for listener in self._started_listeners:
            listener(EMPTY, state, index)

    def notify(self, before: MetadataState, after: MetadataState, index: Index) -> None:
        if after.level != before.level:
            try:
                check_level(after.level, "the metadata")
            except NewerFormatError as error:
                self._on_failed(error)
                return
            _LOG.info("level raised", level=after.level, before=before.level, index=index)
        for listener in self._listeners:
            listener(before, after, index)
        if self._is_started:
            for listener in self._started_listeners:
                listener(before, after, index)
