//! Progress of cohorts on a full disk. It has no part in the disk's reserve, because there may be very much of it; but
//! sealed rows go only once each cohort is through with them, and a full disk that takes no word of it stays full (CA4).
//!
//! So one record of each partition a second may use the reserve, and each that ends a sealed partition for a cohort. The
//! log bounds all of them together: a part of the reserve stays for the records that free space.

use ringfence_log::Placement;

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};

use crate::cohorts::gate::rules::Rules;
use crate::cohorts::state::record::{Change, CohortRecord};
use crate::ids::PartitionKey;
use crate::partition::state::Partition;
use crate::turn::Turn;

/// A record of a partition's cohorts may use the reserve once in this time.
const RESERVE_RECORD_MS: u64 = 1_000;

impl Partition {
    /// The next record of cohorts: `is_end` if it ends a sealed partition for one of them.
    pub(crate) fn lend_reserve(&mut self, is_end: bool, now_ms: u64) {
        let is_due = self.reserve_used_ms.is_none_or(|used_ms| now_ms >= used_ms + RESERVE_RECORD_MS);
        let is_lent = is_due || is_end;
        #[cfg(feature = "planted")]
        let is_lent = (is_lent || is_on(Bug::ReserveWithoutPace)) && !is_on(Bug::ReserveForNoCohort);
        self.log.lend_reserve(is_lent);
    }

    /// A record of cohorts was placed.
    pub(crate) fn note_reserve(&mut self, placed: &Placement, turn: &mut Turn<'_>) {
        if placed.is_in_reserve {
            self.reserve_used_ms = Some(turn.now.mono_ms);
            turn.counters.cohort_reserve_records += 1;
        }
    }
}

/// True if a cohort is through with a sealed partition once this record of a log is committed.
pub(crate) fn ends_sealed(rules: &Rules, (topic, log): PartitionKey, record: &CohortRecord) -> bool {
    record.entries.iter().any(|entry| {
        let settled = match entry.change {
            Change::Position { offset, .. } => offset,
            Change::Ranges { floor, .. } => floor,
            _ => return false,
        };
        let end = rules.gate(topic, log, entry.key).and_then(|rule| rule.end);
        end.is_some_and(|end| settled >= end)
    })
}
