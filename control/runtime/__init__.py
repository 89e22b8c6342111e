"""Run one node as one process: native threads for data, one asyncio loop for everything else.

START HERE: `node.Node` builds the parts and starts them in order.
Layers, top first; imports run downward only:

    serve, node, cluster    the process around a node; the node; its part of the cluster
    control_server          answer questions of other nodes and administrators at the control address
    handlers/               requests about topics, producers, partitions, rebalances; views and inspections
    transactions/           BEGIN, COMMIT and EXPIRE of scopes; publishing of committed epochs
    reassignment/           moves of partitions: the leader's side and a node's side
    data_plane/             orders to the native node, and what the native node reports
    membership/             heartbeats, members that were removed, commands about nodes
    rpc/                    questions to other nodes, and dispatch of clients' requests
    raft/                   consensus on disk and network: replica, proposer, recordings
    process/                settings, addresses, logs, health, errors
"""
