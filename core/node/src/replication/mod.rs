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
//! Files: `machine` what an event lends; `owner_mut` one owned partition, lent; `lead` the owner's side; `ask` when a
//! replica is asked for its end; `stream` what is sent from memory; `catch_up` what is read from disk for a replica;
//! `follow` the replica's side; `truncate` where a replica's log is cut; `bootstrap` a replica that begins above what
//! retention removed; `read_barrier` answers about the end of a log; `roles` orders about replicas; `awaited` orders
//! that wait until a log has so many records; `forced` rows that an operator's choice of an owner gave up; `doubt`
//! replicas that may lack what they acknowledged; `reach` how far logs are known to reach.
//!
//! State: `state/role`, `state/owner` (the quorum), `state/progress` (one replica) with `state/backoff`,
//! `state/follower`, `state/confirms`, `state/tail` (records kept in memory), `state/peers` (connections to other
//! nodes), `state/throttle`, `state/records`, `state/node_wide`.

pub(crate) mod ask;
pub(crate) mod awaited;
pub(crate) mod bootstrap;
pub(crate) mod catch_up;
pub(crate) mod doubt;
pub(crate) mod follow;
pub(crate) mod forced;
pub(crate) mod lead;
pub(crate) mod machine;
pub(crate) mod owner_mut;
pub(crate) mod reach;
pub(crate) mod read_barrier;
pub(crate) mod roles;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod truncate;
