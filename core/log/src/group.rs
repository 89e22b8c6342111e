//! One commit group while it is filled: small records copied into staging blocks, large ones where they lie.
//!
//! Every slice begins and ends at a multiple of 4096, in memory and in the file. Where padding is needed before the
//! next slice, the record before grows its `span_bytes` over it: no byte of a group lies outside a record's span.

use std::ops::Range;

use ringfence_buffer::Block;
use ringfence_wire::{
    BLOCK_ALIGN_BYTES, BODY_ALIGN_BYTES, RECORD_HEADER_BYTES, RECORD_MAGIC, RecordHeader, RecordKind,
};
use ringfence_wire::{align_up, crc_of};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::directory::{self, Directory, ENTRIES_MAX, Entry};
use crate::file_header::FileHeader;
use crate::head::is_log;

/// One staging block: room for thousands of small records; four a shard stay within half a MiB.
pub const STAGING_BYTES: usize = 128 << 10;
/// Bodies up to here are copied behind their headers; above, the copy would cost more than a slice of its own.
pub const COPY_BYTES_MAX: usize = 32 << 10;
/// Slices in one group: the system takes 1024 in one vectored write; some stay free for the directory and for zeros
/// behind it.
const SLICES_MAX: usize = 1000;

/// What the file of a group's first write is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Name of the prepared file that becomes the segment.
    pub from: String,
    pub header: FileHeader,
    /// True if every block of it has been written before.
    pub recycled: bool,
}

pub struct Group {
    pub number: u64,
    pub file: u64,
    /// Position of the first record in the file.
    pub begin: u64,
    pub new_file: Option<Begin>,
    pub blocks: Vec<Block>,
    pub slices: Vec<(u32, Range<usize>)>,
    /// Bytes in the file so far, from `begin`.
    pub bytes: u64,
    pub records: u32,
    entries: Vec<Entry>,
    staging: Staging,
}

/// The staging block that is open, and the slice of it that is.
struct Staging {
    block: u32,
    from: usize,
    to: usize,
    /// Where the last record's header stands, if it is in the open slice.
    last: Option<usize>,
}

impl Group {
    pub fn new(number: u64, file: u64, begin: u64, new_file: Option<Begin>, staging: Block) -> Self {
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

    /// An upper bound of a group's bytes when one more record of such a body is added to it and it is closed.
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

    /// Length of the `group_end` record when `more` partitions join.
    fn end_bytes(&self, more: usize) -> usize {
        RECORD_HEADER_BYTES + directory::body_bytes(self.entries.len() + more)
    }

    /// True if the open staging block takes `bytes` more and the directory after them.
    pub fn staging_has(&self, bytes: usize) -> bool {
        align_up(self.staging.to, BLOCK_ALIGN_BYTES)
            + align_up(bytes, BODY_ALIGN_BYTES)
            + self.end_bytes(1)
            + BLOCK_ALIGN_BYTES
            <= STAGING_BYTES
    }

    /// Go on in a fresh staging block.
    pub fn add_staging(&mut self, block: Block) {
        assert!(block.len() >= STAGING_BYTES);
        self.end_slice();
        self.staging = Staging { block: index(self.blocks.len()), from: 0, to: 0, last: None };
        self.blocks.push(block);
    }

    /// Copy a record: `staging_has` its bytes. `header` is complete but for the physical part and the chain, which
    /// are set. Returns the record's position.
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

    /// Take over a record whose body lies in its block at `RECORD_HEADER_BYTES`; the rest as [`Self::put_copy`].
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

    /// The partition's entry in the directory; `slot` is what an earlier call in this group returned.
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

    /// Write the directory. `bytes` is final afterwards.
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

    /// End the open slice at a multiple of 4096: the last record in it spans the padding.
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

/// Write the 192 bytes: `chain` continues `previous_chain` for log kinds (`None`: it is the header's own), is 0 for local
/// ones.
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
