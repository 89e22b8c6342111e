//! What waits of members of queues: fetches by cohort, acknowledgements by ticket, sessions without a connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence_routing::IdMap;
use ringfence_transport::Connection;
use ringfence_wire::RequestHeader;

/// A session whose connection ended keeps its leases for so long: time to come back by another one.
pub const CONNECTION_WAIT_MS: u64 = 2000;

/// Since when a session has no connection is known for so long: each log of the node has ended its leases by then.
const WITHOUT_CONNECTION_MS: u64 = 60_000;

/// Rows on lease of a member at a node. Above that its FETCH waits until it settles some.
pub const MEMBER_ROWS_MAX: u64 = 1 << 20;

/// A FETCH of a member of a queue. Partition 0: whatever this node has.
#[derive(Debug)]
pub struct QueueFetch {
    pub connection: Connection,
    pub header: RequestHeader,
    pub deadline_ms: u64,
}

/// An ACKNOWLEDGE of rows that is not answered.
#[derive(Debug)]
pub struct PendingRows {
    pub connection: Connection,
    pub header: RequestHeader,
    /// It is the one that its connection may have under way. Others only say what is in work.
    pub has_slot: bool,
    pub deadline_ms: u64,
}

#[derive(Debug, Default)]
pub struct QueueMembers {
    /// By (topic, cohort), in the order of arrival. A member has one at most.
    pub fetches: BTreeMap<(u64, u64), VecDeque<QueueFetch>>,
    pub waiting: usize,
    /// (topic, cohort) of gates that have changed: to be served.
    pub due: BTreeSet<(u64, u64)>,
    pub settles: IdMap<PendingRows>,
    /// The partition of each (topic, cohort) that was served last: the next one comes first.
    pub served: BTreeMap<(u64, u64), u64>,
    /// Sessions with rows on lease and without a connection, since when.
    pub without_connection: BTreeMap<u64, u64>,
}

impl QueueMembers {
    pub fn closed(&mut self, connection: Connection) {
        self.end_fetches(|fetch| fetch.connection == connection);
        self.settles.retain(|_, settle| settle.connection != connection);
    }

    pub fn push(&mut self, cohort: (u64, u64), fetch: QueueFetch) {
        self.waiting += 1;
        self.fetches.entry(cohort).or_default().push_back(fetch);
    }

    /// Take the fetches for which this holds.
    pub fn end_fetches(&mut self, which: impl Fn(&QueueFetch) -> bool) -> Vec<QueueFetch> {
        let mut ended = Vec::new();
        for fetches in self.fetches.values_mut() {
            let (over, waiting): (VecDeque<_>, VecDeque<_>) = std::mem::take(fetches).into_iter().partition(&which);
            *fetches = waiting;
            ended.extend(over);
        }
        self.fetches.retain(|_, fetches| !fetches.is_empty());
        self.waiting -= ended.len();
        ended
    }

    /// Forget sessions whose leases have ended everywhere.
    pub fn forget_missing(&mut self, now_ms: u64) {
        self.without_connection.retain(|_, since_ms| now_ms < since_ms.saturating_add(WITHOUT_CONNECTION_MS));
    }

    /// Since when a session has no connection.
    pub fn missing_since(&mut self, session: u64, is_attached: bool, now_ms: u64) -> Option<u64> {
        if is_attached {
            self.without_connection.remove(&session);
            return None;
        }
        Some(*self.without_connection.entry(session).or_insert(now_ms))
    }
}
