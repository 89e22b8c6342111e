"""Build all parts of a node in the order of their needs. Nothing is started here.

A part gets what it calls when it is made. Calls in the other direction are callbacks. The few of them that
name a part which is built later run only once the node has started.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from ringfence.control.model.entries import Entry
from ringfence.control.model.ids import Index, NodeId, PartitionId, TopicId
from ringfence.control.model.results import Result
from ringfence.control.model.state import EMPTY, MetadataState
from ringfence.control.model.topics import Replica
from ringfence.control.runtime import route_tables
from ringfence.control.runtime.cluster import Cluster, HeartbeatCalls, Log, build_log
from ringfence.control.runtime.cohorts import parts as cohort_parts
from ringfence.control.runtime.cohorts.engine import NativeCohortEngine
from ringfence.control.runtime.cohorts.parts import CohortParts
from ringfence.control.runtime.control_server import ControlServer, Question
from ringfence.control.runtime.data_plane.cleanup_confirmations import CleanupConfirmations
from ringfence.control.runtime.data_plane.controller_news import ControllerNews
from ringfence.control.runtime.data_plane.executor import OrderExecutor
from ringfence.control.runtime.data_plane.handshake_values import ConnectionAccess
from ringfence.control.runtime.data_plane.log_witnesses import LogWitnesses
from ringfence.control.runtime.data_plane.native_node import NativeNode
from ringfence.control.runtime.data_plane.purge import TopicPurge
from ringfence.control.runtime.data_plane.run_rates_feed import RunMeter
from ringfence.control.runtime.handlers import cohort_handlers
from ringfence.control.runtime.handlers.audit import Audit
from ringfence.control.runtime.handlers.cluster_events import ClusterEvents
from ringfence.control.runtime.handlers.cohort_handlers import CohortHandlers
from ringfence.control.runtime.handlers.commands import Commands
from ringfence.control.runtime.handlers.completion import Completion
from ringfence.control.runtime.handlers.control_changes import ControlChanges
from ringfence.control.runtime.handlers.data_questions import DataQuestions
from ringfence.control.runtime.handlers.inspections import Inspections
from ringfence.control.runtime.handlers.layout_auto import LayoutAuto
from ringfence.control.runtime.handlers.layout_changes import LayoutChanges
from ringfence.control.runtime.handlers.layout_control import LayoutControl
from ringfence.control.runtime.handlers.layout_requests import LayoutRequests
from ringfence.control.runtime.handlers.layout_views import LayoutViews
from ringfence.control.runtime.handlers.member_questions import MemberQuestions
from ringfence.control.runtime.handlers.native_events import NativeEvents
from ringfence.control.runtime.handlers.partitions import Partitions
from ringfence.control.runtime.handlers.producers import ProducerRequests
from ringfence.control.runtime.handlers.quarantines import Quarantines
from ringfence.control.runtime.handlers.rebalances import Rebalances
from ringfence.control.runtime.handlers.token_prefixes import restrict_status_to_prefix, restrict_to_prefix
from ringfence.control.runtime.handlers.topic_changes import TopicChanges
from ringfence.control.runtime.handlers.topic_plans import TopicPlans
from ringfence.control.runtime.layout import parts as layout_parts
from ringfence.control.runtime.layout.parts import LayoutParts
from ringfence.control.runtime.membership.own_start import OwnStart
from ringfence.control.runtime.process.health import Health
from ringfence.control.runtime.process.settings import Settings
from ringfence.control.runtime.process.start_gate import StartGate
from ringfence.control.runtime.raft.proposer import RaftProposer
from ringfence.control.runtime.reassignment.participant import Participant
from ringfence.control.runtime.rpc.client import PeerClient
from ringfence.control.runtime.rpc.cohort_messages import SeeClaims
from ringfence.control.runtime.rpc.dispatch import CALLER_PREFIX, RequestDispatch
from ringfence.control.runtime.transactions.lost_partitions import LostPartitions
from ringfence.control.runtime.transactions.requests import TransactionRequests
from ringfence.control.runtime.transactions.staged_row_counts import StagedRowCounts
from ringfence.control.runtime.transactions.unpublished import UnpublishedEpochs
from ringfence.control.state_machines.layout.adoption import NodeAdoption
from ringfence.control.store.directory import DataDirectory
from ringfence.control.store.raft_store import RaftStore
from ringfence.control.transport.hub import Hub
from ringfence.native import _node, messages
from ringfence.native.wire import DEDUPE_WINDOW, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Features

# Heartbeat interval for clients, in ms; a failed peer is detected after two.
HEARTBEAT_MS: Final = 10_000
PROGRAM: Final = f"ringfence {version('ringfence')}"


@dataclass(frozen=True, slots=True)
class Foundation:
    """What a start has opened before the parts are built.

    `report` is the native node's recovery report. `join_peers` are the control addresses of the members by
    node, from the answer to a join. `status` and `on_failed` are the node's.
    """

    settings: Settings
    health: Health
    cluster_events: ClusterEvents
    gate: StartGate
    hub: Hub
    own_start: OwnStart
    directory: DataDirectory
    store: RaftStore
    native: _node.Node
    report: Mapping[str, Any]
    join_peers: Mapping[int, tuple[str, ...]]
    status: Callable[[], messages.Status]
    on_failed: Callable[[Exception], None]

    @property
    def here(self) -> Replica:
        return Replica(node=NodeId(self.directory.identity.node), store=self.directory.identity.store)


@dataclass(frozen=True, slots=True)
class DataPlane:
    """Turns metadata into orders of the native node, and its outcomes into requests and events."""

    native_node: NativeNode
    access: ConnectionAccess
    executor: OrderExecutor
    participant: Participant
    log_witnesses: LogWitnesses
    topic_purge: TopicPurge
    cleanup_confirmations: CleanupConfirmations
    run_meter: RunMeter


@dataclass(frozen=True, slots=True)
class Handlers:
    """Requests of clients and administrators."""

    topics: TopicPlans
    producers: ProducerRequests
    transactions: TransactionRequests
    commands: Commands
    completion: Completion
    rebalances: Rebalances
    partitions: Partitions
    quarantines: Quarantines
    inspections: Inspections
    layout_changes: LayoutChanges
    layout_views: LayoutViews
    layout_auto: LayoutAuto
    cohorts: CohortHandlers
    requests: RequestDispatch
    control_server: ControlServer


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of a node."""

    directory: DataDirectory
    here: Replica
    log: Log
    audit: Audit
    data_plane: DataPlane
    cluster: Cluster
    layouts: LayoutParts
    cohorts: CohortParts
    handlers: Handlers

    @property
    def proposer(self) -> RaftProposer:
        return self.log.proposer

    async def close(self) -> None:
        data_plane = self.data_plane
        data_plane.topic_purge.close()
        data_plane.cleanup_confirmations.close()
        await self.cohorts.close()
        await self.handlers.cohorts.close()
        await self.layouts.close()
        await data_plane.executor.close()
        await self.handlers.transactions.close()
        await data_plane.log_witnesses.close()
        await self.cluster.close()
        await self.audit.close()
        data_plane.native_node.close()


def build(given: Foundation) -> Parts:
    """Build the parts. Raises as `Cluster`."""
    log = build_log(given.hub, given.own_start, given.on_failed)
    audit = Audit(given.settings.data_dir, given.here.node, given.health)

    def serve(connection: int, header: bytes, body: bytes, prefix: str, token: str, features: int) -> None:
        handlers.requests.serve(connection, header, body, prefix, token, features)

    def adopted(topics: Collection[TopicId]) -> list[tuple[TopicId, Index]]:
        floors = given.native.adopted(tuple(topics)) if given.gate.is_open else ()
        return [(TopicId(topic), Index(floor)) for topic, floor in floors]

    def record_adoption(node: NodeId, adoption: NodeAdoption) -> None:
        layouts.leader.record_adoption(node, adoption)

    def record_lacking(node: NodeId, partitions: Collection[PartitionId]) -> None:
        layouts.leader.record_lacking(node, partitions)

    data_plane = _data_plane(given, log.proposer, audit, serve)
    cluster = Cluster(
        given.settings,
        given.health,
        log,
        given.directory,
        given.store,
        join_peers=given.join_peers,
        orders=data_plane.participant,
        gate=given.gate,
        heartbeats=HeartbeatCalls(
            counters=lambda: given.native.partitions() if given.gate.is_open else (),
            on_loads=data_plane.executor.load_hints.update,
            on_time_window=data_plane.native_node.set_time_window,
            adopted=adopted,
            on_adopted=record_adoption,
            lacking=lambda: data_plane.executor.lacking,
            on_lacking=record_lacking,
        ),
        on_failed=given.on_failed,
    )
    layouts = layout_parts.build(
        log.proposer,
        data_plane.executor,
        data_plane.native_node,
        cluster.peer_client,
        given.here,
        given.gate,
        cluster.members.board,
        lambda name, values: given.cluster_events.emit(
            "layout policy", log.proposer.applied.index, {"name": name, **values}
        ),
    )
    cohorts = _cohorts(given, log.proposer, data_plane, cluster)
    handlers = _handlers(given, log.proposer, audit, data_plane, cluster, layouts, cohorts)

    parts = Parts(given.directory, given.here, log, audit, data_plane, cluster, layouts, cohorts, handlers)
    _listen(given, parts)
    return parts


def _listen(given: Foundation, parts: Parts) -> None:
    """Let the parts hear of applied entries, in this order."""
    log, data_plane, layouts, cohorts = parts.log, parts.data_plane, parts.layouts, parts.cohorts
    handlers = parts.handlers

    def emit_events(before: MetadataState, after: MetadataState, index: Index) -> None:
        if before is not EMPTY:  # what this node finds at its start is no event
            given.cluster_events.applied(before, after, index)

    def entry_applied(entry: Entry, result: Result) -> None:
        layouts.times.note_entry(entry, result)
        cohorts.leader.entry_applied(entry, result)

    log.listeners.add(lambda *_: layouts.leader.wake(), lambda _, after, __: cohorts.applied(after))
    log.proposer.on_entry = entry_applied
    log.listeners.add_started(
        lambda _, __, index: data_plane.native_node.applied(index),
        data_plane.access.applied,
        data_plane.executor.enqueue,
        lambda _, after, __: layouts.participant.apply(after),
        lambda before, after, _: layouts.counts.apply(before, after),
        lambda before, after, _: layouts.times.apply(before, after),
        emit_events,
        lambda _, after, __: handlers.transactions.apply(after),
        lambda *_: handlers.cohorts.members.applied(),
        data_plane.run_meter.applied,
    )


def _cohorts(
    given: Foundation, proposer: RaftProposer, data_plane: DataPlane, cluster: Cluster
) -> CohortParts:
    executor = data_plane.executor
    engine = NativeCohortEngine(data_plane.native_node)
    parts = cohort_parts.build(
        proposer,
        cluster.peer_client,
        engine,
        data_plane.native_node,
        given.here,
        round(given.settings.session_grace_s * 1_000),
        executor.words,
        executor.reinstall,
    )
    executor.on_cohorts = parts.installed
    data_plane.native_node.on_gates = parts.words.wake
    return parts


def _data_plane(
    given: Foundation,
    proposer: RaftProposer,
    audit: Audit,
    on_request: Callable[[int, bytes, bytes, str, str, int], None],
) -> DataPlane:
    here, health, fail = given.here, given.health, given.on_failed
    reports = NativeEvents(proposer, here, health, given.cluster_events, audit, fail)
    run_meter = RunMeter(given.native, proposer)

    def look(counters: Mapping[str, int]) -> None:
        run_meter.read(counters)
        controller.refresh()

    native_node = NativeNode(
        given.native, on_request=on_request, on_event=reports.take, on_failed=fail, on_counters=look
    )
    controller = ControllerNews(proposer, native_node)
    topic_purge = TopicPurge(proposer, here.store)
    cleanup_confirmations = CleanupConfirmations(proposer, here.store)
    executor = OrderExecutor(
        native_node,
        here,
        health,
        on_dropped=topic_purge.begin,
        on_cleaned_up=cleanup_confirmations.confirm,
        on_failed=fail,
        on_level=given.directory.note_cluster_level,
    )
    return DataPlane(
        native_node,
        ConnectionAccess(given.native, _ready(given)),
        executor,
        Participant(proposer, executor, native_node, here),
        LogWitnesses(proposer, native_node, here, health, given.report, given.settings.data_dir),
        topic_purge,
        cleanup_confirmations,
        run_meter,
    )


def _ready(given: Foundation) -> messages.Ready:
    identity = given.directory.identity
    return messages.Ready(
        cluster=identity.cluster,
        history=identity.history,
        node=identity.node,
        store=identity.store,
        version_min=PROTOCOL_VERSION_MIN,
        version_max=PROTOCOL_VERSION,
        program=PROGRAM,
        message_bytes_max=given.settings.body_bytes_max,
        window=DEDUPE_WINDOW,
        heartbeat_ms=HEARTBEAT_MS,
        features=int(Features.RESUME_RANGES | Features.LINEAGE),
    )


def _handlers(
    given: Foundation,
    proposer: RaftProposer,
    audit: Audit,
    data_plane: DataPlane,
    cluster: Cluster,
    layouts: LayoutParts,
    cohorts: CohortParts,
) -> Handlers:
    executor, native_node, peer_client = data_plane.executor, data_plane.native_node, cluster.peer_client
    topics = TopicPlans(proposer, executor, given.native, peer_client, cluster.members.pressures)
    commands, completion = Commands(proposer, audit), Completion(proposer, executor, peer_client, topics)
    producers = ProducerRequests(proposer, native_node, peer_client)
    staged_row_counts = StagedRowCounts(proposer, native_node, peer_client)
    unpublished = UnpublishedEpochs(given.health, given.here.node)
    transactions = TransactionRequests(
        proposer, native_node, given.here, staged_row_counts, unpublished, given.on_failed
    )
    executor.before_cohorts = transactions.install
    coordinator = cluster.reassignments.coordinator
    rebalances = _rebalances(proposer, data_plane, cluster)
    quarantines = Quarantines(proposer, peer_client, native_node)
    partitions = Partitions(proposer, peer_client, coordinator, LostPartitions(proposer, staged_row_counts))
    inspections = Inspections(proposer, peer_client, cluster.members, native_node)
    pulse = proposer.replica.pulse
    changes = TopicChanges(proposer, topics, commands, completion)
    served = _layout_handlers(proposer, peer_client, layouts)
    cohort_served = cohort_handlers.build(proposer, commands, cohorts)

    async def status(_: None) -> messages.Message:
        return restrict_status_to_prefix(proposer.state, CALLER_PREFIX.get(), given.status())

    layout_requests = LayoutRequests(proposer, commands, *served)
    routes = route_tables.routes(
        topics, changes, producers, transactions, layout_requests, cohort_served, status
    )
    requests = RequestDispatch(
        given.native,
        routes,
        generation=lambda: proposer.applied.index,
        request_ms=given.settings.request_ms,
        pulse=pulse,
        narrow=partial(restrict_to_prefix, lambda: proposer.state),
    )
    members = MemberQuestions(proposer, cluster.members, cluster.levels, cluster.recordings, given.settings)
    questions = route_tables.member_questions(members)
    questions |= route_tables.data_questions(_data(given, proposer, data_plane, layouts, staged_row_counts))
    layout_control = LayoutControl(proposer, commands, *served)
    questions |= route_tables.layout_questions(layouts, *served[1:], layout_control)
    questions |= route_tables.cohort_questions(cohorts)
    questions[SeeClaims] = Question(staged_row_counts.claims.here)
    control = ControlChanges(proposer, commands, rebalances, partitions, quarantines)
    questions |= route_tables.admin_questions(control, rebalances, partitions, inspections)
    return Handlers(
        topics,
        producers,
        transactions,
        commands,
        completion,
        rebalances,
        partitions,
        quarantines,
        inspections,
        *served,
        cohort_served,
        requests,
        ControlServer(questions, given.gate, pulse),
    )


def _rebalances(proposer: RaftProposer, data_plane: DataPlane, cluster: Cluster) -> Rebalances:
    leader, rates = cluster.reassignments, data_plane.run_meter.rates
    board = cluster.members.board
    return Rebalances(proposer, cluster.peer_client, leader.coordinator, board, rates, leader.refresh)


def _layout_handlers(
    proposer: RaftProposer, peer_client: PeerClient, layouts: LayoutParts
) -> tuple[LayoutChanges, LayoutViews, LayoutAuto]:
    return (
        LayoutChanges(proposer, layouts.sender.ask_sketch, layouts.times.is_aborted),
        LayoutViews(proposer, peer_client, layouts.leader, layouts.times),
        LayoutAuto(proposer, peer_client, layouts.auto),
    )


def _data(
    given: Foundation,
    proposer: RaftProposer,
    data_plane: DataPlane,
    layouts: LayoutParts,
    staged_row_counts: StagedRowCounts,
) -> DataQuestions:
    return DataQuestions(
        proposer,
        data_plane.executor,
        data_plane.native_node,
        staged_row_counts,
        data_plane.participant,
        layouts.participant,
        given.gate,
    )
