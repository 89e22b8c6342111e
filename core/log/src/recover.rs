//! Opening a store: from files to partitions.

use ringfence_wire::RecordHeader;

use crate::partition::PartitionLog;
use crate::report::Report;
use crate::shard::{Options, Shard};
use crate::storage::{Storage, StorageError};

/// Receives every partition's records in its order (partitions interleave).
pub trait Visitor {
    /// Everything known of the partition so far is replaced by this; `blob` is what the node gave to `append_state`.
    fn state(&mut self, topic: u64, partition: u64, blob: &[u8]);
    /// One log record. `bytes` is the extension of a rows or staged record, the whole body of any other kind.
    fn record(&mut self, header: &RecordHeader, bytes: &[u8]);
    /// Records from this number on never were: forget what they said.
    fn truncate(&mut self, topic: u64, partition: u64, next_record: u64);
    /// The partition was dropped.
    fn dropped(&mut self, topic: u64, partition: u64);
}

/// Why a store cannot be opened. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoverError {
    /// A file was written by a newer program.
    NewerFormat { file: String, version: u16 },
    /// A file belongs to another cluster, history or store.
    ForeignFile { file: String, what: &'static str },
    /// Another process has it open, or a call failed.
    Storage(StorageError),
}

/// An open store.
pub struct Recovered {
    pub shards: Vec<Shard>,
    pub partitions: Vec<PartitionLog>,
    pub report: Report,
}

/// Open the store: lock it, check every record, cut a torn end, build shards and partitions.
///
/// # Errors
/// [`RecoverError`]; the store was left as it was.
pub fn recover<S: Storage>(storage: &S, options: &Options, visitor: &mut dyn Visitor) -> Result<Recovered, RecoverError> {
    let _ = (storage, options, visitor);
    todo!()
}

/// Read everything, change nothing: each damaged record by name.
///
/// # Errors
/// [`RecoverError`], when it cannot be read at all.
pub fn check<S: Storage>(storage: &S) -> Result<Report, RecoverError> {
    let _ = storage;
    todo!()
}
