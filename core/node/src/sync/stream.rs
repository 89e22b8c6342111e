//! What goes out to replicas from memory: a durable group's records out of the blocks that they were written from, at
//! once, or from the tail as soon as the replica's window has room.

use std::sync::Arc;

use ringfence_buffer::Block;
use ringfence_log::{DurableGroup, is_log};
use ringfence_transport::{LARGE_BODY_BYTES, Outbound, RECORDS_BYTES};
use ringfence_wire::{Opcode, RECORD_HEADER_BYTES, RecordHeader, crc_of};

use super::Role;
use super::owner::{Stage, Sync};
use super::peers::Sent;
use super::pieces::placed_rows;
use super::tail::{Body, Piece};
use crate::answers::length;
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::partition::At;

/// Small records of one partition that go out together.
pub(super) const RUN_BYTES_MAX: usize = 1 << 20;
// The last record of a run may exceed that.
const _: () = assert!(RUN_BYTES_MAX + RECORD_HEADER_BYTES + LARGE_BODY_BYTES <= RECORDS_BYTES);

/// Records of one partition, one behind another, ready to go.
struct Run {
    at: At,
    first: u64,
    /// Behind the last one.
    next: u64,
    rows: u64,
    bytes: Vec<u8>,
}

impl Engine {
    /// A group of the shard is durable: its records go to the replicas that are live, or into the tail for them.
    pub(crate) fn stream(&mut self, shard: usize, written: DurableGroup, now: Now, effects: &mut Effects) {
        let DurableGroup { blocks, slices } = written;
        let mut blocks: Vec<Option<Block>> = blocks.into_iter().map(Some).collect();
        let mut runs: Vec<Run> = Vec::new();
        for (index, range) in slices {
            let at = index as usize;
            let Some(block) = &blocks[at] else { continue };
            let first = header_at(block, range.start);
            if first.body_bytes as usize > LARGE_BODY_BYTES && range.start == 0 {
                if let Some(owned) = self.live(&first, effects) {
                    self.flush(&mut runs, Some(owned), now, effects);
                    if let Some(block) = blocks[at].take() {
                        self.send_large(owned, &first, block, now, effects);
                    }
                }
            } else {
                self.gather(&blocks, at, range, &mut runs, now, effects);
            }
        }
        self.flush(&mut runs, None, now, effects);
        for block in blocks.into_iter().flatten() {
            self.shards[shard].return_staging(block);
        }
    }

    /// The partition of this record, if a replica takes it from memory, now or later.
    fn live(&mut self, header: &RecordHeader, effects: &mut Effects) -> Option<At> {
        if !is_log(header.kind) {
            return None;
        }
        let at = self.partitions.find(header.topic, header.partition)?;
        let Role::Owner(owner) = &mut self.partitions[at].role else { return None };
        let number = header.record_number;
        // Appended before this role: what it has on disk is told with the last group of that time, and this is an
        // earlier one. Who lacks it copies it.
        if number >= owner.durable.record {
            return None;
        }
        let mut news = false;
        for sync in &mut owner.syncs {
            // A copy that has come up to this very record goes on from memory.
            if sync.stage == Stage::Copying && !sync.reading && !sync.anew && sync.next == number {
                news |= !sync.level;
                (sync.stage, sync.level) = (Stage::Live, true);
            }
        }
        let any = owner.syncs.iter().any(|sync| sync.next <= number && sync.takes_from_memory());
        if news {
            self.tell_syncs(at, effects);
        }
        any.then_some(at)
    }

    /// Copy the small records of a slice into their partitions' runs.
    fn gather(
        &mut self,
        blocks: &[Option<Block>],
        block: usize,
        range: std::ops::Range<usize>,
        runs: &mut Vec<Run>,
        now: Now,
        effects: &mut Effects,
    ) {
        let mut place = range.start;
        while place < range.end {
            let Some(bytes) = &blocks[block] else { return };
            let header = header_at(bytes, place);
            let span = header.span_bytes as usize;
            if let Some(at) = self.live(&header, effects) {
                let end = place + ringfence_wire::align_up(RECORD_HEADER_BYTES + header.body_bytes as usize, 64);
                let run = runs.iter_mut().find(|run| run.at == at);
                let run = if let Some(run) = run {
                    run
                } else {
                    let first = header.record_number;
                    runs.push(Run { at, first, next: first, rows: 0, bytes: Vec::new() });
                    runs.last_mut().expect("just pushed")
                };
                append(run, &header, &bytes[place..end]);
                if run.bytes.len() >= RUN_BYTES_MAX {
                    self.flush(runs, Some(at), now, effects);
                }
            }
            place += span.max(RECORD_HEADER_BYTES);
        }
    }

    /// Send what was gathered, of one partition or of all.
    fn flush(&mut self, runs: &mut Vec<Run>, only: Option<At>, now: Now, effects: &mut Effects) {
        let mut left = Vec::new();
        for run in runs.drain(..) {
            if only.is_some_and(|at| at != run.at) {
                left.push(run);
                continue;
            }
            let crc = crc_of(&run.bytes);
            let piece = Piece { first: run.first, next: run.next, rows: run.rows, bytes: run.bytes.len(), crc };
            self.offer(run.at, piece, Body::Heap(run.bytes.into()), now, effects);
        }
        *runs = left;
    }

    /// A record that has a block of its own goes out of that.
    fn send_large(&mut self, at: At, header: &RecordHeader, block: Block, now: Now, effects: &mut Effects) {
        let bytes = RECORD_HEADER_BYTES + header.body_bytes as usize;
        let front = crc_of(&block[..RECORD_HEADER_BYTES]);
        let crc = ringfence_wire::crc_combine(front, header.body_crc, header.body_bytes as usize);
        let number = header.record_number;
        let piece = Piece { first: number, next: number + 1, rows: placed_rows(header), bytes, crc };
        self.offer(at, piece, Body::Pool(Arc::new(block)), now, effects);
    }

    /// Send it to whom it is the next one for; who takes it later finds it in the tail.
    fn offer(&mut self, at: At, piece: Piece, body: Body, now: Now, effects: &mut Effects) {
        let Role::Owner(owner) = &self.partitions[at].role else { return };
        let mut lacks = false;
        for index in 0..owner.syncs.len() {
            let Role::Owner(owner) = &self.partitions[at].role else { return };
            let sync = &owner.syncs[index];
            if !sync.takes_from_memory() || sync.next >= piece.next {
                continue;
            }
            let (node, is_next) = (sync.place.node, sync.stage == Stage::Live && sync.next >= piece.first);
            if is_next && self.sync.peers.has_room(node) {
                self.replicate_to(at, index, piece, body.outbound(piece.bytes), now, effects);
                continue;
            }
            lacks = true;
            if is_next {
                self.sync.peers.starve(node, at);
            }
        }
        if lacks {
            let Role::Owner(owner) = &self.partitions[at].role else { return };
            self.sync.tails.keep(at, piece, body, owner.mark_record);
            self.has_business(at);
        }
    }

    /// Send a live replica what the tail has for it, as far as its window goes. What the tail has no more is copied.
    pub(super) fn feed(&mut self, at: At, index: usize, now: Now, effects: &mut Effects) {
        loop {
            let Role::Owner(owner) = &mut self.partitions[at].role else { return };
            let until = owner.until(index);
            let sync = &mut owner.syncs[index];
            if sync.stage != Stage::Live {
                return;
            }
            if sync.next >= until {
                if !sync.level && until > 0 {
                    sync.level = true;
                    self.tell_syncs(at, effects);
                }
                return;
            }
            let Some((piece, body)) = self.sync.tails.find(at, sync.next) else {
                // What is left of the tail may still serve it.
                (sync.stage, sync.near) = (Stage::Copying, true);
                return self.has_business(at);
            };
            if !self.sync.peers.has_room(sync.place.node) {
                return self.sync.peers.starve(sync.place.node, at);
            }
            let body = body.outbound(piece.bytes);
            self.counters.tail_bytes += piece.bytes as u64;
            self.replicate_to(at, index, piece, body, now, effects);
        }
    }

    /// Nobody lacks what goes here.
    pub(super) fn trim(&mut self, at: At) {
        if let Role::Owner(owner) = &self.partitions[at].role {
            self.sync.tails.release(at, owner.lowest_from_memory(), owner.mark_record);
        }
    }

    pub(super) fn replicate_to(
        &mut self,
        at: At,
        index: usize,
        piece: Piece,
        body: Outbound,
        now: Now,
        effects: &mut Effects,
    ) {
        let partition = &mut self.partitions[at];
        let (mark, mut header) = (partition.mark, partition.request(0, piece.first));
        let Role::Owner(owner) = &mut partition.role else { return };
        (header.owner_epoch, header.send, header.producer_epoch) = (owner.epoch, owner.mark_record, mark);
        (header.body_bytes, header.body_crc) = (length(piece.bytes), piece.crc);
        let sync = &mut owner.syncs[index];
        sync.count(piece, body.bytes());
        (sync.next, sync.told) = (piece.next, owner.mark_record);
        sync.unanswered_bytes += piece.bytes;
        self.counters.replicated_bytes += piece.bytes as u64;
        let sent = Sent { at, session: sync.session, opcode: Opcode::Replicate, bytes: piece.bytes };
        self.sync.peers.send(sync.place.node, header, body, sent, now, effects);
    }
}

impl Sync {
    /// Before `next` passes it: what was sent before, or was there before, is no progress.
    fn count(&mut self, piece: Piece, records: &[u8]) {
        let known = self.counted.max(self.next);
        if piece.next <= known {
            return;
        }
        let (rows, bytes) = if piece.first < known { before(&records[..piece.bytes], known) } else { (0, 0) };
        self.rows += piece.rows - rows;
        self.bytes += (piece.bytes - bytes) as u64;
        self.counted = piece.next;
    }
}

/// Rows and bytes of the records below this number.
fn before(records: &[u8], number: u64) -> (u64, usize) {
    let (mut rows, mut place) = (0, 0);
    while place < records.len() {
        let header = header_at(records, place);
        if header.record_number >= number {
            break;
        }
        rows += placed_rows(&header);
        place += ringfence_wire::align_up(RECORD_HEADER_BYTES + header.body_bytes as usize, 64);
    }
    (rows, place)
}

fn append(run: &mut Run, header: &RecordHeader, record: &[u8]) {
    debug_assert_eq!(run.next, header.record_number, "a group has a partition's records in their order");
    let from = run.bytes.len();
    run.bytes.extend_from_slice(record);
    // In the file it may span padding that does not travel.
    let alone = RecordHeader { span_bytes: length(record.len()), ..*header };
    run.bytes[from..from + RECORD_HEADER_BYTES].copy_from_slice(&alone.seal());
    run.next = header.record_number + 1;
    run.rows += placed_rows(header);
}

pub(super) fn header_at(block: &[u8], at: usize) -> RecordHeader {
    let bytes: &[u8; RecordHeader::SIZE] =
        block[at..at + RecordHeader::SIZE].try_into().expect("a slice holds whole records");
    RecordHeader::read(bytes)
}
