//! One shard's files: the open one, the prepared next one, the reserve, and those without holders.
//!
//! A rotation never allocates: an earlier job has prepared the next file. If that failed for lack of space, rows are
//! accepted while the open file has room, and refused after that. Control and local records continue into the reserve,
//! and some progress of cohorts: retention may wait for it (CA4).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::file_header::{FILE_HEADER_BYTES, FileHeader, Identity};
use crate::files::{FilePin, FileToken};
use crate::group::NewFile;
use crate::job::FileStep;
use crate::position::{FILE_NUMBER_MAX, parse_segment_name, segment_name};
use crate::storage::StorageError;

/// Time until a full disk is tried again. An operator or retention frees space.
const RETRY_MS: u64 = 1000;
/// File steps in one job: the next group waits for them.
const STEPS_MAX: usize = 16;

/// Free segments that are kept for the next rotations. Retention usually frees a segment shortly after a rotation took
/// the spare. If it were removed then, the next rotation would allocate one again: removing 256 MiB takes 36 ms, and a
/// sync that allocates costs twice one that overwrites.
const FREE_SEGMENTS_MAX: usize = 2;
/// How long free segments are kept; a log that rotates more rarely does not need them.
const FREE_SEGMENT_MS: u64 = 5000;

/// A prepared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    Missing,
    /// A step for it is in the job under way, or in the next one.
    Requested,
    Ready {
        bytes: u64,
        recycled: bool,
    },
}

/// Records of cohorts may fill the reserve up to one part in this many; what frees space needs the rest.
const COHORT_PART: u64 = 2;

/// What a record may do to the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Rows must leave it to control and local records.
    Rows,
    /// As rows where these have room; else up to a part of the reserve.
    Cohort,
    Any,
}

/// What a record needs of the file that it goes to.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    pub room: Room,
    /// The least format of the file; 0 = any.
    pub format: u16,
}

pub struct OpenFile {
    pub pin: FilePin,
    pub format: u16,
    pub capacity: u64,
    /// End of the last closed group.
    pub end: u64,
    /// Set until the first group has taken it.
    pub new_file: Option<NewFile>,
    /// The open file was the reserve. Rows may not use it: they would fill it, and the records that free space would
    /// have no room.
    pub is_reserve: bool,
}

pub struct Space {
    pub shard: u16,
    pub identity: Identity,
    /// Format of files that are begun from now on. It only rises; an open file of an older one takes no more records.
    pub format: u16,
    pub run: u64,
    pub segment_bytes: u64,
    pub reserve_bytes: u64,
    /// Next file number of the store, shared by its shards (L3).
    numbers: Arc<AtomicU64>,
    pub open_file: Option<OpenFile>,
    spare: Prepared,
    reserve: Prepared,
    /// Serial numbers in the names of the spare and the reserve.
    spare_serial: u64,
    reserve_serial: u64,
    /// Newest file whose first group is with the writer or durable, in this run.
    begun_file: Option<u64>,
    /// Value of `begun_file` when the spare was requested; its name says so.
    spare_behind: Option<u64>,
    /// Segments of this shard with their lengths, the open one included.
    pub files: BTreeMap<u64, (FilePin, u64)>,
    /// (end, last group) of files that take no more groups; last group 0 = of an earlier run.
    pub sealed: BTreeMap<u64, (u64, u64)>,
    /// Segments without holders.
    free: Vec<FilePin>,
    /// Numbers of free segments in a job that renames or removes them: they count as on disk until the job has
    /// succeeded.
    leaving: Vec<u64>,
    /// Time until which free segments are kept.
    keep_until_ms: Option<u64>,
    /// Set while the spare cannot be made: the time of the next try.
    full_until_ms: Option<u64>,
    rows_refused: bool,
}

/// The open file has no room, and there is no next file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The next file is being prepared.
    Preparing,
    DiskFull,
}

/// Name of a prepared file. Each serial number is used once in a run, because a spare keeps its name until its first
/// group is written. `behind` is the shard's newest segment with a durable group when the spare was made. The spare is
/// used before that segment can be removed, so while the spare exists, that segment or a newer one must exist. 0 = it
/// names no segment.
#[must_use]
pub fn spare_name(shard: u16, serial: u64, behind: u64) -> String {
    format!("spare-{shard:04x}-{serial:x}-{behind:x}.free")
}

/// The shard and the segment in a spare's name.
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

/// True for files without contents, which may be removed or used again.
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
            begun_file: None,
            spare_behind: None,
            files: BTreeMap::new(),
            sealed: BTreeMap::new(),
            free: Vec::new(),
            leaving: Vec::new(),
            keep_until_ms: None,
            full_until_ms: None,
            rows_refused: false,
        }
    }

    /// Set the prepared files that recovery found or made.
    pub fn set_prepared(&mut self, spare: Prepared, reserve: Prepared) {
        (self.spare, self.reserve) = (spare, reserve);
        if spare == Prepared::Missing {
            self.full_until_ms = Some(0);
        }
    }

    /// Make sure that the open file has room for a group of `bytes`. `first_group` is the number of the first group in
    /// a new file. The first record that needs a newer format begins a file of it, and later files keep that format.
    pub fn ensure_room(&mut self, bytes: u64, needs: Needs, first_group: u64) -> Result<(), NoRoom> {
        let is_rows = needs.room == Room::Rows;
        let has_room = self.open_file.as_ref().is_some_and(|open_file| open_file.end + bytes <= open_file.capacity);
        let may_stay = has_room && !(is_rows && self.is_in_reserve());
        if may_stay && self.takes_format(needs.format) {
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
            // The format was raised on a full disk: the records that free space must have room.
            _ if may_stay && !is_rows && self.full_until_ms.is_some() && self.has_format(needs.format) => return Ok(()),
            _ => return Err(self.no_room(is_rows)),
        };
        self.format = self.format.max(needs.format);
        self.rotate(prepared, name, is_reserve, first_group);
        Ok(())
    }

    /// True if a record that needs this format goes to the open file. After the format was raised none does: records
    /// that only the new format knows must not lie in a file that an older program would read.
    pub fn takes_format(&self, format: u16) -> bool {
        self.has_format(format.max(self.format))
    }

    fn has_format(&self, format: u16) -> bool {
        self.open_file.as_ref().is_some_and(|open_file| open_file.format >= format)
    }

    fn no_room(&mut self, is_rows: bool) -> NoRoom {
        if self.full_until_ms.is_none() {
            return NoRoom::Preparing;
        }
        self.rows_refused |= is_rows;
        NoRoom::DiskFull
    }

    /// Whether a record of cohorts of `bytes` is one of rows here, or may use the reserve. `end` is that of the open file
    /// with its open group.
    pub fn room_of_cohort(&self, bytes: u64, end: u64) -> Room {
        let header = FILE_HEADER_BYTES as u64;
        let spare_has_room = matches!(self.spare, Prepared::Ready { bytes: spare, .. } if spare >= header + bytes);
        let is_lent = match (&self.open_file, self.reserve) {
            (Some(open), _) if open.is_reserve => end + bytes <= open.capacity / COHORT_PART,
            (_, Prepared::Ready { bytes: reserve, .. }) => header + bytes <= reserve / COHORT_PART,
            _ => false,
        };
        if self.full_until_ms.is_some() && !spare_has_room && is_lent { Room::Any } else { Room::Rows }
    }

    pub fn is_in_reserve(&self) -> bool {
        self.open_file.as_ref().is_some_and(|open_file| open_file.is_reserve)
    }

    /// Check that rows have room in a next file, while the open one is the reserve.
    ///
    /// # Errors
    /// [`NoRoom`] if there is no next file.
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
        let (format, end) = (self.format, FILE_HEADER_BYTES as u64);
        self.open_file = Some(OpenFile { pin, format, capacity, end, new_file, is_reserve });
    }

    fn spare_name(&self) -> String {
        spare_name(self.shard, self.spare_serial, self.spare_behind.unwrap_or(0))
    }

    /// L7.
    pub fn has_what_spare_names(&self) -> bool {
        let is_there = self.spare_behind.is_none_or(|behind| self.files.range(behind..).next().is_some());
        is_there || self.spare == Prepared::Missing
    }

    /// The next job writes the first group of this file, and does its file steps after that is durable.
    pub fn on_begin(&mut self, number: u64) {
        assert!(
            self.begun_file.is_none_or(|begun| number > begun),
            "a shard's files are begun in the order of their numbers (L3)"
        );
        self.begun_file = Some(number);
    }

    /// File steps for the next job: prepare missing files, remove free segments.
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

    /// Number of free segments to keep for now.
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

    /// The time at which `steps` has something to do; 0 = now.
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

    /// Take the outcome of a step. Errors other than a full disk are returned.
    pub fn on_step(
        &mut self,
        step: &FileStep,
        outcome: &Result<(), StorageError>,
        now_ms: u64,
    ) -> Result<(), StorageError> {
        if let (FileStep::Recycle { segment, .. } | FileStep::Remove { segment }, Ok(())) = (step, outcome) {
            // The outcome of a failed step is unknown: the file counts as on disk until the next start.
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

    /// A write found the disk full.
    pub fn on_full_write(&mut self, now_ms: u64) {
        self.full_until_ms = Some(now_ms + RETRY_MS);
        self.rows_refused = true;
    }

    /// A write succeeded: with a prepared next file the disk is no longer full.
    pub fn on_write(&mut self) {
        if matches!(self.spare, Prepared::Ready { .. }) {
            (self.full_until_ms, self.rows_refused) = (None, false);
        }
    }

    pub fn is_full(&self) -> bool {
        self.full_until_ms.is_some() && self.rows_refused
    }

    /// Closed segments, oldest first.
    pub fn closed(&self) -> impl Iterator<Item = &FilePin> {
        let open_file = self.open_file.as_ref().map_or(u64::MAX, |open_file| open_file.pin.number);
        self.files.values().map(|(pin, _)| pin).filter(move |pin| pin.number != open_file)
    }

    /// Numbers of segments that a start would find, free ones included.
    pub fn on_disk(&self) -> impl Iterator<Item = u64> + '_ {
        let free = self.free.iter().map(|pin| pin.number);
        self.files.keys().copied().chain(free).chain(self.leaving.iter().copied())
    }

    /// The shard is the only holder of the segment: its space may be used again.
    pub fn release(&mut self, number: u64) {
        self.sealed.remove(&number);
        if let Some((pin, _)) = self.files.remove(&number) {
            self.free.push(pin);
        }
    }

    /// Bytes of this shard's segments and prepared files.
    pub fn disk_bytes(&self) -> u64 {
        let prepared = [self.spare, self.reserve].map(|prepared| match prepared {
            Prepared::Ready { bytes, .. } => bytes,
            _ => 0,
        });
        let free = self.free.len() as u64 * self.segment_bytes;
        self.files.values().map(|(_, bytes)| bytes).sum::<u64>() + free + prepared.iter().sum::<u64>()
    }
}
