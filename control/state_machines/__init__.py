"""What metadata commands do, and what follows from the state. Pure: values in, values out.

START HERE. Layers, top first; imports run downward only:

    orders          between(before, after, here): what a node has to do after an entry
    inspection      check the invariants of a cluster from its metadata and the figures of all stores
    reassignment/   moves of partitions: the coordinator of the leader, messages, cleanup
    rebalance/      runs of moves: runner, plans, policy, loads
    placement/      where replicas and owners should be
    membership/     who is alive, who votes, whether all nodes agree
    metadata/       validate(state, command), apply(state, entry): the only way that a state changes

The runtime joins them to consensus. It proposes a command if `validate` passes. For every committed entry
it calls `apply`, then `orders.between` for its own (node, store), then it answers the proposer. A leader
passes heartbeats to `Liveness.beat` and proposes what `Liveness.tick` and `voters.next_change` return.
A command that is refused is decided again on the newer state.
"""
