//! State of replication that belongs to no single partition.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ringfence_routing::IdMap;
use ringfence_transport::Connection;
use ringfence_wire::RequestHeader;

use crate::ids::PartitionIndex;
use crate::replication::state::peers::Peers;
use crate::replication::state::tail::Tails;

/// Everything of replication that belongs to no single partition.
#[derive(Debug, Default)]
pub struct Replication {
    pub peers: Peers,
    pub tails: Tails,
    /// Reads of the log for replicas, by ticket.
    pub(crate) reads: IdMap<ReplicaRead>,
    pub(crate) next_session: u64,
    pub(crate) repeats: Repeats,
    /// Partitions with replicas or learners to send to: while it is 0, nobody looks at what was written.
    pub(crate) streaming: usize,
}

impl Replication {
    pub fn new(pool_bytes: usize) -> Self {
        let mut replication = Self { tails: Tails::of(pool_bytes), ..Self::default() };
        let window = &mut replication.peers.window_bytes;
        *window = (*window).min(pool_bytes / 8);
        replication
    }
}

/// Why the log is read.
#[derive(Debug)]
pub enum ReplicaRead {
    /// The next piece for a replica that is copying.
    Copy { index: PartitionIndex, session: u64 },
    /// A replica's own log: the record before which it is cut.
    Truncate { index: PartitionIndex, begin: Box<TruncateRequest> },
    /// A record that another replica lacks.
    Serve(Box<CopyRequest>),
}

/// A COPY that is being served.
#[derive(Debug)]
pub struct CopyRequest {
    pub(crate) from: Connection,
    pub(crate) header: RequestHeader,
    pub(crate) index: PartitionIndex,
}

/// A session that begins behind record `number - 1` of a longer log.
#[derive(Debug)]
pub struct TruncateRequest {
    pub connection: Connection,
    pub header: RequestHeader,
}

/// Partitions with a question to repeat between two ticks, the earliest first. At most one entry for each replica that
/// has just refused, and gone after 16 ms.
#[derive(Debug, Default)]
pub struct Repeats(BinaryHeap<Reverse<(u64, PartitionIndex)>>);

impl Repeats {
    pub(crate) fn add(&mut self, due_ms: u64, index: PartitionIndex) {
        self.0.push(Reverse((due_ms, index)));
    }

    pub fn next_ms(&self) -> Option<u64> {
        self.0.peek().map(|Reverse((due_ms, _))| *due_ms)
    }

    pub(crate) fn pop_due(&mut self, now_ms: u64) -> Option<PartitionIndex> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse((_, index))| index)
    }
}
