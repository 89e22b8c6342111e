//! Aligned reads of segments through one window, with a cache of open files.

use std::sync::{Arc, Weak};

use ringfence_wire::RecordHeader;

use crate::aligned::AlignedBuffer;
use crate::files::{FilePin, FileToken};
use crate::position::{Position, segment_name};
use crate::storage::{Storage, StorageError};

/// Bytes loaded at a time, at most. On a disk that is busy with writes each read waits for some of them: a few large
/// reads wait less than many small ones, and slow the writes less. The rest above 4 MiB is for the bytes between large
/// records, so that four of 1 MiB need one read.
pub const WINDOW_BYTES: usize = (4 << 20) + (64 << 10);
/// Open files of one reader. A removed file is closed when it is removed, or at the next read, because an open file
/// keeps its space.
const FILES_MAX: usize = 16;
const ALIGN: u64 = 4096;

pub struct Window<S: Storage> {
    storage: S,
    files: Vec<(Weak<FileToken>, u64, S::File)>,
    scratch: AlignedBuffer,
    /// File and position of the window's first byte, and the number of valid bytes.
    file: u64,
    at: u64,
    valid: usize,
}

impl<S: Storage> Window<S> {
    pub fn new(storage: S) -> Self {
        Self { storage, files: Vec::new(), scratch: AlignedBuffer::new(WINDOW_BYTES), file: 0, at: 0, valid: 0 }
    }

    /// Discard the window, because the file may have grown, and close removed files.
    pub fn refresh(&mut self) {
        self.valid = 0;
        self.files.retain(|(token, _, _)| token.strong_count() > 0);
    }

    /// Open the file of this number if it belongs to the plan. Where the index was thinned, an interval may lead
    /// through any number of files: each is opened when the walk reaches it.
    pub fn open_one_of(&mut self, pins: &[FilePin], number: u64) -> Result<(), StorageError> {
        if self.files.last().is_some_and(|(_, last, _)| *last == number) {
            return Ok(());
        }
        // Ascending, in the order in which the partition used them.
        let at = pins.binary_search_by_key(&number, |pin| pin.number);
        at.map_or(Ok(()), |at| self.open(&pins[at]))
    }

    /// Open a file; the one that was used longest ago is closed.
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

    /// Bytes from `position` on: at least `least`, unless the file ends before. A read loads the bytes before `until`.
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

    /// Free space within an open file.
    pub fn punch(&mut self, file: u64, position: u64, bytes: u64) -> Result<(), StorageError> {
        let open = self.files.iter().find(|(_, number, _)| *number == file);
        open.map_or(Ok(()), |(_, _, open)| self.storage.punch(open, position, bytes))
    }

    /// The record header at a position; `None` if there is no valid one of this file.
    pub fn header(&mut self, position: Position, until: u64) -> Result<Option<RecordHeader>, StorageError> {
        let bytes = self.bytes(position, RecordHeader::SIZE, until)?;
        let header = bytes.first_chunk().and_then(|bytes| RecordHeader::open(bytes).ok());
        Ok(header.filter(|header| header.file_number == position.file()))
    }
}
