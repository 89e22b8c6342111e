//! One way to copy: `sync(partition, store)` brings a store to a partition's log. Follower, learner, move target and
//! repair are the same. START HERE.
//!
//! ```text
//! owner                                                     replica
//! FENCE epoch, bound      -------------------------------->  fence on disk: nobody older appends here
//!                         <--------------------------------  its last epoch up to the bound, and where that ends
//!   ... again with a lower bound until both logs have that epoch: n, the last number up to which they are equal
//! REPLICATE n, no records -------------------------------->  a log that goes on behind n is cut, durably
//!                         <--------------------------------  REPLICA_ACK n
//! REPLICATE n, records    -------------------------------->  appended through the same shard, group and fsync
//!                         <--------------------------------  REPLICA_ACK: durable below this number
//! ```
//!
//! Roles of a partition on a store ([`Role`]): an owner alone (no replicas: nothing of this costs it anything), an owner
//! with replicas, a follower. What a replica appends are the owner's log records, verbatim but for the physical part.
//!
//! A replica is *live* when it lacks nothing but what memory has: then it gets each group's records out of the very blocks
//! that were written, at once, or, while its window of bytes under way is full, from the *tail* that keeps them for it.
//! Else it is *copying*: the reader reads behind its end from disk, one bounded read at a time, until it is where the
//! tail begins. Who is too slow for the tail's budget falls back to copying, so nothing grows (I17).
//!
//! # Invariants
//!
//! - S1 nothing leaves an owner before it is durable here: after a restart its log holds all that any replica has of it.
//! - S2 a replica says what is durable, never what it received; only what it has without a gap counts.
//! - S3 the mark is what a majority of the replicas has, the owner among them, and moves only once the epoch's own
//!   first record is below it: an older epoch's records are never counted alone (Raft, section 5.4.2).
//! - S4 a replica takes records only over the connection that was begun under its owner's epoch: what an older
//!   connection still brings is refused.
//! - S5 a log is cut where the epochs part, never by the mark, and never below a mark that it knows, but for rows that
//!   an operator's choice of an owner has given up.
//!
//! `owner.rs` the values and the quorum, pure; `throttle.rs` how fast a copy may go; `lead.rs` the owner's side; `ask.rs` when a replica is asked; `futile.rs` when again, if that brings nothing; `stream.rs` what goes out, `tail.rs` what is kept for it,
//! `copy.rs` what is read for it, `pieces.rs` in which bodies that goes out; `follow.rs` the replica's side; `cut.rs` where its log ends; `forced.rs` what an operator's choice has given up; `doubt.rs` replicas that may lack what they acknowledged; `bounds.rs` how far logs are known to reach; `awaited.rs` orders that wait until one reaches a number; `confirm.rs` what is told of the end; `anchor.rs` a replica that begins behind what is gone; `mend.rs` a damaged record; `roles.rs` orders; `peers.rs` connections to other nodes.

mod anchor;
mod ask;
mod awaited;
mod bounds;
mod confirm;
mod copy;
mod cut;
mod doubt;
mod follow;
mod forced;
mod futile;
mod lead;
mod mend;
mod owner;
mod peers;
mod pieces;
mod roles;
mod stream;
mod tail;
mod throttle;

use ringfence_routing::IdMap;

use crate::partition::At;

pub use bounds::Reach;
pub use confirm::Asked;
pub use follow::{Follower, ReplicaDue};
pub use mend::Mends;
pub use owner::{End, Owner, Waiting};
pub use peers::ToPeer;
pub use pieces::pieces;
pub use tail::{Piece, Tails};

use peers::Peers;

/// What this store is to a partition.
#[derive(Debug, Default)]
pub enum Role {
    /// Nothing was ordered in this run.
    #[default]
    None,
    /// Owner without replicas.
    Alone,
    Owner(Box<Owner>),
    Follower(Box<Follower>),
}

impl Role {
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Alone => "alone",
            Self::Owner(_) => "owner",
            Self::Follower(follower) if follower.learner.is_some() => "learner",
            Self::Follower(_) => "follower",
        }
    }
}

/// Everything of replication that belongs to no single partition.
#[derive(Debug, Default)]
pub struct Syncs {
    pub peers: Peers,
    pub tails: Tails,
    /// Reads of the log for replicas, by ticket.
    reads: IdMap<Read>,
    next_session: u64,
    pub(crate) repeats: ask::Repeats,
    /// Orders that wait for records of a log here; a handful, and none on most stores.
    awaited: Vec<awaited::Awaited>,
    /// Owned partitions with something to do when time passes.
    restless: Vec<At>,
    /// Partitions with replicas or learners to send to: while it is 0, nobody looks at what was written.
    pub(crate) streaming: usize,
}

/// Why the log is read.
#[derive(Debug)]
enum Read {
    /// The next piece for a replica that is copying.
    Copy { at: At, session: u64 },
    /// A replica's own log: the record before which it is cut.
    Cut { at: At, begin: Box<cut::Begin> },
    /// A record that another replica lacks.
    Serve(Box<mend::Serve>),
}
