"""Drive the native node: metadata becomes orders, outcomes become reports.

executor                apply orders to the native node, one metadata entry after the other
native_node             the native node inside the asyncio loop: calls down, events up
retries                 repeat orders that failed until they succeed or are withdrawn
recovery                compare the recovered log with the metadata; report, never delete
log_bounds              keep on disk how far the logs of this node reach
log_witnesses           detect a log directory that was replaced by an older copy
table_bodies            metadata as the bodies that clients read
load_hints              loads of partitions in the tables of topics without key
partition_stats         counters of partitions and the lag of their replicas
producer_epochs         epochs of named producers at the partitions of this node
purge                   confirm drops of deleted topics; the last confirmation removes the tombstone
cleanup_confirmations   confirm that a finished move left nothing to do at this store
"""
