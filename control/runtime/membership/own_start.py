"""Tell the starts of this process from those of another process with the same identity, and end this one."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.control.model.commands import RestartNode
from ringfence.control.model.ids import Index
from ringfence.control.transport.hub import Hub
from ringfence.native.errors import StorageError


class OwnStart:
    """Watches the starts of this node in the log, and messages of another process with its identity."""

    def __init__(self, hub: Hub, on_failed: Callable[[Exception], None]) -> None:
        self._hub, self._on_failed = hub, on_failed
        # True once the start of the node that this process proposed is applied.
        self.is_applied = False

    def applied(self) -> None:
        """The start that this process proposed is applied. A later one belongs to another process."""
        self.is_applied = True

    def other_applied(self, command: RestartNode, index: Index) -> None:
        """Fail if another process with the same identity has committed a later start."""
        if self.is_applied and command.node == self._hub.node:
            self.fenced(f"entry {index} of the log starts it with addresses {', '.join(command.addresses)}")

    def fenced(self, why: str) -> None:
        self._on_failed(
            StorageError(
                f"another process is node {self._hub.node} of this cluster ({why}): the data directory was "
                "copied, or restored while the original runs. Stop one of the two; to add a node, start "
                "it with an empty directory and --join. Nothing was removed"
            )
        )
