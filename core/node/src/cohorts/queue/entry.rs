//! What a QUEUE gate writes to its log. Each entry says what is from now on, so that a repeat changes nothing.

use std::num::NonZeroU64;

/// State of the rows of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeState {
    /// To be delivered; so many deliveries ended badly.
    Available(u8),
    Done,
}

/// One line of a RANGES entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub first: u64,
    pub rows: u32,
    pub state: RangeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkingState {
    /// Put back; the same record has a line of its rows.
    PutBack,
    /// Discarded or exported: its rows are done.
    Over,
    Parked,
    /// An export was begun under this scope.
    Exporting(NonZeroU64),
}

/// A range of rows that is not delivered until an operator decides about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parking {
    /// Ascends over the cohort's whole life in this partition.
    pub number: u64,
    pub first: u64,
    pub rows: u32,
    pub state: ParkingState,
    pub count: u8,
    /// Wall clock; for people.
    pub time_ms: u64,
    /// At most [`super::bounds::REASON_BYTES_MAX`] bytes.
    pub reason: Box<str>,
}

impl Parking {
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.rows)
    }
}

/// One entry of a `cohort` record. Entries of a record are applied in their order; only whole records are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The cohort begins here: ranges, counts and parkings of before are gone, the greatest parking number stays.
    Reset { incarnation: u64, offset: u64 },
    /// Lines that changed, ascending. Rows below `floor` are done, or parked, or were put back and have a line. The
    /// floor counts before the lines do. Done rows below the floor that never failed have no line.
    Ranges { floor: u64, greatest_parking: u64, lines: Vec<Line> },
    /// One parking, with its whole state.
    Parked(Parking),
}
