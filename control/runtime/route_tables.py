"""Route tables: which handler serves each request of clients, and each question of nodes and operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ringfence.control.model.ids import PartitionId
from ringfence.control.runtime.cohorts.parts import CohortParts
from ringfence.control.runtime.control_server import Question
from ringfence.control.runtime.handlers import cohort_handlers
from ringfence.control.runtime.handlers.cohort_handlers import CohortHandlers
from ringfence.control.runtime.handlers.control_changes import ControlChanges
from ringfence.control.runtime.handlers.data_questions import DataQuestions
from ringfence.control.runtime.handlers.inspections import Inspections
from ringfence.control.runtime.handlers.layout_auto import LayoutAuto
from ringfence.control.runtime.handlers.layout_control import LayoutControl
from ringfence.control.runtime.handlers.layout_requests import LayoutRequests
from ringfence.control.runtime.handlers.layout_views import LayoutViews
from ringfence.control.runtime.handlers.member_questions import MemberQuestions
from ringfence.control.runtime.handlers.partitions import Partitions
from ringfence.control.runtime.handlers.producers import ProducerRequests
from ringfence.control.runtime.handlers.rebalances import Rebalances
from ringfence.control.runtime.handlers.topic_changes import TopicChanges
from ringfence.control.runtime.handlers.topic_plans import TopicPlans
from ringfence.control.runtime.layout.parts import LayoutParts
from ringfence.control.runtime.rpc import layout_messages
from ringfence.control.runtime.rpc import messages as calls
from ringfence.control.runtime.rpc.dispatch import Route
from ringfence.control.runtime.transactions.requests import TransactionRequests
from ringfence.native import cluster_messages, cohort_messages, messages
from ringfence.native import layout_messages as layout_bodies
from ringfence.native.wire import Opcode


def routes(
    topics: TopicPlans,
    changes: TopicChanges,
    producers: ProducerRequests,
    transactions: TransactionRequests,
    layouts: LayoutRequests,
    cohorts: CohortHandlers,
    status: Callable[[None], Awaitable[messages.Message]],
) -> dict[int, Route]:
    return {
        Opcode.TOPIC_CREATE: Route(messages.TopicCreate, changes.create),
        Opcode.TOPIC_LIST: Route(messages.TopicList, topics.list_topics),
        Opcode.TOPIC_DESCRIBE: Route(messages.TopicName, topics.describe),
        Opcode.TOPIC_TRUNCATE: Route(messages.TopicTruncate, changes.truncate),
        Opcode.TOPIC_DELETE: Route(messages.TopicDelete, changes.delete),
        Opcode.SCHEMA_ADD: Route(messages.SchemaAdd, changes.add_schema),
        Opcode.PRODUCER_OPEN: Route(messages.ProducerOpen, producers.open),
        Opcode.STATUS: Route(None, status),
        Opcode.BEGIN: Route(cluster_messages.ScopeBegin, transactions.begin),
        Opcode.COMMIT: Route(cluster_messages.ScopeCommit, transactions.commit),
        Opcode.EXPIRE: Route(cluster_messages.ScopeExpire, transactions.expire),
        Opcode.LAYOUT_CHANGE: Route(layout_bodies.LayoutChange, layouts.change),
        Opcode.LAYOUT_DESCRIBE: Route(layout_bodies.LayoutDescribe, layouts.describe),
        **_cohort_routes(cohorts),
    }


def _cohort_routes(cohorts: CohortHandlers) -> dict[int, Route]:
    requests = cohorts.requests
    return {
        Opcode.JOIN: Route(cohort_messages.Join, cohorts.members.join),
        Opcode.LEAVE: Route(cohort_messages.Leave, cohorts.departures.leave),
        Opcode.COHORT_CREATE: Route(cohort_messages.CohortCreate, requests.create),
        Opcode.COHORT_DESCRIBE: Route(cohort_messages.CohortDescribe, requests.describe),
        Opcode.COHORT_LIST: Route(cohort_messages.CohortList, requests.list_cohorts),
        Opcode.COHORT_CHANGE: Route(cohort_messages.CohortChange, requests.change),
        Opcode.COHORT_SEEK: Route(cohort_messages.CohortSeek, requests.seek),
        Opcode.COHORT_DELETE: Route(cohort_messages.CohortDelete, requests.delete),
        Opcode.COHORT_EVICT: Route(cohort_messages.CohortEvict, requests.evict),
        Opcode.COHORT_PARKED: Route(cohort_messages.CohortParked, cohorts.parked.serve),
    }


Questions = dict[type[calls.Call], Question]


def cohort_questions(parts: CohortParts) -> Questions:
    return {call: Question(answer) for call, answer in cohort_handlers.questions(parts).items()}


def member_questions(members: MemberQuestions) -> Questions:
    return {
        calls.Join: Question(members.join, while_starting=True),
        calls.ListNodes: Question(members.list_nodes, while_starting=True),
        calls.SaveRecording: Question(members.save_recording, while_starting=True),
        calls.ShowVersions: Question(members.show_versions, while_starting=True),
        calls.PromiseLevel: Question(members.promise_level, while_starting=True),
    }


def data_questions(data: DataQuestions) -> Questions:
    return {
        # It waits for the entry first: a node that starts may execute the orders soon.
        calls.AwaitExecution: Question(data.await_execution, while_starting=True),
        calls.ShowExecutedIndex: Question(data.show_executed_index),
        calls.ListHosted: Question(data.list_hosted),
        calls.OpenProducer: Question(data.open_producer),
        calls.CountStaged: Question(data.count_staged),
        calls.ExecuteOrder: Question(data.execute_order),
        calls.ExecuteOrders: Question(data.execute_orders),
    }


def layout_questions(
    layouts: LayoutParts, views: LayoutViews, auto: LayoutAuto, control: LayoutControl
) -> Questions:
    async def show_transitions(call: layout_messages.ShowTransitions) -> calls.Document:
        return calls.Document(value=views.transitions_here() if call.here else await views.transitions())

    async def explain(call: layout_messages.ExplainLayout) -> calls.Document:
        view = auto.explain_here(call.topic) if call.here else auto.explain(call.topic)
        return calls.Document(value=await view)

    return {
        layout_messages.ShowTransitions: Question(show_transitions),
        layout_messages.ExplainLayout: Question(explain),
        layout_messages.ChangeLayout: Question(control.serve),
        layout_messages.SketchOf: Question(layouts.answers.sketch_of),
        layout_messages.TableOf: Question(layouts.answers.table_of),
        layout_messages.GatesOf: Question(layouts.answers.gates_of),
        layout_messages.TellSealed: Question(layouts.answers.tell_sealed),
    }


def admin_questions(
    changes: ControlChanges, rebalances: Rebalances, partitions: Partitions, inspections: Inspections
) -> Questions:
    async def show_rebalance(_: calls.ShowRebalance) -> calls.Document:
        return calls.Document(value=await rebalances.show_here())

    async def show_run_rates(_: calls.ShowRunRates) -> calls.Document:
        return calls.Document(value=rebalances.rates_here())

    async def show_partition(call: calls.ShowPartition) -> calls.Document:
        number = PartitionId(call.partition)
        view = partitions.here(number) if call.here else await partitions.show(number)
        return calls.Document(value=view)

    async def inspect(call: calls.Inspect) -> calls.Inspected:
        return await inspections.here(call.after)

    async def inspect_all(_: calls.InspectAll) -> calls.Document:
        return calls.Document(value=await inspections.inspect())

    return {
        calls.ChangeNode: Question(changes.change_node),
        calls.ShowRebalance: Question(show_rebalance),
        calls.ShowRunRates: Question(show_run_rates),
        calls.SteerRebalance: Question(changes.steer_rebalance),
        calls.ShowPartition: Question(show_partition),
        calls.ForcePartition: Question(changes.force_owner),
        calls.GiveUpPart: Question(changes.give_up_part),
        calls.ReleasePartition: Question(changes.release_partition),
        calls.Inspect: Question(inspect),
        calls.InspectAll: Question(inspect_all),
    }
