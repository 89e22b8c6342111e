//! Outcomes: reports of the engine to the control plane.

use crate::api::parked::{ListedParking, ParkingReply};

/// What an order changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    Done,
    /// OPEN: where the log ends now.
    Opened {
        records: u64,
        end_offset: u64,
    },
    /// FENCE, HOLD: the end of the log that no older owner can move any more. AWAIT RECORDS: the end of the log.
    Fenced {
        /// Of the last record, 0 without any.
        epoch: u64,
        records: u64,
        end_offset: u64,
        chain: u64,
        /// This store lost a torn tail since it was last level with an owner.
        cut: bool,
    },
    /// TRUNCATE: the log start now. Below the one that was ordered, the rest follows as the mark moves.
    Truncated {
        start_offset: u64,
    },
    /// COUNT STAGED: rows under the tokens, all in records below `upto`, at the owner of `epoch`.
    Staged {
        rows: u64,
        upto: u64,
        epoch: u64,
        /// The scope's epoch, or a later one, was published here before: nothing of it is staged any more.
        is_published: bool,
    },
    /// SEE CLAIM: whether the gate is locked for this very commit, at the owner of `epoch`.
    Claimed {
        epoch: u64,
        is_there: bool,
    },
    /// LIST PARKED: whether more follow.
    Parked {
        parkings: Vec<ListedParking>,
        more: bool,
    },
    /// SETTLE PARKED: by number, in the order of the items.
    ParkedSettled(Vec<(u64, ParkingReply)>),
    /// OPEN PRODUCER: what the epochs before left, by slot range; without one where they left nothing.
    ProducerOpened(Vec<ResumePoint>),
    /// The producer tables have no room for a new producer: a sentence with the figures. Nothing has changed.
    ProducersFull(String),
    /// OPEN PRODUCER: the partition has no entry of the previous epoch any more. Nothing was written.
    ProducerForgotten,
    TablePage(TablePage),
    /// TABLE IN: the end of the log with the page, which is on a quorum.
    Inherited {
        epoch: u64,
        records: u64,
        end_offset: u64,
        chain: u64,
        /// Producers without a name for which there was no room.
        left_out: u64,
    },
    /// TABLE IN: the named producers have no room: a sentence with the figures. Nothing has changed.
    TableFull(String),
    /// SOURCES: (partition, record of its last page), ascending.
    Sources(Vec<(u64, u64)>),
    /// GATES OUT: cohorts of the partition, and the number up to which its log knows them. Empty, for there are none.
    Gates {
        gates: Vec<u8>,
        known: u64,
    },
}

/// A part of a producer table, for a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage {
    /// As TABLE IN takes it.
    pub page: Vec<u8>,
    /// Records of the source that it is as of.
    pub records: u64,
    pub forgotten_epoch: u64,
    /// Of the source's last record.
    pub time_ms: u64,
    /// The last producer of the page, after which the next one begins.
    pub last: u64,
    /// Producers follow.
    pub more: bool,
}

/// A producer's last stored batch for some slots of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// Inclusive slot range.
    pub lo: u16,
    pub hi: u16,
    /// The one that stored it: this partition, or one that it came from.
    pub partition: u64,
    /// `None` if another partition stored it.
    pub sequence: Option<u64>,
    pub send: u64,
    pub note: Option<Vec<u8>>,
    /// Offset of its first row.
    pub offset: u64,
    pub rows: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request that the control plane must answer with `Runtime::answer`.
    Request {
        connection: u64,
        header: Box<[u8; 128]>,
        body: Vec<u8>,
        /// It is good for topics whose full names begin so, and for no others.
        prefix: String,
        /// The name of the token that the connection presented; empty without one.
        who: String,
        /// What its client said that it can do: bits of `features` in HELLO.
        features: u64,
    },
    /// The order with this number ended; the error is a sentence for a person.
    Order {
        number: u64,
        result: Result<Finished, String>,
    },
    /// Gates of cohorts have made progress since the control plane asked last.
    Gates,
    Quarantined {
        topic: u64,
        partition: u64,
        why: String,
    },
    /// So many stored records of the partition are known to be damaged; 0: all of them were repaired. Partition 0: the
    /// partition of the records is not known.
    Damaged {
        topic: u64,
        partition: u64,
        records: u64,
        why: String,
    },
    /// What was damaged is sound again, and the partition may be served.
    Lifted {
        topic: u64,
        partition: u64,
    },
    /// A replica gives up records that an operator's choice of an owner has given up (`replication/forced_owner.rs`).
    GaveUp(GaveUp),
    /// A sync to a store that is no replica yet has another state.
    Sync(SyncStatus),
    ShardFailed {
        shard: u16,
        why: String,
    },
    DiskFull {
        shard: u16,
        full: bool,
    },
}

/// What a replica gives up after a choice of an owner without a majority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GaveUp {
    pub topic: u64,
    pub partition: u64,
    /// The epoch of the owner that was chosen.
    pub forced: u64,
    /// Its log ends here from now on; 0: it is copied from the owner's log start on.
    pub record: u64,
    /// Records and rows that it had from there on.
    pub records: u64,
    pub rows: u64,
}

/// Where the copy to one other store stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncStatus {
    pub topic: u64,
    pub partition: u64,
    /// 0 = a replica of the set.
    pub change: u64,
    pub attempt: u32,
    pub node: u64,
    /// "waiting" (for the connection or the other side), "copying", "contiguous", "failed".
    pub state: &'static str,
    /// Why it waits or failed.
    pub why: String,
    /// Records below this number are durable there.
    pub records: u64,
    /// Records that it lacks.
    pub gap: u64,
    /// Sent to it since the sync began.
    pub bytes: u64,
    pub rows: u64,
    /// Chain after the last of `records`, 0 while it is not level.
    pub chain: u64,
}

/// One partition as the engine sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionStatus {
    pub topic: u64,
    pub partition: u64,
    pub lo: u16,
    pub hi: u16,
    /// Hosted and open for appends.
    pub open: bool,
    pub owner_epoch: u64,
    pub fence: u64,
    pub records: u64,
    /// All of `records` is on disk: what is not must prove nothing.
    pub durable: bool,
    pub start_offset: u64,
    /// The mark.
    pub end_offset: u64,
    pub bytes: u64,
    pub producers: u64,
    pub chain: u64,
    /// "alone", "owner", "follower", "learner"; "none" when nothing was ordered.
    pub role: &'static str,
    /// Replicas that take this owner's records now, itself included.
    pub replicas: u64,
    /// When a batch was acknowledged under this epoch, first and last, Unix ms.
    pub acknowledged_ms: Option<(u64, u64)>,
    pub quarantined: Option<String>,
    pub sealed: Option<SealStatus>,
    /// Batches that are staged and not published.
    pub stages: u64,
    /// Partitions that it came from, of which its log has everything; and the record that says so.
    pub sources: Vec<(u64, u64)>,
    /// Rows by 1,024 equal parts of its slots, as u32 in little endian: of an owner's ACTIVE partition that is busy for
    /// some time. Empty of others.
    pub sketch: Vec<u8>,
}

/// Where a partition was sealed, and whether this store's log has reached that end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealStatus {
    pub records: u64,
    pub end_offset: u64,
    /// Of the layout change.
    pub number: u64,
    /// The version that it made.
    pub version: u64,
    /// The log ends there, and a record of this store says so.
    pub is_reached: bool,
}

/// What opening the store found. `partitions` are those on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveryReport {
    pub files: u64,
    pub bytes: u64,
    pub records: u64,
    pub seconds: f64,
    pub cut_bytes: u64,
    /// Numbers of the witness beside the log.
    pub witness: Vec<u64>,
    pub partitions: Vec<PartitionStatus>,
}
