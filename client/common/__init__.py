"""Values and helpers that all rooms of the client share; imports no other room.

address, arguments, options, token    what callers pass         routing, codec       tables and frames
retry, failure_detector               delays and silent nodes   send_effects         effects of Inflight
scope_values                          drivers and stages        type_families        similar Arrow types
fork, process_local, locks            processes and threads     serial_executor      calls of asyncio tasks
lazy_future                           cheap futures         routes               slots of partitions
lineage                               order of partitions that were split or merged, for readers
adoption                              which routing table is used
watch_events, cluster_info            what a watch and a cluster tell
extension                             items before a body
"""
