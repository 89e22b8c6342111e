//! Repair a damaged record with another replica's copy: write the bytes that stood there, in their place.
//!
//! The logical part of a record is equal on every replica (I11), and the physical part is known here. So the record is
//! restored byte for byte, and format, index and recovery need no notion of a repair. The alternative, to drop this
//! replica's log and copy it again, would give up valid records that a quorum counts.
//!
//! A copy is accepted in two cases. Either its header equals ours bit by bit, or our header is lost and the chain leads
//! from the record before through the copy to the record after it.
//!
//! Only blocks that differ are written, all of them damaged, and they are read back after the sync. A crash in the
//! middle leaves the record damaged or repaired, and changes no valid byte.

use std::io::IoSlice;

use ringfence_buffer::Block;
use ringfence_wire::{BLOCK_ALIGN_BYTES, RecordHeader, crc_of};

use crate::files::FilePin;
use crate::log_end::{LogEnd, is_log};
use crate::position::{Position, segment_name};
use crate::scrub::{Corruption, Proof, Scrubber, Successor};
use crate::storage::{Storage, StorageError};

const ALIGN: u64 = BLOCK_ALIGN_BYTES as u64;

/// A record from another replica, from its header on.
pub enum ReplicaRecord {
    Small(Box<[u8]>),
    /// In a block, from `at` on.
    Large {
        block: Block,
        at: usize,
        bytes: usize,
    },
}

impl ReplicaRecord {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Large { block, at, bytes } => &block[*at..*at + *bytes],
        }
    }
}

/// A damaged place, and the record for it.
pub struct RepairPlan {
    pub corruption: Corruption,
    pub pin: FilePin,
    pub record: ReplicaRecord,
}

/// Why a repair failed; the place is damaged as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairError {
    /// The copy is not the record that stood here.
    WrongRecord(&'static str),
    /// The place has changed since it was scrubbed.
    Changed,
    Storage(StorageError),
}

impl From<StorageError> for RepairError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl std::fmt::Display for RepairError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::WrongRecord(why) => write!(out, "the replica's record is not the one that stood here: {why}"),
            Self::Changed => out.write_str("the place has changed since it was scrubbed"),
            Self::Storage(error) => error.fmt(out),
        }
    }
}

impl Corruption {
    /// The header that belongs here, if `record` is the right record.
    fn header(&self, record: &[u8]) -> Result<RecordHeader, RepairError> {
        let bytes = record.first_chunk().ok_or(RepairError::WrongRecord("it ends within its header"))?;
        let theirs = RecordHeader::open(bytes).map_err(|_| RepairError::WrongRecord("its header is damaged"))?;
        let body = record.get(RecordHeader::SIZE..RecordHeader::SIZE + theirs.body_bytes as usize);
        let body = body.ok_or(RepairError::WrongRecord("it ends within its body"))?;
        if crc_of(body) != theirs.body_crc || !is_log(theirs.kind) {
            return Err(RepairError::WrongRecord("its body is damaged"));
        }
        match &self.proof {
            Proof::Header(ours) => {
                // The whole logical part with the chain: everything except the body is known here.
                let logical = |header: &RecordHeader| header.seal()[RecordHeader::LOGICAL_FROM..].to_vec();
                if logical(ours) != logical(&theirs) {
                    return Err(RepairError::WrongRecord("its header differs from the one here"));
                }
                Ok(**ours)
            }
            Proof::Neighbours { group, before, after } => {
                let span =
                    u32::try_from(self.span_bytes).map_err(|_| RepairError::WrongRecord("no record is so long"))?;
                let header = RecordHeader {
                    file_number: self.file,
                    group: *group,
                    previous_position: before.last_position.0,
                    span_bytes: span,
                    ..theirs
                };
                if (theirs.topic, theirs.partition) != (self.topic, self.partition) || before.accept(&theirs).is_err() {
                    return Err(RepairError::WrongRecord("it does not continue the record before"));
                }
                let end = LogEnd::after(&header, Position::new(self.file, self.position));
                let is_proved = match after {
                    Successor::Unknown => return Err(RepairError::WrongRecord("no record after it proves it")),
                    Successor::Record(after) => end.accept(after).is_ok(),
                    Successor::LogEnd(chain) => end.chain == *chain,
                };
                if !is_proved {
                    return Err(RepairError::WrongRecord("the record after it does not continue it"));
                }
                if RecordHeader::SIZE as u64 + u64::from(theirs.body_bytes) > self.span_bytes {
                    return Err(RepairError::WrongRecord("it does not fit"));
                }
                Ok(header)
            }
            Proof::None => Err(RepairError::WrongRecord("it is unknown what stood here")),
        }
    }
}

impl<S: Storage> Scrubber<S> {
    /// Write the record, durably.
    ///
    /// # Errors
    /// [`RepairError`]: the place is still damaged.
    pub fn repair(&mut self, plan: &RepairPlan) -> Result<(), RepairError> {
        let (corruption, record) = (&plan.corruption, plan.record.bytes());
        let header = corruption.header(record)?;
        let body = &record[RecordHeader::SIZE..RecordHeader::SIZE + header.body_bytes as usize];
        let file = self.storage.open(&segment_name(plan.pin.number, plan.pin.shard))?;
        self.stream.reset();
        self.loaded = None;
        let stands = self.stream.header(&self.storage, &file, corruption.position)?;
        let is_as_told = match &corruption.proof {
            Proof::Header(ours) => stands.is_some_and(|stands| stands.seal() == ours.seal()),
            _ => stands.is_none_or(|stands| stands.file_number != corruption.file),
        };
        if !is_as_told {
            return Err(RepairError::Changed);
        }
        let front = header.seal();
        let from = corruption.position;
        let until = from + u64::from(header.span_bytes);
        let mut at = from / ALIGN * ALIGN;
        while at < until {
            let wanted = usize::try_from((until - at).next_multiple_of(ALIGN)).unwrap_or(usize::MAX);
            let wanted = wanted.min(self.scratch.len());
            let read =
                self.storage.read(&file, &mut self.scratch[..wanted], at)? / BLOCK_ALIGN_BYTES * BLOCK_ALIGN_BYTES;
            if read == 0 {
                return Err(RepairError::Changed);
            }
            for begin in (0..read).step_by(BLOCK_ALIGN_BYTES) {
                let block = &mut self.scratch[begin..begin + BLOCK_ALIGN_BYTES];
                if overlay(block, at + begin as u64, from..until, &front, body) {
                    self.storage.write(&file, &[IoSlice::new(block)], at + begin as u64)?;
                }
            }
            at += read as u64;
        }
        self.storage.sync(&file)?;
        self.proves(&file, corruption.position, &header)
    }

    /// Read back what was written.
    fn proves(&mut self, file: &S::File, position: u64, header: &RecordHeader) -> Result<(), RepairError> {
        self.stream.reset();
        let stands = self.stream.header(&self.storage, file, position)?;
        if stands.is_none_or(|stands| stands.seal() != header.seal()) {
            return Err(RepairError::Changed);
        }
        let check = self.stream.body(&self.storage, file, position, header, 0, &mut Vec::new())?;
        let is_sound = check.crc == header.body_crc && check.has_clean_padding;
        self.stream.reset();
        if is_sound { Ok(()) } else { Err(RepairError::Changed) }
    }
}

/// Copy the part of the record that lies in this block, which begins at `at`; returns true if the block changed.
fn overlay(block: &mut [u8], at: u64, place: std::ops::Range<u64>, front: &[u8], body: &[u8]) -> bool {
    let end = at + block.len() as u64;
    let mut changed = false;
    let mut put = |from: u64, bytes: &[u8]| {
        let (first, last) = (from.max(at), (from + bytes.len() as u64).min(end));
        if first < last {
            let offset = |position: u64, base: u64| usize::try_from(position - base).expect("within a block");
            let given = &bytes[offset(first, from)..offset(last, from)];
            let stands = &mut block[offset(first, at)..offset(last, at)];
            if stands != given {
                stands.copy_from_slice(given);
                changed = true;
            }
        }
    };
    put(place.start, front);
    let body_at = place.start + front.len() as u64;
    put(body_at, body);
    let pad_from = (body_at + body.len() as u64).max(at);
    let pad_until = place.end.min(end);
    if pad_from < pad_until {
        let zeros = [0; BLOCK_ALIGN_BYTES];
        put(pad_from, &zeros[..usize::try_from(pad_until - pad_from).expect("within a block")]);
    }
    changed
}
