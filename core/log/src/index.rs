//! Index of one partition from offsets, record numbers and times to positions. It is never on disk: recovery rebuilds
//! it.
//!
//! The sparse part has one entry for each [`INTERVAL_BYTES`] of the partition. Between two entries a reader walks
//! forward through the file, or back along `previous_position`. The dense part has the last records, where
//! most reads are (`dense_tail.rs`). Both parts are bounded: above the limit every second sparse entry is removed and the
//! interval doubles.
//!
//! Two byte counts are kept. `bytes` counts records as they lie in files, for reads. `rows_bytes` counts rows at their
//! offsets, for sizes and retention: a staged record counts at the record that publishes it, or never.

use std::collections::VecDeque;

use ringfence_wire::{RecordHeader, RecordKind};

use crate::dense_tail::DenseTail;
use crate::index_entry::Entry;
use crate::log_end::offsets_of;
use crate::position::Position;

/// A record of at least this many bytes has an entry, and so has the one after it: then a read knows where the record
/// ends, and takes no bytes of other partitions with it.
const OWN_ENTRY_BYTES: u64 = INTERVAL_BYTES / 4;
/// One entry for each 64 KiB: 100 GiB of one partition are 1.6 million entries before thinning and 16 thousand after.
pub const INTERVAL_BYTES: u64 = 64 << 10;
/// At most 768 KiB a partition.
const SPARSE_MAX: usize = 16_384;

/// Truncations whose entries stay however often the index is thinned.
const CUTS_MAX: usize = 64;

/// Sparse entries and a dense tail.
#[derive(Clone, Debug)]
pub struct Index {
    sparse: VecDeque<Entry>,
    dense: DenseTail,
    interval_bytes: u64,
    /// [`OWN_ENTRY_BYTES`]; `u64::MAX` once there were too many entries.
    own_entry_bytes: u64,
    bytes: u64,
    rows_bytes: u64,
    /// The next record begins a sparse entry: no walk may cross a truncation or a gap.
    cut: bool,
    /// Records with such entries, ascending. The file may still have truncated records of the same numbers before them,
    /// so thinning keeps these entries.
    cuts: VecDeque<u64>,
    /// Above the greatest record that is no longer in `cuts`, because there were too many; 0 = none.
    forgotten_cuts_until: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            sparse: VecDeque::new(),
            dense: DenseTail::default(),
            interval_bytes: INTERVAL_BYTES,
            own_entry_bytes: OWN_ENTRY_BYTES,
            bytes: 0,
            rows_bytes: 0,
            cut: true,
            cuts: VecDeque::new(),
            forgotten_cuts_until: 0,
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
        // A large publish begins an entry, and so does the record after it: its bytes are kept or removed together.
        let is_own =
            u64::from(header.span_bytes) >= self.own_entry_bytes || self.is_own_entry_last(header.record_number);
        let is_needed = self.needs_entry(self.sparse.back(), &entry, (u64::from(header.span_bytes), rows_bytes));
        if self.cut || is_own || is_needed {
            if self.cut && !self.sparse.is_empty() {
                self.keep_cut(entry.record);
            }
            self.sparse.push_back(entry);
            self.cut = false;
            self.thin();
        }
        self.dense.add(entry, is_cohort(header));
        self.bytes += u64::from(header.span_bytes);
        self.rows_bytes += rows_bytes;
        debug_assert!(offsets_of(header) == 0 || header.rows > 0);
    }

    /// Whether a record needs a sparse entry, whatever its size: `last` is the entry before it, and the partition has
    /// `bytes` and `rows_bytes` from it to the next record, or to the next entry.
    fn needs_entry(&self, last: Option<&Entry>, entry: &Entry, (bytes, rows_bytes): (u64, u64)) -> bool {
        let Some(last) = last else { return true };
        let since = (entry.bytes - last.bytes).max(entry.rows_bytes - last.rows_bytes);
        let is_large_publish = rows_bytes >= self.interval_bytes && rows_bytes > bytes;
        // One entry in each file: otherwise a file would be kept only because no entry stands after the log start.
        since >= self.interval_bytes || is_large_publish || last.position.file() != entry.position.file()
    }

    /// True if the record before this one has an entry of its own.
    fn is_own_entry_last(&self, record: u64) -> bool {
        let is_own = |last: &Entry| last.record + 1 == record && self.bytes - last.bytes >= self.own_entry_bytes;
        self.sparse.back().is_some_and(is_own)
    }

    fn thin(&mut self) {
        if self.sparse.len() > SPARSE_MAX && self.own_entry_bytes < u64::MAX {
            self.own_entry_bytes = u64::MAX;
            self.remove_own_entries();
        }
        if self.sparse.len() > SPARSE_MAX {
            self.halve();
        }
    }

    /// Remove every second entry, and double the interval. True if there was one to remove.
    fn halve(&mut self) -> bool {
        let count = self.sparse.len();
        let mut index = 0;
        let cuts = &self.cuts;
        // Keep the first entry: the log start is found by it. Keep the last: the next interval counts from it.
        self.sparse.retain(|entry| {
            index += 1;
            index % 2 == 1 || index == count || cuts.binary_search(&entry.record).is_ok()
        });
        let is_shorter = self.sparse.len() < count;
        if is_shorter {
            self.interval_bytes *= 2;
        }
        is_shorter
    }

    /// The entry of this record, the first one after a truncation or a gap, is kept.
    fn keep_cut(&mut self, record: u64) {
        if self.cuts.len() == CUTS_MAX
            && let Some(oldest) = self.cuts.pop_front()
        {
            self.forgotten_cuts_until = oldest + 1;
        }
        self.cuts.push_back(record);
    }

    /// True if truncated records may lie between this record and the next entry.
    pub fn may_hold_truncated(&self, record: u64) -> bool {
        record + 1 < self.forgotten_cuts_until
    }

    /// Keep the entries that there would be without [`OWN_ENTRY_BYTES`], and the last one, in place.
    fn remove_own_entries(&mut self) {
        let (mut kept, count) = (0_usize, self.sparse.len());
        for at in 0..count {
            let entry = self.sparse[at];
            let is_kept = match (kept.checked_sub(1).map(|last| self.sparse[last]), self.sparse.get(at + 1)) {
                (None, _) | (_, None) => true,
                (Some(last), Some(next)) => {
                    let bytes = (next.bytes - entry.bytes, next.rows_bytes - entry.rows_bytes);
                    self.cuts.binary_search(&entry.record).is_ok() || self.needs_entry(Some(&last), &entry, bytes)
                }
            };
            if is_kept {
                self.sparse[kept] = entry;
                kept += 1;
            }
        }
        self.sparse.truncate(kept);
    }

    /// Remove the records from this number on; the next one may lie anywhere.
    pub fn truncate(&mut self, next_record: u64) {
        let (mut bytes, mut rows_bytes) = (self.bytes, self.rows_bytes);
        let [records, cohorts] = self.dense.lists_mut();
        for list in [&mut self.sparse, records, cohorts] {
            let kept = list.partition_point(|entry| entry.record < next_record);
            if let Some(first) = list.get(kept) {
                (bytes, rows_bytes) = (bytes.min(first.bytes), rows_bytes.min(first.rows_bytes));
            }
            list.truncate(kept);
        }
        (self.bytes, self.rows_bytes) = (bytes, rows_bytes);
        self.cuts.truncate(self.cuts.partition_point(|cut| *cut < next_record));
        self.cut = true;
    }

    /// The next record does not follow the last one: empty the tail, and allow no walk across the gap.
    pub fn gap(&mut self) {
        self.dense.clear();
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
        let first = self.first_record().unwrap_or(0);
        self.cuts.drain(..self.cuts.partition_point(|cut| *cut <= first));
        if self.sparse.len() * 4 < self.sparse.capacity() {
            self.sparse.shrink_to_fit();
        }
    }

    /// Remove all entries: no record before the next one can be read.
    pub fn clear(&mut self) {
        let Self { interval_bytes, own_entry_bytes, bytes, rows_bytes, .. } = *self;
        *self = Self { interval_bytes, own_entry_bytes, bytes, rows_bytes, ..Self::default() };
    }

    /// All entries, in lists in the order of their records; those of the sparse part come in another one, too.
    fn lists(&self) -> [&VecDeque<Entry>; 3] {
        let [records, cohorts] = self.dense.lists();
        [&self.sparse, records, cohorts]
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
        let lists = self.lists();
        let last_before =
            |list: &&VecDeque<Entry>| list.partition_point(&before).checked_sub(1).map(|at| list[at].record);
        let from = lists.iter().filter_map(last_before).max().unwrap_or(0);
        let mut next = lists.map(|list| list.partition_point(|entry| entry.record < from));
        // In the order of their records; one of several lists comes once.
        std::iter::from_fn(move || {
            let heads = [0, 1, 2].map(|at| lists[at].get(next[at]));
            let first = *heads.into_iter().flatten().min_by_key(|entry| entry.record)?;
            for (at, head) in heads.iter().enumerate() {
                next[at] += usize::from(head.is_some_and(|head| head.record == first.record));
            }
            Some(first)
        })
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
        self.sparse.front().is_some_and(|first| first.record <= record) && self.lists().into_iter().all(fits)
    }

    /// Free the dense tail, which a partition without new records does not need: reads walk one interval instead.
    pub fn trim_memory(&mut self) {
        self.dense = DenseTail::default();
        self.sparse.shrink_to_fit();
    }

    /// Free nearly everything, at the price of long walks: at most `entries` sparse entries stay, and
    /// those after truncations.
    pub fn shrink(&mut self, entries: usize) {
        self.remove_own_entries();
        while self.sparse.len() > entries.max(2) && self.halve() {}
        self.sparse.shrink_to_fit();
        self.dense.lists_mut().into_iter().for_each(VecDeque::shrink_to_fit);
        self.cuts.shrink_to_fit();
    }

    /// # Panics
    /// If entries are out of order or after the log's end.
    pub fn check(&self, name: &(impl std::fmt::Display + ?Sized), next_record: u64) {
        for list in self.lists() {
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
            self.sparse.len() <= SPARSE_MAX && self.dense.is_within_bounds(),
            "{name}: the index has outgrown its bounds"
        );
    }

    /// Bytes of memory of the entries.
    pub fn memory_bytes(&self) -> usize {
        let entries: usize = self.lists().into_iter().map(VecDeque::capacity).sum();
        entries * size_of::<Entry>() + self.cuts.capacity() * size_of::<u64>()
    }
}

/// True for progress of cohorts, of which there may be very many.
fn is_cohort(header: &RecordHeader) -> bool {
    #[cfg(feature = "planted")]
    if crate::planted::is_on(crate::planted::Bug::CohortsFillTail) {
        return false;
    }
    header.kind == RecordKind::Cohort as u8
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
