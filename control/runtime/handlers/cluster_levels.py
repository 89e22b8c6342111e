"""Programs and levels of a cluster's nodes: which level all know, and how the cluster is raised to it.

    every store promises durably to refuse older programs (`PromiseLevel`), then one entry raises the level

So nothing of the new level is written anywhere before all stores refuse the programs that could not read it.
A finalization that ends between the two has raised nothing; it is asked for once more.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from ringfence.control.model.commands import RaiseLevel
from ringfence.control.model.ids import NodeId
from ringfence.control.model.results import Done
from ringfence.control.runtime.handlers.admin import NOTHING, Asked, Outcome
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.rebalance.loads import Board
from ringfence.control.store.directory import DataDirectory
from ringfence.control.store.raft_store import RaftStore
from ringfence.native.errors import NewerFormatError, StorageError
from ringfence.native.wire import LEVEL_NEWEST, Code

ASK_S: Final = 3.0
"""How long another node may take to tell, or to write its promise: one small file and its sync."""


class ClusterLevels:
    """What one node knows and does; handlers raise RequestRefused."""

    def __init__(
        self, proposer: RaftProposer, peer_client: PeerClient, board: Board, directory: DataDirectory
    ) -> None:
        self._proposer, self._peer_client, self._board, self._directory = (
            proposer,
            peer_client,
            board,
            directory,
        )

    async def versions(self) -> dict[str, Any]:
        """As the nodes say themselves; of one that does not answer, its level is unknown."""
        state = self._proposer.state
        others = [node for node in sorted(state.nodes) if node != self._peer_client.here]
        levels = await asyncio.gather(*map(self._asked, others))
        return self.here(dict(zip(others, levels, strict=True)))

    async def _asked(self, node: NodeId) -> int | None:
        """The newest level that a node's program knows."""
        try:
            reply = await self._peer_client.ask(node, messages.ShowVersions(), ASK_S)
        except RequestRefused as refusal:
            # A program without levels does not know the question.
            return 0 if refusal.code == Code.BAD_BODY else None
        return int(reply.value["newest"]) if isinstance(reply, messages.Told) else None

    def here(self, told: dict[NodeId, int | None] | None = None) -> dict[str, Any]:
        """As this node knows them: by heartbeats, or what is `told`. `level` of a node is None if unknown."""
        state = self._proposer.state
        heard = {node: told.level for node, told in self._board.by_node(time.monotonic_ns() // 10**6).items()}
        known = {**heard, **(told or {}), self._peer_client.here: LEVEL_NEWEST}
        nodes = [
            {"node": int(number), "program": node.program, "level": known.get(number), "life": str(node.life)}
            for number, node in sorted(state.nodes.items())
        ]
        holds = _holds(nodes) if state.level < LEVEL_NEWEST else []
        return {"level": state.level, "newest": LEVEL_NEWEST, "nodes": nodes, "holds": holds}

    async def promise(self, level: int) -> None:
        """Let this store refuse programs below `level`. RequestRefused for one that this program is below."""
        if level > LEVEL_NEWEST:
            raise RequestRefused(Code.UNSUPPORTED_VERSION, f"this program knows up to level {LEVEL_NEWEST}")
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._directory.raise_level, level)
        except OSError as error:
            raise RequestRefused(Code.STORAGE_FAILED, f"store.toml cannot be written: {error}") from error

    async def finalize(self, admin: Any, asked: Asked = NOTHING) -> Outcome:
        """Raise the cluster's level to the newest one of this program; nothing if it is there already.

        Raises:
            RequestRefused: a node does not know that level, or does not answer; the message names it.
        """
        await self._proposer.fresh()
        state = self._proposer.state
        if state.level >= LEVEL_NEWEST:
            return Outcome(self._proposer.applied.index, Done(), repeated=True)
        holds = (await self.versions())["holds"]
        if not holds:
            holds = await self._promised(sorted(state.nodes))
        if holds:
            raise RequestRefused(
                Code.UNSUPPORTED_VERSION, f"level {LEVEL_NEWEST} has to wait: " + "; ".join(map(_said, holds))
            )
        outcome: Outcome = await admin.propose(
            RaiseLevel(level=LEVEL_NEWEST, nodes=tuple(sorted(state.nodes))), asked
        )
        return outcome

    async def raised_alone(self) -> RaiseLevel | None:
        """What a node that is the whole cluster proposes at its start; None where there is nothing to raise.

        Raises StorageError.
        """
        state = self._proposer.state
        if state.level >= LEVEL_NEWEST or set(state.nodes) != {self._peer_client.here}:
            return None
        try:
            await self.promise(LEVEL_NEWEST)
        except RequestRefused as refusal:
            raise StorageError(refusal.message) from refusal
        return RaiseLevel(level=LEVEL_NEWEST, nodes=(self._peer_client.here,))

    async def _promised(self, nodes: list[NodeId]) -> list[dict[str, Any]]:
        """Ask all nodes for their promise; those that gave none, and why. This node's own comes last."""
        others = [node for node in nodes if node != self._peer_client.here]
        replies = await asyncio.gather(
            *(
                self._peer_client.ask(node, messages.PromiseLevel(level=LEVEL_NEWEST), ASK_S)
                for node in others
            ),
            return_exceptions=True,
        )
        missing: list[dict[str, Any]] = []
        for node, reply in zip(others, replies, strict=True):
            if isinstance(reply, RequestRefused):
                missing.append({"node": int(node), "level": None, "why": reply.message})
            elif isinstance(reply, BaseException):
                raise reply
        if not missing:
            await self.promise(LEVEL_NEWEST)
        return missing


def check_level(level: int, what: str) -> None:
    """NewerFormatError where `what` has a level that this program does not know."""
    if level > LEVEL_NEWEST:
        raise NewerFormatError(
            f"{what} has level {level}, this program knows up to level {LEVEL_NEWEST}; use a newer one"
        )


def known_level(directory: DataDirectory, store: RaftStore) -> int:
    """The cluster's level as far as this store knows it, before the log is read on; orders raise it."""
    return max(store.state.level, directory.identity.raised)


def _holds(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The nodes that a finalization waits for."""
    found = []
    for node in nodes:
        if node["level"] is None:
            why = f"{node['program'] or 'it'} was not heard of, or does not say which levels it knows"
        elif node["level"] < LEVEL_NEWEST:
            why = f"{node['program'] or 'it'} knows up to level {node['level']}; upgrade it"
        else:
            continue
        found.append({"node": node["node"], "level": node["level"], "why": why})
    return found


def _said(hold: dict[str, Any]) -> str:
    return f"node {hold['node']}: {hold['why']}"
