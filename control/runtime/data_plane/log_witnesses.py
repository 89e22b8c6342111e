"""Detect a log directory that was replaced by an older copy, and doubt its replicas until they catch up.

    start:   draw a number -> write it into the log's directory -> put it into the metadata (RestartNode)
    later:   the same every ten minutes in which rows were stored (RenewWitness)
    restart: the metadata's number is not in the log's directory -> the directory is an older copy
    copies of the same run: a log ends before its bound in a file beside the metadata (`log_bounds`)

A doubted replica reports its doubt when it is fenced. It counts for a quorum only after every replica of the
set has answered, or after it has everything below the mark of an owner. The list of doubted replicas is
stored with the numbers, so that the next start still doubts them.

Below level 1 this module writes nothing: older programs know neither the file nor the field.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from ringfence.control.model.ids import PartitionId, TopicId
from ringfence.control.model.node_commands import RenewWitness
from ringfence.control.model.state import MetadataState
from ringfence.control.model.text import counted
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.data_plane.log_bounds import LogBounds
from ringfence.control.runtime.data_plane.native_node import NativeNode, OrderError
from ringfence.control.runtime.process.errors import RequestRefused
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.state_machines.metadata.replica_counts import partitions_on
from ringfence.native._node import Order
from ringfence.native.errors import StorageError

_LOG = structlog.get_logger("ringfence.witness")
# Age from which a restored copy of a running node's log is detected, in seconds. A shorter time costs
# metadata entries: one for each node that stores rows.
RENEW_S: Final = 600.0
# Interval of checks of doubted replicas and of saving the log bounds, in seconds. After a crash the saved
# bounds may be this old.
CHECK_S: Final = 1.0
# Numbers in the log's directory. The metadata may have the number of any proposal with unknown outcome.
NUMBERS_MAX: Final = 8

Key = tuple[TopicId, PartitionId]


class LogWitnesses:
    """The witness of one node. Call `check` after the metadata has caught up, then `draw`, then `start`."""

    def __init__(
        self,
        proposer: RaftProposer,
        native_node: NativeNode,
        here: Replica,
        health: Health,
        report: Mapping[str, Any],
        root: Path,
    ) -> None:
        """`report` is the native node's recovery report; `root` is the data directory."""
        self._proposer, self._native_node, self._here, self._health = proposer, native_node, here, health
        self._native: Any = native_node.node
        self._numbers = [int(number) for number in report["witness"]]
        self._is_torn = int(report["cut_bytes"]) > 0
        self._on_disk = {
            (TopicId(part["topic"]), PartitionId(part["partition"])) for part in report["partitions"]
        }
        self._doubted: list[Key] = []
        self._bounds = LogBounds(self._native, root, here.store)
        self._renewed_s, self._renewed_bytes = time.monotonic(), 0
        self._task: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Doubt replicas whose log is an older copy, has a torn end, or ends before its bound.

        Raises:
            StorageError: the engine has ended.
        """
        state = self._proposer.state
        if state.level < 1:
            return
        expected = state.witnesses.get(self._here.node, 0)
        is_old = expected != 0 and expected not in self._numbers
        assigned = partitions_on(state, self._here)
        replicas = sorted({*self._on_disk, *assigned})
        short = self._bounds.short_logs(replicas)
        keys = replicas if is_old or self._is_torn else short
        if keys:
            await self._doubt(keys)
        self._doubted = self._native_doubted()
        if is_old:
            _LOG.error(
                "older log", why="the log directory lacks the node's last witness number", replicas=len(keys)
            )
        elif short:
            _LOG.error("older log", why="logs end before their saved bounds", replicas=len(short))
        self._report_unreplicated(sum(not _is_shared(state, key) for key in (assigned if is_old else short)))
        self._report_doubted(state)

    async def draw(self) -> int | None:
        """Draw a number for the node's next entry, and write it into the log's directory.

        Returns the number after it is durable there. None below level 1 or on a full disk: the last number
        stays valid.
        """
        if self._proposer.state.level < 1:
            return None
        number = secrets.randbits(62) + 1
        numbers = [*self._numbers, number][-NUMBERS_MAX:]
        try:
            await self._write(numbers)
        except StorageError as error:
            _LOG.warning("witness not written", why=str(error))
            return None
        self._numbers = numbers
        self._renewed_s, self._renewed_bytes = time.monotonic(), self._stored_bytes()
        return number

    async def save_bounds(self) -> None:
        """Save the current log bounds."""
        if self._proposer.state.level >= 1:
            await self._bounds.save()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="witnesses")
        self._proposer.replica.supervise(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # ---- parts --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            state = self._proposer.state
            if state.level < 1:
                continue
            doubted = self._native_doubted() if self._doubted else []
            if doubted != self._doubted:
                self._doubted = doubted
                await self._save_doubted()
                self._report_doubted(state)
            await self.save_bounds()
            if self._is_due(state):
                await self._renew(state)

    def _is_due(self, state: MetadataState) -> bool:
        """Whether the metadata has no number of this node, or rows were stored since an old number."""
        if self._here.node not in state.witnesses:
            return True
        is_old = time.monotonic() - self._renewed_s >= RENEW_S
        return is_old and self._stored_bytes() != self._renewed_bytes

    async def _renew(self, state: MetadataState) -> None:
        number = await self.draw()
        node = state.nodes.get(self._here.node)
        if number is None or node is None:
            self._renewed_s = time.monotonic()
            return
        command = RenewWitness(
            node=self._here.node, store=self._here.store, started=node.started, witness=number
        )
        try:
            await self._proposer.propose(command)
        except RequestRefused as refusal:
            _LOG.info("witness not renewed", why=refusal.message)

    async def _save_doubted(self) -> None:
        """Save the shorter list of doubted replicas. After a failure the next start doubts more."""
        try:
            await self._write(self._numbers)
        except StorageError as error:
            _LOG.warning("witness not written", why=str(error))

    async def _write(self, numbers: Iterable[int]) -> None:
        # The engine's list is the newest one: orders add to it, catching up removes.
        doubted = [(int(topic), int(partition)) for topic, partition in self._native_doubted()]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._native.write_witness, list(numbers), doubted)

    async def _doubt(self, keys: Iterable[Key]) -> None:
        replicas = [(int(topic), int(partition)) for topic, partition in keys]
        try:
            await self._native_node.order(Order.doubt(replicas))
        except OrderError as error:
            raise StorageError(f"replicas of an older log cannot be marked as doubted: {error}") from error

    def _native_doubted(self) -> list[Key]:
        return [(TopicId(topic), PartitionId(partition)) for topic, partition in self._native.doubted()]

    def _stored_bytes(self) -> int:
        return int(dict(self._native.counters()).get("bytes_written", 0))

    def _report_unreplicated(self, count: int) -> None:
        """Report `count` partitions that lack rows and have no other replica."""
        if count:
            self._health.set_reason(
                "older log",
                f"the log is an older copy: {counted(count, 'partition')} here have no other replica and "
                "lack the rows stored after the copy was made; restore the newest copy, or start again to "
                "accept the loss",
            )

    def _report_doubted(self, state: MetadataState) -> None:
        """Set the health reason while a partition with a doubted replica has others; else clear it."""
        shared = [key for key in self._doubted if _is_shared(state, key)]
        if shared:
            self._health.set_reason(
                "doubted",
                f"the log lost its end or came back older: {counted(len(shared), 'replica')} here do not "
                "count for a quorum until they have caught up with an owner",
            )
        else:
            self._health.clear_reason("doubted")


def _is_shared(state: MetadataState, key: Key) -> bool:
    topic = state.topics.get(key[0])
    return topic is not None and topic.replication > 1
