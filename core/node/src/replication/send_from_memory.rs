//! Send records to live replicas from memory: out of the blocks that were written, immediately, or from the tail as
//! soon as the replica's window has room.

use std::sync::Arc;

use ringfence_buffer::Block;
use ringfence_log::{DurableGroup, is_log};
use ringfence_transport::{LARGE_BODY_BYTES, Outbound};
use ringfence_wire::{Opcode, RECORD_HEADER_BYTES, RecordHeader, crc_of};

use crate::api::jobs::Piece;
use crate::ids::PartitionIndex;
use crate::partition::answers::length;
use crate::replication::owned_partition::OwnerMut;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::memory_tail::TailBody;
use crate::replication::state::peer_connections::SentRequest;
use crate::replication::state::replica_progress::SessionState;
use crate::replication::state::replicate_bodies::{RUN_BYTES_MAX, header_at, placed_rows};
use crate::turn::Turn;

/// Records of one partition, one after another, ready to go.
struct Run {
    index: PartitionIndex,
    first: u64,
    /// After the last one.
    next: u64,
    rows: u64,
    bytes: Vec<u8>,
}

impl ReplicationMachine<'_> {
    /// A group of the shard is durable: its records go to the replicas that are live, or into the tail for them.
    pub(crate) fn stream(&mut self, shard: usize, written: DurableGroup, turn: &mut Turn<'_>) {
        let DurableGroup { blocks, slices } = written;
        let mut blocks: Vec<Option<Block>> = blocks.into_iter().map(Some).collect();
        let mut runs: Vec<Run> = Vec::new();
        for (index, range) in slices {
            let at = index as usize;
            let Some(block) = &blocks[at] else { continue };
            let first = header_at(block, range.start);
            if first.body_bytes as usize > LARGE_BODY_BYTES && range.start == 0 {
                if let Some(owned) = self.live(&first, turn) {
                    self.flush(&mut runs, Some(owned), turn);
                    if let Some(block) = blocks[at].take() {
                        self.send_large(owned, &first, block, turn);
                    }
                }
            } else {
                self.gather(&blocks, at, range, &mut runs, turn);
            }
        }
        self.flush(&mut runs, None, turn);
        for block in blocks.into_iter().flatten() {
            self.store.shards[shard].return_staging(block);
        }
    }

    /// The partition of this record, if a replica takes it from memory, now or later.
    fn live(&mut self, header: &RecordHeader, turn: &mut Turn<'_>) -> Option<PartitionIndex> {
        if !is_log(header.kind) {
            return None;
        }
        let index = self.store.partitions.find(header.topic, header.partition)?;
        let lent = self.owner_mut(index)?;
        let owner = &mut *lent.owner;
        let number = header.record_number;
        // Appended before this role: what it has on disk is told with the last group of that time, and this is an
        // earlier one. A replica that lacks it copies it.
        if number >= owner.durable().record {
            return None;
        }
        let mut news = false;
        for replica in &mut owner.replicas {
            news |= replica.become_live_at(number);
        }
        let any = owner.replicas.iter().any(|replica| replica.next() <= number && replica.takes_from_memory());
        if news {
            lent.report_progress(turn);
        }
        any.then_some(index)
    }

    /// Copy the small records of a slice into their partitions' runs.
    fn gather(
        &mut self,
        blocks: &[Option<Block>],
        block: usize,
        range: std::ops::Range<usize>,
        runs: &mut Vec<Run>,
        turn: &mut Turn<'_>,
    ) {
        let mut place = range.start;
        while place < range.end {
            let Some(bytes) = &blocks[block] else { return };
            let header = header_at(bytes, place);
            let span = header.span_bytes as usize;
            if let Some(index) = self.live(&header, turn) {
                let end = place + ringfence_wire::align_up(RECORD_HEADER_BYTES + header.body_bytes as usize, 64);
                let run = runs.iter_mut().find(|run| run.index == index);
                let run = if let Some(run) = run {
                    run
                } else {
                    let first = header.record_number;
                    runs.push(Run { index, first, next: first, rows: 0, bytes: Vec::new() });
                    runs.last_mut().expect("just pushed")
                };
                append(run, &header, &bytes[place..end]);
                if run.bytes.len() >= RUN_BYTES_MAX {
                    self.flush(runs, Some(index), turn);
                }
            }
            place += span.max(RECORD_HEADER_BYTES);
        }
    }

    /// Send what was gathered, of one partition or of all.
    fn flush(&mut self, runs: &mut Vec<Run>, only: Option<PartitionIndex>, turn: &mut Turn<'_>) {
        let mut left = Vec::new();
        for run in runs.drain(..) {
            if only.is_some_and(|index| index != run.index) {
                left.push(run);
                continue;
            }
            let crc = crc_of(&run.bytes);
            let piece = Piece { first: run.first, next: run.next, rows: run.rows, bytes: run.bytes.len(), crc };
            if let Some(mut owner) = self.owner_mut(run.index) {
                owner.offer(piece, TailBody::Heap(run.bytes.into()), turn);
            }
        }
        *runs = left;
    }

    /// A record that has a block of its own goes out of that.
    fn send_large(&mut self, index: PartitionIndex, header: &RecordHeader, block: Block, turn: &mut Turn<'_>) {
        let bytes = RECORD_HEADER_BYTES + header.body_bytes as usize;
        let front = crc_of(&block[..RECORD_HEADER_BYTES]);
        let crc = ringfence_wire::crc_combine(front, header.body_crc, header.body_bytes as usize);
        let number = header.record_number;
        let piece = Piece { first: number, next: number + 1, rows: placed_rows(header), bytes, crc };
        if let Some(mut owner) = self.owner_mut(index) {
            owner.offer(piece, TailBody::Pool(Arc::new(block)), turn);
        }
    }
}

impl OwnerMut<'_> {
    /// Send it to the replicas that need it next; others find it in the tail later.
    fn offer(&mut self, piece: Piece, body: TailBody, turn: &mut Turn<'_>) {
        let mut lacks = false;
        for replica_index in 0..self.owner.replicas.len() {
            let replica = &self.owner.replicas[replica_index];
            if !replica.takes_from_memory() || replica.next() >= piece.next {
                continue;
            }
            let node = replica.place().node;
            let is_next = *replica.stage() == SessionState::Live && replica.next() >= piece.first;
            if is_next && self.replication.peers.has_room(node) {
                self.replicate_to(replica_index, piece, body.outbound(piece.bytes), turn);
                continue;
            }
            lacks = true;
            if is_next {
                self.replication.peers.starve(node, self.index);
            }
        }
        if lacks {
            self.replication.tails.keep(self.index, piece, body, self.owner.mark_record());
            self.needs_tick();
        }
    }

    /// Send a live replica what the tail has for it, as far as its window goes. What the tail has no more is copied.
    pub(crate) fn feed(&mut self, replica_index: usize, turn: &mut Turn<'_>) {
        loop {
            let until = self.owner.until(replica_index);
            let replica = &mut self.owner.replicas[replica_index];
            if *replica.stage() != SessionState::Live {
                return;
            }
            if replica.next() >= until {
                if until > 0 && replica.become_level() {
                    self.report_progress(turn);
                }
                return;
            }
            let Some((piece, body)) = self.replication.tails.find(self.index, replica.next()) else {
                replica.become_late();
                return self.needs_tick();
            };
            let node = replica.place().node;
            if !self.replication.peers.has_room(node) {
                return self.replication.peers.starve(node, self.index);
            }
            let body = body.outbound(piece.bytes);
            turn.counters.tail_bytes += piece.bytes as u64;
            self.replicate_to(replica_index, piece, body, turn);
        }
    }

    /// Release tail records that every replica has.
    pub(crate) fn trim(&mut self) {
        self.replication.tails.release(self.index, self.owner.lowest_from_memory(), self.owner.mark_record());
    }

    pub(crate) fn replicate_to(&mut self, replica_index: usize, piece: Piece, body: Outbound, turn: &mut Turn<'_>) {
        let (mark, mark_record) = (self.mark, self.owner.mark_record());
        let mut header = self.request(0, piece.first);
        (header.owner_epoch, header.send, header.producer_epoch) = (self.owner.epoch(), mark_record, mark);
        (header.body_bytes, header.body_crc) = (length(piece.bytes), piece.crc);
        let replica = &mut self.owner.replicas[replica_index];
        replica.send(piece, body.bytes(), mark_record);
        turn.counters.replicated_bytes += piece.bytes as u64;
        let sent = SentRequest {
            index: self.index,
            session: replica.session(),
            opcode: Opcode::Replicate,
            bytes: piece.bytes,
        };
        self.replication.peers.send(replica.place().node, header, body, sent, turn);
    }
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
