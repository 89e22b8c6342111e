//! One partition's log as the engine knows it: head, index, log start, fence, and its pins on files.

use std::sync::Arc;

use ringfence_wire::{RECORD_HEADER_BYTES, RecordHeader, RecordKind, align_up};

use crate::files::FilePin;
use crate::head::{Mismatch, PartitionHead};
use crate::index::Index;
use crate::position::Position;
use crate::report::{Damage, PartitionReport};
use crate::retention::Retention;
use crate::staged::StagedBytes;
use crate::state::LogState;

/// Everything about one partition that is not on disk. At most 4 KiB while it is idle.
pub struct PartitionLog {
    pub topic: u64,
    pub partition: u64,
    pub(crate) head: PartitionHead,
    pub(crate) index: Index,
    pub(crate) start_offset: u64,
    /// The log keeps every record from this number on, whatever its log start says: staged rows. `u64::MAX` = none.
    pub(crate) stage_floor: u64,
    /// What files are kept by: it rises when the log start that it rose for is on disk.
    pub(crate) stage_floor_durable: u64,
    staged: StagedBytes,
    pub(crate) fence: u64,
    pub(crate) damage: Option<Box<Damage>>,
    /// Recovery lacks something of it that only another start can find: mended bytes alone do not end the quarantine.
    pub(crate) is_torn: bool,
    pub(crate) dropped: bool,
    /// The next record's chain is taken as it comes: what was before it is not known here.
    pub(crate) anchored: bool,
    /// Where the record stands that dropped it, in this run.
    pub(crate) dropped_at: Position,
    /// Files with records of it, oldest first.
    pub(crate) touches: Vec<Touch>,
    /// (group, file) of state records, oldest first; the first may be durable.
    pub(crate) states: Vec<(u64, u64)>,
    /// (group, offset, stage floor) of log starts that are not known durable.
    pub(crate) starts: Vec<(u64, u64, u64)>,
    pub(crate) start_offset_durable: u64,
    /// Files that it let go of and that still exist: a drop or truncate record must outlive them.
    pub(crate) buried: Vec<u64>,
    /// The shard that appends it in this run, its last group there and its slot in that group's directory.
    pub(crate) place: Option<Place>,
    /// Read plans hold it.
    pub(crate) readers: Arc<()>,
}

/// The partition holds this file.
pub(crate) struct Touch {
    pub pin: FilePin,
    /// While rows in it are at or above the durable log start.
    pub live: Option<Arc<()>>,
    /// Behind the last row in it.
    pub end_offset: u64,
    /// A truncate record is in it: it must outlive the records that it took back.
    pub has_cut: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Place {
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
            head: PartitionHead::default(),
            index: Index::default(),
            start_offset: 0,
            stage_floor: u64::MAX,
            stage_floor_durable: u64::MAX,
            staged: StagedBytes::default(),
            fence: 0,
            damage: None,
            is_torn: false,
            dropped: false,
            anchored: false,
            dropped_at: Position::NOWHERE,
            touches: Vec::new(),
            states: Vec::new(),
            starts: Vec::new(),
            start_offset_durable: 0,
            buried: Vec::new(),
            place: None,
            readers: Arc::new(()),
        }
    }

    pub fn head(&self) -> &PartitionHead {
        &self.head
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// First offset that may be read.
    pub fn start_offset(&self) -> u64 {
        self.start_offset
    }

    /// Behind the last appended row, durable or not.
    pub fn end_offset(&self) -> u64 {
        self.head.next_offset
    }

    /// No append below this epoch.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// Bytes of the rows from log start to end and of what lies between them, exact to one index interval. Staged rows
    /// count from their publish on, those that never get one not at all.
    pub fn bytes(&self) -> u64 {
        if self.start_offset < self.head.next_offset { self.index.rows_bytes_from(self.start_offset) } else { 0 }
    }

    /// Set while the partition must not be served.
    pub fn quarantine(&self) -> Option<&Damage> {
        self.damage.as_deref()
    }

    /// True once nothing of a dropped partition is left on disk: the engine may let go of it.
    pub fn is_gone(&self) -> bool {
        self.dropped && self.touches.is_empty() && self.buried.is_empty()
    }

    /// True while a read plan of it is under way.
    pub fn is_read(&self) -> bool {
        Arc::strong_count(&self.readers) > 1
    }

    /// Nothing has followed the head that it began anew at.
    pub fn is_anchored(&self) -> bool {
        self.anchored
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// Hold the file with this number: for an open stage. `None` if no record of this partition is in it.
    pub fn pin(&self, file: u64) -> Option<FilePin> {
        self.touches.iter().find(|touch| touch.pin.number == file).map(|touch| touch.pin.clone())
    }

    /// True if the record of this number stands here, as far as the index tells: not one that was cut off, or of a log
    /// that was dropped.
    pub fn holds(&self, record: u64, position: Position) -> bool {
        record < self.head.next_record && !self.dropped && self.index.brackets(record, position)
    }

    /// What recovery lacks of it only another start can find.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Numbers of the files with records of it, oldest first.
    pub fn files(&self) -> impl Iterator<Item = u64> + '_ {
        self.touches.iter().map(|touch| touch.pin.number)
    }

    /// Everything that was damaged was mended: the quarantine ends, unless recovery lacks more than bodies of rows.
    /// True if there is none any more.
    pub fn lift(&mut self) -> bool {
        if !self.is_torn {
            self.damage = None;
        }
        self.damage.is_none()
    }

    /// Give back memory that an idle partition does not need; reads stay as they are.
    pub fn rest(&mut self) {
        self.index.rest();
        self.staged.rest();
        self.touches.shrink_to_fit();
        self.states.shrink_to_fit();
        self.starts.shrink_to_fit();
    }

    /// Give back nearly all of the index, at the price of longer walks for reads: for when memory is short.
    pub fn shrink(&mut self) {
        // 16 entries of 48 bytes, next to at most 48 of the tail: 3 KiB.
        self.index.shrink(16);
        self.staged.rest();
        self.touches.shrink_to_fit();
        self.states.shrink_to_fit();
        self.starts.shrink_to_fit();
    }

    /// Memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.index.memory_bytes()
            + self.staged.memory_bytes()
            + self.touches.capacity() * size_of::<Touch>()
            + self.states.capacity() * 16
            + self.starts.capacity() * 24
    }

    pub fn state(&self) -> LogState {
        LogState {
            head: self.head,
            fence: self.fence,
            start_offset: self.start_offset,
            dropped: self.dropped,
            released: false,
            anchored: self.anchored,
        }
    }

    /// Where a replica that lacks the beginning begins: number and offset of the first record that is here, or the end.
    pub fn first(&self) -> (u64, u64) {
        self.index.first().unwrap_or((self.head.next_record, self.head.next_offset))
    }

    /// The log start that retention asks for, if it is above the present one: exact to one index interval, at most
    /// `until_offset` (the mark).
    pub fn retention_start(&self, retention: Retention, now_ms: u64, until_offset: u64) -> Option<u64> {
        let oldest_ms = match retention.age_ms_max {
            0 => 0,
            age => now_ms.saturating_sub(age),
        };
        let bytes_max = if retention.bytes_max == 0 { u64::MAX } else { retention.bytes_max };
        let kept = if self.head.last_time_ms < oldest_ms {
            Some(self.head.next_offset)
        } else {
            self.index.first_since(oldest_ms).max(self.index.first_within(bytes_max))
        };
        kept.map(|offset| offset.min(until_offset)).filter(|offset| *offset > self.start_offset)
    }

    /// As [`Self::retention_start`], but rows from the record `copied_from` on stay until twice as much is kept.
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
        // One row below: a start at the entry itself would let go of records without rows there.
        let held = entry.offset.saturating_sub(1);
        let latest = self.retention_start(retention.doubled(), now_ms, until_offset).unwrap_or(0);
        Some(wanted.min(held.max(latest))).filter(|offset| *offset > self.start_offset)
    }

    /// A record of this partition lies in this file; `log_end`: the offset behind a log record, `None` for a local one.
    pub(crate) fn touch(&mut self, pin: &FilePin, log_end: Option<u64>) {
        let end_offset = log_end.unwrap_or(0);
        // Before anything was given up, records without rows are kept too: a new replica begins with the first record.
        let is_whole = log_end.is_some() && self.start_offset_durable == 0;
        let is_live = end_offset > self.start_offset_durable || is_whole;
        match self.touches.last_mut() {
            Some(last) if last.pin.number == pin.number => {
                last.end_offset = last.end_offset.max(end_offset);
                if is_live {
                    last.live.get_or_insert_with(|| pin.live());
                }
            }
            _ => {
                let live = is_live.then(|| pin.live());
                self.touches.push(Touch { pin: pin.clone(), live, end_offset, has_cut: false });
            }
        }
    }

    /// Keep every record from this number on; `None`: the log start alone says what goes.
    pub fn keep_from(&mut self, record: Option<u64>) {
        self.stage_floor = record.unwrap_or(u64::MAX);
        self.stage_floor_durable = self.stage_floor_durable.min(self.stage_floor);
        if let Some((.., floor)) = self.starts.last_mut() {
            *floor = self.stage_floor;
        }
    }

    /// No staged record before this one will be published; `None`: none that is here.
    pub fn forget_staged(&mut self, before: Option<u64>) {
        self.staged.forget(before);
    }

    /// What a log record adds to the bytes of rows; `listed`: the records that a publish lists.
    pub(crate) fn rows_bytes(&mut self, header: &RecordHeader, listed: &[u64]) -> u64 {
        let own = align_up(RECORD_HEADER_BYTES + header.body_bytes as usize, 64) as u64;
        match RecordKind::from_number(header.kind) {
            Some(RecordKind::Staged) => {
                self.staged.stage(header.record_number, own);
                0
            }
            Some(RecordKind::Publish) => own + self.staged.publish(header.record_number, listed),
            _ => own,
        }
    }

    /// A staged record has no offset yet: it stays until somebody says that it may go.
    pub(crate) fn see_staged(&mut self, header: &RecordHeader) {
        if header.kind == RecordKind::Staged as u8 {
            self.keep_from(Some(self.stage_floor.min(header.record_number)));
        }
    }

    /// Begin at what another replica's log goes on with.
    pub(crate) fn anchor(&mut self, head: PartitionHead) {
        self.begin_anew();
        (self.head, self.start_offset, self.anchored) = (head, head.next_offset, true);
    }

    /// Check a log record that comes numbered.
    pub(crate) fn accept(&self, header: &RecordHeader) -> Result<(), Mismatch> {
        match self.head.accept(header) {
            Err(Mismatch::Chain { .. }) if self.anchored => Ok(()),
            accepted => accepted,
        }
    }

    /// Take in a log record that is placed; `listed` as in [`Self::rows_bytes`].
    pub(crate) fn take(&mut self, header: &RecordHeader, position: Position, listed: &[u64]) {
        self.see_staged(header);
        self.anchored &= !crate::head::is_log(header.kind);
        self.head.advance(header, position);
        let rows_bytes = self.rows_bytes(header, listed);
        self.index.add(header, position, rows_bytes);
    }

    /// The log ends at this head; the truncate record that says so lies in the file that was touched last.
    pub(crate) fn cut_to(&mut self, head: PartitionHead) {
        self.head = head;
        self.index.truncate(head.next_record);
        self.staged.cut(head.next_record);
        self.start_offset = self.start_offset.min(head.next_offset);
        if let Some(last) = self.touches.last_mut() {
            last.has_cut = true;
        }
    }

    /// Move the log start.
    pub(crate) fn start_at(&mut self, offset: u64) {
        self.start_offset = self.start_offset.max(offset);
        self.index.trim(self.start_offset, self.stage_floor_durable);
    }

    /// Nothing of it may be read or appended any more.
    pub(crate) fn mark_dropped(&mut self) {
        self.dropped = true;
        self.damage = None;
        self.index.clear();
        self.staged = StagedBytes::default();
        self.start_offset = self.head.next_offset;
    }

    /// Behind its drop the partition has records again: of another log. Files with the old one go by the same rules; what
    /// dropped it outlives them.
    pub(crate) fn begin_anew(&mut self) {
        let mut touches = std::mem::take(&mut self.touches);
        for touch in &mut touches {
            // What begins anew takes all before it back, whatever is left of that: older cuts need not outlive anything.
            (touch.live, touch.end_offset, touch.has_cut) = (None, 0, false);
        }
        if let Some(last) = touches.last_mut() {
            last.has_cut = true;
        }
        let (states, buried) = (std::mem::take(&mut self.states), std::mem::take(&mut self.buried));
        let (fence, place, readers) = (self.fence, self.place, self.readers.clone());
        let new = Self::new(self.topic, self.partition);
        *self = Self { fence, touches, states, buried, place, readers, ..new };
    }

    pub fn report(&self) -> PartitionReport {
        PartitionReport {
            topic: self.topic,
            partition: self.partition,
            records: self.head.next_record,
            start_offset: self.start_offset,
            end_offset: self.head.next_offset,
            owner_epoch: self.head.owner_epoch,
            fence: self.fence,
            chain: self.head.chain,
            quarantined: self.damage.as_deref().cloned(),
        }
    }
}

/// What another replica begins with that lacks what is gone here: a state's bytes before the node's part.
#[must_use]
pub fn write_anchor(log: &PartitionLog) -> Vec<u8> {
    let (next_record, next_offset) = log.first();
    let head = if next_record == log.head().next_record {
        PartitionHead { last_position: Position::NOWHERE, ..*log.head() }
    } else {
        PartitionHead { next_record, next_offset, ..PartitionHead::default() }
    };
    LogState { head, start_offset: next_offset, anchored: true, ..LogState::default() }.write().to_vec()
}
