//! What happens once a record is durable: on this store, or on a quorum.

use ringfence_transport::Connection;
use ringfence_wire::AnswerHeader;

use crate::api::outcome::Finished;
use crate::ids::{End, PartitionIndex};

/// What happens when its group is durable.
#[derive(Debug)]
pub struct PendingCompletion {
    pub group: u64,
    pub partition: PartitionIndex,
    /// Where replicas share the partition: what is due waits for the mark to reach this end of the log, under this
    /// owner epoch. `None`: only this store's own record matters.
    pub shared: Option<ReplicatedEnd>,
    pub completion: Completion,
}

/// An end of the log as its owner of this epoch made it: a later owner may have cut it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicatedEnd {
    pub end: End,
    pub epoch: u64,
}

#[derive(Debug)]
pub enum Completion {
    Batch(BatchAck),
    Order {
        number: u64,
        finished: Finished,
        on_durable: OnDurable,
    },
    /// An owner's FENCE or REPLICATE is answered.
    Replica(Box<ReplicaAck>),
    /// A record of cohorts: what it says counts from now on.
    Cohort {
        record: u64,
    },
    /// A control record (state, start) without an answer.
    Nothing,
}

/// What else becomes true with an order's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDurable {
    Nothing,
    /// Appends under this epoch are admitted. Rows below its record, at this offset, may be read: this store may have
    /// followed an owner that told it of an older mark, and be alone now.
    Open {
        epoch: u64,
        end_offset: u64,
    },
    /// Rows below this offset may be read. Until then the order waits for replicas.
    Published {
        end_offset: u64,
        until_ms: u64,
    },
    /// The log has reached its seal: all of it may be read, under the owner epoch of this order.
    Ended {
        epoch: u64,
    },
    /// The partition is gone.
    Dropped,
}

/// The answer to one PUBLISH or STAGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchAck {
    pub connection: Connection,
    pub request_id: u64,
    pub sequence: u64,
    pub send: u64,
    pub first_offset: u64,
    pub rows: u32,
    pub repeated: bool,
    /// A STAGE: it has no offsets, and is answered STAGED.
    pub staged: bool,
    /// When the request came, also if it was parked since then; by the monotonic clock.
    pub arrived_ms: u64,
    /// Until then its sender waits for replicas.
    pub deadline_ms: u64,
}

impl BatchAck {
    pub fn end_offset(&self) -> u64 {
        self.first_offset + if self.staged { 0 } else { u64::from(self.rows) }
    }
}

/// What an owner hears once what it sent is durable here.
#[derive(Debug)]
pub struct ReplicaAck {
    pub connection: Connection,
    pub header: AnswerHeader,
    pub body: Box<[u8]>,
    /// The owner's mark and the end of this log then, as offsets.
    pub mark: u64,
    pub end: u64,
    /// The log has everything below the owner's mark.
    pub is_level: bool,
}
