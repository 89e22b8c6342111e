//! What the engine tells the control plane.

/// What an order changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    Done,
    /// OPEN: where the log ends now.
    Opened {
        records: u64,
        end_offset: u64,
    },
    /// FENCE: the end of the log that no older owner can move any more.
    Fenced {
        records: u64,
        end_offset: u64,
        chain: u64,
    },
    /// TRUNCATE: the log start now.
    Truncated {
        start_offset: u64,
    },
    /// OPEN PRODUCER: what the epoch before left, `None` when it left nothing.
    ProducerOpened(Option<ResumePoint>),
}

/// A producer's last stored batch in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    pub sequence: u64,
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
    },
    /// The order with this number ended; the error is a sentence for a person.
    Order {
        number: u64,
        result: Result<Finished, String>,
    },
    Quarantined {
        topic: u64,
        partition: u64,
        why: String,
    },
    ShardFailed {
        shard: u16,
        why: String,
    },
    DiskFull {
        shard: u16,
        full: bool,
    },
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
    pub start_offset: u64,
    /// The mark.
    pub end_offset: u64,
    pub bytes: u64,
    pub producers: u64,
    pub chain: u64,
    pub quarantined: Option<String>,
}

/// What opening the store found. `partitions` are those on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveryReport {
    pub files: u64,
    pub bytes: u64,
    pub records: u64,
    pub seconds: f64,
    pub cut_bytes: u64,
    pub partitions: Vec<PartitionStatus>,
}
