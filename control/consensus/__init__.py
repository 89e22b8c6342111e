"""Raft, sans-I/O: one door in, ordered orders out. No clock, socket, file, thread or randomness of its own.

START HERE. `node.Node` is the door. A driver owns one node, its storage (`storage.Storage`: it reads, the
driver writes), a timer, the network, and a source of random numbers; it repeats:

    node.step(event)              an event of `events`: Tick, Received(message), Propose, ProposeChange, Read,
                                  Transfer, Campaign, ForgetLeader, Unreachable, SnapshotSent. A refusal is an
                                  `errors.ConsensusError`: go on with the next event.
    while node.has_ready():
        ready = node.ready()      orders; they count as given from here on

Many events may be stepped before one Ready: that is how writes and messages are batched.

**Synchronously** (`Options.async_storage_writes` off) a driver carries a Ready out in this order:

    1. send ready.messages_at_once(): they promise nothing (a leader's appends and heartbeats, forwarded
       proposals). So the leader's disk and its followers' work side by side.
    2. store hard_state, then snapshot, then entries; sync if must_sync or snapshot. A barrier: if it fails,
       the node must stop, its answers are not sent, and a failed sync is not tried again.
    3. send ready.messages_after_sync(): answers to appends, votes, requests for votes. To send all of
       ready.messages here instead is simpler and as right.
    4. apply `committed` in order. For a change of the configuration: state = node.apply_change(
       changes.from_entry(entry)); store `state` with the applied index, Storage.initial_state returns it.
    5. node.advance(): only now the node counts its own disk and goes on.

  `read_states` are answered once the application has applied up to their index.

**Asynchronously** a Ready's messages contain all work for storage, to two threads or queues with ids of their
own; the node goes on meanwhile, `advance` is not called, `hard_state`, `entries`, `snapshot` and `committed`
of the Ready are for show:

    to APPEND_THREAD   a StorageMessage: store its term, vote and commit (if not all are 0), snapshot and
                       entries; sync; then deliver its `responses` in order, to this node by
                       step(Received(...)), to others over the network.
    to APPLY_THREAD    apply its entries (apply_change on the node's own thread, unless a snapshot that came
                       meanwhile holds the change: `is_overtaken`), then deliver its responses.

  Each queue in order, none skipped. All other messages may leave at once. Vote requests wait in `responses`,
  unless `campaign_after_append` is off.

When `node.wants_snapshot()`, make a snapshot of what is applied soon: a follower cannot catch up without it.
Report what became of snapshots that were sent by SnapshotSent; without a report a time-out decides.

A node that a change has removed should go on until all voters have *applied* that change: with too few of
them up, those that do not know yet may need its vote. Hand leadership over before removing or demoting its
holder.

Limits: bytes of a message, messages and bytes under way to a follower, uncommitted bytes at the leader, bytes
being applied, reads that wait: `options.Options`. Bytes from the network go through `codec.decode`, which
bounds and checks them. Delivery may drop, double and reorder. Never run two nodes with one id, never start a
node on a store that lost what it had acknowledged (`errors.LogLostError`).

Where things are: `messages, events, ready` what goes in and out; `core` the state; `terms` the first look at
a message; `election, roles` who leads; `leader, follower, receiving` what a role does with a message;
`replication, progress, window` what a leader sends; `appending, proposals` its own log; `quorum, tracker,
configuration, changes, confchange, membership, membership_rules` who decides; `reading, reads` linearizable
reads; `transfer`; `log, unstable, storage, storage_work` the log; `applying`; `invariants, safety`;
`status`; `describe`, `quoting` values as text; `trace` log lines; `codec` values as bytes; `frozen` a node as
a value; `recording` steps recorded and run again.

Sources: Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm (2014); Ongaro's thesis
(2014); message-level behaviour is that of etcd's raft library, whose interaction scripts replay against this
package (`tests/consensus`).
"""
