//! Orders about parked rows of queues, and their outcomes. See `docs/design/cohort_queue.md`.

use std::num::NonZeroU64;

/// Parkings that one order names, or one answer lists: as many as a record of the log has.
pub const PARKINGS_MAX: usize = 1024;

/// What the caller's applied metadata says of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not decided.
    Open,
    Committed,
    /// Closed without a commit, for good.
    Closed,
    /// The scope is forgotten.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkingAction {
    /// The rows are delivered again, as rows that never failed.
    Retry,
    /// The rows count as done.
    Discard,
    /// An export may commit its copy once this is answered.
    Begin(NonZeroU64),
    /// The copy is committed.
    Exported(NonZeroU64),
}

/// What became of an order about one parking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkingReply {
    Taken,
    /// Put back, but for rows that are gone from the log.
    Gone,
    NotParked,
    /// No export of it was begun.
    NotBegun,
    /// Another order about it is on its way: ask again.
    Changing,
    /// An export is under way.
    Exporting,
    /// It is not known whether its export was decided.
    Unknown,
    /// It was exported, and is marked so now.
    Exported,
}

/// The parkings of one gate, from the number after `after` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListParked {
    pub topic: u64,
    pub partition: u64,
    pub cohort: u64,
    pub after: u64,
    /// At most so many, and at most [`PARKINGS_MAX`].
    pub count: usize,
}

/// Do something with parkings of one gate; ends when it is below the mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleParked {
    pub topic: u64,
    pub partition: u64,
    pub cohort: u64,
    pub action: ParkingAction,
    pub items: Vec<ParkedItem>,
    /// Also where it is not known whether an export before was decided.
    pub is_forced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkedItem {
    pub number: u64,
    /// The scope of which `fate` is; 0: none. A parking that names another one by now is being exported.
    pub scope: u64,
    pub fate: Fate,
}

/// One parking of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedParking {
    pub number: u64,
    pub first: u64,
    pub rows: u32,
    pub count: u8,
    pub reason: Box<str>,
    pub unix_ms: u64,
    /// Of an export that was begun; 0: none was.
    pub scope: u64,
    /// Rows of it that the log does not have any more.
    pub gone_rows: u32,
}
