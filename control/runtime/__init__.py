"""One node as one process: native threads for data, one asyncio loop for everything else.

START HERE: `node.Node` puts the pieces together and starts them in order.

    settings    TOML file, environment, flags
    proposals   propose(command) -> index and result; group commit through the journal
    driver      the native node inside the loop: orders down, outcomes up
    follower    what the metadata says becomes orders, one entry after the other
    requests    control requests of clients, answered within their deadlines
    health      why the node is not all well, as sentences
    native_events   what the native node tells unasked: health, log, events, audit

The process: serve (signals, exit), addresses, descriptors, logs, errors, statuses, waits, audit, event_files.

Consensus and membership: cluster (put together), replica (at work), raft_proposer (propose from any node),
peers (ids to addresses), members (heartbeats, decisions about nodes and voters), removal, node_changes,
upgrades and older (levels), calls, answers and others (questions between nodes).

What clients and operators ask: topic_requests (schemas, type_names, bodies), producer_requests and
producer_epochs, partition_requests, rebalance_requests, admin, audited_topics, views, inspections, happenings
(events), prefixes (tokens for some topics).

Transactions: scope_requests, begin_order, commit_order, stage_checks, publish_watch, unpublished, lost_parts.

Changes of partitions: changes_leader (asks nodes), order_batches (many orders in one question), changes_node
(carries out), changes_left (confirms).

The store below: recovery, retries, burials (topics purged), figures, hints (loads for producers),
witnesses and log_bounds (logs that came back older).
"""
