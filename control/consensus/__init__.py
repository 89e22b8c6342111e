"""Raft, sans-I/O: events in, ordered orders out. It uses no clock, socket, file, thread or randomness.

START HERE. `raft_node.Node` is the interface. A driver owns one node, its storage (`storage.Storage`: the
node reads, the driver writes), a timer, the network, and a source of random numbers; it repeats:

    node.step(event)              an event of `events`: Tick, Received(message), Propose, ProposeChange, Read,
                                  Transfer, Campaign, ForgetLeader, Unreachable, SnapshotSent. A refusal is an
                                  `errors.ConsensusError`: go on with the next event.
    while node.has_ready():
        ready = node.ready()      orders; the node counts them as issued from here on

Many events may be stepped before one Ready: that is how writes and messages are batched.

**Synchronously** (`Options.async_storage_writes` off) a driver carries a Ready out in this order:

    1. send ready.messages_at_once(): they promise nothing (a leader's appends and heartbeats, forwarded
       proposals). So the disks of leader and followers work in parallel.
    2. store hard_state, then snapshot, then entries; sync if must_sync or snapshot. This is a barrier: if it
       fails, the driver stops the node, sends no answers, and does not retry a failed sync.
    3. send ready.messages_after_sync(): answers to appends, votes, requests for votes. It is simpler, and
       correct too, to send all of ready.messages here.
    4. apply `committed` in order. For a change of the configuration: state = node.apply_change(
       configuration_changes.from_entry(entry)); store `state` with the applied index, which
       Storage.initial_state returns.
    5. node.advance(): only now the node counts its own disk as written, and continues.

  `read_states` are answered once the application has applied up to their index.

**Asynchronously** a Ready's messages contain all work for storage, addressed to the ids of two threads or
queues. The node continues meanwhile, and `advance` is not called. `hard_state`, `entries`, `snapshot` and
`committed` of the Ready are informative only:

    to APPEND_THREAD   a StorageMessage: store its term, vote and commit (if not all are 0), snapshot and
                       entries; sync; then deliver its `responses` in order, to this node by
                       step(Received(...)), to others over the network.
    to APPLY_THREAD    apply its entries (apply_change on the node's own thread, unless a snapshot that came
                       meanwhile has the change: `is_overtaken`), then deliver its responses.

  The driver processes each queue in order and skips nothing. All other messages may leave immediately. Vote
  requests wait in `responses`, unless `campaign_after_append` is off.

When `node.wants_snapshot()`, make a snapshot of the applied state soon: a follower cannot catch up without
it. Report the result of a sent snapshot by SnapshotSent; without a report a timeout decides.

A removed node should continue until all voters have *applied* the removal: if too few of them are up, voters
without that entry may need its vote. Transfer leadership before removing or demoting the leader.

Limits: bytes of a message, unacknowledged messages and bytes to a follower, uncommitted bytes at the leader,
bytes being applied, waiting reads: `options.Options`. Bytes from the network go through `codec.decode`, which
limits and validates them. Delivery may drop, duplicate and reorder messages. Never run two nodes with one id,
and never start a node on a store that has lost acknowledged entries (`errors.LogLostError`).

Files: `messages, events, ready` inputs and outputs; `core` the state; `terms` the first check of a message;
`election, roles` elections; `leader, follower, follower_log` the rules of each role; `replication, progress,
window` a leader's messages; `leader_log, proposals` the leader's own log; `quorum, tracker` majorities;
`configuration, configuration_changes, configuration_rules, configuration_switch, joint_consensus` voters and
learners; `linearizable_reads, read_queue`; `transfer` of leadership; `log, unstable, storage, storage_work`
the log; `applying`; `invariants, safety`; `status`; `describe`, `quoting` values as text; `trace` log lines;
`codec` values as bytes; `frozen` a node as a value; `step_recording` record and replay steps.

Sources: Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm (2014); Ongaro's thesis
(2014); message-level behaviour is that of etcd's raft library, whose interaction scripts replay against this
package (`tests/consensus`).
"""
