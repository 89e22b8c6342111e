//! What a reader is asked to do, with the pins that keep its files in place.

/// Where a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The record that holds this row, or the next one with rows.
    Offset(u64),
    /// This record, whatever its kind (copy by record number: every log kind is returned).
    Record(u64),
    /// The first record with rows at or after this time.
    Time(u64),
}

/// The position is not in this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Below the log start.
    Retained { start_offset: u64 },
    /// Above the end.
    Beyond { end_offset: u64 },
    /// Nothing to read up to the mark.
    Empty,
}

/// One read of one partition. `Send`; holds its files against recycling until dropped.
#[derive(Debug)]
pub struct ReadPlan {
    pub topic: u64,
    pub partition: u64,
}
