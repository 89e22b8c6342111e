//! Replication: one way to bring another store to a partition's log, for followers, learners and moves. START HERE.
//!
//! ```text
//! owner                                                     replica
//! FENCE epoch, bound      -------------------------------->  fence on disk: no older owner appends here
//!                         <--------------------------------  its last epoch up to the bound, and where that ends
//!   ... again with a lower bound until both logs have that epoch: n, the last number up to which they are equal
//! REPLICATE n, no records -------------------------------->  a log that goes on after n is cut, durably
//!                         <--------------------------------  REPLICA_ACK n
//! REPLICATE n, records    -------------------------------->  appended through the same shard, group and fsync
//!                         <--------------------------------  REPLICA_ACK: durable below this number
//! ```
//!
//! Roles of a partition on a store ([`Role`]): an owner alone (no replicas: nothing of this costs it anything), an
//! owner with replicas, a follower. What a replica appends are the owner's log records, verbatim but for the physical
//! part.
//!
//! A replica is *live* when it lacks nothing but what memory has: then it gets each group's records out of the very
//! blocks that were written, immediately, or, while its window of bytes under way is full, from the *tail* that keeps
//! them for it. Else it is *copying*: the reader reads after its end from disk, one bounded read at a time, until it
//! is where the tail begins. A replica too slow for the tail's budget falls back to copying, so nothing grows (I17).
//!
//! # Invariants
//!
//! - S1 nothing leaves an owner before it is durable here: after a restart its log holds all that any replica has of
//!   it.
//! - S2 a replica says what is durable, never what it received; only what it has without a gap counts.
//! - S3 the mark is what a majority of the replicas has, the owner among them, and moves only once the epoch's own
//!   first record is below it: an older epoch's records are never counted alone (Raft, section 5.4.2).
//! - S4 a replica takes records only over the connection that was begun under its owner's epoch: what an older
//!   connection still brings is refused.
//! - S5 a log is cut where the epochs part, never by the mark, and never below a mark that it knows, but for rows that
//!   an operator's choice of an owner has given up.
//!
//! Files: `replication_machine` what an event lends. The owner's side: `owned_partition` one owned partition, lent;
//! `owner_sessions` sessions, answers, the mark; `ask_log_ends` when a replica is asked for its end;
//! `send_from_memory`, `catch_up` records from memory and from disk; `read_barrier` answers about the end of a log. The
//! replica's side: `receive_records` FENCE and REPLICATE; `acknowledge_to_owner` their answers; `truncate` where its log
//! is cut; `bootstrap` a replica that begins above what retention removed; `forced_owner` rows that an operator's choice
//! of an owner gave up; `doubted_replicas` replicas that may lack what they acknowledged. Both: `roles` orders about
//! replicas; `sealed` logs beside their seals; `awaited_records` orders that wait until a log has so many records;
//! `log_bounds` how far logs are known to reach.
//!
//! State: `state/role`, `state/owner` (the quorum), `state/replica_progress` with `state/backoff`, `state/follower`,
//! `state/barrier_waits`, `state/memory_tail` (records kept in memory), `state/peer_connections` (to other nodes),
//! `state/throttle`, `state/replicate_bodies`, `state/node_wide`.

pub(crate) mod acknowledge_to_owner;
pub(crate) mod ask_log_ends;
pub(crate) mod awaited_records;
pub(crate) mod bootstrap;
pub(crate) mod catch_up;
pub(crate) mod doubted_replicas;
pub(crate) mod forced_owner;
pub(crate) mod log_bounds;
pub(crate) mod owned_partition;
pub(crate) mod owner_sessions;
pub(crate) mod read_barrier;
pub(crate) mod receive_records;
pub(crate) mod replication_machine;
pub(crate) mod roles;
pub(crate) mod sealed;
pub(crate) mod send_from_memory;
pub(crate) mod state;
pub(crate) mod truncate;
