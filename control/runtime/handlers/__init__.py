"""Handle requests of clients and administrators: plan the commands, submit them, answer.

commands          START HERE: the path of every change, from its authorization to its audit line
completion        wait until a committed change is carried out
topic_plans       plan changes of topics, and read topics
topic_changes     changes of topics at a data address
control_changes   changes of nodes, rebalances and partitions at the control address
node_plans        plan the named changes of a node
member_questions  answer questions about members, levels and consensus at the control address
data_questions    answer questions of other nodes to this node's data plane
producers         PRODUCER_OPEN; names of producers, listed and forgotten
resume_points     where a named producer resumes, by slot
partitions        one partition: replicas, moves, an owner by force
quarantines       end quarantines of replicas that are sound again
layout_changes    plan splits, merges and repartitions, and wait until they have taken effect
layout_requests   splits, merges and repartitions at a data address
layout_control    the same at the control address
layout_views      layouts and open layout changes as values
layout_auto       automatic splits and merges: explanations, settings of a topic
cohort_handlers   build the handlers of requests about cohorts
cohort_members    JOIN: registrations of members that join at about the same time are one entry
cohort_departures LEAVE, and evictions
cohort_plans      plan changes of cohorts, and seeks
cohort_requests   requests about cohorts at a data address
cohort_views      cohorts with members, lag and partitions
cohort_parked     COHORT_PARKED: parked ranges, listed and settled by the owners of their gates
cohort_events     events of cohorts, derived from two states
cohort_values     find cohorts by name; values of messages
rebalances        runs of moves: preview, start, pause, resume, cancel
audit             the audit log: one JSON line a change or refusal
cluster_events    events of the cluster for `/admin/events`: derived from two states
native_events     reports of the native node: reasons of health, log lines, events
cluster_levels    versions and levels of all nodes; finalization of an upgrade
views             metadata as values for administrators
inspections       invariants of a running cluster: collect figures of all stores and judge them
schemas           untrusted Arrow schemas into columns that the metadata compares
type_names        column types by the names that pyarrow prints
token_prefixes    restrict requests to the topic prefix of the caller's token
"""
