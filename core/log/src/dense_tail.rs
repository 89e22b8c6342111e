//! The dense part of a partition's index: its last records, one by one.
//!
//! Records of cohorts have a list of their own: a second of acknowledgements would push every batch out of the other
//! one. Of those between two other records it has the first, which is where the record before ends. Of those at the
//! log's end it has the newest, too, which may not be written yet.

use std::collections::VecDeque;

use crate::index_entry::Entry;

/// Records that are not of cohorts. At most 2.25 KiB a partition, and as much for those of cohorts among them.
pub const TAIL_MAX: usize = 48;

#[derive(Clone, Debug, Default)]
pub struct DenseTail {
    /// Consecutive records up to the last one, but for those of cohorts.
    records: VecDeque<Entry>,
    cohorts: VecDeque<Entry>,
}

impl DenseTail {
    /// Add the log's next record.
    pub fn add(&mut self, entry: Entry, is_cohort: bool) {
        self.end_newest_cohort();
        if is_cohort {
            self.cohorts.push_back(entry);
            return;
        }
        if self.records.len() == TAIL_MAX {
            self.records.pop_front();
            let first = self.records.front().map_or(0, |first| first.record);
            self.cohorts.drain(..self.cohorts.partition_point(|cohort| cohort.record < first));
        }
        self.records.push_back(entry);
    }

    /// Another record follows the newest one of cohorts, which stays only if it is the first after a record of rows.
    fn end_newest_cohort(&mut self) {
        let last = self.records.back().map_or(0, |last| last.record);
        let before = self.cohorts.len().checked_sub(2).map(|at| self.cohorts[at].record);
        if before.is_some_and(|before| before >= last) {
            self.cohorts.pop_back();
        }
    }

    /// Both lists, each in the order of its records.
    pub fn lists(&self) -> [&VecDeque<Entry>; 2] {
        [&self.records, &self.cohorts]
    }

    pub fn lists_mut(&mut self) -> [&mut VecDeque<Entry>; 2] {
        [&mut self.records, &mut self.cohorts]
    }

    pub fn clear(&mut self) {
        self.records.clear();
        self.cohorts.clear();
    }

    pub fn is_within_bounds(&self) -> bool {
        // One before the first record, one after each, and the newest.
        self.records.len() <= TAIL_MAX && self.cohorts.len() <= TAIL_MAX + 2
    }
}
