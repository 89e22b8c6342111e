//! AlignedBuffer reads of segments through one scratch window, with the files that were open last.

use std::sync::{Arc, Weak};

use ringfence_wire::RecordHeader;

use crate::aligned::AlignedBuffer;
use crate::files::{FilePin, FileToken};
use crate::position::{Position, segment_name};
use crate::storage::{Storage, StorageError};

/// The most that is loaded at once. Each read of a disk that is busy with writes waits for some of them: a few large ones
/// wait less than many small ones, and the writes lose less to them. With room for what lies between large records, so
/// that four of 1 MiB need no second look.
pub const WINDOW_BYTES: usize = (4 << 20) + (64 << 10);
/// Open files of one reader. A file that is gone is closed when it is removed, or at the next read: an open file keeps
/// its space.
const FILES_MAX: usize = 16;
const ALIGN: u64 = 4096;

pub struct Window<S: Storage> {
    storage: S,
    files: Vec<(Weak<FileToken>, u64, S::File)>,
    scratch: AlignedBuffer,
    /// File and position of the scratch's first byte, and how many of it are valid.
    file: u64,
    at: u64,
    valid: usize,
}

impl<S: Storage> Window<S> {
    pub fn new(storage: S) -> Self {
        Self { storage, files: Vec::new(), scratch: AlignedBuffer::new(WINDOW_BYTES), file: 0, at: 0, valid: 0 }
    }

    /// Forget what was read: the file's end may have grown since. Close files that are gone.
    pub fn refresh(&mut self) {
        self.valid = 0;
        self.files.retain(|(token, _, _)| token.strong_count() > 0);
    }

    /// Make that of a plan's files readable, if the plan holds it. Where the index was thinned out a stretch may lead
    /// through any number of files: each is opened when its turn comes.
    pub fn open_one_of(&mut self, pins: &[FilePin], number: u64) -> Result<(), StorageError> {
        if self.files.last().is_some_and(|(_, last, _)| *last == number) {
            return Ok(());
        }
        // Ascending, as the partition touched them.
        let at = pins.binary_search_by_key(&number, |pin| pin.number);
        at.map_or(Ok(()), |at| self.open(&pins[at]))
    }

    /// Make the file readable. The one that was asked for longest ago gives way.
    pub fn open(&mut self, pin: &FilePin) -> Result<(), StorageError> {
        if let Some(at) = self.files.iter().position(|(_, number, _)| *number == pin.number) {
            self.files[at..].rotate_left(1);
            return Ok(());
        }
        let file = self.storage.open(&segment_name(pin.number, pin.shard))?;
        if self.files.len() == FILES_MAX {
            self.files.remove(0);
        }
        self.files.push((Arc::downgrade(pin), pin.number, file));
        Ok(())
    }

    /// Bytes from `position` on: at least `least`, unless the file ends before; a read loads what lies before `until`.
    pub fn bytes(&mut self, position: Position, least: usize, until: u64) -> Result<&[u8], StorageError> {
        let (file, at) = (position.file(), position.bytes());
        let is_inside = file == self.file && at >= self.at && at + least as u64 <= self.at + self.valid as u64;
        if !is_inside {
            let begin = at / ALIGN * ALIGN;
            let wanted = until.max(at + least as u64) - begin;
            let length = usize::try_from(wanted.next_multiple_of(ALIGN)).unwrap_or(WINDOW_BYTES).min(WINDOW_BYTES);
            let (_, _, open) =
                self.files.iter().find(|(_, number, _)| *number == file).ok_or_else(|| {
                    StorageError::Missing(format!("segment {file:016x}, which the plan did not hold,"))
                })?;
            self.valid = 0;
            self.valid = self.storage.read(open, &mut self.scratch[..length], begin)?;
            (self.file, self.at) = (file, begin);
        }
        let from = usize::try_from(at - self.at).expect("within the window");
        Ok(&self.scratch[from.min(self.valid)..self.valid])
    }

    /// Give space back within an open file.
    pub fn punch(&mut self, file: u64, position: u64, bytes: u64) -> Result<(), StorageError> {
        let open = self.files.iter().find(|(_, number, _)| *number == file);
        open.map_or(Ok(()), |(_, _, open)| self.storage.punch(open, position, bytes))
    }

    /// The record header at a position; `None` if there is no sound one of this file.
    pub fn header(&mut self, position: Position, until: u64) -> Result<Option<RecordHeader>, StorageError> {
        let bytes = self.bytes(position, RecordHeader::SIZE, until)?;
        let header = bytes.first_chunk().and_then(|bytes| RecordHeader::open(bytes).ok());
        Ok(header.filter(|header| header.file_number == position.file()))
    }
}
