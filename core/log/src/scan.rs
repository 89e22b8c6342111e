//! Scan one segment file into commit groups: whole ones, damaged ones, and the torn one at the end.
//!
//! A whole group is emitted immediately. Any other group waits for proof that it was synced: a valid header of a later
//! group in this file, a later file of the same shard and run, or a later run. With proof it is damaged (L2); without,
//! it is torn and none of its records was acknowledged. After a bad header the scan looks for the file's next valid
//! header at every multiple of 64.

use std::ops::Range;

use ringfence_wire::{RECORD_MAGIC, RecordHeader, RecordKind};

use crate::directory::{self, Directory};
use crate::file_header::FILE_HEADER_BYTES;
use crate::storage::{Storage, StorageError};
use crate::stream::Stream;

/// One record of a group.
pub struct ScannedRecord {
    pub position: u64,
    pub header: RecordHeader,
    /// Range in the group's `bytes`: the extension of rows and staged records, the whole body of any other kind.
    pub kept: Range<usize>,
    pub is_body_sound: bool,
    pub has_clean_padding: bool,
}

/// The state of a group's directory.
#[derive(Default, PartialEq, Eq)]
pub enum Ending {
    /// There is no `group_end` record.
    #[default]
    Missing,
    /// The header is valid, the body is not.
    Unreadable,
    Read(Directory),
}

/// The contents of one group.
#[derive(Default)]
pub struct ScannedGroup {
    pub number: u64,
    pub begin: u64,
    /// End of the last byte that is known to belong to the group.
    pub end: u64,
    pub records: Vec<ScannedRecord>,
    pub bytes: Vec<u8>,
    pub ending: Ending,
    /// Position of the directory's record, unless `ending` is `Missing`.
    pub directory_at: u64,
    /// The header of the directory's record is damaged, but its contents agree with the group.
    pub is_end_header_damaged: bool,
    /// Ranges without a valid header.
    pub holes: Vec<Range<u64>>,
}

/// The end of a file's scan.
#[derive(Default)]
pub struct ScanEnd {
    /// End of the last group that was emitted.
    pub position: u64,
    /// Beginning of that group.
    pub last_begin: u64,
    /// The group after the last one.
    pub next_group: u64,
    /// Bytes of a torn group after `position`.
    pub torn_bytes: u64,
    /// Position and kind of a record that only a newer program can read; the scan stopped there.
    pub unknown: Option<(u64, u8)>,
    /// A damaged group was taken for the torn end.
    #[cfg(feature = "planted")]
    is_cut: bool,
}

/// What is known about a file before the scan.
#[derive(Clone, Copy, Debug)]
pub struct FileBounds {
    pub file_number: u64,
    pub first_group: u64,
    pub bytes: u64,
    /// A later file or run proves that every group in this file was synced.
    pub is_proved: bool,
}

impl ScannedGroup {
    /// True if every byte is as it was written.
    pub fn is_whole(&self) -> bool {
        self.holes.is_empty()
            && !self.is_end_header_damaged
            && self.records.iter().all(|record| record.is_body_sound && record.has_clean_padding)
            && self.directory().is_some_and(|directory| self.fits(directory))
    }

    pub fn directory(&self) -> Option<&Directory> {
        match &self.ending {
            Ending::Read(directory) => Some(directory),
            Ending::Missing | Ending::Unreadable => None,
        }
    }

    fn fits(&self, directory: &Directory) -> bool {
        directory.begin == self.begin
            && directory.bytes == self.directory_at - self.begin
            && directory.records as usize == self.records.len()
    }
}

/// The scan of one file.
pub struct Scan<'a, S: Storage> {
    storage: &'a S,
    file: &'a S::File,
    stream: &'a mut Stream,
    bounds: FileBounds,
    group: ScannedGroup,
    /// Groups without proof, in order: at most the last two.
    unproven: Vec<ScannedGroup>,
}

impl<'a, S: Storage> Scan<'a, S> {
    pub fn new(storage: &'a S, file: &'a S::File, stream: &'a mut Stream, bounds: FileBounds) -> Self {
        stream.reset();
        let begin = FILE_HEADER_BYTES as u64;
        let group = ScannedGroup { number: bounds.first_group, begin, end: begin, ..ScannedGroup::default() };
        Self { storage, file, stream, bounds, group, unproven: Vec::new() }
    }

    /// Pass every group to `take`, in order.
    pub fn run(mut self, take: &mut dyn FnMut(&ScannedGroup)) -> Result<ScanEnd, StorageError> {
        let mut position = self.group.begin;
        let mut end =
            ScanEnd { position, last_begin: position, next_group: self.bounds.first_group, ..ScanEnd::default() };
        while position < self.bounds.bytes {
            match self.sound_header(position)? {
                Some(header) if !is_known(header.kind) => {
                    end.unknown = Some((position, header.kind));
                    return Ok(end);
                }
                Some(header) if header.group > self.group.number => self.begin_later(position, &header, take, &mut end),
                Some(header) => position = self.record(position, &header, take, &mut end)?,
                None if self.has_damaged_end(position)? => position = self.close(position, take, &mut end),
                None => {
                    let next = self.next_sound(position + 64)?;
                    let Some(next) = next else { break };
                    self.group.holes.push(position..next);
                    position = next;
                }
            }
        }
        self.finish(position, take, &mut end);
        Ok(end)
    }

    /// A header that may come next here: of this file, of this group or a later one, and within the file.
    fn sound_header(&mut self, position: u64) -> Result<Option<RecordHeader>, StorageError> {
        let header = self.stream.header(self.storage, self.file, position)?;
        Ok(header.filter(|header| {
            let span = u64::from(header.span_bytes);
            let is_own = header.file_number == self.bounds.file_number && header.group >= self.group.number;
            #[cfg(feature = "planted")]
            let is_own = is_own || crate::planted::is_on(crate::planted::Bug::RecycledBytes);
            is_own
                && span >= RecordHeader::SIZE as u64 + u64::from(header.body_bytes)
                && span.is_multiple_of(64)
                && position + span <= self.bounds.bytes
        }))
    }

    fn next_sound(&mut self, from: u64) -> Result<Option<u64>, StorageError> {
        let mut position = from;
        while position + RecordHeader::SIZE as u64 <= self.bounds.bytes {
            let bytes = self.stream.bytes(self.storage, self.file, position, RecordHeader::SIZE)?;
            if bytes.len() < RecordHeader::SIZE {
                break;
            }
            let magic = RECORD_MAGIC.to_le_bytes();
            let last = bytes.len() - RecordHeader::SIZE;
            match (0..=last).step_by(64).find(|at| bytes[*at..at + 4] == magic) {
                Some(at) => {
                    position += at as u64;
                    // After damage only a known kind proves a record: a body may hold any bytes.
                    if self.sound_header(position)?.is_some_and(|header| is_known(header.kind)) {
                        return Ok(Some(position));
                    }
                    position += 64;
                }
                None => position += (last / 64 * 64 + 64) as u64,
            }
        }
        Ok(None)
    }

    /// The next valid record belongs to a later group, so this one was synced, whatever is left of it.
    fn begin_later(
        &mut self,
        position: u64,
        header: &RecordHeader,
        take: &mut dyn FnMut(&ScannedGroup),
        end: &mut ScanEnd,
    ) {
        self.prove(take, end);
        let has_any = !self.group.records.is_empty() || !self.group.holes.is_empty() || self.group.begin < position;
        if has_any {
            self.group.end = position;
            let found = self.next_group(position);
            emit(&found, take, end);
        }
        self.group.number = header.group;
    }

    fn record(
        &mut self,
        position: u64,
        header: &RecordHeader,
        take: &mut dyn FnMut(&ScannedGroup),
        end: &mut ScanEnd,
    ) -> Result<u64, StorageError> {
        let is_rows = header.kind == RecordKind::Rows as u8 || header.kind == RecordKind::Staged as u8;
        let keep = if is_rows { header.extension_bytes } else { header.body_bytes } as usize;
        let from = self.group.bytes.len();
        let check = self.stream.body(self.storage, self.file, position, header, keep, &mut self.group.bytes)?;
        let is_body_sound = check.crc == header.body_crc;
        let next = position + u64::from(header.span_bytes);
        if header.kind == RecordKind::GroupEnd as u8 {
            let directory = Directory::read(&self.group.bytes[from..]).filter(|_| is_body_sound);
            self.group.is_end_header_damaged |= !check.has_clean_padding;
            self.group.bytes.truncate(from);
            self.group.ending = directory.map_or(Ending::Unreadable, Ending::Read);
            self.group.directory_at = position;
            return Ok(self.close(next, take, end));
        }
        let kept = from..self.group.bytes.len();
        let has_clean_padding = check.has_clean_padding;
        self.group.records.push(ScannedRecord { position, header: *header, kept, is_body_sound, has_clean_padding });
        Ok(next)
    }

    /// True if a `group_end` of this group with a damaged header stands here: its contents agree with the records
    /// before it.
    fn has_damaged_end(&mut self, position: u64) -> Result<bool, StorageError> {
        // A valid header of another file is not a damaged one: the file was recycled, and these are its old bytes (L4).
        // An empty group's directory only says where the group began, so old contents could agree.
        if self.stream.header(self.storage, self.file, position)?.is_some() {
            return Ok(false);
        }
        let head = RecordHeader::SIZE + directory::HEAD_BYTES;
        let bytes = self.stream.bytes(self.storage, self.file, position, head)?;
        let Some(count) = bytes.get(RecordHeader::SIZE + 20..RecordHeader::SIZE + 24) else { return Ok(false) };
        let count = u32::from_le_bytes(count.try_into().expect("4 bytes")) as usize;
        if count > directory::ENTRIES_MAX || !self.group.holes.is_empty() {
            return Ok(false);
        }
        let body_bytes = directory::body_bytes(count);
        let bytes = self.stream.bytes(self.storage, self.file, position, RecordHeader::SIZE + body_bytes)?;
        let body = bytes.get(RecordHeader::SIZE..RecordHeader::SIZE + body_bytes);
        let Some(directory) = body.and_then(Directory::read) else { return Ok(false) };
        self.group.directory_at = position;
        if !self.group.fits(&directory) {
            return Ok(false);
        }
        (self.group.ending, self.group.is_end_header_damaged) = (Ending::Read(directory), true);
        Ok(true)
    }

    /// End the group. `next` is where the next group begins; after a damaged end it is the next block after its record.
    fn close(&mut self, next: u64, take: &mut dyn FnMut(&ScannedGroup), end: &mut ScanEnd) -> u64 {
        let next = match (&self.group.ending, self.group.is_end_header_damaged) {
            (Ending::Read(directory), true) => {
                let bytes = RecordHeader::SIZE + directory::body_bytes(directory.entries.len());
                (self.group.directory_at + bytes as u64).next_multiple_of(4096)
            }
            _ => next,
        };
        self.group.end = next;
        let found = self.next_group(next);
        if found.is_whole() {
            self.prove(take, end);
            emit(&found, take, end);
        } else {
            // A record of this group proves the groups before it.
            self.prove(take, end);
            self.unproven.push(found);
        }
        next
    }

    fn next_group(&mut self, begin: u64) -> ScannedGroup {
        let number = self.group.number + 1;
        std::mem::replace(&mut self.group, ScannedGroup { number, begin, end: begin, ..ScannedGroup::default() })
    }

    /// Emit all waiting groups: a later group has a valid record, so they were synced.
    fn prove(&mut self, take: &mut dyn FnMut(&ScannedGroup), end: &mut ScanEnd) {
        for found in self.unproven.drain(..) {
            emit(&found, take, end);
        }
    }

    fn finish(&mut self, position: u64, take: &mut dyn FnMut(&ScannedGroup), end: &mut ScanEnd) {
        if !self.group.records.is_empty() || !self.group.holes.is_empty() {
            self.group.end = position;
            let found = self.next_group(position);
            if !found.records.is_empty() {
                self.prove(take, end);
            }
            self.unproven.push(found);
        }
        if self.bounds.is_proved {
            self.prove(take, end);
        }
        end.torn_bytes = self.unproven.last().map_or(0, |found| found.end - end.position);
        self.unproven.clear();
    }
}

/// True for kinds that this program writes or applies.
fn is_known(kind: u8) -> bool {
    RecordKind::from_number(kind).is_some()
}

fn emit(found: &ScannedGroup, take: &mut dyn FnMut(&ScannedGroup), end: &mut ScanEnd) {
    #[cfg(feature = "planted")]
    if crate::planted::is_on(crate::planted::Bug::TornMiddle) && (end.is_cut || !found.is_whole()) {
        end.is_cut = true;
        return;
    }
    take(found);
    (end.last_begin, end.position, end.next_group) = (found.begin, found.end, found.number + 1);
}
