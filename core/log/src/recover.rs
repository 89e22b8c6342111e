//! Open a store: recover partitions from files.
//!
//! 1. Take the lock: one process for each store.
//! 2. Read every segment's header. Recovery stops, before it has changed anything, at a newer format or at a file of
//!    another cluster, history or store. It also stops if a shard's newest segment is missing, which prepared files
//!    name. A damaged header is only reported: the records of the file still count.
//! 3. Scan the files in the order of their numbers (L3), reading each byte once: groups (`scan.rs`), then partitions
//!    (`rebuild.rs`). A record of an unknown kind stops recovery too, before it has changed anything.
//! 4. Cut the torn end of each shard's last file, write its last group again, and sync, all before anything new is
//!    written. From the next start on, everything in a file of an earlier run counts as synced. The group is written
//!    again because its sync may have failed: then it can be read from the cache, and no later sync makes it durable.
//!    Earlier groups were synced (L2).
//! 5. Remove prepared files that no shard needs, and prepare missing ones.
//! 6. Build the shards: each begins a new file with its first group, under a number that was never used.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ringfence_wire::BLOCK_ALIGN_BYTES;

use crate::aligned::AlignedBuffer;
use crate::file_header::{FILE_HEADER_BYTES, FileHeader, FileHeaderError, Identity, LINEAGE_FORMAT};
use crate::files::{FilePin, FileToken};
use crate::interface::Options;
use crate::partition::PartitionLog;
use crate::position::{parse_segment_name, segment_name};
use crate::rebuild::Rebuild;
use crate::report::{Damage, Report};
use crate::scan::{FileBounds, Scan, ScanEnd};
use crate::shard::Shard;
use crate::space::{Prepared, Space, is_prepared_name, parse_spare_name, reserve_name, spare_name};
use crate::storage::{Storage, StorageError};
use crate::stream::Stream;
use crate::visitor::{NoVisitor, Visitor};

/// Why a store cannot be opened. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoverError {
    /// A file was written by a newer program.
    NewerFormat { file: String, version: u16 },
    /// A record is of a kind that only a newer program can read.
    UnknownKind { file: String, position: u64, kind: u8 },
    /// A file belongs to another cluster, history or store.
    ForeignFile { file: String, what: &'static str },
    /// The newest segment of a shard is missing, with records that may have been acknowledged: `spare` was made after
    /// it.
    Missing { file: String, spare: String },
    /// Another process has the store open, or a call failed.
    Storage(StorageError),
}

impl From<StorageError> for RecoverError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl std::fmt::Display for RecoverError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NewerFormat { file, version } => {
                write!(
                    out,
                    "{file} has format {version}, this program knows up to {}; use a newer program",
                    ringfence_wire::LOG_FORMAT_VERSION
                )
            }
            Self::UnknownKind { file, position, kind } => {
                write!(
                    out,
                    "{file}: the record at byte {position} is of kind {kind}, which this program does not know; use \
                     the newer one that wrote it"
                )
            }
            Self::ForeignFile { file, what } => {
                write!(out, "{file} belongs to another {what}; move it out of this store's directory or open its own")
            }
            Self::Missing { file, spare } => {
                write!(
                    out,
                    "{file} is missing or no regular file: {spare} was made after it. Put it back; where its rows \
                     have replicas, an empty data directory may take this one's place; to go on without what was in \
                     it, remove {spare}"
                )
            }
            Self::Storage(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for RecoverError {}

/// An open store.
pub struct Recovered {
    pub shards: Vec<Shard>,
    /// Sorted by topic and partition. Dropped partitions are included while anything of them is on disk.
    pub partitions: Vec<PartitionLog>,
    pub report: Report,
    /// Excludes other processes until it is dropped.
    pub lock: StoreLock,
}

/// Excludes other processes from the store until it is dropped.
pub struct StoreLock(#[allow(dead_code)] Box<dyn Any + Send>);

/// A segment file of the directory.
struct Segment {
    pin: FilePin,
    bytes: u64,
    header: Option<FileHeader>,
}

/// Open the store: lock it, check every record, cut a torn end, build shards and partitions.
///
/// # Errors
/// [`RecoverError`]; the store is unchanged.
pub fn recover<S: Storage>(
    storage: &S,
    options: &Options,
    visitor: &mut dyn Visitor,
) -> Result<Recovered, RecoverError> {
    let lock = StoreLock(storage.lock()?);
    let mut rebuild = Rebuild::default();
    let segments = segments(storage, Some(&options.identity), &mut rebuild.report)?;
    if let Some((file, spare)) = missing(storage, &segments)?.into_iter().next() {
        return Err(RecoverError::Missing { file, spare });
    }
    let ends = scan_all(storage, &segments, &mut rebuild, visitor)?;
    settle_ends(storage, &segments, &ends, &mut rebuild.report)?;
    let (partitions, report) = rebuild.finish();
    let next_group = ends.values().map(|end| end.next_group).max().unwrap_or(1);
    let shards = shards(storage, options, segments, &ends, next_group)?;
    Ok(Recovered { shards, partitions, report, lock })
}

/// Check every record without changing anything, and report each damaged one. No other process may have the store open.
///
/// # Errors
/// [`RecoverError`] if the store cannot be read at all.
pub fn check<S: Storage>(storage: &S) -> Result<Report, RecoverError> {
    check_with(storage, &mut NoVisitor).map(|(_, report)| report)
}

/// As [`check`], and return the partitions as recovery would build them. The visitor receives their records.
///
/// # Errors
/// As [`check`].
pub fn check_with<S: Storage>(
    storage: &S,
    visitor: &mut dyn Visitor,
) -> Result<(Vec<PartitionLog>, Report), RecoverError> {
    let _lock = StoreLock(storage.lock()?);
    let mut rebuild = Rebuild::default();
    let segments = segments(storage, None, &mut rebuild.report)?;
    let ends = scan_all(storage, &segments, &mut rebuild, visitor)?;
    rebuild.report.cut_bytes = ends.values().map(|end| end.torn_bytes).sum();
    for (file, spare) in missing(storage, &segments)? {
        let why = format!("the file is missing or no regular file: {spare} was made after it");
        rebuild.report.damage.push(Damage { file, position: 0, topic: 0, partition: 0, record_number: None, why });
    }
    Ok(rebuild.finish())
}

/// Segments that must exist and do not, each with the spare whose name says so.
fn missing<S: Storage>(storage: &S, segments: &BTreeMap<u64, Segment>) -> Result<Vec<(String, String)>, RecoverError> {
    let is_there = |shard, behind| segments.range(behind..).any(|(_, segment)| segment.pin.shard == shard);
    let spares = storage.list()?.into_iter().filter_map(|(name, _)| Some((parse_spare_name(&name)?, name)));
    let lost = spares.filter(|((shard, behind), _)| !is_there(*shard, *behind));
    Ok(lost.map(|((shard, behind), spare)| (segment_name(behind, shard), spare)).collect())
}

/// Step 2.
fn segments<S: Storage>(
    storage: &S,
    identity: Option<&Identity>,
    report: &mut Report,
) -> Result<BTreeMap<u64, Segment>, RecoverError> {
    let mut segments = BTreeMap::new();
    let mut block = AlignedBuffer::new(FILE_HEADER_BYTES);
    let mut first = identity.copied();
    for (name, bytes) in storage.list()? {
        let Some((number, shard)) = parse_segment_name(&name) else { continue };
        let file = storage.open(&name)?;
        let length = storage.read(&file, &mut block, 0)?;
        let header = match FileHeader::open(&block[..length]) {
            Ok(header) => {
                let identity = first.get_or_insert(header.identity);
                if let Some(what) = identity.difference(&header.identity) {
                    return Err(RecoverError::ForeignFile { file: name, what });
                }
                Some(header).filter(|header| header.file_number == number)
            }
            Err(FileHeaderError::Newer(version)) => return Err(RecoverError::NewerFormat { file: name, version }),
            Err(FileHeaderError::Damaged) => None,
        };
        if header.is_none() {
            report.damage.push(Damage {
                file: name,
                position: 0,
                topic: 0,
                partition: 0,
                record_number: None,
                why: "the file header is damaged; its records are still read".to_owned(),
            });
        }
        report.files += 1;
        segments.insert(number, Segment { pin: FileToken::new(number, shard), bytes, header });
    }
    Ok(segments)
}

/// Step 3.
fn scan_all<S: Storage>(
    storage: &S,
    segments: &BTreeMap<u64, Segment>,
    rebuild: &mut Rebuild,
    visitor: &mut dyn Visitor,
) -> Result<BTreeMap<u64, ScanEnd>, RecoverError> {
    let mut stream = Stream::default();
    let mut ends = BTreeMap::new();
    for (number, segment) in segments {
        let file = storage.open(&segment_name(*number, segment.pin.shard))?;
        let next = next_in_run(segments, *number);
        let bounds = FileBounds {
            file_number: *number,
            first_group: segment.header.map_or(0, |header| header.first_group),
            bytes: segment.bytes,
            is_proved: next.is_some() || !is_last_run(segments, segment),
        };
        let scan = Scan::new(storage, &file, &mut stream, bounds);
        let end = scan.run(&mut |found| rebuild.group(&segment.pin, found, visitor))?;
        if let Some((position, kind)) = end.unknown {
            let file = segment_name(*number, segment.pin.shard);
            return Err(RecoverError::UnknownKind { file, position, kind });
        }
        let followed = next.and_then(|next| next.header).filter(|header| header.previous_file == *number);
        if let Some(next) = followed.filter(|next| next.first_group != end.next_group) {
            rebuild.missing_groups(&segment.pin, end.position, end.next_group, next.first_group);
        }
        ends.insert(*number, end);
    }
    rebuild.report.bytes = stream.bytes;
    Ok(ends)
}

/// The next file of the same shard and run.
fn next_in_run(segments: &BTreeMap<u64, Segment>, number: u64) -> Option<&Segment> {
    let this = &segments[&number];
    let run = this.header.map(|header| header.run);
    segments.range(number + 1..).map(|(_, segment)| segment).find(|segment| {
        // Without a valid header the run is unknown: any later file of the shard counts as a proof.
        let same_run = run.is_none() || segment.header.is_none_or(|header| Some(header.run) == run);
        segment.pin.shard == this.pin.shard && same_run
    })
}

/// True for files of the newest run. A file with a damaged header does not count: nothing is ever cut from it (L6).
fn is_last_run(segments: &BTreeMap<u64, Segment>, segment: &Segment) -> bool {
    let newest = segments.values().filter_map(|segment| segment.header).map(|header| header.run).max();
    segment.header.map(|header| header.run) == newest
}

/// Step 4.
fn settle_ends<S: Storage>(
    storage: &S,
    segments: &BTreeMap<u64, Segment>,
    ends: &BTreeMap<u64, ScanEnd>,
    report: &mut Report,
) -> Result<(), RecoverError> {
    for (number, segment) in segments {
        let end = &ends[number];
        let is_last = next_in_run(segments, *number).is_none() && is_last_run(segments, segment);
        if !is_last {
            continue;
        }
        report.cut_bytes += end.torn_bytes;
        let file = storage.open(&segment_name(*number, segment.pin.shard))?;
        let kept = end.position.min(segment.bytes);
        write_again(storage, &file, end.last_begin, kept)?;
        storage.cut(&file, kept)?;
        storage.sync(&file)?;
    }
    Ok(())
}

/// Buffer of [`write_again`].
const COPY_BYTES: usize = 1 << 20;
const ALIGN: u64 = BLOCK_ALIGN_BYTES as u64;

/// Write the same bytes over themselves: a crash in the middle changes nothing that was durable. A whole group begins
/// and ends at a block; of a damaged group, the blocks that hold it are written.
fn write_again<S: Storage>(storage: &S, file: &S::File, begin: u64, end: u64) -> Result<(), StorageError> {
    let mut scratch = AlignedBuffer::new(COPY_BYTES);
    let mut at = begin / ALIGN * ALIGN;
    while at < end {
        let wanted = (end - at).next_multiple_of(ALIGN).min(COPY_BYTES as u64);
        let wanted = usize::try_from(wanted).expect("at most COPY_BYTES");
        let read = storage.read(file, &mut scratch[..wanted], at)?;
        // A file that an earlier start cut within a block ends in damage: the rest after the last whole block is not
        // written.
        let whole = read / BLOCK_ALIGN_BYTES * BLOCK_ALIGN_BYTES;
        if whole > 0 {
            storage.write(file, &[IoSlice::new(&scratch[..whole])], at)?;
        }
        if whole < wanted {
            break;
        }
        at += whole as u64;
    }
    Ok(())
}

/// Steps 5 and 6.
fn shards<S: Storage>(
    storage: &S,
    options: &Options,
    segments: BTreeMap<u64, Segment>,
    ends: &BTreeMap<u64, ScanEnd>,
    next_group: u64,
) -> Result<Vec<Shard>, RecoverError> {
    let segment_bytes = options.segment_bytes.next_multiple_of(4096);
    let mut left: Vec<String> = Vec::new();
    for (name, bytes) in storage.list()?.into_iter().filter(|(name, _)| is_prepared_name(name)) {
        // Without a segment, file numbers start from 1 again: what a prepared file held before would pass for records
        // (L4).
        if bytes == segment_bytes && !segments.is_empty() {
            left.push(name);
        } else {
            storage.remove(&name)?;
        }
    }
    let numbers = Arc::new(AtomicU64::new(segments.keys().next_back().map_or(1, |last| last + 1)));
    let reserve_bytes = (options.reserve_bytes / u64::from(options.shards)).next_multiple_of(4096);
    let mut shards = Vec::new();
    for shard in 0..options.shards {
        // What layout changes left stays in state records, so a shard that has such a file goes on in its format.
        let is_its =
            |segment: &&Segment| usize::from(segment.pin.shard) % usize::from(options.shards) == usize::from(shard);
        let formats = segments.values().filter(is_its).filter_map(|segment| segment.header).map(|header| header.format);
        let format = formats.filter(|format| *format >= LINEAGE_FORMAT).max().unwrap_or(0).max(options.format);
        let identity_and_format = (options.identity, format);
        let mut space = Space::new(shard, identity_and_format, numbers.clone(), segment_bytes, reserve_bytes);
        // The reserve first: on a full disk it is what lets an operator move log starts.
        let reserve = match reserve_bytes {
            0 => Prepared::Missing,
            bytes => prepare(storage, &reserve_name(shard, 0), bytes)?,
        };
        let name = spare_name(shard, 0, 0);
        if let Some(position) = left.iter().position(|left| *left == name).or(left.len().checked_sub(1)) {
            storage.rename(&left.swap_remove(position), &name)?;
        }
        space.set_prepared(prepare(storage, &name, segment_bytes)?, reserve);
        shards.push(Shard::new(*options, space, next_group));
    }
    for name in left {
        storage.remove(&name)?;
    }
    for (number, segment) in segments {
        let count = shards.len();
        let space = &mut shards[usize::from(segment.pin.shard) % count].space;
        space.sealed.insert(number, (ends[&number].position.min(segment.bytes), 0));
        space.files.insert(number, (segment.pin, segment.bytes));
    }
    storage.sync_directory()?;
    Ok(shards)
}

fn prepare<S: Storage>(storage: &S, name: &str, bytes: u64) -> Result<Prepared, RecoverError> {
    match storage.allocate(name, bytes) {
        Ok(()) => Ok(Prepared::Ready { bytes, recycled: false }),
        Err(StorageError::Full) => Ok(Prepared::Missing),
        Err(error) => Err(error.into()),
    }
}
