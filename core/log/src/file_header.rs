//! The first block of a segment file: the identity of the store, and the format of the file.

use std::ops::Range;

use ringfence_wire::{BLOCK_ALIGN_BYTES, FILE_MAGIC, LOG_FORMAT_VERSION, RecordKind, crc_of};

/// The cluster, history and store that a file belongs to. Files of another identity are refused and left untouched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub cluster: [u8; 16],
    pub history: [u8; 16],
    pub store: [u8; 16],
}

impl Identity {
    /// The first part that differs, from the cluster down to the store.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        [
            (self.cluster != other.cluster, "cluster"),
            (self.history != other.history, "history"),
            (self.store != other.store, "store"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}

/// The header of a segment file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileHeader {
    pub identity: Identity,
    /// Format of the file; see [`log_format_of`].
    pub format: u16,
    pub shard: u16,
    pub file_number: u64,
    /// First file number of the start that made this file. An earlier recovery has accepted everything in files of
    /// earlier runs.
    pub run: u64,
    /// Number of the first commit group in this file.
    pub first_group: u64,
    /// Length the file was made with.
    pub bytes: u64,
    /// The shard's previous file in this run, which ends with group `first_group - 1`; 0 = none, as on disk.
    pub previous_file: u64,
}

/// The format of segment files that are begun at this cluster level, as long as the shard has no record of
/// [`LOG_FORMAT_VERSION`]. Reading goes by the file, not by the level.
#[must_use]
pub const fn log_format_of(level: u16) -> u16 {
    if level == 0 { 1 } else { 2 }
}

/// The first format of segment files with records of layout changes.
pub const LINEAGE_FORMAT: u16 = 3;

/// The first version of the node's blob in a state record that has what layout changes leave.
pub const LINEAGE_BLOB: u16 = 5;

/// The first format of segment files with records of cohorts.
pub const COHORT_FORMAT: u16 = 4;

/// The first version of the node's blob in a state record that has a cohort table.
pub const COHORT_BLOB: u16 = 6;

/// The least format of a segment file that may hold this record: a program that knows only older formats could not
/// read it, and must not touch the file. `blob`: the node's part of a state record, which begins with its version.
#[must_use]
pub fn format_for(kind: u8, blob: &[u8]) -> u16 {
    let blob_version = blob.first_chunk().map_or(0, |version| u16::from_le_bytes(*version));
    match RecordKind::from_number(kind) {
        Some(RecordKind::Table | RecordKind::Sealed) => LINEAGE_FORMAT,
        Some(RecordKind::Cohort) => COHORT_FORMAT,
        Some(RecordKind::State) if blob_version >= COHORT_BLOB => COHORT_FORMAT,
        Some(RecordKind::State) if blob_version >= LINEAGE_BLOB => LINEAGE_FORMAT,
        _ => 0,
    }
}

/// Why a file cannot be read as a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileHeaderError {
    /// The magic is not ours, or the CRC differs.
    Damaged,
    /// A newer program wrote it; this program must not touch the store.
    Newer(u16),
}

const MAGIC: Range<usize> = 0..4;
const CRC: Range<usize> = 4..8;
const VERSION: Range<usize> = 8..10;
const SHARD: Range<usize> = 10..12;
const CLUSTER: Range<usize> = 16..32;
const HISTORY: Range<usize> = 32..48;
const STORE: Range<usize> = 48..64;
const FILE_NUMBER: Range<usize> = 64..72;
const RUN: Range<usize> = 72..80;
const FIRST_GROUP: Range<usize> = 80..88;
const BYTES: Range<usize> = 88..96;
const PREVIOUS_FILE: Range<usize> = 96..104;
/// The CRC counts from here to the end of the block.
const CRC_FROM: usize = 8;

/// Bytes of the file header.
pub const FILE_HEADER_BYTES: usize = BLOCK_ALIGN_BYTES;

impl FileHeader {
    /// Write the block; `block` is [`FILE_HEADER_BYTES`] long.
    ///
    /// # Panics
    /// On a block of another length.
    pub fn seal(&self, block: &mut [u8]) {
        assert_eq!(block.len(), FILE_HEADER_BYTES);
        block.fill(0);
        block[MAGIC].copy_from_slice(&FILE_MAGIC.to_le_bytes());
        block[VERSION].copy_from_slice(&self.format.to_le_bytes());
        block[SHARD].copy_from_slice(&self.shard.to_le_bytes());
        block[CLUSTER].copy_from_slice(&self.identity.cluster);
        block[HISTORY].copy_from_slice(&self.identity.history);
        block[STORE].copy_from_slice(&self.identity.store);
        let words = [
            (FILE_NUMBER, self.file_number),
            (RUN, self.run),
            (FIRST_GROUP, self.first_group),
            (BYTES, self.bytes),
            (PREVIOUS_FILE, self.previous_file),
        ];
        for (range, value) in words {
            block[range].copy_from_slice(&value.to_le_bytes());
        }
        let crc = crc_of(&block[CRC_FROM..]);
        block[CRC].copy_from_slice(&crc.to_le_bytes());
    }

    /// # Errors
    /// [`FileHeaderError`]; a newer format is reported only if magic and CRC are right.
    pub fn open(block: &[u8]) -> Result<Self, FileHeaderError> {
        if block.len() != FILE_HEADER_BYTES
            || u32_at(block, MAGIC) != FILE_MAGIC
            || u32_at(block, CRC) != crc_of(&block[CRC_FROM..])
        {
            return Err(FileHeaderError::Damaged);
        }
        let version = u16::from_le_bytes([block[VERSION.start], block[VERSION.start + 1]]);
        if version > LOG_FORMAT_VERSION {
            return Err(FileHeaderError::Newer(version));
        }
        Ok(Self {
            identity: Identity {
                cluster: id_at(block, CLUSTER),
                history: id_at(block, HISTORY),
                store: id_at(block, STORE),
            },
            format: version,
            shard: u16::from_le_bytes([block[SHARD.start], block[SHARD.start + 1]]),
            file_number: u64_at(block, FILE_NUMBER),
            run: u64_at(block, RUN),
            first_group: u64_at(block, FIRST_GROUP),
            bytes: u64_at(block, BYTES),
            previous_file: u64_at(block, PREVIOUS_FILE),
        })
    }
}

fn u32_at(block: &[u8], range: Range<usize>) -> u32 {
    u32::from_le_bytes(block[range].try_into().expect("a range of 4 bytes"))
}

fn u64_at(block: &[u8], range: Range<usize>) -> u64 {
    u64::from_le_bytes(block[range].try_into().expect("a range of 8 bytes"))
}

fn id_at(block: &[u8], range: Range<usize>) -> [u8; 16] {
    block[range].try_into().expect("a range of 16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> (FileHeader, Vec<u8>) {
        let identity = Identity { cluster: [1; 16], history: [2; 16], store: [3; 16] };
        let header = FileHeader {
            identity,
            format: 1,
            shard: 3,
            file_number: 9,
            run: 7,
            first_group: 55,
            bytes: 1 << 20,
            previous_file: 8,
        };
        let mut block = vec![0xaa; FILE_HEADER_BYTES];
        header.seal(&mut block);
        (header, block)
    }

    #[test]
    fn a_sealed_header_opens_to_the_same_values() {
        let (header, block) = sealed();
        assert_eq!(FileHeader::open(&block), Ok(header));
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let (_, mut block) = sealed();
        for at in 0..block.len() {
            block[at] ^= 0x10;
            assert_eq!(FileHeader::open(&block), Err(FileHeaderError::Damaged), "byte {at}");
            block[at] ^= 0x10;
        }
    }

    #[test]
    fn records_of_layout_changes_need_their_format_and_others_none() {
        let state = RecordKind::State as u8;
        assert_eq!((format_for(state, &[]), format_for(state, &[4, 0, 9]), format_for(state, &[5, 0])), (0, 0, 3));
        assert_eq!((format_for(RecordKind::Cohort as u8, &[]), format_for(state, &[6, 0])), (4, 4));
        assert_eq!(format_for(RecordKind::Rows as u8, &[5, 0]), 0, "a body of rows may begin with any bytes");
        for kind in [RecordKind::Table, RecordKind::Sealed] {
            assert_eq!(format_for(kind as u8, &[]), LINEAGE_FORMAT);
        }
    }

    #[test]
    fn a_newer_format_is_told_apart_from_damage() {
        let (_, mut block) = sealed();
        block[VERSION].copy_from_slice(&(LOG_FORMAT_VERSION + 1).to_le_bytes());
        let crc = crc_of(&block[CRC_FROM..]);
        block[CRC].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(FileHeader::open(&block), Err(FileHeaderError::Newer(LOG_FORMAT_VERSION + 1)));
    }
}
