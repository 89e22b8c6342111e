"""Start and stop one node: open, recover, draw epochs, open partitions, listen, serve, stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Any

import structlog

from ringfence.control.model.commands import InitCluster, RestartNode, SetAddresses
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.node_commands import SetNode
from ringfence.control.model.nodes import Life
from ringfence.control.runtime.control_server import refusal_of
from ringfence.control.runtime.data_plane import recovery
from ringfence.control.runtime.handlers import cluster_levels
from ringfence.control.runtime.handlers.audit import Audit
from ringfence.control.runtime.handlers.cluster_events import ClusterEvents
from ringfence.control.runtime.handlers.cluster_levels import ClusterLevels
from ringfence.control.runtime.membership.joining import join
from ringfence.control.runtime.membership.own_start import OwnStart
from ringfence.control.runtime.process import addresses, descriptors
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.process.start_gate import StartGate, starting
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.rpc import messages as calls
from ringfence.control.runtime.wiring import PROGRAM, Foundation, Handlers, Parts, build
from ringfence.control.store.directory import (
    NODE_FIRST,
    DataDirectory,
    JoiningDirectory,
    open_directory,
    open_or_join,
    unusable_error,
)
from ringfence.control.store.raft_store import RaftStore
from ringfence.control.transport.envelope import Envelope
from ringfence.control.transport.hub import Hub
from ringfence.native import _node, messages
from ringfence.native.errors import StorageError
from ringfence.native.wire import LEVEL_NEWEST

_LOG = structlog.get_logger("ringfence.node")


class Node:
    """One node. Call `start`, wait for `failed` or a signal, then call `stop`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.health = Health()
        self.cluster_events = ClusterEvents(time.time_ns() // 1_000)
        self.addresses: list[str] = []
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._started_s = time.monotonic()
        self._gate = StartGate()
        self._hub = Hub(on_message=self._receive, on_question=self._answer, on_fenced=self._fenced)
        self._own_start = OwnStart(self._hub, self.fail)
        # None until the start has recovered the data directory.
        self._parts: Parts | None = None
        # Closes what the start has opened, the last first.
        self._opened = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Start the node; it serves on return.

        Raises:
            ConfigError, StorageError: the message names the way out; the data directory is unlocked again.
        """
        addresses.check_listen(self.settings.listen, insecure=self.settings.insecure)
        if self.settings.control is not None:
            addresses.check_listen((self.settings.control,), insecure=self.settings.insecure)
        addresses.check_connect(self.settings.join, "join")
        addresses.check_connect(self.settings.advertise, "advertise")
        if self.settings.http is not None:
            # Check the address before a store is created: the endpoint binds only after the node serves.
            addresses.http_host_port(self.settings.http, insecure=self.settings.insecure)
        addresses.check_addresses(self.settings)
        directory = _open_directory(self.settings)
        self._opened.callback(directory.close)  # a join returns another object with the same lock
        self._opened.callback(self._hub.close)
        try:
            join_peers: dict[int, tuple[str, ...]] = {}
            if isinstance(directory, JoiningDirectory):
                directory, join_peers = await join(self._hub, self.settings, directory)
            await self._start_or_fail(directory, join_peers)
        except BaseException:
            await self._opened.aclose()
            raise

    async def _start_or_fail(self, directory: DataDirectory, join_peers: dict[int, tuple[str, ...]]) -> None:
        """Start, and end the start if the journal or a native thread fails: it would wait forever."""
        starting = asyncio.ensure_future(self._start(directory, join_peers))
        first: set[asyncio.Future[Any]] = {starting, self.failed}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                failure = self.failed.result()
                raise StorageError(f"the node failed while it started: {failure}") from failure
        finally:
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting

    async def _start(self, directory: DataDirectory, join_peers: dict[int, tuple[str, ...]]) -> None:
        loop = asyncio.get_running_loop()
        with recovery.with_repair_hint():
            store = RaftStore(directory, journal_bytes_max=self.settings.journal_bytes)
        self._opened.callback(store.close)
        if store.journal.cut_bytes:
            _LOG.warning(
                "journal cut",
                bytes=store.journal.cut_bytes,
                why="the last group was torn; no command of it was acknowledged",
            )
        recovery.check_log(directory.log, store.recovered.index)
        for name, why in recovery.unreadable_segments(directory.log).items():
            self.health.set_reason(f"unreadable {name}", f"{directory.log / name} {why}")
        native = self._native(directory, cluster_levels.level_at_start(directory, store))
        self._opened.push_async_callback(loop.run_in_executor, None, native.stop, 1.0)
        report = await loop.run_in_executor(None, native.recover)
        _LOG.info(
            "recovered", **{key: report[key] for key in ("files", "bytes", "records", "seconds", "cut_bytes")}
        )
        recovery.check_age(report["partitions"], store.recovered.index)
        parts = self._parts = build(
            Foundation(
                self.settings,
                self.health,
                self.cluster_events,
                self._gate,
                self._hub,
                self._own_start,
                directory,
                store,
                native,
                report,
                join_peers,
                self.status,
                self.fail,
            )
        )
        self._opened.push_async_callback(parts.close)
        await parts.cluster.check_joined()
        # These tasks must run before the start is committed: `_draw_epochs` waits for them.
        parts.data_plane.native_node.start()
        parts.data_plane.executor.start()
        parts.handlers.transactions.start()
        parts.cluster.start()
        parts.layouts.start()
        parts.cohorts.start()
        parts.handlers.cohorts.start()
        await self._draw_epochs(parts)
        self._gate.open()
        parts.layouts.serve()
        parts.cohorts.serve()
        recovery.report_partitions(report["partitions"], self.proposer.state, self.health)
        # Clients can connect only now: every partition of this node is open under its new epoch.
        await self._listen(parts)
        parts.data_plane.topic_purge.resume()
        parts.data_plane.log_witnesses.start()
        self.health.phase = "serving"

    @property
    def parts(self) -> Parts:
        assert self._parts is not None, "the node is not started"
        return self._parts

    @property
    def is_built(self) -> bool:
        """Whether the start has recovered the data directory, so that there are parts."""
        return self._parts is not None

    @property
    def handlers(self) -> Handlers:
        return self.parts.handlers

    @property
    def proposer(self) -> RaftProposer:
        return self.parts.proposer

    @property
    def here(self) -> NodeId:
        return self.parts.here.node

    @property
    def audit(self) -> Audit:
        return self.parts.audit

    @property
    def levels(self) -> ClusterLevels:
        return self.parts.cluster.levels

    @property
    def digest(self) -> tuple[Index, bytes]:
        """The newest metadata index that was hashed, and the hash."""
        return self.parts.cluster.members.digest

    async def executed_indexes(self) -> dict[NodeId, int]:
        """Per live node, the metadata index up to which the node has executed its orders."""
        executed = self.parts.data_plane.executor.executed_index(self.proposer.applied.index)
        return await self.parts.cluster.peer_client.executed_indexes() | {self.here: executed}

    @property
    def control_address(self) -> str | None:
        """The address for other nodes; None for a single node without a control address."""
        return self._hub.address or None

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._started_s

    async def stop(self) -> None:
        """Refuse new requests, finish running ones, close everything.

        Returns soon after `stop_s` at the latest.
        """
        parts = self.parts
        self.health.phase = "stopping"
        await parts.handlers.requests.finish(self.settings.stop_s / 2)
        await parts.cluster.hand_over()
        native = parts.data_plane.native_node.node
        await asyncio.get_running_loop().run_in_executor(None, native.stop, self.settings.stop_s)
        # After the native node has stopped, the log bounds do not change any more.
        await parts.data_plane.log_witnesses.save_bounds()
        await self._opened.aclose()

    def status(self) -> messages.Status:
        state, identity, replica = self.proposer.state, self.parts.directory.identity, self.proposer.replica
        return messages.Status(
            cluster=identity.cluster,
            history=identity.history,
            node=identity.node,
            store=identity.store,
            program=PROGRAM,
            state=self.health.state,
            reasons=self.health.reasons,
            addresses=self.addresses,
            uptime_s=round(self.uptime_s, 3),
            index=self.proposer.applied.index,
            topics=len(state.topics),
            partitions=sum(len(topic.layout.partitions) for topic in state.topics.values()),
            counters=self.parts.data_plane.native_node.node.counters(),
            leader=replica.leader,
            term=replica.term,
            role=replica.role,
            members=len(state.nodes),
            failed=sorted(number for number, node in state.nodes.items() if node.life is Life.FAILED),
        )

    def advertised_loads(self) -> dict[str, dict[int, int]]:
        """Load hints for producers of topics without key: bytes per second by topic and partition."""
        return self.parts.data_plane.executor.load_hints.advertised

    def fail(self, error: Exception) -> None:
        """End the node with `error`; the first error counts."""
        if not self.failed.done():
            self.failed.set_result(error)

    # ---- start-up ---------------------------------------------------------------------------------

    def _native(self, directory: DataDirectory, level: int) -> _node.Node:
        """The native node at `level`, the newest one known before the log is read; an order raises it."""
        settings, identity = self.settings, directory.identity
        directory.log.mkdir(0o700, exist_ok=True)
        return _node.Node(
            data=os.fspath(directory.log),
            cluster=identity.cluster,
            history=identity.history,
            store=identity.store,
            node=identity.node,
            shards=settings.shards,
            budget_bytes=settings.budget_bytes,
            segment_bytes=settings.segment_bytes,
            message_bytes=settings.body_bytes_max,
            connections_max=descriptors.room_for(settings.connections_max),
            transport=settings.transport,
            direct=settings.direct,
            reserve_bytes=settings.reserve_bytes,
            producers_max=settings.producers_max,
            producer_expiry_ms=settings.producer_expiry_ms,
            scrub_bytes_per_s=settings.scrub_bytes_s,
            level=level,
            level_newest=LEVEL_NEWEST,
            faults=settings.faults,
        )

    async def _draw_epochs(self, parts: Parts) -> None:
        """Commit the start, which gives every partition here a new epoch; then give orders for all of it."""
        identity, proposer, cluster = parts.directory.identity, parts.proposer, parts.cluster
        witnesses, here = parts.data_plane.log_witnesses, parts.here.node
        advertised = self.settings.advertise or addresses.advertised(self.settings.listen)
        await cluster.catch_up()
        if not proposer.state.cluster and identity.node == NODE_FIRST:
            init = InitCluster(
                cluster=identity.cluster,
                history=identity.history,
                node=NodeId(identity.node),
                store=identity.store,
                nodes_min=self.settings.nodes_min,
                level=identity.level,
            )
            await cluster.commit(init)
        # The engine must doubt replicas of an older log before any partition is opened.
        await witnesses.check()
        restarted = await cluster.commit_start(
            RestartNode(
                node=NodeId(identity.node),
                store=identity.store,
                addresses=advertised,
                program=PROGRAM,
                control=cluster.control,
                zone=self.settings.zone or None,
                http=self._http(),
                level=LEVEL_NEWEST,
                witness=await witnesses.draw(),
            )
        )
        proposer.use_session(restarted.session)
        weight = self.settings.weight
        if weight not in (None, proposer.state.nodes[here].weight):
            await cluster.commit(SetNode(node=here, weight=weight))
        await cluster.finalize_alone()
        await cluster.until_time_known()
        index = Index(proposer.applied.index)
        parts.log.listeners.begin(proposer.state, index)
        for fault in await parts.data_plane.executor.until_executed(index):
            _LOG.error("not opened", fault=fault)
        _LOG.info("opened", partitions=restarted.partitions, epoch=restarted.epoch)

    def _http(self) -> tuple[str, ...] | None:
        """Addresses of the admin API; None if the system chooses the port: the metadata keeps the last."""
        if self.settings.http is None:
            return ()
        host, port = addresses.http_host_port(self.settings.http, insecure=self.settings.insecure)
        return (addresses.http_advertised(host, port),) if port else None

    async def _listen(self, parts: Parts) -> None:
        parts.data_plane.access.greet()
        self.addresses = list(parts.data_plane.native_node.node.listen(list(self.settings.listen)))
        advertised = self.settings.advertise or addresses.advertised(self.addresses)
        if advertised != parts.proposer.state.nodes[self.here].addresses:
            applied = await parts.cluster.commit(SetAddresses(node=self.here, addresses=advertised))
            await parts.data_plane.executor.until_executed(applied.index)

    # ---- the control address, also before there are parts ---------------------------------------------

    def _receive(self, envelope: Envelope) -> None:
        if self._parts is not None:
            self._parts.cluster.peers.receive(envelope)

    async def _answer(self, envelope: Envelope) -> bytes:
        if self._parts is None:
            return calls.encode(refusal_of(starting()))
        return await self._parts.handlers.control_server.answer(envelope)

    def _fenced(self, why: str) -> None:
        self._own_start.fenced(why)


def _open_directory(settings: Settings) -> DataDirectory | JoiningDirectory:
    """Open the data directory. StorageError also for a path that the system refuses (too long)."""
    try:
        return (open_or_join if settings.join else open_directory)(settings.data_dir)
    except (OSError, ValueError) as error:
        raise unusable_error(settings.data_dir, error) from error
