//! One commit group while it is filled: small records are copied into staging blocks, large ones stay in their blocks.
//!
//! Every slice begins and ends at a multiple of 4096, in memory and in the file. Where a slice needs padding, the
//! `span_bytes` of the record before the padding grows over it: every byte of a group lies within the span of a record.

use std::ops::Range;

use ringfence_buffer::Block;
use ringfence_wire::{
    BLOCK_ALIGN_BYTES, BODY_ALIGN_BYTES, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader, RecordKind,
};
use ringfence_wire::{align_up, crc_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::directory::{self, Directory, ENTRIES_MAX, Entry};
use crate::file_header::FileHeader;
use crate::log_end::is_log;
use crate::position::segment_name;

/// One staging block holds thousands of small records; four for each shard take half a MiB.
pub const STAGING_BYTES: usize = 128 << 10;
/// Larger bodies are not copied: the copy would cost more than a slice of their own.
pub const COPY_BYTES_MAX: usize = 32 << 10;
/// Slices in one group. Linux takes 1024 in one vectored write; the rest is for the directory and for zeros after it.
const SLICES_MAX: usize = 1000;

/// The file that a group's first write makes into a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Name of the prepared file that becomes the segment.
    pub from: String,
    pub header: FileHeader,
    /// True if every block of the file was written before.
    pub recycled: bool,
}

/// The group's bytes: one vectored write at `position`.
pub(crate) struct GroupWrite {
    /// Name of the segment.
    pub segment: String,
    /// Set in the first group of a file.
    pub new_file: Option<NewFile>,
    pub position: u64,
    pub bytes: u64,
    pub records: u32,
    /// Length with which the file was created.
    pub capacity: u64,
    pub blocks: Vec<Block>,
    /// (index in `blocks`, bytes in that block), in file order; each begins and ends at a multiple of 4096.
    pub slices: Vec<(u32, Range<usize>)>,
}

pub struct Group {
    pub number: u64,
    pub file: u64,
    /// Position of the first record in the file.
    pub begin: u64,
    pub new_file: Option<NewFile>,
    pub blocks: Vec<Block>,
    pub slices: Vec<(u32, Range<usize>)>,
    /// Bytes in the file so far, from `begin`.
    pub bytes: u64,
    pub records: u32,
    entries: Vec<Entry>,
    staging: Staging,
}

/// The open staging block, and the open slice in it.
struct Staging {
    block: u32,
    from: usize,
    to: usize,
    /// Position of the last record's header, if it is in the open slice.
    last: Option<usize>,
}

impl Group {
    pub fn new(number: u64, file: u64, begin: u64, new_file: Option<NewFile>, staging: Block) -> Self {
        assert!(begin.is_multiple_of(BLOCK_ALIGN_BYTES as u64) && staging.len() >= STAGING_BYTES);
        let open = Staging { block: 0, from: 0, to: 0, last: None };
        Self {
            number,
            file,
            begin,
            new_file,
            blocks: vec![staging],
            slices: Vec::new(),
            bytes: 0,
            records: 0,
            entries: Vec::new(),
            staging: open,
        }
    }

    /// An upper bound of the group's bytes after one more record with this body, and the directory.
    #[must_use]
    pub const fn bytes_bound(bytes: u64, entries: usize, body_bytes: usize) -> u64 {
        let record = align_up(RECORD_HEADER_BYTES + body_bytes, BLOCK_ALIGN_BYTES);
        let end = RECORD_HEADER_BYTES + directory::body_bytes(entries + 1);
        // Padding before a block, the record, the directory and its padding.
        bytes + (record + 2 * BLOCK_ALIGN_BYTES + end) as u64
    }

    /// [`Self::bytes_bound`] of this group.
    #[must_use]
    pub fn bytes_with(&self, body_bytes: usize) -> u64 {
        Self::bytes_bound(self.bytes, self.entries.len(), body_bytes)
    }

    pub fn has_slots(&self) -> bool {
        self.slices.len() + 3 <= SLICES_MAX && self.entries.len() < ENTRIES_MAX
    }

    /// Length of the `group_end` record after `more` partitions were added.
    fn end_bytes(&self, more: usize) -> usize {
        RECORD_HEADER_BYTES + directory::body_bytes(self.entries.len() + more)
    }

    /// True if the open staging block has room for `bytes` more and the directory.
    pub fn staging_has(&self, bytes: usize) -> bool {
        align_up(self.staging.to, BLOCK_ALIGN_BYTES)
            + align_up(bytes, BODY_ALIGN_BYTES)
            + self.end_bytes(1)
            + BLOCK_ALIGN_BYTES
            <= STAGING_BYTES
    }

    /// Continue in a new staging block.
    pub fn add_staging(&mut self, block: Block) {
        assert!(block.len() >= STAGING_BYTES);
        self.end_slice();
        self.staging = Staging { block: index(self.blocks.len()), from: 0, to: 0, last: None };
        self.blocks.push(block);
    }

    /// Copy a record into the staging block, which must have room (`staging_has`). This sets the physical part and the
    /// chain of `header`, which is otherwise complete. Returns the position of the record.
    pub fn put_copy(&mut self, header: &mut RecordHeader, previous_chain: Option<u64>, parts: &[&[u8]]) -> u64 {
        let position = self.begin + self.bytes;
        let record_bytes = RECORD_HEADER_BYTES + header.body_bytes as usize;
        let span = align_up(record_bytes, BODY_ALIGN_BYTES);
        header.span_bytes = index(span);
        self.seal_physical(header);
        let at = self.staging.to;
        let out = &mut self.blocks[self.staging.block as usize][at..at + span];
        seal(header, previous_chain, out);
        let mut end = RECORD_HEADER_BYTES;
        for part in parts {
            out[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        assert_eq!(end, record_bytes, "the parts are the body that the header names");
        out[end..].fill(0);
        self.staging.last = Some(at);
        self.staging.to += span;
        self.bytes += span as u64;
        self.records += 1;
        position
    }

    /// Add a record whose body lies in its block at `RECORD_HEADER_BYTES`, without a copy. See [`Self::put_copy`].
    pub fn put_block(&mut self, header: &mut RecordHeader, previous_chain: Option<u64>, mut block: Block) -> u64 {
        self.end_slice();
        let position = self.begin + self.bytes;
        let record_bytes = RECORD_HEADER_BYTES + header.body_bytes as usize;
        let span = align_up(record_bytes, BLOCK_ALIGN_BYTES);
        assert!(block.len() >= span, "a body block has room up to the next multiple of 4096");
        header.span_bytes = index(span);
        self.seal_physical(header);
        seal(header, previous_chain, &mut block[..]);
        block[record_bytes..span].fill(0);
        self.slices.push((index(self.blocks.len()), 0..span));
        self.blocks.push(block);
        self.bytes += span as u64;
        self.records += 1;
        position
    }

    fn seal_physical(&self, header: &mut RecordHeader) {
        (header.file_number, header.group) = (self.file, self.number);
    }

    /// Count a record in the partition's directory entry and return the entry's slot. `slot` is the slot that an
    /// earlier call in this group returned.
    pub fn count(&mut self, slot: Option<u32>, topic: u64, partition: u64, next_record: u64) -> u32 {
        if let Some(slot) = slot {
            let entry = &mut self.entries[slot as usize];
            debug_assert_eq!((entry.topic, entry.partition), (topic, partition));
            entry.next_record = next_record;
            entry.records += 1;
            return slot;
        }
        self.entries.push(Entry { topic, partition, next_record, records: 1 });
        index(self.entries.len() - 1)
    }

    /// Write the directory; `bytes` is final after it.
    pub fn close(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        let directory = Directory { begin: self.begin, bytes: self.bytes, records: self.records, entries };
        let body_bytes = directory::body_bytes(directory.entries.len());
        let at = self.staging.to;
        let span = align_up(at + RECORD_HEADER_BYTES + body_bytes, BLOCK_ALIGN_BYTES) - at;
        let out = &mut self.blocks[self.staging.block as usize][at..at + span];
        let (head, body) = out.split_at_mut(RECORD_HEADER_BYTES);
        directory.write(&mut body[..body_bytes]);
        body[body_bytes..].fill(0);
        let mut header = RecordHeader {
            kind: RecordKind::GroupEnd as u8,
            span_bytes: index(span),
            body_bytes: index(body_bytes),
            body_crc: crc_of(&body[..body_bytes]),
            file_number: self.file,
            group: self.number,
            ..Default::default()
        };
        seal(&mut header, Some(0), head);
        self.staging.to += span;
        self.staging.last = None;
        self.bytes += span as u64;
        self.end_slice();
        assert!(self.bytes.is_multiple_of(BLOCK_ALIGN_BYTES as u64));
    }

    /// What the writer needs of a closed group. `capacity`: length with which its file was created.
    pub(crate) fn into_write(self, shard: u16, capacity: u64) -> GroupWrite {
        GroupWrite {
            segment: segment_name(self.file, shard),
            new_file: self.new_file,
            position: self.begin,
            bytes: self.bytes,
            records: self.records,
            capacity,
            blocks: self.blocks,
            slices: self.slices,
        }
    }

    /// End the open slice at a multiple of 4096; the last record spans the padding.
    fn end_slice(&mut self) {
        let Staging { block, from, to, last } = self.staging;
        if to > from {
            let end = align_up(to, BLOCK_ALIGN_BYTES);
            if let (Some(at), true) = (last, end > to) {
                let bytes = &mut self.blocks[block as usize];
                bytes[to..end].fill(0);
                let header: &mut [u8; RecordHeader::SIZE] =
                    (&mut bytes[at..at + RecordHeader::SIZE]).try_into().expect("a header is 192 bytes");
                let mut grown = RecordHeader::read(header);
                grown.span_bytes += index(end - to);
                *header = grown.seal();
                self.bytes += (end - to) as u64;
            }
            self.slices.push((block, from..end));
            self.staging.to = end;
        }
        self.staging.from = self.staging.to;
        self.staging.last = None;
    }
}

/// Write the 192 bytes of the header. For log kinds `chain` continues `previous_chain`; with `None` the header's own is
/// kept. For local kinds it is 0.
fn seal(header: &mut RecordHeader, previous_chain: Option<u64>, out: &mut [u8]) {
    let out: &mut [u8; RecordHeader::SIZE] =
        (&mut out[..RecordHeader::SIZE]).try_into().expect("a header is 192 bytes");
    header.magic = RECORD_MAGIC;
    let given = std::mem::take(&mut header.chain);
    header.write(out);
    if is_log(header.kind) {
        let chain = |previous| xxh3_64_with_seed(&out[RecordHeader::LOGICAL], previous);
        header.chain = previous_chain.map_or(given, chain);
        out[RecordHeader::CHAIN_AT..].copy_from_slice(&header.chain.to_le_bytes());
    }
    header.header_crc = crc_of(&out[8..]);
    out[RecordHeader::HEADER_CRC_AT..8].copy_from_slice(&header.header_crc.to_le_bytes());
}

/// Positions within one group fit 32 bits: groups are bounded far below 4 GiB.
fn index(value: usize) -> u32 {
    u32::try_from(value).expect("below 4 GiB")
}
