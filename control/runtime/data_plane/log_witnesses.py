"""Tell a log that came back older from the one that this node had: its replicas are doubted meanwhile.

    start:   draw a number -> write it into the log's directory -> put it into the metadata (RestartNode)
    later:   the same every ten minutes in which rows were stored (RenewWitness)
    restart: the metadata's number is not in the log's directory -> the directory is an older copy
    copies of the same run: a log ends before what a file beside the metadata says of it (`log_bounds`)

A doubted replica says so when it is fenced, and counts for a quorum only once every replica of the set has
answered, or once it holds everything below the mark of an owner. Which replicas are doubted stands beside the
numbers, so that another start does not forget it.

Below level 1 nothing of this is written: older programs know neither the file nor the field.
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
from ringfence.control.state_machines.metadata.replica_counts import held_by
from ringfence.native.errors import StorageError

_LOG = structlog.get_logger("ringfence.witness")
RENEW_S: Final = 600.0
"""A restored copy of a running node's log is told from the log itself if it is older than this. Shorter costs
metadata entries: one for each node that stores rows."""
LOOK_S: Final = 1.0
"""How often it is looked whether doubted replicas caught up, and how far logs reach. After a crash the file
with the latter may be so old."""
NUMBERS_MAX: Final = 8
"""Numbers that are kept: of proposals whose outcome is not known, the metadata may have any."""

Key = tuple[TopicId, PartitionId]


class LogWitnesses:
    """One for a node. `check` after the metadata is caught up, then `draw`; `start` once the node serves."""

    def __init__(
        self,
        proposer: RaftProposer,
        driver: NativeNode,
        here: Replica,
        health: Health,
        report: Mapping[str, Any],
        root: Path,
    ) -> None:
        """`report` is what recovery told of the log, `root` the data directory."""
        self._proposer, self._native_node, self._here, self._health = proposer, driver, here, health
        self._native: Any = driver.node
        self._numbers = [int(number) for number in report["witness"]]
        self._is_torn = int(report["cut_bytes"]) > 0
        self._on_disk = {
            (TopicId(one["topic"]), PartitionId(one["partition"])) for one in report["partitions"]
        }
        self._doubted: list[Key] = []
        self._bounds = LogBounds(self._native, root, here.store)
        self._renewed_s, self._renewed_bytes = time.monotonic(), 0
        self._task: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Doubt what this store has, if the log is older than the metadata says or has lost a torn tail.

        Raises:
            StorageError: the engine ended.
        """
        state = self._proposer.state
        if state.level < 1:
            return
        expected = state.witnesses.get(self._here.node, 0)
        is_old = expected != 0 and expected not in self._numbers
        mine = held_by(state, self._here)
        every = sorted({*self._on_disk, *mine})
        lacking = self._bounds.lacking(every)
        keys = every if is_old or self._is_torn else lacking
        if keys:
            await self._doubt(keys)
        self._doubted = self._now_doubted()
        if is_old:
            _LOG.error("older log", why="its directory lacks the node's last witness", replicas=len(keys))
        elif lacking:
            _LOG.error("older log", why="logs end before what they are known to reach", replicas=len(lacking))
        self._tell_single(sum(not _is_shared(state, key) for key in (mine if is_old else lacking)))
        self._tell(state)

    async def draw(self) -> int | None:
        """A number for the next entry of this node, after it is durable in the log's directory.

        None below level 1, and where the disk has no room for it: the last number stays.
        """
        if self._proposer.state.level < 1:
            return None
        number = secrets.randbits(62) + 1
        numbers = [*self._numbers, number][-NUMBERS_MAX:]
        try:
            await self._write(numbers)
        except StorageError as error:
            _LOG.warning("no witness", why=str(error))
            return None
        self._numbers = numbers
        self._renewed_s, self._renewed_bytes = time.monotonic(), self._stored_bytes()
        return number

    async def keep_ends(self) -> None:
        """Write down how far the logs reach."""
        if self._proposer.state.level >= 1:
            await self._bounds.keep()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="witnesses")
        self._proposer.replica.needs(self._task)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # ---- parts --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            state = self._proposer.state
            if state.level < 1:
                continue
            now = self._now_doubted() if self._doubted else []
            if now != self._doubted:
                self._doubted = now
                await self._keep()
                self._tell(state)
            await self.keep_ends()
            if self._is_due(state):
                await self._renew(state)

    def _is_due(self, state: MetadataState) -> bool:
        """The level was raised while this node ran; or rows were stored, and the last number is old."""
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

    async def _keep(self) -> None:
        """The list again, where it has become shorter: written later it doubts more, never less."""
        try:
            await self._write(self._numbers)
        except StorageError as error:
            _LOG.warning("no witness", why=str(error))

    async def _write(self, numbers: Iterable[int]) -> None:
        # What is doubted in the engine is what is to be kept: an order adds to it, catching up removes.
        doubted = [(int(topic), int(partition)) for topic, partition in self._now_doubted()]
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._native.write_witness, list(numbers), doubted)

    async def _doubt(self, keys: Iterable[Key]) -> None:
        given = [(int(topic), int(partition)) for topic, partition in keys]
        try:
            await self._native_node.order(lambda: int(self._native.doubt(given)))
        except OrderError as error:
            raise StorageError(f"the log's replicas cannot be doubted: {error}") from error

    def _now_doubted(self) -> list[Key]:
        return [(TopicId(topic), PartitionId(partition)) for topic, partition in self._native.doubted()]

    def _stored_bytes(self) -> int:
        return int(dict(self._native.counters()).get("bytes_written", 0))

    def _tell_single(self, single: int) -> None:
        """So many partitions lack rows, and nobody else has them."""
        if single:
            self._health.set_reason(
                "older log",
                f"the log is an older copy: {counted(single, 'partition')} here have no other replica, "
                "and lack the rows that were stored since; restore the newest copy, or start again to "
                "accept it",
            )

    def _tell(self, state: MetadataState) -> None:
        """The reason of health, as long as a replica is doubted that others have, too."""
        shared = [key for key in self._doubted if _is_shared(state, key)]
        if shared:
            self._health.set_reason(
                "doubted",
                f"the log lost its end or came back older: {counted(len(shared), 'replica')} here count for "
                "no quorum until they have caught up with an owner",
            )
        else:
            self._health.clear_reason("doubted")


def _is_shared(state: MetadataState, key: Key) -> bool:
    topic = state.topics.get(key[0])
    return topic is not None and topic.replication > 1
