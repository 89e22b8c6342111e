//! The callback of recovery: each partition's records, for state that is built from them.

use ringfence_wire::RecordHeader;

/// Receives every partition's records in its order (partitions interleave).
pub trait Visitor {
    /// Everything known of the partition so far is replaced by this; `blob` is what the node gave to `append_state`.
    fn state(&mut self, topic: u64, partition: u64, blob: &[u8]);
    /// One log record. `bytes` is the extension of a rows or staged record, the whole body of any other kind; empty
    /// when the body is damaged.
    fn record(&mut self, header: &RecordHeader, bytes: &[u8]);
    /// Records from this number on never were: forget what they said.
    fn truncate(&mut self, topic: u64, partition: u64, next_record: u64);
    /// The partition was dropped.
    fn dropped(&mut self, topic: u64, partition: u64);
}

/// A visitor that looks at nothing.
pub struct NoVisitor;

impl Visitor for NoVisitor {
    fn state(&mut self, _: u64, _: u64, _: &[u8]) {}
    fn record(&mut self, _: &RecordHeader, _: &[u8]) {}
    fn truncate(&mut self, _: u64, _: u64, _: u64) {}
    fn dropped(&mut self, _: u64, _: u64) {}
}
