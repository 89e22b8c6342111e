//! What the index knows of one record.

use crate::position::Position;

/// A record with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub record: u64,
    /// Offset of its first row.
    pub offset: u64,
    pub position: Position,
    pub time_ms: u64,
    /// Bytes of the partition before this record, counted from the first record that was ever added to the index.
    pub bytes: u64,
    /// Bytes of the rows before this record, each counted at its offset, without padding. The count is the same on
    /// every replica and after every start.
    pub rows_bytes: u64,
}
