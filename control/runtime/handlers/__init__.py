"""Handle requests of clients and administrators: check, propose one entry, answer.

topics           TOPIC_* and SCHEMA_ADD of clients
producers        PRODUCER_OPEN; names of producers, listed and forgotten
partitions       one partition: replicas, moves, an owner by force
quarantines      end quarantines of replicas that are sound again
rebalances       runs of moves: preview, start, pause, resume, cancel
admin            every change by an administrator: deduplicate by key, propose, wait, answer
audited_topics   changes of topics at a data address, with their lines in the audit log
audit            the audit log: one JSON line a change or refusal
cluster_events   events of the cluster for `/admin/events`: derived from two states
native_events    reports of the native node: reasons of health, log lines, events
cluster_levels   versions and levels of all nodes; finalization of an upgrade
views            metadata as values for administrators
inspections      invariants of a running cluster: collect figures of all stores and judge them
schemas          untrusted Arrow schemas into columns that the metadata compares
type_names       column types by the names that pyarrow prints
token_prefixes   restrict requests to the topic prefix of the caller's token
"""
