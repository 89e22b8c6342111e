//! Index of one partition from offsets, record numbers and times to positions. It is never on disk: recovery rebuilds
//! it.
//!
//! The sparse part has one entry for each [`INTERVAL_BYTES`] of the partition. Between two entries a reader walks
//! forward through the file, or back along `previous_position`. The dense part has the last [`TAIL_MAX`] records, where
//! most reads are. Both parts are bounded: above the limit every second sparse entry is removed and the interval
//! doubles.
//!
//! Two byte counts are kept. `bytes` counts records as they lie in files, for reads. `rows_bytes` counts rows at their
//! offsets, for sizes and retention: a staged record counts at the record that publishes it, or never.

use std::collections::VecDeque;

use ringfence_wire::RecordHeader;

use crate::log_end::offsets_of;
use crate::position::Position;

/// One entry for each 64 KiB: 100 GiB of one partition are 1.6 million entries before thinning and 16 thousand after.
pub const INTERVAL_BYTES: u64 = 64 << 10;
/// At most 768 KiB a partition.
const SPARSE_MAX: usize = 16_384;
/// At most 2.25 KiB a partition.
const TAIL_MAX: usize = 48;

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

/// Sparse entries and a dense tail.
#[derive(Clone, Debug)]
pub struct Index {
    sparse: VecDeque<Entry>,
    /// Consecutive records up to the last one.
    tail: VecDeque<Entry>,
    interval_bytes: u64,
    bytes: u64,
    rows_bytes: u64,
    /// The next record begins a sparse entry: no walk may cross a truncation or a gap.
    cut: bool,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            sparse: VecDeque::new(),
            tail: VecDeque::new(),
            interval_bytes: INTERVAL_BYTES,
            bytes: 0,
            rows_bytes: 0,
            cut: true,
        }
    }
}

impl Index {
    /// Add the next log record. `rows_bytes` is what it adds to the bytes of rows.
    pub fn add(&mut self, header: &RecordHeader, position: Position, rows_bytes: u64) {
        let entry = Entry {
            record: header.record_number,
            offset: header.first_offset,
            position,
            time_ms: header.time_ms,
            bytes: self.bytes,
            rows_bytes: self.rows_bytes,
        };
        let since = self
            .sparse
            .back()
            .map_or(u64::MAX, |last| (self.bytes - last.bytes).max(self.rows_bytes - last.rows_bytes));
        // A large publish begins an entry, and so does the record after it: its bytes are kept or removed together.
        let is_large = rows_bytes >= self.interval_bytes && rows_bytes > u64::from(header.span_bytes);
        // One entry in each file: otherwise a file would be kept only because no entry stands after the log start.
        let other_file = self.sparse.back().is_some_and(|last| last.position.file() != position.file());
        if self.cut || other_file || is_large || since >= self.interval_bytes {
            self.sparse.push_back(entry);
            self.cut = false;
            self.thin();
        }
        if self.tail.len() == TAIL_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back(entry);
        self.bytes += u64::from(header.span_bytes);
        self.rows_bytes += rows_bytes;
        debug_assert!(offsets_of(header) == 0 || header.rows > 0);
    }

    fn thin(&mut self) {
        if self.sparse.len() <= SPARSE_MAX {
            return;
        }
        let mut index = 0;
        // Keep the first entry: the log start is found by it. Keep the last: the next interval counts from it.
        let last = self.sparse.len() - 1;
        self.sparse.retain(|_| {
            index += 1;
            index % 2 == 1 || index == last + 1
        });
        self.interval_bytes *= 2;
    }

    /// Remove the records from this number on; the next one may lie anywhere.
    pub fn truncate(&mut self, next_record: u64) {
        let (mut bytes, mut rows_bytes) = (self.bytes, self.rows_bytes);
        for list in [&mut self.sparse, &mut self.tail] {
            let kept = list.partition_point(|entry| entry.record < next_record);
            if let Some(first) = list.get(kept) {
                (bytes, rows_bytes) = (bytes.min(first.bytes), rows_bytes.min(first.rows_bytes));
            }
            list.truncate(kept);
        }
        (self.bytes, self.rows_bytes) = (bytes, rows_bytes);
        self.cut = true;
    }

    /// The next record does not follow the last one: empty the tail, and allow no walk across the gap.
    pub fn gap(&mut self) {
        self.tail.clear();
        self.cut = true;
    }

    /// Remove entries below the log start and before the record `keep_from`.
    pub fn trim(&mut self, start_offset: u64, keep_from: Option<u64>) {
        // Nothing was removed yet. Epoch records without rows, all at offset 0, are records that a new replica needs.
        if start_offset == 0 {
            return;
        }
        let goes = |second: &Entry| {
            second.offset <= start_offset && keep_from.is_none_or(|keep_from| second.record <= keep_from)
        };
        while self.sparse.get(1).is_some_and(goes) {
            self.sparse.pop_front();
        }
        if self.sparse.len() * 4 < self.sparse.capacity() {
            self.sparse.shrink_to_fit();
        }
    }

    /// Remove all entries: no record before the next one can be read.
    pub fn clear(&mut self) {
        let (bytes, rows_bytes, interval_bytes) = (self.bytes, self.rows_bytes, self.interval_bytes);
        *self = Self { interval_bytes, bytes, rows_bytes, ..Self::default() };
    }

    /// File of the first indexed record.
    pub fn first_file(&self) -> Option<u64> {
        self.sparse.front().map(|entry| entry.position.file())
    }

    /// Number of the first indexed record.
    pub fn first_record(&self) -> Option<u64> {
        self.sparse.front().map(|entry| entry.record)
    }

    /// Number and offset of the first indexed record.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.sparse.front().map(|entry| (entry.record, entry.offset))
    }

    /// Bytes of all records that were ever added and not truncated.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of rows from the entry that holds `offset` to the end.
    pub fn rows_bytes_from(&self, offset: u64) -> u64 {
        let from = self.sparse.partition_point(|entry| entry.offset <= offset).saturating_sub(1);
        self.sparse.get(from).map_or(0, |entry| self.rows_bytes - entry.rows_bytes)
    }

    /// Entries in order, from the last one for which `before` is true. `before(entry)` says whether the wanted record
    /// is this one or a later one.
    pub fn from(&self, before: impl Fn(&Entry) -> bool) -> impl Iterator<Item = Entry> + '_ {
        let tail_first = self.tail.front().map_or(u64::MAX, |entry| entry.record);
        let in_tail = self.tail.partition_point(&before);
        let in_sparse = self.sparse.partition_point(&before).saturating_sub(1);
        // If the wanted record is in the tail, the tail alone is exact.
        let sparse_until = self.sparse.partition_point(|entry| entry.record < tail_first);
        let sparse_from = if in_tail > 0 { sparse_until } else { in_sparse };
        let sparse = self.sparse.range(sparse_from.min(sparse_until)..sparse_until);
        sparse.chain(self.tail.range(in_tail.saturating_sub(1)..)).copied()
    }

    /// First offset of the first interval that may hold a record at or after this time.
    pub fn first_since(&self, time_ms: u64) -> Option<u64> {
        // Keep the interval before the first such entry: it may end with younger records.
        let at = self.sparse.partition_point(|entry| entry.time_ms < time_ms).saturating_sub(1);
        self.sparse.get(at).map(|entry| entry.offset)
    }

    /// First offset of the longest run of intervals at the end of the log with at most `bytes_max` bytes of rows. The
    /// last interval always stays. A publish that does not fit stays as a whole: the disk space of its rows is freed
    /// only with the last of them.
    pub fn first_within(&self, bytes_max: u64) -> Option<u64> {
        let at = self.sparse.partition_point(|entry| self.rows_bytes - entry.rows_bytes > bytes_max);
        let before = at.checked_sub(1).and_then(|before| self.sparse.get(before));
        let fitting = self.sparse.get(at);
        let (bytes, rows_bytes) =
            fitting.map_or((self.bytes, self.rows_bytes), |entry| (entry.bytes, entry.rows_bytes));
        // More bytes of rows than of records: some rows lie in earlier records.
        let publish = before.filter(|entry| rows_bytes - entry.rows_bytes > bytes - entry.bytes);
        publish.or(fitting).or(self.sparse.back()).map(|entry| entry.offset)
    }

    /// True if a record of this number can stand at `position`, between the indexed records before and after it.
    pub fn brackets(&self, record: u64, position: Position) -> bool {
        let fits = |list: &VecDeque<Entry>| {
            let behind = list.partition_point(|entry| entry.record <= record);
            let before = behind.checked_sub(1).map(|at| list[at]);
            let starts = before.is_none_or(|entry| {
                if entry.record == record { entry.position == position } else { entry.position < position }
            });
            starts && list.get(behind).is_none_or(|entry| entry.position > position)
        };
        self.sparse.front().is_some_and(|first| first.record <= record) && fits(&self.sparse) && fits(&self.tail)
    }

    /// Free the dense tail, which a partition without new records does not need: reads walk one interval instead.
    pub fn trim_memory(&mut self) {
        self.tail = VecDeque::new();
        self.sparse.shrink_to_fit();
    }

    /// Free nearly everything, at the price of long walks: at most `entries` sparse entries stay.
    pub fn shrink(&mut self, entries: usize) {
        while self.sparse.len() > entries.max(2) {
            let last = self.sparse.len() - 1;
            let mut index = 0;
            self.sparse.retain(|_| {
                index += 1;
                index % 2 == 1 || index == last + 1
            });
            self.interval_bytes *= 2;
        }
        self.sparse.shrink_to_fit();
        self.tail.shrink_to_fit();
    }

    /// # Panics
    /// If entries are out of order or after the log's end.
    pub fn check(&self, name: &(impl std::fmt::Display + ?Sized), next_record: u64) {
        for list in [&self.sparse, &self.tail] {
            let is_sorted = list.iter().is_sorted_by(|one, next| {
                one.record < next.record
                    && one.offset <= next.offset
                    && one.position < next.position
                    && one.bytes <= next.bytes
                    && one.rows_bytes <= next.rows_bytes
            });
            assert!(is_sorted, "{name}: the index is out of order");
            assert!(list.back().is_none_or(|last| last.record < next_record), "{name}: the index is ahead of its log");
        }
        assert!(
            self.sparse.len() <= SPARSE_MAX && self.tail.len() <= TAIL_MAX,
            "{name}: the index has outgrown its bounds"
        );
    }

    /// Bytes of memory of the entries.
    pub fn memory_bytes(&self) -> usize {
        (self.sparse.capacity() + self.tail.capacity()) * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` records of `span` bytes and 10 rows, one every millisecond.
    fn filled(count: u64, span: u32) -> Index {
        let mut index = Index::default();
        for number in 0..count {
            let header = RecordHeader {
                kind: 1,
                rows: 10,
                record_number: number,
                first_offset: number * 10,
                time_ms: number,
                span_bytes: span,
                ..Default::default()
            };
            index.add(&header, Position::new(1, 4096 + number * u64::from(span)), u64::from(span));
        }
        index
    }

    fn first(index: &Index, before: impl Fn(&Entry) -> bool) -> Option<u64> {
        index.from(before).next().map(|entry| entry.record)
    }

    #[test]
    fn the_first_entry_is_at_or_before_the_wanted_record_and_at_most_an_interval_before() {
        let index = filled(10_000, 640);
        index.check("test", 10_000);
        let interval = INTERVAL_BYTES / 640 + 1;
        for wanted in [0, 1, 103, 5_000, 9_950, 9_999] {
            let found = first(&index, |entry| entry.record <= wanted).unwrap();
            assert!(found <= wanted && wanted - found <= interval, "{found} for {wanted}");
            assert_eq!(first(&index, |entry| entry.offset <= wanted * 10 + 9), Some(found));
        }
        assert_eq!(first(&index, |entry| entry.record <= 9_980), Some(9_980), "the tail is exact");
    }

    #[test]
    fn entries_are_bounded_however_much_is_appended_and_still_lead_everywhere() {
        let mut index = filled(100_000, 1 << 20);
        index.check("test", 100_000);
        assert!(index.memory_bytes() < 2 << 20, "{}", index.memory_bytes());
        let found = first(&index, |entry| entry.record <= 50_001).unwrap();
        assert!(found <= 50_001 && found > 49_900, "{found}");
        index.shrink(16);
        index.check("test", 100_000);
        assert!(index.memory_bytes() <= 3072, "{}", index.memory_bytes());
        assert!(first(&index, |entry| entry.record <= 50_001).is_some_and(|record| record <= 50_001));
    }

    #[test]
    fn after_a_cut_no_stretch_leads_across_it() {
        let mut index = filled(1000, 640);
        let bytes = index.bytes();
        index.truncate(990);
        assert_eq!(index.bytes(), bytes - 10 * 640);
        let header = RecordHeader {
            kind: 1,
            rows: 1,
            record_number: 990,
            first_offset: 9900,
            span_bytes: 64,
            ..Default::default()
        };
        index.add(&header, Position::new(2, 4096), 64);
        index.check("test", 991);
        assert_eq!(first(&index, |entry| entry.record <= 990), Some(990));
        assert!(index.sparse.back().is_some_and(|last| last.record == 990), "the record behind the cut is indexed");
    }

    #[test]
    fn retention_finds_the_interval_that_still_counts() {
        let index = filled(10_000, 640);
        let start = index.first_within(1_000_000).unwrap();
        let kept = index.rows_bytes_from(start);
        assert!(kept <= 1_000_000 && kept > 1_000_000 - 70_000, "{kept}");
        let since = index.first_since(5_000).unwrap();
        assert!(since <= 50_000 && since > 48_000, "{since}");
    }
}
