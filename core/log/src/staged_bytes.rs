//! How many bytes a publish brings: staged records count where they got offsets, not where they lie. Rebuilt from the
//! log as the index is.

use std::collections::VecDeque;

/// Staged records that may still be published, and the last publishes.
#[derive(Debug, Default)]
pub(crate) struct StagedBytes {
    /// (record number, bytes), in the order of their numbers.
    unpublished: VecDeque<(u64, u64)>,
    publishes: VecDeque<PublishEntry>,
}

#[derive(Clone, Copy, Debug)]
struct PublishEntry {
    record: u64,
    /// Staged records that it lists.
    first: u64,
    last: u64,
    bytes: u64,
}

/// Twice as many batches as a node lets be open in a partition: 2 MiB. Of more, only dead ones under a stage that is
/// open all that time, the oldest are forgotten: their publish counts too little, and retention comes later.
const UNPUBLISHED_MAX: usize = 131_072;
/// Older publishes are on a quorum long since, and never taken back. 2 KiB.
const PUBLISHED_MAX: usize = 64;

impl StagedBytes {
    /// A record was staged.
    pub fn stage(&mut self, record: u64, bytes: u64) {
        if self.unpublished.len() == UNPUBLISHED_MAX {
            self.unpublished.pop_front();
        }
        self.unpublished.push_back((record, bytes));
    }

    /// The staged records of this list have offsets now; their bytes.
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

    /// Nothing that was staged before this record (`None`: at all, so far) will be published.
    pub fn forget(&mut self, before: Option<u64>) {
        let dead = self.unpublished.partition_point(|unpublished| before.is_none_or(|before| unpublished.0 < before));
        self.unpublished.drain(..dead);
        if self.unpublished.len() * 4 < self.unpublished.capacity() {
            self.unpublished.shrink_to_fit();
        }
    }

    /// Records from this number on never were.
    pub fn cut(&mut self, next_record: u64) {
        self.unpublished.truncate(self.unpublished.partition_point(|unpublished| unpublished.0 < next_record));
        while self.publishes.back().is_some_and(|publishes| publishes.record >= next_record)
            && let Some(last) = self.publishes.pop_back()
        {
            if last.first >= next_record {
                continue;
            }
            // What it publish_list waits again, as one: the metadata has decided, and it is published with the same list. Of a
            // list that was cut itself about the share that is left.
            let (left, all) = (next_record.min(last.last + 1) - last.first, last.last + 1 - last.first);
            let bytes = u128::from(last.bytes) * u128::from(left) / u128::from(all);
            let at = self.unpublished.partition_point(|unpublished| unpublished.0 < last.first);
            self.unpublished.insert(at, (last.first, u64::try_from(bytes).expect("at most as before")));
        }
    }

    /// Give back memory that is not needed now.
    pub fn trim_memory(&mut self) {
        self.unpublished.shrink_to_fit();
        self.publishes.shrink_to_fit();
    }

    pub fn memory_bytes(&self) -> usize {
        self.unpublished.capacity() * 16 + self.publishes.capacity() * size_of::<PublishEntry>()
    }
}

/// Numbers of the staged records that a publish record with this body lists (docs/protocol.md, "Rows that were staged").
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
