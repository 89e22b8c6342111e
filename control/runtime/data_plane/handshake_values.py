"""Give the engine what it needs to greet and to authorize clients: the READY message and the tokens."""

from __future__ import annotations

import msgspec

from ringfence.control.model.ids import Index
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.data_socket_rights import OPEN, access_of
from ringfence.native import messages
from ringfence.native._node import Node


class ConnectionAccess:
    """The access table of one node."""

    def __init__(self, node: Node, ready: messages.Ready) -> None:
        """`ready` is the greeting of clients while the cluster has no token."""
        self._node, self._ready, self._access = node, ready, OPEN

    def applied(self, before: MetadataState, after: MetadataState, _: Index) -> None:
        if before.tokens is not after.tokens or before.config is not after.config:
            self.set_access(after)

    def set_access(self, state: MetadataState) -> None:
        """Give the engine the current tokens. It evaluates open connections again, immediately."""
        access = access_of(state)
        if access != self._access:
            self._access = access
            grants = [msgspec.structs.astuple(grant) for grant in access.grants]
            self._node.set_access(access.is_asked, grants, access.credential)
            self.greet()

    def greet(self) -> None:
        """Set the greeting of new connections."""
        ready = msgspec.structs.replace(self._ready, credential_needed=self._access.is_asked)
        self._node.set_ready(messages.encode(ready))
