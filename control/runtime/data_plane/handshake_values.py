"""Give the engine what it needs to greet and to authorize clients: READY, the tokens, the key of members."""

from __future__ import annotations

import msgspec

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.ids import Index
from ringfence.control.model.state import MetadataState
from ringfence.control.state_machines.metadata.data_socket_rights import OPEN, access_of
from ringfence.native import messages
from ringfence.native._node import Node
from ringfence.native.wire import Features


class ConnectionAccess:
    """The access table of one node, and its greeting."""

    def __init__(self, node: Node, ready: messages.Ready) -> None:
        """`ready` greets clients while the cluster has no token and is below the level of cohorts."""
        self._node, self._ready, self._access = node, ready, OPEN
        self._has_cohorts = False

    def applied(self, before: MetadataState, after: MetadataState, _: Index) -> None:
        if before.tokens is not after.tokens or before.config is not after.config:
            self.set_access(after)
        if after.level >= COHORT_LEVEL and not self._has_cohorts:
            self._has_cohorts = True
            self.greet()

    def set_access(self, state: MetadataState) -> None:
        """Give the engine the current tokens and the key of members.

        It evaluates open connections again, immediately.
        """
        access = access_of(state)
        if access != self._access:
            self._access = access
            # The key first: with the tokens a member may attach, and it must prove its session then.
            self._node.set_members(access.member_key)
            grants = [msgspec.structs.astuple(grant) for grant in access.grants]
            self._node.set_access(access.is_asked, grants, access.credential)
            self.greet()

    def greet(self) -> None:
        """Set the greeting of new connections."""
        features = self._ready.features if isinstance(self._ready.features, int) else 0
        if self._has_cohorts:
            features |= Features.COHORTS
        ready = msgspec.structs.replace(
            self._ready, credential_needed=self._access.is_asked, features=int(features)
        )
        self._node.set_ready(messages.encode(ready))
