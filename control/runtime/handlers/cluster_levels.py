"""Report programs and levels of all nodes, and raise the cluster to the newest level that all of them know.

    every store promises durably to refuse older programs (`PromiseLevel`), then one entry raises the level

No node writes data of the new level before all stores refuse the programs that could not read such data.
A finalization that ends between the two steps has raised nothing; the operator repeats the request.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from ringfence.control.model.commands import RaiseLevel
from ringfence.control.model.ids import NodeId
from ringfence.control.model.results import Done
from ringfence.control.runtime.handlers.commands import Outcome, Plan
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.state_machines.rebalance.loads import LoadBoard
from ringfence.control.store.directory import DataDirectory
from ringfence.control.store.raft_store import RaftStore
from ringfence.native.errors import StorageError
from ringfence.native.wire import LEVEL_NEWEST, Code

# Timeout for another node's answer, and for writing its promise: one small file and one sync.
ASK_S: Final = 3.0


class ClusterLevels:
    """The handlers of one node; they raise RequestRefused."""

    def __init__(
        self, proposer: RaftProposer, peer_client: PeerClient, board: LoadBoard, directory: DataDirectory
    ) -> None:
        self._proposer, self._peer_client, self._board, self._directory = (
            proposer,
            peer_client,
            board,
            directory,
        )

    async def versions(self) -> dict[str, Any]:
        """Ask all nodes for their levels. The level of a node that does not answer is None."""
        state = self._proposer.state
        others = [node for node in sorted(state.nodes) if node != self._peer_client.here]
        levels = await asyncio.gather(*map(self._ask_level, others))
        return self.here(dict(zip(others, levels, strict=True)))

    async def _ask_level(self, node: NodeId) -> int | None:
        """The newest level that a node's program knows; None without an answer."""
        try:
            reply = await self._peer_client.ask(node, messages.ShowVersions(), ASK_S)
        except RequestRefused as refusal:
            # A program without levels does not know the question.
            return 0 if refusal.code == Code.BAD_BODY else None
        return int(reply.value["newest"]) if isinstance(reply, messages.Document) else None

    def here(self, answers: dict[NodeId, int | None] | None = None) -> dict[str, Any]:
        """The levels as this node knows them: from `answers`, otherwise from heartbeats; None if unknown."""
        state = self._proposer.state
        reports = self._board.by_node(time.monotonic_ns() // 1_000_000)
        levels: dict[NodeId, int | None] = {node: report.level for node, report in reports.items()}
        levels |= answers or {}
        levels[self._peer_client.here] = LEVEL_NEWEST
        nodes = [
            {
                "node": int(number),
                "program": node.program,
                "level": levels.get(number),
                "life": str(node.life),
            }
            for number, node in sorted(state.nodes.items())
        ]
        holds = _holds(nodes) if state.level < LEVEL_NEWEST else []
        return {"level": state.level, "newest": LEVEL_NEWEST, "nodes": nodes, "holds": holds}

    async def promise(self, level: int) -> None:
        """Make this store refuse programs below `level`, durably.

        Raises:
            RequestRefused: this program does not know `level`, or the disk refuses.
        """
        if level > LEVEL_NEWEST:
            message = f"level {level}: this program knows up to level {LEVEL_NEWEST}"
            raise RequestRefused(Code.UNSUPPORTED_VERSION, message)
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._directory.raise_level, level)
        except OSError as error:
            raise RequestRefused(Code.STORAGE_FAILED, f"store.toml cannot be written: {error}") from error

    async def plan_finalization(self) -> Plan:
        """Plan to raise the cluster's level to the newest one of this program, unless it has that level.

        Raises:
            RequestRefused: a node does not know that level, or does not answer; the message names the node.
        """
        await self._proposer.read_barrier()
        state = self._proposer.state
        if state.level >= LEVEL_NEWEST:
            return Plan(done=Outcome(self._proposer.applied.index, Done(), repeated=True))
        holds = (await self.versions())["holds"]
        if not holds:
            holds = await self._collect_promises(sorted(state.nodes))
        if holds:
            message = f"level {LEVEL_NEWEST} has to wait: " + "; ".join(map(_hold_text, holds))
            raise RequestRefused(Code.UNSUPPORTED_VERSION, message)
        return Plan((RaiseLevel(level=LEVEL_NEWEST, nodes=tuple(sorted(state.nodes))),))

    async def raise_if_alone(self) -> RaiseLevel | None:
        """The command that a node proposes at its start if it is the whole cluster; None if none is needed.

        Raises:
            StorageError: the promise cannot be written.
        """
        state = self._proposer.state
        if state.level >= LEVEL_NEWEST or set(state.nodes) != {self._peer_client.here}:
            return None
        try:
            await self.promise(LEVEL_NEWEST)
        except RequestRefused as refusal:
            raise StorageError(refusal.message) from refusal
        return RaiseLevel(level=LEVEL_NEWEST, nodes=(self._peer_client.here,))

    async def _collect_promises(self, nodes: list[NodeId]) -> list[dict[str, Any]]:
        """Ask all nodes for their promise, this one last; return those that gave none, with the reason."""
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


def level_at_start(directory: DataDirectory, store: RaftStore) -> int:
    """The cluster's level that this store knows before the log is replayed; later orders may raise it."""
    return max(store.state.level, directory.identity.cluster_level)


def _holds(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The nodes that a finalization waits for, with the reason."""
    holds = []
    for node in nodes:
        if node["level"] is None:
            why = f"{node['program'] or 'it'} did not answer, or does not say which levels it knows"
        elif node["level"] < LEVEL_NEWEST:
            why = f"{node['program'] or 'it'} knows up to level {node['level']}; upgrade it"
        else:
            continue
        holds.append({"node": node["node"], "level": node["level"], "why": why})
    return holds


def _hold_text(hold: dict[str, Any]) -> str:
    return f"node {hold['node']}: {hold['why']}"
