//! The callback by which recovery reports records, so that the node can rebuild its own state.

use ringfence_wire::RecordHeader;

/// Receives the records of all partitions, each partition's in its order (partitions interleave).
pub trait Visitor {
    /// Replace everything known about the partition; `blob` is the node's part given to `append_state`.
    fn state(&mut self, topic: u64, partition: u64, blob: &[u8]);
    /// A log record. `bytes` is the extension of a rows or staged record, the whole body of any other kind, and empty
    /// if the body is damaged.
    fn record(&mut self, header: &RecordHeader, bytes: &[u8]);
    /// Records from this number on were truncated: undo their effect.
    fn truncate(&mut self, topic: u64, partition: u64, next_record: u64);
    /// A record of kind sealed: the log ends at its number, permanently.
    fn sealed(&mut self, header: &RecordHeader, body: &[u8]);
    /// The partition was dropped.
    fn dropped(&mut self, topic: u64, partition: u64);
}

/// A visitor that ignores everything.
pub struct NoVisitor;

impl Visitor for NoVisitor {
    fn state(&mut self, _: u64, _: u64, _: &[u8]) {}
    fn record(&mut self, _: &RecordHeader, _: &[u8]) {}
    fn truncate(&mut self, _: u64, _: u64, _: u64) {}
    fn sealed(&mut self, _: &RecordHeader, _: &[u8]) {}
    fn dropped(&mut self, _: u64, _: u64) {}
}
