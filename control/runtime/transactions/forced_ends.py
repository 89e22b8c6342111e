"""End claims that keep other members out of a gate for too long (CT8).

A member that hangs between its claim and its COMMIT must not lock a gate for ever. Its epoch is expired by an
entry: either that is applied, so the COMMIT is refused whenever it comes, or the COMMIT was first.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import structlog

from ringfence.control.model.cohorts import COHORT_LEVEL
from ringfence.control.model.ids import Index, ScopeId
from ringfence.control.model.scopes import ExpireScope
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.native.errors import ClosedError

_LOG = structlog.get_logger("ringfence.scopes")
# Interval of looks, in seconds: an eighth of the least time that a lease of a gate takes to end.
LOOK_S: Final = 1.0
SCOPES: Final = "consume/"


class ForcedEnds:
    """One task of a node, for the gates that it owns."""

    def __init__(self, proposer: RaftProposer, native_node: NativeNode) -> None:
        self._proposer, self._native_node = proposer, native_node

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            state = self._proposer.state
            if state.level >= COHORT_LEVEL and state.cohorts:
                with contextlib.suppress(ClosedError):  # a stopped data plane has no claims
                    await self._end(self._native_node.node.forced_ends())

    async def _end(self, claims: list[tuple[int, int, int]]) -> None:
        for scope, epoch, driver in claims:
            # The engine takes claims for scopes of their cohorts only (CT10). No entry is made for any other.
            named = self._proposer.state.scopes.get(ScopeId(scope))
            if named is None or not named.name.startswith(SCOPES):
                _LOG.warning("claim of a scope that is no consumer's", scope=scope)
                continue
            command = ExpireScope(scope=ScopeId(scope), epoch=epoch, driver=Index(driver))
            try:
                await self._proposer.propose(command)
            except RequestRefused as refusal:  # looked at again
                _LOG.debug("claim not ended", scope=scope, epoch=epoch, why=refusal.message)
            else:
                _LOG.info("claim ended", scope=scope, epoch=epoch)
