//! Scrub sealed files: read back what was written long ago, one piece at a time, each byte once a round.
//!
//! The rules are those of recovery: every header, body, padding and directory, and each partition's chain from record
//! to record. The end of a sealed file is known, so a torn tail cannot occur, and every invalid byte is damage. The
//! engine decides whose damage it is and whether it still counts; `repair.rs` repairs it. Scrubbing quarantines
//! nothing: an owner continues to take rows while an old record is repaired.

use std::collections::HashMap;
use std::ops::Range;

use ringfence_wire::{RECORD_MAGIC, RecordHeader, RecordKind};

use crate::aligned::AlignedBuffer;
use crate::directory::{Directory, body_bytes};
use crate::file_header::FILE_HEADER_BYTES;
use crate::files::FilePin;
use crate::log_end::{LogEnd, is_log};
use crate::position::{Position, segment_name};
use crate::report::Damage;
use crate::state::{LOG_END_BYTES, LogState, STATE_BYTES, read_log_end};
use crate::storage::{Storage, StorageError};
use crate::stream::Stream;

/// Bytes that a repair reads, compares and writes at a time.
const SCRATCH_BYTES: usize = 256 << 10;
/// Corruptions reported by one piece, which then ends early. The rest is found in the next piece.
const CORRUPTIONS_MAX: usize = 64;
/// Lost records of one file that wait for the record after them.
const PENDING_MAX: usize = 64;

/// The next piece to scrub.
#[derive(Debug)]
pub struct ScrubPlan {
    pub pin: FilePin,
    /// End of the file's last group.
    pub end: u64,
    /// Position to continue at; 0 = the beginning.
    pub from: u64,
    /// The piece ends after the first record that passes this.
    pub bytes_max: u64,
    /// Scrub immediately, apart from the round, which keeps its own position.
    pub is_urgent: bool,
}

/// The result of one piece.
#[derive(Debug, Default)]
pub struct ScrubDone {
    pub file: u64,
    pub is_urgent: bool,
    /// Bytes read from disk.
    pub bytes: u64,
    /// Position of the next piece; `None` at the end of the file.
    pub next: Option<u64>,
    pub corruptions: Vec<Corruption>,
}

/// A damaged place.
#[derive(Clone, Debug)]
pub struct Corruption {
    pub file: u64,
    /// Shard in the file's name.
    pub shard: u16,
    pub position: u64,
    /// Distance to the next record.
    pub span_bytes: u64,
    /// 0 if the place belongs to no partition, or the partition is unknown.
    pub topic: u64,
    pub partition: u64,
    pub record_number: Option<u64>,
    pub proof: Proof,
    pub why: &'static str,
}

/// What proves that another replica's record belongs here.
#[derive(Clone, Debug)]
pub enum Proof {
    /// The header is valid: the record must have the same one.
    Header(Box<RecordHeader>),
    /// Header and body are lost: the record must continue `before`, and `after` must continue it.
    Neighbours { group: u64, before: LogEnd, after: Successor },
    /// No other replica has the record, or the lost record is unknown.
    None,
}

/// What proves a lost record by what comes after it.
#[derive(Clone, Debug)]
pub enum Successor {
    Unknown,
    /// The partition's next record.
    Record(Box<RecordHeader>),
    /// The log ends with the lost record: its chain.
    LogEnd(u64),
}

impl Corruption {
    /// The damage as recovery reports it.
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

/// State of the scrubbing thread: buffers, and the position of each round.
pub struct Scrubber<S: Storage> {
    pub(crate) storage: S,
    pub(crate) stream: Stream,
    /// Buffer for blocks that a repair writes.
    pub(crate) scratch: AlignedBuffer,
    /// The file in the stream's window.
    pub(crate) loaded: Option<u64>,
    round: ScrubCursor,
    urgent: ScrubCursor,
}

/// (topic, partition).
type Key = (u64, u64);

#[derive(Default)]
struct ScrubCursor {
    file: u64,
    position: u64,
    /// Number of the current group; 0 before the first record of a file.
    group: u64,
    /// Records of each partition in this group, and the gap between two of them.
    counts: HashMap<Key, RecordCount>,
    holes: Vec<Range<u64>>,
    /// Ends of the logs up to which each partition was read without a gap.
    ends: HashMap<Key, LogEnd>,
    /// Records that are lost with their headers, until the record after them is read.
    pending: Vec<Corruption>,
}

#[derive(Default)]
struct RecordCount {
    records: u32,
    gap: Option<(LogEnd, Box<RecordHeader>)>,
}

impl<S: Storage> Scrubber<S> {
    #[must_use]
    pub fn new(storage: S) -> Self {
        Self {
            storage,
            stream: Stream::default(),
            scratch: AlignedBuffer::new(SCRATCH_BYTES),
            loaded: None,
            round: ScrubCursor::default(),
            urgent: ScrubCursor::default(),
        }
    }

    /// Read one piece of one file.
    ///
    /// # Errors
    /// [`StorageError`]: the piece was not checked.
    pub fn scrub(&mut self, plan: &ScrubPlan) -> Result<ScrubDone, StorageError> {
        let number = plan.pin.number;
        let file = self.storage.open(&segment_name(number, plan.pin.shard))?;
        if self.loaded != Some(number) {
            self.stream.reset();
            self.loaded = Some(number);
        }
        let cursor = if plan.is_urgent { &mut self.urgent } else { &mut self.round };
        if plan.from == 0 || cursor.file != number || cursor.position != plan.from {
            cursor.begin(number);
        }
        let before = self.stream.bytes;
        let mut reader = PieceReader {
            storage: &self.storage,
            file: &file,
            stream: &mut self.stream,
            plan,
            corruptions: Vec::new(),
        };
        let result = cursor.piece(&mut reader);
        let corruptions = reader.corruptions;
        if result.is_err() {
            // The contents of the window are unknown.
            self.loaded = None;
        }
        result?;
        let next = (cursor.position < plan.end).then_some(cursor.position);
        let bytes = self.stream.bytes - before;
        Ok(ScrubDone { file: number, is_urgent: plan.is_urgent, bytes, next, corruptions })
    }
}

/// The piece that is being read.
struct PieceReader<'a, S: Storage> {
    storage: &'a S,
    file: &'a S::File,
    stream: &'a mut Stream,
    plan: &'a ScrubPlan,
    corruptions: Vec<Corruption>,
}

impl<S: Storage> PieceReader<'_, S> {
    /// As in recovery: of this file, of this group or a later one, and within the file.
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

    /// Position of the next valid record, or the end of the file.
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

    fn corruption(
        &self,
        place: Range<u64>,
        (topic, partition): Key,
        number: Option<u64>,
        why: &'static str,
    ) -> Corruption {
        Corruption {
            file: self.plan.pin.number,
            shard: self.plan.pin.shard,
            position: place.start,
            span_bytes: place.end - place.start,
            topic,
            partition,
            record_number: number,
            proof: Proof::None,
            why,
        }
    }
}

impl ScrubCursor {
    fn begin(&mut self, file: u64) {
        if file != self.file + 1 {
            // A file in between is missing: the ends read before say nothing about what follows.
            self.ends.clear();
            self.pending.clear();
        }
        (self.file, self.position, self.group) = (file, FILE_HEADER_BYTES as u64, 0);
        self.counts.clear();
        self.holes.clear();
    }

    fn piece<S: Storage>(&mut self, reader: &mut PieceReader<'_, S>) -> Result<(), StorageError> {
        let (from, end) = (self.position, reader.plan.end);
        while self.position < end
            && self.position < from + reader.plan.bytes_max
            && reader.corruptions.len() < CORRUPTIONS_MAX
        {
            let position = self.position;
            if let Some(header) = reader.sound_header(position, self.group)? {
                if header.group > self.group {
                    self.end_group(reader, None);
                    self.group = header.group;
                }
                self.record(reader, position, &header)?;
                self.position = position + u64::from(header.span_bytes);
            } else {
                self.position = reader.next_sound(position + 64, self.group)?;
                self.holes.push(position..self.position);
            }
        }
        if self.position >= end {
            self.end_group(reader, None);
            // Report them now. The record that proves them is in the next file, and then they are reported again.
            reader.corruptions.extend(self.pending.iter().filter(|corruption| corruption.file == self.file).cloned());
        }
        Ok(())
    }

    fn record<S: Storage>(
        &mut self,
        reader: &mut PieceReader<'_, S>,
        position: u64,
        header: &RecordHeader,
    ) -> Result<(), StorageError> {
        let kind = RecordKind::from_number(header.kind);
        let keep = match kind {
            Some(RecordKind::GroupEnd) => header.body_bytes as usize,
            Some(RecordKind::State) => STATE_BYTES,
            Some(RecordKind::Truncate) => LOG_END_BYTES,
            _ => 0,
        };
        let mut kept = Vec::new();
        // A directory is bounded: a greater length is damage and must not be read into memory.
        let keep = keep.min(body_bytes(crate::directory::ENTRIES_MAX));
        let check = reader.stream.body(reader.storage, reader.file, position, header, keep, &mut kept)?;
        let is_sound = check.crc == header.body_crc && check.has_clean_padding;
        let place = position..position + u64::from(header.span_bytes);
        if kind == Some(RecordKind::GroupEnd) {
            if !is_sound {
                let corruption = reader.corruption(place, (0, 0), None, "the directory of a group is damaged");
                reader.corruptions.push(corruption);
            }
            let directory = Directory::read(&kept).filter(|_| check.crc == header.body_crc);
            self.end_group(reader, directory.as_ref());
            self.group += 1;
            return Ok(());
        }
        if kind == Some(RecordKind::Pad) {
            return Ok(());
        }
        let key = (header.topic, header.partition);
        self.counts.entry(key).or_default().records += 1;
        if !is_sound {
            let why = if check.crc == header.body_crc { "the padding is not zero" } else { "the body is damaged" };
            let mut corruption = reader.corruption(place.clone(), key, Some(header.record_number), why);
            if is_log(header.kind) {
                corruption.proof = Proof::Header(Box::new(*header));
            }
            reader.corruptions.push(corruption);
        }
        if is_log(header.kind) {
            self.chain(reader, place, header);
        } else if is_sound {
            self.local(key, header, &kept);
        } else {
            self.ends.remove(&key);
        }
        Ok(())
    }

    /// Check that a log record continues the one before.
    fn chain<S: Storage>(&mut self, reader: &mut PieceReader<'_, S>, place: Range<u64>, header: &RecordHeader) {
        let key = (header.topic, header.partition);
        let position = Position::new(reader.plan.pin.number, place.start);
        self.match_pending(reader, key, header);
        if let Some(end) = self.ends.get(&key)
            && end.accept(header).is_err()
        {
            let is_gap = header.record_number > end.next_record;
            if is_gap && header.record_number == end.next_record + 1 && !self.holes.is_empty() {
                let gap = (*end, Box::new(*header));
                self.counts.entry(key).or_default().gap.get_or_insert(gap);
            } else if !is_gap {
                let corruption =
                    reader.corruption(place, key, Some(header.record_number), "the record does not continue the chain");
                reader.corruptions.push(corruption);
            }
        }
        self.ends.insert(key, LogEnd::after(header, position));
    }

    /// A record after a lost one was read: complete the lost record's proof.
    fn match_pending<S: Storage>(&mut self, reader: &mut PieceReader<'_, S>, key: Key, header: &RecordHeader) {
        while let Some(at) = self.pending.iter().position(|corruption| (corruption.topic, corruption.partition) == key)
        {
            let mut corruption = self.pending.swap_remove(at);
            if let Proof::Neighbours { before, after, .. } = &mut corruption.proof
                && before.next_record + 1 == header.record_number
            {
                *after = Successor::Record(Box::new(*header));
            }
            reader.corruptions.push(corruption);
        }
    }

    /// Update a log's end by this store's local records.
    fn local(&mut self, key: Key, header: &RecordHeader, kept: &[u8]) {
        match RecordKind::from_number(header.kind) {
            Some(RecordKind::Truncate) => {
                match read_log_end(kept) {
                    Some(end) => self.ends.insert(key, end),
                    None => self.ends.remove(&key),
                };
            }
            Some(RecordKind::State) => {
                let state = LogState::read(kept);
                if state.is_none_or(|state| state.dropped || state.released || state.anchored) {
                    // What follows may be another log.
                    self.ends.remove(&key);
                }
            }
            _ => {}
        }
    }

    /// The group was read: find the partitions whose records are missing.
    fn end_group<S: Storage>(&mut self, reader: &mut PieceReader<'_, S>, directory: Option<&Directory>) {
        let holes = std::mem::take(&mut self.holes);
        let counts = std::mem::take(&mut self.counts);
        let Some(first) = holes.first().cloned() else { return };
        let count = |key: &Key| counts.get(key).map_or(0, |counts| counts.records);
        let entries = directory.map_or(&[][..], |directory| directory.entries.as_slice());
        let short = |entry: &&crate::directory::Entry| count(&(entry.topic, entry.partition)) < entry.records;
        let missing: Vec<_> = entries.iter().filter(short).collect();
        if missing.is_empty() {
            reader.corruptions.extend(holes.into_iter().map(|hole| reader.plan.unattributed(hole)));
            return;
        }
        let total: u64 =
            missing.iter().map(|entry| u64::from(entry.records - count(&(entry.topic, entry.partition)))).sum();
        for entry in missing.into_iter().take(CORRUPTIONS_MAX) {
            let key = (entry.topic, entry.partition);
            let why = "records of a group are damaged with their headers";
            let mut corruption = reader.corruption(first.clone(), key, None, why);
            let gap = counts.get(&key).and_then(|counts| counts.gap.clone());
            let at_end = self.ends.get(&key).filter(|end| end.next_record + 1 == entry.next_record);
            let between = gap.map(|(before, after)| (before, Successor::Record(after)));
            let between = between.or_else(|| at_end.map(|end| (*end, Successor::Unknown)));
            let Some((before, after)) = between.filter(|_| total == 1 && holes.len() == 1) else {
                self.ends.remove(&key);
                reader.corruptions.push(corruption);
                continue;
            };
            corruption.why = "the record header is damaged";
            corruption.record_number = Some(before.next_record);
            let waits = matches!(after, Successor::Unknown) && self.pending.len() < PENDING_MAX;
            corruption.proof = Proof::Neighbours { group: self.group, before, after };
            if waits {
                // Later records are checked against it after the repair.
                self.ends.remove(&key);
                self.pending.push(corruption);
            } else {
                reader.corruptions.push(corruption);
            }
        }
    }
}

impl ScrubPlan {
    fn unattributed(&self, hole: Range<u64>) -> Corruption {
        Corruption {
            file: self.pin.number,
            shard: self.pin.shard,
            position: hole.start,
            span_bytes: hole.end - hole.start,
            topic: 0,
            partition: 0,
            record_number: None,
            proof: Proof::None,
            why: "bytes of a group are damaged, and its directory does not say of which partition",
        }
    }
}
