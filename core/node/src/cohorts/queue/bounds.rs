//! Settings of a QUEUE gate, and the bounds of its structures, each with its reason.

/// Ranges and parkings of a gate: 64 KiB of each state record of its log.
pub const RANGES_MAX: usize = 4096;

/// Of [`RANGES_MAX`], kept for pieces that the owner itself must cut: halves of what failed, ends of FETCH answers.
pub const RANGES_RESERVE: usize = 256;

/// Rows of a lease. With the delivery limit it bounds the deliveries of a row that fails: 16 halvings.
pub const LEASE_ROWS_MAX: u64 = 65_536;

/// Ranges that one FETCH answer lists: a trailer of 16 KiB.
pub const DELIVERIES_MAX: usize = 1024;

/// Lines of a RANGES entry: 64 KiB.
pub const LINES_MAX: usize = 4096;

/// PARKED entries of a record: 320 KiB with the longest reasons.
pub const PARKED_MAX: usize = 1024;

/// Bytes of the reason of a parking.
pub const REASON_BYTES_MAX: usize = 240;

/// A delay is kept in memory alone, so no application should rely on a longer one.
pub const DELAY_MS_MAX: u64 = 24 * 3600 * 1000;

/// Parking numbers begin at the owner epoch times this.
pub const NUMBERS_OF_AN_EPOCH_BITS: u32 = 20;

/// What the cohort's record says; `ranges_max` and `reserve` are smaller in tests only.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A range that failed so often is parked, if it is a single row. 0: never.
    pub limit: u8,
    pub lease_ms: u64,
    /// A lease is extended for so long without progress.
    pub lease_total_ms: u64,
    pub ranges_max: usize,
    pub reserve: usize,
}

impl Settings {
    pub const DEFAULT: Self =
        Self { limit: 5, lease_ms: 30_000, lease_total_ms: 600_000, ranges_max: RANGES_MAX, reserve: RANGES_RESERVE };

    /// The greatest count of a range of several rows: each half may fail once more. At a limit of 1 it is 1, since
    /// count 0 leaves no trace in the log that the range must be halved.
    pub fn count_max(&self) -> u8 {
        if self.limit == 0 { u8::MAX } else { self.limit.saturating_sub(1).max(1) }
    }
}
