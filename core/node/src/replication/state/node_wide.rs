//! State of replication that belongs to no single partition.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ringfence_log::LogEnd;
use ringfence_routing::IdMap;
use ringfence_transport::Connection;
use ringfence_wire::RequestHeader;

use crate::api::order::Order;
use crate::ids::{PartitionIndex, PartitionKey};
use crate::replication::state::memory_tail::Tails;
use crate::replication::state::peer_connections::Peers;

/// Everything of replication that belongs to no single partition.
#[derive(Debug, Default)]
pub struct Replication {
    pub peers: Peers,
    pub tails: Tails,
    /// Reads of the log for replicas, by ticket.
    reads: IdMap<ReplicaRead>,
    pub(in crate::replication) next_session: u64,
    pub(in crate::replication) repeats: Repeats,
    /// Orders that wait for records of a log here; a handful, and none on most stores.
    pub(in crate::replication) awaited: Vec<AwaitedRecords>,
    /// Partitions with replicas or learners to send to: while it is 0, written groups are not looked at.
    pub(in crate::replication) streaming: usize,
}

impl Replication {
    /// True if a partition has replicas or learners to send to.
    pub fn is_streaming(&self) -> bool {
        self.streaming > 0
    }

    /// When a question must be repeated, monotonic ms.
    pub fn repeats_at(&self) -> Option<u64> {
        self.repeats.next_ms()
    }

    /// Reads of the log for replicas that are under way.
    pub fn reads_under_way(&self) -> usize {
        self.reads.len()
    }

    pub fn add_read(&mut self, ticket: u64, read: ReplicaRead) {
        self.reads.insert(ticket, read);
    }

    /// The read with this ticket has ended.
    pub fn end_read(&mut self, ticket: u64) -> Option<ReplicaRead> {
        self.reads.remove(&ticket)
    }

    pub fn new(pool_bytes: usize) -> Self {
        Self { tails: Tails::of(pool_bytes), peers: Peers::of(pool_bytes), ..Self::default() }
    }
}

/// An order that waits until a log here has so many durable records.
#[derive(Debug)]
pub struct AwaitedRecords {
    /// Of the order.
    pub number: u64,
    pub key: PartitionKey,
    pub records: u64,
    /// The order ends then at the latest, in ms of the monotonic clock.
    pub until_ms: u64,
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
    /// A log that is longer than its seal: the record before the seal's end.
    Seal(Box<SealCheck>),
}

/// An order about a sealed partition that waits for a read of its log.
#[derive(Debug)]
pub struct SealCheck {
    pub index: PartitionIndex,
    /// Partition and log as they were when the read began.
    pub incarnation: u64,
    pub end: LogEnd,
    /// Of the order.
    pub number: u64,
    pub order: Order,
}

/// A COPY that is being served.
#[derive(Debug)]
pub struct CopyRequest {
    pub from: Connection,
    pub header: RequestHeader,
    pub index: PartitionIndex,
}

/// A session that begins after record `number - 1` of a longer log.
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
