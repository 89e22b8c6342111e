"""Run one node as one process: native threads for data, one asyncio loop for everything else.

START HERE: `wiring.build` makes all parts in the order of their needs, `node_process.Node` starts and
stops them. Layers, top first; imports run downward only:

    serve, node_process     the process around a node; start and stop of the node
    wiring                  build all parts
    route_tables            which handler serves which request or question
    cluster                 the node's part of the cluster: log, consensus, members, reassignments
    control_server          dispatch questions of other nodes and administrators at the control address
    handlers/               requests about topics, producers, partitions, rebalances; views and inspections
    transactions/           BEGIN, COMMIT and EXPIRE of scopes; publishing of committed epochs
    reassignment/           moves of partitions: the leader's side and a node's side
    layout/                 splits, merges and repartitions: the leader's side and a node's side
    data_plane/             orders to the native node, and reports from it
    membership/             heartbeats, removed members, commands about nodes
    rpc/                    requests to other nodes, and dispatch of clients' requests
    raft/                   consensus with disk and network: replica, proposer, recordings
    process/                settings, addresses, logs, health, errors
"""
