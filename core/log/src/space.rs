//! One shard's files: the open one, the prepared next one, the reserve, and those that may go.
//!
//! A rotation never allocates: the next file was prepared before, by an earlier job. When that fails for lack of
//! space, rows are taken as long as the open file has room and refused after; control and local records go on into
//! the reserve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::file_header::{FILE_HEADER_BYTES, FileHeader, Identity};
use crate::files::{FilePin, FileToken};
use crate::group::NewFile;
use crate::job::FileStep;
use crate::position::{FILE_NUMBER_MAX, parse_segment_name, segment_name};
use crate::storage::StorageError;

/// How long to wait before a full disk is asked again: space comes back by an operator's hand or by retention.
const RETRY_MS: u64 = 1000;
/// Steps in one job: a group waits behind them.
const STEPS_MAX: usize = 16;

/// Segments that nobody needs and that wait to become the next file. Retention frees one shortly after a rotation took
/// the spare: removed at once, it would be allocated anew at the next rotation (36 ms to remove 256 MiB, and a sync
/// that allocates costs twice one that overwrites).
const FREE_SEGMENTS_MAX: usize = 2;
/// For so long: a log that rotates less often does not notice.
const FREE_SEGMENT_MS: u64 = 5000;

/// A prepared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    Missing,
    /// A step for it is in the job under way or in the next one.
    Requested,
    Ready {
        bytes: u64,
        recycled: bool,
    },
}

pub struct OpenFile {
    pub pin: FilePin,
    pub capacity: u64,
    /// Behind the last closed group.
    pub end: u64,
    /// Until the first group took it.
    pub new_file: Option<NewFile>,
    /// It was the reserve: rows would fill it, and the records that make space again would have no place.
    pub is_reserve: bool,
}

pub struct Space {
    pub shard: u16,
    pub identity: Identity,
    /// Of the files that are begun from now on.
    pub format: u16,
    pub run: u64,
    pub segment_bytes: u64,
    pub reserve_bytes: u64,
    /// Next file number of the store, shared by its shards (L3).
    numbers: Arc<AtomicU64>,
    pub open_file: Option<OpenFile>,
    spare: Prepared,
    reserve: Prepared,
    /// Numbers in the names of the spare and the reserve.
    spare_serial: u64,
    reserve_serial: u64,
    /// Newest file whose first group is with the writer or durable, 0 = none in this run.
    begun_file: u64,
    /// What the spare's name says of it: `begun_file` when it was asked for.
    spare_behind: u64,
    /// Segments that this shard looks after, with their lengths; the open one included.
    pub files: BTreeMap<u64, (FilePin, u64)>,
    /// Where files end that take no group any more, and their last groups; 0 = of an earlier run.
    pub sealed: BTreeMap<u64, (u64, u64)>,
    /// Segments that nobody needs any more.
    free: Vec<FilePin>,
    /// Numbers of those that a job is about to rename or remove: on disk until it is known that they are not.
    leaving: Vec<u64>,
    /// Until when free segments wait to be used again.
    keep_until_ms: Option<u64>,
    /// Set while the spare cannot be made; the time of the next try.
    full_until_ms: Option<u64>,
    rows_refused: bool,
}

/// There is no room in the open file, and no next file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The next file is being prepared.
    Preparing,
    DiskFull,
}

/// Name of the prepared file with this number; each number is used once a run, because a spare keeps its name until
/// the first group in it is written. `behind`: it was made after this segment of the shard had a durable group, and
/// is used up before that one may go, so where it stands, this segment or a newer one must stand, too; 0 = it says
/// nothing.
#[must_use]
pub fn spare_name(shard: u16, serial: u64, behind: u64) -> String {
    format!("spare-{shard:04x}-{serial:x}-{behind:x}.free")
}

/// The shard and the segment that a spare's name speaks of.
#[must_use]
pub fn parse_spare_name(name: &str) -> Option<(u16, u64)> {
    let mut parts = name.strip_prefix("spare-")?.strip_suffix(".free")?.split('-');
    let shard = u16::from_str_radix(parts.next()?, 16).ok()?;
    let behind = u64::from_str_radix(parts.nth(1)?, 16).ok()?;
    (behind > 0 && parts.next().is_none()).then_some((shard, behind))
}

#[must_use]
pub fn reserve_name(shard: u16, serial: u64) -> String {
    format!("reserve-{shard:04x}-{serial:x}.free")
}

/// True for files that hold nothing: they may be removed or used for anything.
#[must_use]
pub fn is_prepared_name(name: &str) -> bool {
    (name.starts_with("spare-") || name.starts_with("reserve-")) && name.strip_suffix(".free").is_some()
}

impl Space {
    pub fn new(
        shard: u16,
        (identity, format): (Identity, u16),
        numbers: Arc<AtomicU64>,
        segment_bytes: u64,
        reserve_bytes: u64,
    ) -> Self {
        let run = numbers.load(Ordering::Relaxed);
        Self {
            shard,
            identity,
            format,
            run,
            segment_bytes,
            reserve_bytes,
            numbers,
            open_file: None,
            spare: Prepared::Missing,
            reserve: Prepared::Missing,
            spare_serial: 0,
            reserve_serial: 0,
            begun_file: 0,
            spare_behind: 0,
            files: BTreeMap::new(),
            sealed: BTreeMap::new(),
            free: Vec::new(),
            leaving: Vec::new(),
            keep_until_ms: None,
            full_until_ms: None,
            rows_refused: false,
        }
    }

    /// What recovery found or made.
    pub fn set_prepared(&mut self, spare: Prepared, reserve: Prepared) {
        (self.spare, self.reserve) = (spare, reserve);
        if spare == Prepared::Missing {
            self.full_until_ms = Some(0);
        }
    }

    /// Make sure that the open file has room for a group of `bytes`; `first_group` is the number that a new file
    /// begins with.
    pub fn ensure_room(&mut self, bytes: u64, is_rows: bool, first_group: u64) -> Result<(), NoRoom> {
        let has_room = self.open_file.as_ref().is_some_and(|open_file| open_file.end + bytes <= open_file.capacity);
        if has_room && !(is_rows && self.is_in_reserve()) {
            return Ok(());
        }
        let needed = FILE_HEADER_BYTES as u64 + bytes;
        let (prepared, name, is_reserve) = match (self.spare, self.reserve) {
            (Prepared::Ready { bytes, recycled }, _) if bytes >= needed => {
                self.spare = Prepared::Missing;
                ((bytes, recycled), self.spare_name(), false)
            }
            (Prepared::Missing | Prepared::Ready { .. }, Prepared::Ready { bytes, recycled })
                if !is_rows && self.full_until_ms.is_some() && bytes >= needed =>
            {
                self.reserve = Prepared::Missing;
                ((bytes, recycled), reserve_name(self.shard, self.reserve_serial), true)
            }
            _ => return Err(self.no_room(is_rows)),
        };
        self.rotate(prepared, name, is_reserve, first_group);
        Ok(())
    }

    fn no_room(&mut self, is_rows: bool) -> NoRoom {
        if self.full_until_ms.is_none() {
            return NoRoom::Preparing;
        }
        self.rows_refused |= is_rows;
        NoRoom::DiskFull
    }

    pub fn is_in_reserve(&self) -> bool {
        self.open_file.as_ref().is_some_and(|open_file| open_file.is_reserve)
    }

    /// Whether rows may be appended although the open file was the reserve: only behind it, in the next one.
    ///
    /// # Errors
    /// There is no next one.
    pub fn check_behind_reserve(&mut self, bytes: u64) -> Result<(), NoRoom> {
        let needed = FILE_HEADER_BYTES as u64 + bytes;
        match self.spare {
            Prepared::Ready { bytes, .. } if bytes >= needed => Ok(()),
            _ => Err(self.no_room(true)),
        }
    }

    fn rotate(&mut self, (capacity, recycled): (u64, bool), from: String, is_reserve: bool, first_group: u64) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        assert!(number <= FILE_NUMBER_MAX, "file numbers are used up: 16 million files were written");
        let header = FileHeader {
            identity: self.identity,
            format: self.format,
            shard: self.shard,
            file_number: number,
            run: self.run,
            first_group,
            bytes: capacity,
            previous_file: self.open_file.as_ref().map_or(0, |open_file| open_file.pin.number),
        };
        if let Some(open_file) = &self.open_file {
            self.sealed.insert(open_file.pin.number, (open_file.end, first_group - 1));
        }
        let pin = FileToken::new(number, self.shard);
        self.files.insert(number, (pin.clone(), capacity));
        let new_file = Some(NewFile { from, header, recycled });
        self.open_file = Some(OpenFile { pin, capacity, end: FILE_HEADER_BYTES as u64, new_file, is_reserve });
    }

    fn spare_name(&self) -> String {
        spare_name(self.shard, self.spare_serial, self.spare_behind)
    }

    /// L7.
    pub fn has_what_spare_names(&self) -> bool {
        let is_there = self.spare_behind == 0 || self.files.range(self.spare_behind..).next().is_some();
        is_there || self.spare == Prepared::Missing
    }

    /// The next job writes the first group of this file, and does its steps when that is durable.
    pub fn on_begin(&mut self, number: u64) {
        assert!(number > self.begun_file, "a shard's files are begun in the order of their numbers (L3)");
        self.begun_file = number;
    }

    /// Steps for the next job: prepare what is missing, remove what nobody needs.
    pub fn steps(&mut self, now_ms: u64) -> Vec<FileStep> {
        let mut steps = Vec::new();
        let may_ask = self.full_until_ms.is_none_or(|until| now_ms >= until) || !self.free.is_empty();
        if self.spare == Prepared::Missing && may_ask {
            self.spare = Prepared::Requested;
            self.spare_serial += 1;
            self.spare_behind = self.begun_file;
            steps.push(self.prepare(self.spare_name(), self.segment_bytes));
        } else if self.wants_reserve() {
            self.reserve = Prepared::Requested;
            self.reserve_serial += 1;
            let name = reserve_name(self.shard, self.reserve_serial);
            steps.push(FileStep::Allocate { name, bytes: self.reserve_bytes });
        }
        let kept = self.free_segments_to_keep(now_ms);
        while steps.len() < STEPS_MAX && self.free.len() > kept {
            let Some(pin) = self.free.pop() else { break };
            self.leaving.push(pin.number);
            steps.push(FileStep::Remove { segment: segment_name(pin.number, pin.shard) });
        }
        steps
    }

    /// How many free segments stay for now.
    fn free_segments_to_keep(&mut self, now_ms: u64) -> usize {
        if self.free.is_empty() {
            self.keep_until_ms = None;
            return 0;
        }
        let until = *self.keep_until_ms.get_or_insert(now_ms + FREE_SEGMENT_MS);
        if self.full_until_ms.is_some() || now_ms >= until { 0 } else { FREE_SEGMENTS_MAX }
    }

    fn prepare(&mut self, name: String, bytes: u64) -> FileStep {
        match self.free.pop() {
            Some(pin) => {
                self.keep_until_ms = None;
                self.leaving.push(pin.number);
                FileStep::Recycle { segment: segment_name(pin.number, pin.shard), name, bytes }
            }
            None => FileStep::Allocate { name, bytes },
        }
    }

    /// When `steps` has something to do; 0 = now.
    pub fn next_steps_ms(&self) -> Option<u64> {
        let crowded = self.free.len() > if self.full_until_ms.is_some() { 0 } else { FREE_SEGMENTS_MAX };
        if crowded || self.wants_reserve() {
            return Some(0);
        }
        let spare = (self.spare == Prepared::Missing).then(|| self.full_until_ms.unwrap_or(0));
        let free = (!self.free.is_empty()).then(|| self.keep_until_ms.unwrap_or(0));
        spare.into_iter().chain(free).min()
    }

    fn wants_reserve(&self) -> bool {
        self.reserve == Prepared::Missing && self.reserve_bytes > 0 && self.full_until_ms.is_none()
    }

    /// Take the outcome of a step. An error that is not a full disk is given back.
    pub fn on_step(
        &mut self,
        step: &FileStep,
        outcome: &Result<(), StorageError>,
        now_ms: u64,
    ) -> Result<(), StorageError> {
        if let (FileStep::Recycle { segment, .. } | FileStep::Remove { segment }, Ok(())) = (step, outcome) {
            // Of one that failed nobody knows: it counts as there until the next start.
            let gone = parse_segment_name(segment).map(|(number, _)| number);
            self.leaving.retain(|number| Some(*number) != gone);
        }
        let (name, bytes, recycled) = match step {
            FileStep::Allocate { name, bytes } => (name, *bytes, false),
            FileStep::Recycle { name, bytes, .. } => (name, *bytes, true),
            FileStep::Remove { .. } => return outcome.clone(),
        };
        let is_spare = *name == self.spare_name();
        let prepared = match outcome {
            Ok(()) => Prepared::Ready { bytes, recycled },
            Err(StorageError::Full) => Prepared::Missing,
            Err(error) => return Err(error.clone()),
        };
        if is_spare {
            self.spare = prepared;
        } else {
            self.reserve = prepared;
        }
        match (prepared, is_spare) {
            (Prepared::Missing, _) => self.full_until_ms = Some(now_ms + RETRY_MS),
            (_, true) => (self.full_until_ms, self.rows_refused) = (None, false),
            _ => {}
        }
        Ok(())
    }

    /// The disk told at a write that it is full.
    pub fn on_full_write(&mut self, now_ms: u64) {
        self.full_until_ms = Some(now_ms + RETRY_MS);
        self.rows_refused = true;
    }

    /// A write went through: with a next file at hand the disk is not full any more.
    pub fn on_write(&mut self) {
        if matches!(self.spare, Prepared::Ready { .. }) {
            (self.full_until_ms, self.rows_refused) = (None, false);
        }
    }

    pub fn is_full(&self) -> bool {
        self.full_until_ms.is_some() && self.rows_refused
    }

    /// Closed segments whose groups are all durable, oldest first.
    pub fn closed(&self) -> impl Iterator<Item = &FilePin> {
        let open_file = self.open_file.as_ref().map_or(u64::MAX, |open_file| open_file.pin.number);
        self.files.values().map(|(pin, _)| pin).filter(move |pin| pin.number != open_file)
    }

    /// Numbers of segments that a start would find, those that nobody needs any more included.
    pub fn on_disk(&self) -> impl Iterator<Item = u64> + '_ {
        let free = self.free.iter().map(|pin| pin.number);
        self.files.keys().copied().chain(free).chain(self.leaving.iter().copied())
    }

    /// Nobody but this shard needs the segment: its space may be used again.
    pub fn release(&mut self, number: u64) {
        self.sealed.remove(&number);
        if let Some((pin, _)) = self.files.remove(&number) {
            self.free.push(pin);
        }
    }

    /// Bytes that segments and prepared files of this shard take.
    pub fn disk_bytes(&self) -> u64 {
        let prepared = [self.spare, self.reserve].map(|prepared| match prepared {
            Prepared::Ready { bytes, .. } => bytes,
            _ => 0,
        });
        let free = self.free.len() as u64 * self.segment_bytes;
        self.files.values().map(|(_, bytes)| bytes).sum::<u64>() + free + prepared.iter().sum::<u64>()
    }
}
