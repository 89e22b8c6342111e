"""Apply metadata commands, and derive everything that follows from the state. Pure: values in, values out.

START HERE. Layers, top first; imports run downward only:

    node_orders     between(before, after, here): a node's orders after an entry
    inspection      check the invariants of a cluster from its metadata and the figures of all stores
    reassignment/   moves of partitions: the coordinator of the leader, messages, cleanup
    rebalance/      runs of moves: runner, plans, policy, loads
    placement/      choose nodes for replicas and owners
    membership/     failures, voters, comparison of all nodes' states
    metadata/       validate(state, command), apply(state, entry): the only way to change a state

The runtime joins them to consensus. It proposes a command if `validate` passes. For every committed entry
it calls `apply`, then `node_orders.between` for its own (node, store), then it answers the proposer. A leader
passes heartbeats to `Liveness.beat` and proposes the results of `Liveness.tick` and `voters.next_change`.
A refused command is decided again on the newer state.
"""
