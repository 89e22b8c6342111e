"""What metadata commands do, and what follows from the state. Pure: values in, values out.

START HERE. The log's side, the same on every node:

    metadata       validate(state, command), apply(state, entry): the one way that a state changes
                   commands: metadata_cluster, _nodes, _ring, _topics, _producers; their checks beside them
    orders         between(before, after, here): what this node has to do after an entry
    digests        the hash of a state, kept up from state to state: goes into heartbeats with the index
    agreement      compares the hashes of all nodes: who applied something else is found

The leader's side, decisions that become commands (a refused one is decided anew on the newer state):

    liveness       beat(state, heartbeat, now), tick(state, now) -> FailNode, RecoverNode, ring commands
    voters         next_change(state, voters, caught_up, leader) -> ChangeVoters | TransferLeadership | None
    rings          ring_change(state, heard); RingConsensus.propose_add, propose_remove
    placement      place_in(state, count, replication): `nodes` of a CreateTopic
    planner        balance, fill, clear(spread.members_of(state), spread.placed_of(state)) -> Plan of Moves
                   its parts: spread, quotas, owners, replicas, workbench

Changes of partitions (move, hand-over, failover, reversal) and runs of them:

    changes, coordinator         one change: observed -> orders, next entry; all changes of one leader
    change_checks, change_rules  what a step needs; what an entry does to the changes of a partition
    change_orders, change_steps  what a leader asks of nodes; what nodes do by their own log
    rebalance, rebalance_plans, move_records, policy, loads    runs: next entry, preview, records, when, rates
    unclean                   what a choice of an owner without a majority may lose

Commands not named above: metadata_changes, metadata_nodes, metadata_producers, metadata_rebalances,
metadata_ring, metadata_scopes, metadata_tokens, metadata_topics; their checks: node_checks, topic_checks,
holdings, scope_owners, refusals. `config` has limits of a cluster, `versions` the tags of what administrators
change, `access` the table of tokens for the data socket, `inspection` the judge of `fsck --cluster`.

For people: `tables.view(state, topic, progress)` says how far a topic's table has become real.

How a runtime joins them to consensus: propose a command if `validate` passes; for every committed entry call
`apply`, then `orders.between` for its own (node, store), then answer the proposer; while it leads, hand
heartbeats to `Liveness.beat` and propose what `Liveness.tick` and `voters.next_change` give.
"""
