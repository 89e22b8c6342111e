//! Looks at what was written long ago: sealed files, a piece at a time, each byte once a round.
//!
//! The same rules as recovery's: every header, body, padding and directory, and each partition's chain from record to
//! record. Where a sealed file ends is known, so nothing here is a torn tail: what is not sound is damage. Who owns it,
//! and whether it still counts, is the engine's to say; putting it right is `mend.rs`.

use std::collections::HashMap;
use std::ops::Range;

use ringfence_wire::{RECORD_MAGIC, RecordHeader, RecordKind};

use crate::aligned::Aligned;
use crate::directory::{Directory, body_bytes};
use crate::file_header::FILE_HEADER_BYTES;
use crate::files::FilePin;
use crate::head::{PartitionHead, is_log};
use crate::position::{Position, segment_name};
use crate::report::Damage;
use crate::state::{HEAD_BYTES, LogState, STATE_BYTES, read_head};
use crate::storage::{Storage, StorageError};
use crate::stream::Stream;

/// Read, compared and written at a time where a place is put right.
const SCRATCH_BYTES: usize = 256 << 10;
/// Findings of one piece; then it ends early. A disk that loses more at a time is counted all the same.
const FOUND_MAX: usize = 64;
/// Lost records that wait for the one behind them, of one file.
const LOST_MAX: usize = 64;

/// What to look at next.
#[derive(Debug)]
pub struct ScrubPlan {
    pub pin: FilePin,
    /// Behind its last group.
    pub end: u64,
    /// Where to go on; 0 = at the beginning.
    pub from: u64,
    /// The piece ends behind the first record that passes this.
    pub bytes_max: u64,
    /// In a hurry, beside the round that goes on where it was.
    pub is_urgent: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct ScrubDone {
    pub file: u64,
    pub is_urgent: bool,
    /// Read from the disk.
    pub bytes: u64,
    /// Where to go on; `None` at the file's end.
    pub next: Option<u64>,
    pub found: Vec<Rot>,
}

/// One damaged place.
#[derive(Clone, Debug)]
pub struct Rot {
    pub file: u64,
    /// Whose name the file has.
    pub shard: u16,
    pub position: u64,
    /// Up to the next record.
    pub span_bytes: u64,
    /// 0 when it belongs to no partition, or to one that nobody can tell any more.
    pub topic: u64,
    pub partition: u64,
    pub record_number: Option<u64>,
    pub cure: Cure,
    pub why: &'static str,
}

/// What another replica's record must be, to stand here.
#[derive(Clone, Debug)]
pub enum Cure {
    /// The header is sound: that very record.
    Same(Box<RecordHeader>),
    /// Header and body are lost: the record that goes on behind `before`, and that `after` goes on behind.
    Between { group: u64, before: PartitionHead, after: After },
    /// Nobody else has it, or nobody can tell what stood here.
    None,
}

/// What proves a lost record from behind.
#[derive(Clone, Debug)]
pub enum After {
    Unknown,
    /// The partition's next record.
    Record(Box<RecordHeader>),
    /// The log ends with it: its chain.
    End(u64),
}

impl Rot {
    /// As recovery would tell it.
    #[must_use]
    pub fn damage(&self) -> Damage {
        Damage {
            file: segment_name(self.file, self.shard),
            position: self.position,
            topic: self.topic,
            partition: self.partition,
            record_number: self.record_number,
            why: self.why.to_owned(),
        }
    }
}

/// One thread's state: scratch, and where it is.
pub struct Scrubber<S: Storage> {
    pub(crate) storage: S,
    pub(crate) stream: Stream,
    /// For what is written.
    pub(crate) scratch: Aligned,
    /// The file in the stream's window, 0 = none.
    pub(crate) loaded: u64,
    round: Walk,
    urgent: Walk,
}

/// (topic, partition).
type Key = (u64, u64);

#[derive(Default)]
struct Walk {
    file: u64,
    position: u64,
    /// Number of the group that is read, 0 before the first record of a file.
    group: u64,
    /// Records of each partition in this group, and the one that is missing between two of them.
    tally: HashMap<Key, Tally>,
    holes: Vec<Range<u64>>,
    /// Ends of the logs as far as they were read without a gap: one a partition.
    heads: HashMap<Key, PartitionHead>,
    /// Records that are lost with their headers, until the one behind them is seen.
    lost: Vec<Rot>,
}

#[derive(Default)]
struct Tally {
    records: u32,
    gap: Option<(PartitionHead, Box<RecordHeader>)>,
}

impl<S: Storage> Scrubber<S> {
    #[must_use]
    pub fn new(storage: S) -> Self {
        Self {
            storage,
            stream: Stream::default(),
            scratch: Aligned::new(SCRATCH_BYTES),
            loaded: 0,
            round: Walk::default(),
            urgent: Walk::default(),
        }
    }

    /// Read one piece of one file.
    ///
    /// # Errors
    /// [`StorageError`]: nothing is known of the piece.
    pub fn look(&mut self, plan: &ScrubPlan) -> Result<ScrubDone, StorageError> {
        let number = plan.pin.number;
        let file = self.storage.open(&segment_name(number, plan.pin.shard))?;
        if self.loaded != number {
            self.stream.reset();
            self.loaded = number;
        }
        let walk = if plan.is_urgent { &mut self.urgent } else { &mut self.round };
        if plan.from == 0 || walk.file != number || walk.position != plan.from {
            walk.begin(number);
        }
        let before = self.stream.bytes;
        let mut look = Look { storage: &self.storage, file: &file, stream: &mut self.stream, plan, found: Vec::new() };
        let result = walk.piece(&mut look);
        let found = look.found;
        if result.is_err() {
            // The window may hold anything.
            self.loaded = 0;
        }
        result?;
        let next = (walk.position < plan.end).then_some(walk.position);
        let bytes = self.stream.bytes - before;
        Ok(ScrubDone { file: number, is_urgent: plan.is_urgent, bytes, next, found })
    }
}

/// One piece while it is read.
struct Look<'a, S: Storage> {
    storage: &'a S,
    file: &'a S::File,
    stream: &'a mut Stream,
    plan: &'a ScrubPlan,
    found: Vec<Rot>,
}

impl<S: Storage> Look<'_, S> {
    /// As recovery's: of this file, of this group or a later one, within the file.
    fn sound_header(&mut self, position: u64, group: u64) -> Result<Option<RecordHeader>, StorageError> {
        let header = self.stream.header(self.storage, self.file, position)?;
        Ok(header.filter(|header| {
            let span = u64::from(header.span_bytes);
            header.file_number == self.plan.pin.number
                && header.group >= group
                && span >= RecordHeader::SIZE as u64 + u64::from(header.body_bytes)
                && span.is_multiple_of(64)
                && position + span <= self.plan.end
                && RecordKind::from_number(header.kind).is_some()
        }))
    }

    /// Where the next sound record begins, or the file's end.
    fn next_sound(&mut self, from: u64, group: u64) -> Result<u64, StorageError> {
        let magic = RECORD_MAGIC.to_le_bytes();
        let mut position = from;
        while position + RecordHeader::SIZE as u64 <= self.plan.end {
            let bytes = self.stream.bytes(self.storage, self.file, position, RecordHeader::SIZE)?;
            if bytes.len() < RecordHeader::SIZE {
                break;
            }
            let last = bytes.len() - RecordHeader::SIZE;
            match (0..=last).step_by(64).find(|at| bytes[*at..at + 4] == magic) {
                Some(at) => {
                    position += at as u64;
                    if self.sound_header(position, group)?.is_some() {
                        return Ok(position);
                    }
                    position += 64;
                }
                None => position += (last / 64 * 64 + 64) as u64,
            }
        }
        Ok(self.plan.end)
    }

    fn rot(&self, place: Range<u64>, (topic, partition): Key, number: Option<u64>, why: &'static str) -> Rot {
        Rot {
            file: self.plan.pin.number,
            shard: self.plan.pin.shard,
            position: place.start,
            span_bytes: place.end - place.start,
            topic,
            partition,
            record_number: number,
            cure: Cure::None,
            why,
        }
    }
}

impl Walk {
    fn begin(&mut self, file: u64) {
        if file != self.file + 1 {
            // A file between them is not there: what was read before says nothing of what follows.
            self.heads.clear();
            self.lost.clear();
        }
        (self.file, self.position, self.group) = (file, FILE_HEADER_BYTES as u64, 0);
        self.tally.clear();
        self.holes.clear();
    }

    fn piece<S: Storage>(&mut self, look: &mut Look<'_, S>) -> Result<(), StorageError> {
        let (from, end) = (self.position, look.plan.end);
        while self.position < end && self.position < from + look.plan.bytes_max && look.found.len() < FOUND_MAX {
            let position = self.position;
            if let Some(header) = look.sound_header(position, self.group)? {
                if header.group > self.group {
                    self.end_group(look, None);
                    self.group = header.group;
                }
                self.record(look, position, &header)?;
                self.position = position + u64::from(header.span_bytes);
            } else {
                self.position = look.next_sound(position + 64, self.group)?;
                self.holes.push(position..self.position);
            }
        }
        if self.position >= end {
            self.end_group(look, None);
            // Told now; what proves them is in the next file, and then they are told again.
            look.found.extend(self.lost.iter().filter(|rot| rot.file == self.file).cloned());
        }
        Ok(())
    }

    fn record<S: Storage>(
        &mut self,
        look: &mut Look<'_, S>,
        position: u64,
        header: &RecordHeader,
    ) -> Result<(), StorageError> {
        let kind = RecordKind::from_number(header.kind);
        let keep = match kind {
            Some(RecordKind::GroupEnd) => header.body_bytes as usize,
            Some(RecordKind::State) => STATE_BYTES,
            Some(RecordKind::Truncate) => HEAD_BYTES,
            _ => 0,
        };
        let mut kept = Vec::new();
        // A directory is bounded; a length beyond that is damage, and is not read into memory.
        let keep = keep.min(body_bytes(crate::directory::ENTRIES_MAX));
        let check = look.stream.body(look.storage, look.file, position, header, keep, &mut kept)?;
        let is_sound = check.crc == header.body_crc && check.has_clean_padding;
        let place = position..position + u64::from(header.span_bytes);
        if kind == Some(RecordKind::GroupEnd) {
            if !is_sound {
                let rot = look.rot(place, (0, 0), None, "the directory of a group is damaged");
                look.found.push(rot);
            }
            let directory = Directory::read(&kept).filter(|_| check.crc == header.body_crc);
            self.end_group(look, directory.as_ref());
            self.group += 1;
            return Ok(());
        }
        if kind == Some(RecordKind::Pad) {
            return Ok(());
        }
        let key = (header.topic, header.partition);
        self.tally.entry(key).or_default().records += 1;
        if !is_sound {
            let why = if check.crc == header.body_crc { "the padding is not zero" } else { "the body is damaged" };
            let mut rot = look.rot(place.clone(), key, Some(header.record_number), why);
            if is_log(header.kind) {
                rot.cure = Cure::Same(Box::new(*header));
            }
            look.found.push(rot);
        }
        if is_log(header.kind) {
            self.chain(look, place, header);
        } else if is_sound {
            self.local(key, header, &kept);
        } else {
            self.heads.remove(&key);
        }
        Ok(())
    }

    /// A log record goes on behind the one before.
    fn chain<S: Storage>(&mut self, look: &mut Look<'_, S>, place: Range<u64>, header: &RecordHeader) {
        let key = (header.topic, header.partition);
        let position = Position::new(look.plan.pin.number, place.start);
        self.find_lost(look, key, header);
        if let Some(head) = self.heads.get(&key)
            && head.accept(header).is_err()
        {
            let is_gap = header.record_number > head.next_record;
            if is_gap && header.record_number == head.next_record + 1 && !self.holes.is_empty() {
                let gap = (*head, Box::new(*header));
                self.tally.entry(key).or_default().gap.get_or_insert(gap);
            } else if !is_gap {
                let rot = look.rot(place, key, Some(header.record_number), "the chain does not go on here");
                look.found.push(rot);
            }
        }
        self.heads.insert(key, PartitionHead::after(header, position));
    }

    /// The record behind a lost one: what is lost must lead to it.
    fn find_lost<S: Storage>(&mut self, look: &mut Look<'_, S>, key: Key, header: &RecordHeader) {
        while let Some(at) = self.lost.iter().position(|rot| (rot.topic, rot.partition) == key) {
            let mut rot = self.lost.swap_remove(at);
            if let Cure::Between { before, after, .. } = &mut rot.cure
                && before.next_record + 1 == header.record_number
            {
                *after = After::Record(Box::new(*header));
            }
            look.found.push(rot);
        }
    }

    /// What this store's own records say of where a log goes on.
    fn local(&mut self, key: Key, header: &RecordHeader, kept: &[u8]) {
        match RecordKind::from_number(header.kind) {
            Some(RecordKind::Truncate) => {
                match read_head(kept) {
                    Some(head) => self.heads.insert(key, head),
                    None => self.heads.remove(&key),
                };
            }
            Some(RecordKind::State) => {
                let state = LogState::read(kept);
                if state.is_none_or(|state| state.dropped || state.released || state.anchored) {
                    // What follows may be another log.
                    self.heads.remove(&key);
                }
            }
            _ => {}
        }
    }

    /// The group is read: whose records are missing?
    fn end_group<S: Storage>(&mut self, look: &mut Look<'_, S>, directory: Option<&Directory>) {
        let holes = std::mem::take(&mut self.holes);
        let tally = std::mem::take(&mut self.tally);
        let Some(first) = holes.first().cloned() else { return };
        let count = |key: &Key| tally.get(key).map_or(0, |tally| tally.records);
        let entries = directory.map_or(&[][..], |directory| directory.entries.as_slice());
        let short = |entry: &&crate::directory::Entry| count(&(entry.topic, entry.partition)) < entry.records;
        let missing: Vec<_> = entries.iter().filter(short).collect();
        if missing.is_empty() {
            look.found.extend(holes.into_iter().map(|hole| look.plan.lost(hole)));
            return;
        }
        let total: u64 =
            missing.iter().map(|entry| u64::from(entry.records - count(&(entry.topic, entry.partition)))).sum();
        for entry in missing.into_iter().take(FOUND_MAX) {
            let key = (entry.topic, entry.partition);
            let why = "records of a group are damaged with their headers";
            let mut rot = look.rot(first.clone(), key, None, why);
            let gap = tally.get(&key).and_then(|tally| tally.gap.clone());
            let at_end = self.heads.get(&key).filter(|head| head.next_record + 1 == entry.next_record);
            let between = gap.map(|(before, after)| (before, After::Record(after)));
            let between = between.or_else(|| at_end.map(|head| (*head, After::Unknown)));
            let Some((before, after)) = between.filter(|_| total == 1 && holes.len() == 1) else {
                self.heads.remove(&key);
                look.found.push(rot);
                continue;
            };
            rot.why = "the record header is damaged";
            rot.record_number = Some(before.next_record);
            let waits = matches!(after, After::Unknown) && self.lost.len() < LOST_MAX;
            rot.cure = Cure::Between { group: self.group, before, after };
            if waits {
                // What follows is checked against it once it is back.
                self.heads.remove(&key);
                self.lost.push(rot);
            } else {
                look.found.push(rot);
            }
        }
    }
}

impl ScrubPlan {
    fn lost(&self, hole: Range<u64>) -> Rot {
        Rot {
            file: self.pin.number,
            shard: self.pin.shard,
            position: hole.start,
            span_bytes: hole.end - hole.start,
            topic: 0,
            partition: 0,
            record_number: None,
            cure: Cure::None,
            why: "bytes of a group are damaged, and its directory does not say whose",
        }
    }
}
