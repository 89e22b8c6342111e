"""Drive the native node: turn metadata into orders, and outcomes into reports.

executor                execute orders on the native node, one metadata entry after the other
native_node             run the native node inside the asyncio loop: give orders, dispatch events
native_orders           turn orders that follow from the metadata into those of the native node
cohort_orders           the order that installs rules of cohorts
partition_opens         wake those who wait until the native node has opened a partition
retries                 repeat orders that failed until they succeed or are withdrawn
recovery                compare the recovered log with the metadata; report, never delete
log_bounds              save the log bounds of this node's partitions
log_witnesses           detect a log directory that was replaced by an older copy
table_bodies            encode metadata as message bodies for clients
load_hints              put partition loads into the tables of topics without key
replica_lag             read counters of partitions and the lag of their replicas
controller_news         tell the engine who leads the metadata, for clients that watch
handshake_values        give the engine the greeting of clients, and their tokens
run_rates_feed          read counters for the rates around rebalances
producer_epochs         raise epochs of named producers at the partitions of this node
purge                   confirm drops of deleted topics; the last confirmation removes the tombstone
cleanup_confirmations   confirm cleanup orders that this store has executed
"""
