//! Bytes of staged records until a publish adds them to the sizes by which retention decides.
//!
//! They count where the publish gives them offsets. Counted where they lie, those of a log's first publish were
//! missing, rows of a dead attempt displaced rows that readers had, and a start computed another size. Recovery
//! rebuilds the counts from the log, as it does the index.

use std::collections::VecDeque;

/// Staged records that may still be published, and the last publishes.
#[derive(Debug, Default)]
pub(crate) struct StagedBytes {
    /// (record number, bytes), by number.
    unpublished: VecDeque<(u64, u64)>,
    publishes: VecDeque<PublishEntry>,
}

#[derive(Clone, Copy, Debug)]
struct PublishEntry {
    record: u64,
    /// First of the staged records that it lists.
    first: u64,
    last: u64,
    bytes: u64,
}

/// Twice the number of batches that a node allows open in a partition; 2 MiB. Only dead records under a stage that
/// stays open exceed it. Then the oldest are forgotten: their publish counts too few bytes, and retention comes later.
const UNPUBLISHED_MAX: usize = 131_072;
/// Older publishes have long been durable on a quorum and are never truncated. 2 KiB.
const PUBLISHED_MAX: usize = 64;

impl StagedBytes {
    /// A record was staged.
    pub fn stage(&mut self, record: u64, bytes: u64) {
        if self.unpublished.len() == UNPUBLISHED_MAX {
            self.unpublished.pop_front();
        }
        self.unpublished.push_back((record, bytes));
    }

    /// Give the listed staged records their offsets; returns their bytes.
    pub fn publish(&mut self, record: u64, list: &[u64]) -> u64 {
        let mut bytes = 0;
        for staged in list {
            if let Ok(at) = self.unpublished.binary_search_by_key(staged, |unpublished| unpublished.0) {
                bytes += std::mem::take(&mut self.unpublished[at].1);
            }
        }
        self.unpublished.retain(|unpublished| unpublished.1 > 0);
        if let (Some(first), Some(last)) = (list.iter().min(), list.iter().max()) {
            if self.publishes.len() == PUBLISHED_MAX {
                self.publishes.pop_front();
            }
            self.publishes.push_back(PublishEntry { record, first: *first, last: *last, bytes });
        }
        bytes
    }

    /// Staged records before this one will not be published; `None`: none of those so far.
    pub fn forget(&mut self, before: Option<u64>) {
        let dead = self.unpublished.partition_point(|unpublished| before.is_none_or(|before| unpublished.0 < before));
        self.unpublished.drain(..dead);
        if self.unpublished.len() * 4 < self.unpublished.capacity() {
            self.unpublished.shrink_to_fit();
        }
    }

    /// Truncate: records from this number on do not exist.
    pub fn cut(&mut self, next_record: u64) {
        self.unpublished.truncate(self.unpublished.partition_point(|unpublished| unpublished.0 < next_record));
        while self.publishes.back().is_some_and(|publishes| publishes.record >= next_record)
            && let Some(last) = self.publishes.pop_back()
        {
            if last.first >= next_record {
                continue;
            }
            // The staged records that the publish lists wait again, as one entry: the commit is in the metadata, so
            // they are published again with the same list. If the list itself was truncated, its bytes are divided in
            // proportion.
            let (left, all) = (next_record.min(last.last + 1) - last.first, last.last + 1 - last.first);
            let bytes = u128::from(last.bytes) * u128::from(left) / u128::from(all);
            let at = self.unpublished.partition_point(|unpublished| unpublished.0 < last.first);
            self.unpublished.insert(at, (last.first, u64::try_from(bytes).expect("at most as before")));
        }
    }

    /// Free memory that is not needed now.
    pub fn trim_memory(&mut self) {
        self.unpublished.shrink_to_fit();
        self.publishes.shrink_to_fit();
    }

    pub fn memory_bytes(&self) -> usize {
        self.unpublished.capacity() * 16 + self.publishes.capacity() * size_of::<PublishEntry>()
    }
}

/// Numbers of the staged records that a publish record with this body lists (docs/protocol.md, "Rows that were
/// staged").
pub(crate) fn publish_list(body: &[u8]) -> Vec<u64> {
    let batches = body.get(24..).unwrap_or_default().chunks_exact(16);
    batches.map(|batch| u64::from_le_bytes(batch[..8].try_into().expect("8 bytes"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publish_brings_the_bytes_that_it_lists_each_once() {
        let mut staged = StagedBytes::default();
        (10..20).for_each(|record| staged.stage(record, 100 + record));
        assert_eq!(staged.publish(20, &[11, 13]), 224);
        assert_eq!(staged.publish(21, &[11, 12]), 112, "11 was publishes before");
        staged.forget(Some(15));
        assert_eq!(staged.publish(22, &[14, 15]), 115, "14 was given up");
        staged.forget(None);
        assert_eq!(staged.publish(23, &[16, 17, 18, 19]), 0);
    }

    #[test]
    fn a_publish_that_is_cut_off_brings_its_bytes_again() {
        let mut staged = StagedBytes::default();
        (10..14).for_each(|record| staged.stage(record, 1000));
        assert_eq!(staged.publish(14, &[10, 12, 13]), 3000);
        staged.cut(14);
        assert_eq!(staged.publish(14, &[10, 12, 13]), 3000);
        assert_eq!(staged.publish(15, &[11]), 1000);
        staged.cut(12);
        assert_eq!(staged.publish(12, &[10]), 1500, "the records from 12 on were cut off as well");
        assert_eq!(staged.publish(13, &[11]), 1000);
    }

    #[test]
    fn memory_is_bounded_however_much_is_given_up() {
        let mut staged = StagedBytes::default();
        for round in 0..300_000 {
            staged.stage(round * 2, 1);
            if round % 1000 == 0 {
                staged.publish(round * 2 + 1, &[round * 2]);
            }
        }
        assert!(staged.memory_bytes() <= (2 << 20) + 4096, "{}", staged.memory_bytes());
        staged.forget(None);
        staged.trim_memory();
        assert!(staged.memory_bytes() <= 2048, "{}", staged.memory_bytes());
    }
}
