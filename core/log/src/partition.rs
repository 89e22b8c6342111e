//! One partition's log as the engine sees it: end, index, log start, fence, and its pins on files.

use std::sync::Arc;

use ringfence_wire::{RECORD_HEADER_BYTES, RecordHeader, RecordKind, align_up};

use crate::files::FilePin;
use crate::index::Index;
use crate::log_end::{LogEnd, Mismatch};
use crate::position::{Position, segment_name};
use crate::report::{Damage, PartitionReport};
use crate::retention::Retention;
use crate::space::Room;
use crate::staged_bytes::StagedBytes;
use crate::state::LogState;

/// The state of one partition in memory; at most 4 KiB while the partition is idle.
pub struct PartitionLog {
    pub topic: u64,
    pub partition: u64,
    pub(crate) end: LogEnd,
    pub(crate) index: Index,
    pub(crate) start_offset: u64,
    /// The log keeps every record from this number on for staged rows, whatever the log start is.
    pub(crate) stage_floor: Option<u64>,
    /// The stage floor by which files are kept; it rises once the log start of the same call is on disk.
    pub(crate) stage_floor_durable: Option<u64>,
    staged: StagedBytes,
    pub(crate) fence: u64,
    pub(crate) damage: Option<Box<Damage>>,
    /// Recovery misses something besides bodies of rows, which only another start can find: repaired bytes alone do not
    /// end the quarantine.
    pub(crate) has_recovery_gap: bool,
    pub(crate) dropped: bool,
    /// The next record's chain is accepted as it is: the log before it is unknown here.
    pub(crate) anchored: bool,
    /// Position of the record that dropped the partition in this run.
    pub(crate) dropped_at: Position,
    /// Files with records of the partition, oldest first.
    pub(crate) file_uses: Vec<FileUse>,
    /// (group, file) of state records, oldest first; only the first may be durable.
    pub(crate) state_records: Vec<(u64, u64)>,
    /// (group, offset, stage floor) of log starts that are not known to be durable.
    pub(crate) pending_starts: Vec<(u64, u64, Option<u64>)>,
    pub(crate) start_offset_durable: u64,
    /// Files that the partition has released and that still exist: a drop or truncate record must outlive them.
    pub(crate) released_files: Vec<u64>,
    /// The shard that appends in this run, its last group with this partition, and the slot in that group's directory.
    pub(crate) group_slot: Option<GroupSlot>,
    /// What the next record of cohorts may do to the reserve of a full disk.
    pub(crate) cohort_room: Room,
    /// Each read plan of the partition holds a clone.
    pub(crate) readers: Arc<()>,
}

/// A file that the partition holds.
pub(crate) struct FileUse {
    pub pin: FilePin,
    /// Set while the file has rows at or above the durable log start.
    pub live: Option<Arc<()>>,
    /// Offset after the last row of the partition in the file.
    pub end_offset: u64,
    /// The file has a truncate record, which must outlive the records that it took back.
    pub has_truncation: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct GroupSlot {
    pub shard: u16,
    pub group: u64,
    pub slot: u32,
}

impl PartitionLog {
    /// A partition without records.
    #[must_use]
    pub fn new(topic: u64, partition: u64) -> Self {
        Self {
            topic,
            partition,
            end: LogEnd::default(),
            index: Index::default(),
            start_offset: 0,
            stage_floor: None,
            stage_floor_durable: None,
            staged: StagedBytes::default(),
            fence: 0,
            damage: None,
            has_recovery_gap: false,
            dropped: false,
            anchored: false,
            dropped_at: Position::NOWHERE,
            file_uses: Vec::new(),
            state_records: Vec::new(),
            pending_starts: Vec::new(),
            start_offset_durable: 0,
            released_files: Vec::new(),
            group_slot: None,
            cohort_room: Room::Rows,
            readers: Arc::new(()),
        }
    }

    pub fn end(&self) -> &LogEnd {
        &self.end
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// First offset that may be read.
    pub fn start_offset(&self) -> u64 {
        self.start_offset
    }

    /// Offset after the last appended row, durable or not.
    pub fn end_offset(&self) -> u64 {
        self.end.next_offset
    }

    /// Appends below this epoch are refused.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Bytes of the rows from log start to end, exact to one index interval. Staged rows count from their publish on;
    /// those of attempts that are never published do not count.
    pub fn bytes(&self) -> u64 {
        if self.start_offset < self.end.next_offset { self.index.rows_bytes_from(self.start_offset) } else { 0 }
    }

    /// The damage for which the partition is quarantined.
    pub fn quarantine(&self) -> Option<&Damage> {
        self.damage.as_deref()
    }

    /// True once nothing of a dropped partition is on disk: the engine may remove it.
    pub fn is_gone(&self) -> bool {
        self.dropped && self.file_uses.is_empty() && self.released_files.is_empty()
    }

    /// True while a read plan of the partition exists.
    pub fn is_read(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    /// True until a record follows the end at which the log was bootstrapped.
    pub fn is_anchored(&self) -> bool {
        self.anchored
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// Pin the file of this number for an open stage. `None` if it has no record of this partition.
    pub fn pin(&self, file: u64) -> Option<FilePin> {
        self.file_uses.iter().find(|file_use| file_use.pin.number == file).map(|file_use| file_use.pin.clone())
    }

    /// True if the index allows a record of this number at `position`. A record that was truncated, or that belongs to
    /// a dropped log, does not count.
    pub fn holds(&self, record: u64, position: Position) -> bool {
        record < self.end.next_record && !self.dropped && self.index.brackets(record, position)
    }

    /// True if recovery misses something that only another start can find.
    pub fn has_recovery_gap(&self) -> bool {
        self.has_recovery_gap
    }

    /// Numbers of the files with records of the partition, oldest first.
    pub fn files(&self) -> impl Iterator<Item = u64> + '_ {
        self.file_uses.iter().map(|file_use| file_use.pin.number)
    }

    /// Name of the newest file with records of the partition.
    pub fn newest_file(&self) -> Option<String> {
        self.file_uses.last().map(|file_use| segment_name(file_use.pin.number, file_use.pin.shard))
    }

    /// End the quarantine after everything damaged was repaired, unless recovery misses more than bodies of rows.
    /// Returns true if the partition is not quarantined.
    pub fn end_quarantine(&mut self) -> bool {
        if !self.has_recovery_gap {
            self.damage = None;
        }
        self.damage.is_none()
    }

    /// Free memory that an idle partition does not need; reads work as before.
    pub fn trim_memory(&mut self) {
        self.index.trim_memory();
        self.staged.trim_memory();
        self.file_uses.shrink_to_fit();
        self.state_records.shrink_to_fit();
        self.pending_starts.shrink_to_fit();
    }

    /// Free nearly all of the index when memory is short, at the price of longer walks for reads.
    pub fn trim_index(&mut self) {
        // 16 entries of 48 bytes, beside at most 48 in the tail: 3 KiB.
        self.index.shrink(16);
        self.staged.trim_memory();
        self.file_uses.shrink_to_fit();
        self.state_records.shrink_to_fit();
        self.pending_starts.shrink_to_fit();
    }

    /// Bytes of memory of the partition.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.index.memory_bytes()
            + self.staged.memory_bytes()
            + self.file_uses.capacity() * size_of::<FileUse>()
            + self.state_records.capacity() * 16
            + self.pending_starts.capacity() * size_of::<(u64, u64, Option<u64>)>()
    }

    pub fn state(&self) -> LogState {
        LogState {
            end: self.end,
            fence: self.fence,
            start_offset: self.start_offset,
            dropped: self.dropped,
            released: false,
            anchored: self.anchored,
        }
    }

    /// Number and offset of the first record that is here, or the end: a replica that lacks older records begins there.
    pub fn first(&self) -> (u64, u64) {
        self.index.first().unwrap_or((self.end.next_record, self.end.next_offset))
    }

    /// The log start that retention requires, if it is above the present one: exact to one index interval, and at most
    /// `until_offset` (the mark).
    pub fn retention_start(&self, retention: Retention, now_ms: u64, until_offset: u64) -> Option<u64> {
        let oldest_ms = match retention.age_ms_max {
            0 => 0,
            age => now_ms.saturating_sub(age),
        };
        let bytes_max = if retention.bytes_max == 0 { u64::MAX } else { retention.bytes_max };
        let kept = if self.end.last_time_ms < oldest_ms {
            Some(self.end.next_offset)
        } else {
            self.index.first_since(oldest_ms).max(self.index.first_within(bytes_max))
        };
        kept.map(|offset| offset.min(until_offset)).filter(|offset| *offset > self.start_offset)
    }

    /// As [`Self::retention_start`], but rows from the record `copied_from` on stay until twice as much is kept.
    /// Without that allowance, the copy of a partition that is written at full speed would be overtaken each time and
    /// never end.
    pub fn retention_start_beside(
        &self,
        retention: Retention,
        copied_from: Option<u64>,
        now_ms: u64,
        until_offset: u64,
    ) -> Option<u64> {
        let wanted = self.retention_start(retention, now_ms, until_offset)?;
        let Some(record) = copied_from else { return Some(wanted) };
        let Some(entry) = self.index.from(|entry| entry.record <= record).next() else { return Some(wanted) };
        // One row below: a start at the entry itself would release records without rows at that offset.
        let held = entry.offset.saturating_sub(1);
        let latest = self.retention_start(retention.doubled(), now_ms, until_offset).unwrap_or(0);
        Some(wanted.min(held.max(latest))).filter(|offset| *offset > self.start_offset)
    }

    /// Record that the file holds a record of this partition. `log_end` is the offset after a log record, `None` for a
    /// local one.
    pub(crate) fn use_file(&mut self, pin: &FilePin, log_end: Option<u64>) {
        let end_offset = log_end.unwrap_or(0);
        // Before the log start has moved, records without rows are kept too: a new replica begins with the first
        // record.
        let is_whole = log_end.is_some() && self.start_offset_durable == 0;
        let is_live = end_offset > self.start_offset_durable || is_whole;
        match self.file_uses.last_mut() {
            Some(last) if last.pin.number == pin.number => {
                last.end_offset = last.end_offset.max(end_offset);
                if is_live {
                    last.live.get_or_insert_with(|| pin.live());
                }
            }
            _ => {
                let live = is_live.then(|| pin.live());
                self.file_uses.push(FileUse { pin: pin.clone(), live, end_offset, has_truncation: false });
            }
        }
    }

    /// Keep every record from this number on; `None`: the log start alone decides.
    pub fn keep_from(&mut self, record: Option<u64>) {
        self.stage_floor = record;
        self.stage_floor_durable = lower_floor(self.stage_floor_durable, record);
        if let Some((.., floor)) = self.pending_starts.last_mut() {
            *floor = self.stage_floor;
        }
    }

    /// Let the next record use a part of the reserve if the disk is full and the record is one of cohorts: retention may
    /// wait for what it says (CA4). The caller decides how often.
    pub fn lend_reserve(&mut self, is_lent: bool) {
        self.cohort_room = if is_lent { Room::Cohort } else { Room::Rows };
    }

    /// Staged records before this one will never be published; `None`: none that is here.
    pub fn forget_staged(&mut self, before: Option<u64>) {
        self.staged.forget(before);
    }

    /// Bytes that a log record adds to the bytes of rows. `publish_list`: the staged records that a publish lists.
    pub(crate) fn rows_bytes(&mut self, header: &RecordHeader, publish_list: &[u64]) -> u64 {
        let own = align_up(RECORD_HEADER_BYTES + header.body_bytes as usize, 64) as u64;
        match RecordKind::from_number(header.kind) {
            Some(RecordKind::Staged) => {
                self.staged.stage(header.record_number, own);
                0
            }
            // A partition that is only read must not lose its rows to retention by bytes (CA4).
            Some(RecordKind::Cohort) => 0,
            Some(RecordKind::Publish) => own + self.staged.publish(header.record_number, publish_list),
            _ => own,
        }
    }

    /// A staged record has no offset yet: keep it until the caller moves the stage floor.
    pub(crate) fn see_staged(&mut self, header: &RecordHeader) {
        if header.kind == RecordKind::Staged as u8 {
            self.keep_from(lower_floor(self.stage_floor, Some(header.record_number)));
        }
    }

    /// Start the log at the end of another replica's log (bootstrap).
    pub(crate) fn anchor(&mut self, end: LogEnd) {
        self.restart();
        (self.end, self.start_offset, self.anchored) = (end, end.next_offset, true);
    }

    /// Check a log record that is already numbered.
    pub(crate) fn accept(&self, header: &RecordHeader) -> Result<(), Mismatch> {
        match self.end.accept(header) {
            Err(Mismatch::Chain { .. }) if self.anchored => Ok(()),
            accepted => accepted,
        }
    }

    /// Add a log record that was placed. `publish_list` is as in [`Self::rows_bytes`].
    pub(crate) fn take(&mut self, header: &RecordHeader, position: Position, publish_list: &[u64]) {
        self.see_staged(header);
        self.anchored &= !crate::log_end::is_log(header.kind);
        let rows_bytes = self.rows_bytes(header, publish_list);
        self.end.advance(header, position);
        self.index.add(header, position, rows_bytes);
    }

    /// Truncate the log to this end. The truncate record lies in the file that was used last.
    pub(crate) fn cut_to(&mut self, end: LogEnd) {
        self.end = end;
        self.index.truncate(end.next_record);
        self.staged.cut(end.next_record);
        self.start_offset = self.start_offset.min(end.next_offset);
        if let Some(last) = self.file_uses.last_mut() {
            last.has_truncation = true;
        }
    }

    /// Move the log start.
    pub(crate) fn start_at(&mut self, offset: u64) {
        self.start_offset = self.start_offset.max(offset);
        self.index.trim(self.start_offset, self.stage_floor_durable);
    }

    /// Refuse reads and appends from now on.
    pub(crate) fn mark_dropped(&mut self) {
        self.dropped = true;
        self.damage = None;
        self.index.clear();
        self.staged = StagedBytes::default();
        self.start_offset = self.end.next_offset;
    }

    /// Start a new log of the partition after its drop, or at a bootstrap. Files of the old log are released by the
    /// same rules, and the record that ended the old log outlives them.
    pub(crate) fn restart(&mut self) {
        let mut file_uses = std::mem::take(&mut self.file_uses);
        for file_use in &mut file_uses {
            // A new log takes back everything before it. Only the last such record must outlive the others, and old
            // files may go in any order. If older truncations had to be kept, a copy that was started again and again
            // would hold 41 GB for 0.4 GB.
            (file_use.live, file_use.end_offset, file_use.has_truncation) = (None, 0, false);
        }
        if let Some(last) = file_uses.last_mut() {
            last.has_truncation = true;
        }
        let (state_records, released_files) =
            (std::mem::take(&mut self.state_records), std::mem::take(&mut self.released_files));
        let (fence, group_slot, readers) = (self.fence, self.group_slot, self.readers.clone());
        let new = Self::new(self.topic, self.partition);
        *self = Self { fence, file_uses, state_records, released_files, group_slot, readers, ..new };
    }

    pub fn report(&self) -> PartitionReport {
        PartitionReport {
            topic: self.topic,
            partition: self.partition,
            records: self.end.next_record,
            start_offset: self.start_offset,
            end_offset: self.end.next_offset,
            owner_epoch: self.end.owner_epoch,
            fence: self.fence,
            chain: self.end.chain,
            quarantined: self.damage.as_deref().cloned(),
        }
    }
}

/// The state from which a replica is bootstrapped that lacks records removed here: the bytes before the node's part.
#[must_use]
pub fn write_anchor(log: &PartitionLog) -> Vec<u8> {
    let (next_record, next_offset) = log.first();
    let end = if next_record == log.end().next_record {
        LogEnd { last_position: Position::NOWHERE, ..*log.end() }
    } else {
        LogEnd { next_record, next_offset, ..LogEnd::default() }
    };
    LogState { end, start_offset: next_offset, anchored: true, ..LogState::default() }.write().to_vec()
}

/// The lower of two stage floors; `None` = no floor.
pub(crate) fn lower_floor(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
