//! Requests of members, and what waits for something of a gate: fetches by log, acknowledgements and beats by ticket.

use std::collections::{BTreeMap, BTreeSet};

use ringfence_routing::IdMap;
use ringfence_transport::Connection;
use ringfence_wire::RequestHeader;

use crate::api::order::SettleCommitted;
use crate::cohorts::queue_members::QueueMembers;
use crate::cohorts::state::record::GateKey;
use crate::ids::PartitionKey;

/// Fetches that wait at one gate: that of the holder, and of members that want it. More are answered without rows.
pub const GATE_WAITING_MAX: usize = 5;

/// Fetches that wait at all gates; 200 bytes each.
pub const WAITING_MAX: usize = 65_536;

/// A FETCH that waits to be let in, or for the end of a sealed partition's hold.
#[derive(Debug)]
pub struct WaitingFetch {
    pub connection: Connection,
    pub header: RequestHeader,
    pub key: GateKey,
    pub deadline_ms: u64,
    /// When it was looked at last, parents were not drained, or a seek was not over.
    pub is_blocked: bool,
}

/// A `MEMBER_BEAT` of which some partitions wait until a quorum was heard. Each connection has one at most.
#[derive(Debug)]
pub struct PendingBeat {
    pub connection: Connection,
    pub header: RequestHeader,
    pub cohort: u64,
    /// Logs that it waits for.
    pub remaining: usize,
    /// Partitions whose lease is not extended.
    pub not_extended: Vec<u64>,
}

/// Waits for the answers of a quorum. Replication ends each within 2 s.
#[derive(Debug)]
pub enum QuorumQuestion {
    /// Of a `MEMBER_BEAT`: (partition, hold) at one log.
    Beat { beat: u64, lines: Box<[(u64, u64)]> },
    /// Where a sealed partition ends, under the hold of this number.
    End { fetch: Box<WaitingFetch>, number: u64 },
}

/// An ACKNOWLEDGE of which some positions are not durable.
#[derive(Debug)]
pub struct PendingSettle {
    pub connection: Connection,
    pub header: RequestHeader,
    /// Records that it waits for.
    pub remaining: usize,
    /// Lines of the answer: what was not taken.
    pub not_taken: Vec<u8>,
    pub deadline_ms: u64,
}

/// An order that waits until a position of a COMMIT is below the mark.
#[derive(Debug)]
pub struct SettleOrder {
    pub number: u64,
    pub position: SettleCommitted,
    pub deadline_ms: u64,
}

/// An order about parked rows that waits for its record.
#[derive(Debug)]
pub struct ParkedOrder {
    pub number: u64,
    /// Parkings that it names.
    pub parkings: Box<[u64]>,
    pub deadline_ms: u64,
}

/// State of members at this node.
#[derive(Debug, Default)]
pub struct Members {
    /// By log, in the order of arrival.
    pub(super) fetches: BTreeMap<PartitionKey, Vec<WaitingFetch>>,
    pub(super) waiting: usize,
    pub(super) settles: IdMap<PendingSettle>,
    /// Connections with an ACKNOWLEDGE under way: each has one at most.
    pub(super) settling: BTreeSet<u64>,
    pub(super) beats: IdMap<PendingBeat>,
    /// Connections with a `MEMBER_BEAT` under way.
    pub(super) beating: BTreeSet<u64>,
    /// What waits until a quorum was heard, by ticket of the question.
    pub(super) questions: IdMap<QuorumQuestion>,
    /// Of members of queues.
    pub(super) queue: QueueMembers,
    /// Logs with gates that are locked for a COMMIT.
    pub(super) claimed: BTreeSet<PartitionKey>,
    /// Orders that wait for a record with a position of a COMMIT, by ticket.
    pub(super) committed: IdMap<SettleOrder>,
    /// Orders about parked rows, by ticket.
    pub(super) parked: IdMap<ParkedOrder>,
    /// Logs whose gates have something to write.
    pub(super) busy: BTreeSet<PartitionKey>,
    /// The control plane was told that gates have made progress, and has not asked since.
    pub(super) is_told: bool,
}

impl Members {
    pub fn closed(&mut self, connection: Connection) {
        self.end_fetches(|fetch| fetch.connection == connection);
        self.settles.retain(|_, settle| settle.connection != connection);
        self.settling.remove(&connection.0);
        self.beats.retain(|_, beat| beat.connection != connection);
        self.beating.remove(&connection.0);
        self.queue.closed(connection);
    }

    /// Take the fetches for which this holds.
    pub(super) fn end_fetches(&mut self, which: impl Fn(&WaitingFetch) -> bool) -> Vec<WaitingFetch> {
        let mut ended = Vec::new();
        for fetches in self.fetches.values_mut() {
            let (over, waiting): (Vec<_>, Vec<_>) = std::mem::take(fetches).into_iter().partition(&which);
            *fetches = waiting;
            ended.extend(over);
        }
        self.fetches.retain(|_, fetches| !fetches.is_empty());
        self.waiting -= ended.len();
        ended
    }

    /// Gates were asked for: tell of the next progress.
    pub fn asked(&mut self) {
        self.is_told = false;
    }
}
