"""Build and run one node: open, recover, draw epochs, open partitions, listen, serve, stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import msgspec
import structlog

from ringfence.control.model.commands import InitCluster, RestartNode, SetAddresses
from ringfence.control.model.ids import Index, NodeId
from ringfence.control.model.node_commands import SetNode
from ringfence.control.model.nodes import Life
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime.cluster import Cluster
from ringfence.control.runtime.data_plane import recovery
from ringfence.control.runtime.data_plane.cleanup_confirmations import CleanupConfirmations
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.log_witnesses import LogWitnesses
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.data_plane.purge import TopicPurge
from ringfence.control.runtime.handlers import cluster_levels
from ringfence.control.runtime.handlers.admin import Admin
from ringfence.control.runtime.handlers.audit import Audit
from ringfence.control.runtime.handlers.audited_topics import AuditedTopics
from ringfence.control.runtime.handlers.cluster_events import ClusterEvents
from ringfence.control.runtime.handlers.inspections import Inspections
from ringfence.control.runtime.handlers.native_events import NativeEvents
from ringfence.control.runtime.handlers.partitions import Partitions
from ringfence.control.runtime.handlers.producers import ProducerRequests
from ringfence.control.runtime.handlers.quarantines import Quarantines
from ringfence.control.runtime.handlers.rebalances import Rebalances
from ringfence.control.runtime.handlers.token_prefixes import restrict_status_to_prefix, restrict_to_prefix
from ringfence.control.runtime.handlers.topics import TopicRequests
from ringfence.control.runtime.process import addresses, descriptors
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.reassignment.participant import Participant
from ringfence.control.runtime.rpc.dispatch import CALLER_PREFIX, RequestDispatch, Route
from ringfence.control.runtime.transactions.lost_partitions import LostPartitions
from ringfence.control.runtime.transactions.requests import TransactionRequests
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.control.runtime.transactions.unpublished import UnpublishedEpochs
from ringfence.control.state_machines.metadata.access import OPEN, access_of
from ringfence.control.state_machines.rebalance.loads import LoadReport
from ringfence.control.state_machines.rebalance.run_rates import RunRates
from ringfence.control.store.directory import (
    NODE_FIRST,
    DataDirectory,
    JoiningDirectory,
    open_directory,
    open_or_join,
    unusable_error,
)
from ringfence.control.store.raft_store import RaftStore
from ringfence.native import _node, cluster_messages, messages
from ringfence.native.errors import StorageError
from ringfence.native.wire import DEDUPE_WINDOW, LEVEL_NEWEST, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Opcode

_LOG = structlog.get_logger("ringfence.node")
# Heartbeat interval for clients, in ms; a failed peer is detected after two.
HEARTBEAT_MS: Final = 10_000
PROGRAM: Final = f"ringfence {version('ringfence')}"


class Node:
    """One node. Call `start`, wait for `failed` or a signal, then call `stop`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.health = Health()
        self.cluster_events = ClusterEvents(time.time_ns() // 1_000)
        self.addresses: list[str] = []
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._started_s = time.monotonic()
        self._directory: DataDirectory | JoiningDirectory | None = None
        self._store: RaftStore | None = None
        # False until the start of this node is applied: until then its partitions have no epoch.
        self._are_orders_executed = False
        self._access = OPEN
        self._run_rates = RunRates()
        self._cluster = Cluster(
            settings,
            self.health,
            on_applied=self._applied,
            on_failed=self._fail,
            on_loads=self._update_load_hints,
        )

    async def start(self) -> None:
        """Start the node; it serves on return.

        Raises:
            ConfigError, StorageError: the message names the way out; the data directory is unlocked again.
        """
        addresses.check_listen(self.settings.listen, insecure=self.settings.insecure)
        if self.settings.control is not None:
            addresses.check_listen((self.settings.control,), insecure=self.settings.insecure)
        addresses.check_join(self.settings.join)
        if self.settings.http is not None:
            # Check the address before a store is created: the endpoint binds only after the node serves.
            addresses.http_host_port(self.settings.http, insecure=self.settings.insecure)
        addresses.check_addresses(self.settings)
        self._directory = _open_directory(self.settings)
        try:
            if isinstance(self._directory, JoiningDirectory):
                self._directory = await self._cluster.join(self._directory)
            await self._start_or_fail(self._directory)
        except BaseException:
            await self._close()
            raise

    async def _start_or_fail(self, directory: DataDirectory) -> None:
        """Start, and end the start if the journal or a native thread fails: it would wait forever."""
        starting = asyncio.ensure_future(self._start(directory))
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

    async def _start(self, directory: DataDirectory) -> None:
        loop = asyncio.get_running_loop()
        with recovery.with_repair_hint():
            store = self._store = RaftStore(directory, journal_bytes_max=self.settings.journal_bytes)
        if store.journal.cut_bytes:
            _LOG.warning(
                "journal cut",
                bytes=store.journal.cut_bytes,
                why="the last group was torn; no command of it was acknowledged",
            )
        recovery.check_log(directory.log, store.recovered.index)
        for name, why in recovery.unreadable_segments(directory.log).items():
            self.health.set_reason(f"unreadable {name}", f"{directory.log / name} {why}")
        identity = directory.identity
        self._here = Replica(node=NodeId(identity.node), store=identity.store)
        self.audit = Audit(self.settings.data_dir, self.here, self.health)
        self.native = self._native(directory, cluster_levels.level_at_start(directory, store))
        report = await loop.run_in_executor(None, self.native.recover)
        _LOG.info(
            "recovered", **{key: report[key] for key in ("files", "bytes", "records", "seconds", "cut_bytes")}
        )
        recovery.check_age(report["partitions"], store.recovered.index)
        await self._cluster.open(directory, store)
        staged_row_counts = self._build_data_plane(directory, report)
        # These tasks must run before the start is committed: `_draw_epochs` waits for them.
        self._native_node.start()
        self._executor.start()
        self.transactions.start()
        self._cluster.start()
        await self._draw_epochs()
        self._cluster.control_server.attach_data_plane(self._executor, self._native_node, staged_row_counts)
        lookups = (self.proposer, self._cluster.peer_client, self._cluster.reassignments.coordinator)
        self.rebalances = Rebalances(*lookups, self._cluster.members.board, self._run_rates)
        self.partitions = Partitions(*lookups, LostPartitions(self.proposer, staged_row_counts))
        self.quarantines = Quarantines(self.proposer, self._cluster.peer_client, self._native_node)
        participant = Participant(self.proposer, self._executor, self._native_node, self._here)
        self.inspections = Inspections(
            self.proposer, self._cluster.peer_client, self._cluster.members, self._native_node
        )
        self._cluster.control_server.attach_reassignment(
            participant, self.rebalances, self.partitions, self.quarantines, self.inspections, self.audit
        )
        recovery.report_partitions(report["partitions"], self.proposer.state, self.health)
        # Clients can connect only now: every partition of this node is open under its new epoch.
        await self._listen()
        self._topic_purge.resume()
        self._log_witnesses.start()
        self.health.phase = "serving"

    def _build_data_plane(self, directory: DataDirectory, report: Mapping[str, Any]) -> StagedRowCounts:
        """Build what turns metadata into orders, and requests into commands; `report` is recovery's."""
        self._events = NativeEvents(
            self.proposer, self._here, self.health, self.cluster_events, self.audit, self._fail
        )
        self._native_node = NativeNode(
            self.native,
            on_request=self._request,
            on_event=self._events.take,
            on_failed=self._fail,
            on_counters=self._measure_run,
        )
        self._log_witnesses = LogWitnesses(
            self.proposer, self._native_node, self._here, self.health, report, self.settings.data_dir
        )
        self._topic_purge = TopicPurge(self.proposer, self._here.store)
        self._cleanup_confirmations = CleanupConfirmations(self.proposer, self._here.store)
        self._executor = OrderExecutor(
            self._native_node,
            self._here,
            self.health,
            on_dropped=self._topic_purge.begin,
            on_cleaned_up=self._cleanup_confirmations.confirm,
            on_failed=self._fail,
            on_level=directory.note_cluster_level,
        )
        staged_row_counts = StagedRowCounts(self.proposer, self._native_node, self._cluster.peer_client)
        unpublished = UnpublishedEpochs(self.health, self._here.node)
        self.transactions = TransactionRequests(
            self.proposer, self._native_node, self._here, staged_row_counts, unpublished, self._fail
        )
        self._requests = RequestDispatch(
            self.native,
            self._routes(),
            generation=lambda: self.proposer.applied.index,
            request_ms=self.settings.request_ms,
            pulse=self.proposer.replica.pulse,
            narrow=partial(restrict_to_prefix, lambda: self.proposer.state),
        )
        return staged_row_counts

    @property
    def proposer(self) -> RaftProposer:
        return self._cluster.proposer

    @property
    def here(self) -> NodeId:
        return self._here.node

    @property
    def levels(self) -> cluster_levels.ClusterLevels:
        return self._cluster.levels

    @property
    def digest(self) -> tuple[Index, bytes]:
        """The newest metadata index that was hashed, and the hash."""
        return self._cluster.members.digest

    async def executed_indexes(self) -> dict[NodeId, int]:
        """Per live node, the metadata index up to which the node has executed its orders."""
        own = {self._here.node: self._executor.executed_index(self.proposer.applied.index)}
        return await self._cluster.peer_client.executed_indexes() | own

    @property
    def control_address(self) -> str | None:
        """The address for other nodes; None for a single node without a control address."""
        return self._cluster.hub.address or None

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._started_s

    async def stop(self) -> None:
        """Refuse new requests, finish running ones, close everything.

        Returns soon after `stop_s` at the latest.
        """
        self.health.phase = "stopping"
        await self._requests.finish(self.settings.stop_s / 2)
        await self._cluster.hand_over()
        await asyncio.get_running_loop().run_in_executor(None, self.native.stop, self.settings.stop_s)
        # After the native node has stopped, the log bounds do not change any more.
        await self._log_witnesses.save_bounds()
        await self._close()

    def status(self) -> messages.Status:
        state, identity, replica = self.proposer.state, self._identity, self.proposer.replica
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
            counters=self.native.counters(),
            leader=replica.leader,
            term=replica.term,
            role=replica.role,
            members=len(state.nodes),
            failed=sorted(number for number, node in state.nodes.items() if node.life is Life.FAILED),
        )

    def _update_load_hints(self, loads: Mapping[NodeId, LoadReport]) -> None:
        self._executor.load_hints.update(loads)

    def advertised_loads(self) -> dict[str, dict[int, int]]:
        """Load hints for producers of topics without key: bytes per second by topic and partition."""
        return self._executor.load_hints.advertised

    # ---- start-up ---------------------------------------------------------------------------------

    @property
    def _identity(self) -> Any:
        assert isinstance(self._directory, DataDirectory), "the node is not started"
        return self._directory.identity

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
            faults=settings.faults,
        )

    async def _draw_epochs(self) -> None:
        """Commit the start, which gives every partition here a new epoch; then give orders for all of it."""
        identity = self._identity
        advertised = self.settings.advertise or addresses.advertised(self.settings.listen)
        await self._cluster.catch_up()
        if not self.proposer.state.cluster and identity.node == NODE_FIRST:
            init = InitCluster(
                cluster=identity.cluster,
                history=identity.history,
                node=NodeId(identity.node),
                store=identity.store,
                nodes_min=self.settings.nodes_min,
                level=identity.level,
            )
            await self._cluster.commit(init)
        # The engine must doubt replicas of an older log before any partition is opened.
        await self._log_witnesses.check()
        restarted = await self._cluster.commit_start(
            RestartNode(
                node=NodeId(identity.node),
                store=identity.store,
                addresses=advertised,
                program=PROGRAM,
                control=self._cluster.control,
                zone=self.settings.zone or None,
                http=self._http(),
                level=LEVEL_NEWEST,
                witness=await self._log_witnesses.draw(),
            )
        )
        self.proposer.use_session(restarted.session)
        weight = self.settings.weight
        if weight not in (None, self.proposer.state.nodes[self._here.node].weight):
            await self._cluster.commit(SetNode(node=self._here.node, weight=weight))
        await self._cluster.finalize_alone()
        self._are_orders_executed = True
        self._set_access(self.proposer.state)
        index = self.proposer.applied.index
        self._native_node.applied(index)
        self._executor.enqueue(EMPTY, self.proposer.state, index)
        self.transactions.apply(self.proposer.state)
        for fault in await self._executor.until_executed(index):
            _LOG.error("not opened", fault=fault)
        _LOG.info("opened", partitions=restarted.partitions, epoch=restarted.epoch)

    def _http(self) -> tuple[str, ...] | None:
        """Addresses of the admin API; None if the system chooses the port: the metadata keeps the last."""
        if self.settings.http is None:
            return ()
        host, port = addresses.http_host_port(self.settings.http, insecure=self.settings.insecure)
        return (addresses.http_advertised(host, port),) if port else None

    def _set_access(self, state: MetadataState) -> None:
        """Give the engine the current tokens. It evaluates open connections again, immediately."""
        access = access_of(state)
        if access != self._access:
            self._access = access
            grants = [msgspec.structs.astuple(grant) for grant in access.grants]
            self.native.set_access(access.is_asked, grants, access.credential)
            self.native.set_ready(self._ready())

    def _ready(self) -> bytes:
        identity = self._identity
        return messages.encode(
            messages.Ready(
                cluster=identity.cluster,
                history=identity.history,
                node=identity.node,
                store=identity.store,
                version_min=PROTOCOL_VERSION_MIN,
                version_max=PROTOCOL_VERSION,
                program=PROGRAM,
                message_bytes_max=self.settings.body_bytes_max,
                window=DEDUPE_WINDOW,
                heartbeat_ms=HEARTBEAT_MS,
                credential_needed=self._access.is_asked,
            )
        )

    async def _listen(self) -> None:
        self.native.set_ready(self._ready())
        self.addresses = list(self.native.listen(list(self.settings.listen)))
        advertised = self.settings.advertise or addresses.advertised(self.addresses)
        if advertised != self.proposer.state.nodes[self._here.node].addresses:
            applied = await self._cluster.commit(SetAddresses(node=self._here.node, addresses=advertised))
            await self._executor.until_executed(applied.index)

    def _routes(self) -> dict[int, Route]:
        peer_client = self._cluster.peer_client
        topics = self.topics = TopicRequests(self.proposer, self._executor, self.native, peer_client)
        self.admin = Admin(self.proposer, topics)
        audited = AuditedTopics(topics, self.proposer, self.audit)
        producers = self.producers = ProducerRequests(self.proposer, self._native_node, peer_client)

        async def status(_: None) -> messages.Message:
            return restrict_status_to_prefix(self.proposer.state, CALLER_PREFIX.get(), self.status())

        return {
            Opcode.TOPIC_CREATE: Route(messages.TopicCreate, audited.create),
            Opcode.TOPIC_LIST: Route(messages.TopicList, topics.list_topics),
            Opcode.TOPIC_DESCRIBE: Route(messages.TopicName, topics.describe),
            Opcode.TOPIC_TRUNCATE: Route(messages.TopicTruncate, audited.truncate),
            Opcode.TOPIC_DELETE: Route(messages.TopicName, audited.delete),
            Opcode.SCHEMA_ADD: Route(messages.SchemaAdd, audited.add_schema),
            Opcode.PRODUCER_OPEN: Route(messages.ProducerOpen, producers.open),
            Opcode.STATUS: Route(None, status),
            Opcode.BEGIN: Route(cluster_messages.ScopeBegin, self.transactions.begin),
            Opcode.COMMIT: Route(cluster_messages.ScopeCommit, self.transactions.commit),
            Opcode.EXPIRE: Route(cluster_messages.ScopeExpire, self.transactions.expire),
        }

    # ---- while it runs ----------------------------------------------------------------------------

    def _applied(self, before: MetadataState, after: MetadataState, index: Index) -> None:
        if self._are_orders_executed:
            self._native_node.applied(index)
            if before.tokens is not after.tokens or before.config is not after.config:
                self._set_access(after)
            self._executor.enqueue(before, after, index)
            self.cluster_events.applied(before, after, index)
            self.transactions.apply(after)
            if before.rebalance is not after.rebalance and before.rebalance.state != after.rebalance.state:
                self._measure_run(self.native.counters())

    def _measure_run(self, counters: Mapping[str, int]) -> None:
        self._run_rates.read(counters, self.proposer.state.rebalance, time.monotonic_ns() // 1_000_000)

    def _request(self, connection: int, header: bytes, body: bytes, prefix: str, token: str) -> None:
        self._requests.serve(connection, header, body, prefix, token)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_result(error)

    async def _close(self) -> None:
        if hasattr(self, "_topic_purge"):
            self._topic_purge.close()
            self._cleanup_confirmations.close()
        if hasattr(self, "_executor"):
            await self._executor.close()
        if hasattr(self, "transactions"):
            await self.transactions.close()
        if hasattr(self, "_log_witnesses"):
            await self._log_witnesses.close()
        await self._cluster.close()
        if hasattr(self, "audit"):
            await self.audit.close()
        if self._store is not None:
            self._store.close()
        if hasattr(self, "_native_node"):
            self._native_node.close()
        if hasattr(self, "native"):
            await asyncio.get_running_loop().run_in_executor(None, self.native.stop, 1.0)
        if self._directory is not None:
            self._directory.close()
            self._directory = None


def _open_directory(settings: Settings) -> DataDirectory | JoiningDirectory:
    """Open the data directory. StorageError also for a path that the system refuses (too long)."""
    try:
        return (open_or_join if settings.join else open_directory)(settings.data_dir)
    except (OSError, ValueError) as error:
        raise unusable_error(settings.data_dir, error) from error
