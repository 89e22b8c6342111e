//! What goes out to replicas: a durable group's records out of the blocks that they were written from, or pieces of the
//! log that the reader fetched.

use std::sync::Arc;

use ringfence_buffer::{Block, Pool};
use ringfence_log::{PlanError, ReadError, Written, is_log};
use ringfence_transport::{LARGE_BODY_BYTES, Outbound};
use ringfence_wire::{Opcode, RECORD_HEADER_BYTES, RecordHeader, crc_of};

use super::owner::Stage;
use super::peers::Sent;
use super::{Read, Role};
use crate::answers::length;
use crate::engine::Engine;
use crate::event::{Effects, Now, ReadEnd, ReadJob};
use crate::partition::At;

/// Reads for replicas at a time: with those of fetches below what the reader's queue holds.
pub(super) const READS_MAX: usize = 32;
/// Small records of one partition that go out together.
const RUN_BYTES_MAX: usize = 1 << 20;

/// A copy that met damage asks again: a repair takes milliseconds, unless nobody has the record.
const MEND_MS: u64 = 500;

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
    /// A group of the shard is durable: its records go to the replicas that are live.
    pub(crate) fn stream(&mut self, shard: usize, written: Written, now: Now, effects: &mut Effects) {
        let Written { blocks, slices } = written;
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
            self.shards[shard].keep_staging(block);
        }
    }

    /// The partition of this record, if a live replica waits for it.
    fn live(&mut self, header: &RecordHeader, effects: &mut Effects) -> Option<At> {
        if !is_log(header.kind) {
            return None;
        }
        let at = self.partitions.find(header.topic, header.partition)?;
        let Role::Owner(owner) = &mut self.partitions[at].role else { return None };
        let number = header.record_number;
        let mut news = false;
        for sync in &mut owner.syncs {
            // A copy that has come up to this very record goes on from memory.
            if sync.stage == Stage::Copying && !sync.reading && !sync.anew && sync.next == number {
                news |= !sync.level;
                (sync.stage, sync.level) = (Stage::Live, true);
            }
        }
        let any = owner.syncs.iter().any(|sync| sync.stage == Stage::Live && sync.next <= number);
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
            let bytes: Arc<[u8]> = run.bytes.into();
            let piece = Piece { first: run.first, next: run.next, rows: run.rows, bytes: bytes.len(), crc };
            self.send_live(run.at, piece, || Outbound::Shared(bytes.clone()), now, effects);
        }
        *runs = left;
    }

    /// A record that has a block of its own goes out of that.
    fn send_large(&mut self, at: At, header: &RecordHeader, block: Block, now: Now, effects: &mut Effects) {
        let bytes = RECORD_HEADER_BYTES + header.body_bytes as usize;
        let front = crc_of(&block[..RECORD_HEADER_BYTES]);
        let crc = ringfence_wire::crc_joined(front, header.body_crc, header.body_bytes as usize);
        let number = header.record_number;
        let piece = Piece { first: number, next: number + 1, rows: u64::from(header.rows), bytes, crc };
        let block = Arc::new(block);
        self.send_live(at, piece, || Outbound::SharedBlock { block: block.clone(), bytes }, now, effects);
    }

    fn send_live(&mut self, at: At, piece: Piece, body: impl Fn() -> Outbound, now: Now, effects: &mut Effects) {
        let Role::Owner(owner) = &self.partitions[at].role else { return };
        for index in 0..owner.syncs.len() {
            let Role::Owner(owner) = &mut self.partitions[at].role else { return };
            let sync = &mut owner.syncs[index];
            if sync.stage != Stage::Live {
                continue;
            }
            if sync.next != piece.first || !self.sync.peers.has_room(sync.place.node) {
                // Too slow for the window: the rest comes from disk, as fast as it is taken.
                sync.stage = Stage::Copying;
                self.has_business(at);
                continue;
            }
            self.replicate_to(at, index, piece, body(), now, effects);
        }
    }

    fn replicate_to(&mut self, at: At, index: usize, piece: Piece, body: Outbound, now: Now, effects: &mut Effects) {
        let partition = &mut self.partitions[at];
        let (mark, mut header) = (partition.mark, partition.request(0, piece.first));
        let Role::Owner(owner) = &mut partition.role else { return };
        (header.owner_epoch, header.send, header.producer_epoch) = (owner.epoch, owner.mark_record, mark);
        (header.body_bytes, header.body_crc) = (length(piece.bytes), piece.crc);
        let sync = &mut owner.syncs[index];
        (sync.next, sync.told) = (piece.next, mark);
        sync.bytes += piece.bytes as u64;
        sync.rows += piece.rows;
        self.counters.replicated_bytes += piece.bytes as u64;
        let sent = Sent { at, session: sync.session, opcode: Opcode::Replicate, bytes: piece.bytes };
        self.sync.peers.send(sync.place.node, header, body, sent, now, effects);
    }

    /// Give each copying replica its next piece, or find that it has everything.
    pub(super) fn pump(&mut self, at: At, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let Some((partition, _)) = self.owner(at) else { return };
        let Role::Owner(owner) = &partition.role else { return };
        for index in 0..owner.syncs.len() {
            let Role::Owner(owner) = &self.partitions[at].role else { return };
            if owner.syncs[index].stage == Stage::Copying && !owner.syncs[index].reading {
                self.pump_one(at, index, now, pool, effects);
            }
        }
    }

    fn pump_one(&mut self, at: At, index: usize, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let partition = &mut self.partitions[at];
        let Role::Owner(owner) = &mut partition.role else { return };
        let until = owner.durable.record;
        let sync = &mut owner.syncs[index];
        #[cfg(feature = "planted")]
        let until = if ringfence_log::planted::is_on(ringfence_log::planted::Bug::CopyShort) && sync.change > 0 {
            until.saturating_sub(1)
        } else {
            until
        };
        if until == 0 {
            // What this store itself has is not known before its first sync: nobody is level with that.
            return;
        }
        if sync.anew && self.sync.peers.has_room(sync.place.node) {
            return self.send_anchor(at, index, now, effects);
        }
        if sync.anew {
            return self.sync.peers.starve(sync.place.node, at);
        }
        if sync.next >= until {
            // Above: this store has not synced its own yet.
            if sync.next == until {
                sync.stage = Stage::Live;
                if !sync.level {
                    sync.level = true;
                    self.tell_syncs(at, effects);
                }
            }
            return;
        }
        if !self.sync.peers.has_room(sync.place.node) {
            return self.sync.peers.starve(sync.place.node, at);
        }
        if !sync.throttle.allows(sync.next, sync.read_bytes as u64, now.mono_ms) {
            return;
        }
        let (session, bytes) = (sync.session, sync.read_bytes);
        let plan = match partition.log.plan_records(sync.next, until, bytes) {
            Ok(plan) => plan,
            Err(PlanError::Empty | PlanError::Beyond { .. }) => return,
            Err(PlanError::Retained { .. }) => {
                // Retention has overtaken the copy: a new session finds where it may begin.
                sync.end_session(now.mono_ms, "retention has given up what it lacks");
                self.has_business(at);
                return self.tell_syncs(at, effects);
            }
            Err(PlanError::Closed) => {
                (sync.stage, sync.level) = (Stage::Failed, false);
                "the owner's log is damaged".clone_into(&mut sync.why);
                return self.tell_syncs(at, effects);
            }
        };
        // As for fetches: a quarter of the pool is never read into.
        let room = self.sync.reads.len() < READS_MAX && pool.free_bytes() >= bytes + self.settings.pool_bytes / 4;
        let Some(block) = room.then(|| pool.take(bytes)).flatten() else { return self.has_business(at) };
        let Role::Owner(owner) = &mut self.partitions[at].role else { return };
        owner.syncs[index].reading = true;
        let ticket = self.reads.ticket();
        self.sync.reads.insert(ticket, Read::Copy { at, session });
        effects.reads.push(ReadJob { ticket, plan, block });
    }

    /// True if the read was for a replica.
    pub(crate) fn sync_read_ended(
        &mut self,
        end: ReadEnd,
        now: Now,
        pool: &mut Pool,
        effects: &mut Effects,
    ) -> Option<ReadEnd> {
        match self.sync.reads.remove(&end.ticket) {
            None => return Some(end),
            Some(Read::Copy { at, session }) => self.copy_read(at, session, end, now, effects),
            Some(Read::Cut { at, begin }) => self.cut_read(at, &begin, &end, pool, effects),
            Some(Read::Serve(serve)) => self.copy_served(&serve, end, pool, effects),
        }
        None
    }

    fn copy_read(&mut self, at: At, session: u64, end: ReadEnd, now: Now, effects: &mut Effects) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        let Role::Owner(owner) = &mut partition.role else { return };
        // Of a session that is over: nobody waits for it.
        let Some(index) = owner.by_session(session) else { return };
        let others = owner.syncs.iter().filter(|sync| sync.counts()).count();
        let sync = &mut owner.syncs[index];
        sync.reading = false;
        match end.result {
            Ok(done) if done.records > 0 && sync.stage == Stage::Copying => {
                sync.read_bytes = super::owner::READ_BYTES;
                sync.throttle.spend(done.bytes as u64);
                let (first, next) = (sync.next, done.next_record);
                let piece = Piece { first, next, rows: done.rows, bytes: done.bytes, crc: end.crc };
                let body = Outbound::Block { block: end.block, bytes: done.bytes };
                self.counters.copied_bytes += done.bytes as u64;
                self.replicate_to(at, index, piece, body, now, effects);
                self.sync.peers.starve(self.node_of(at, index), at);
            }
            Ok(_) => {}
            Err(ReadError::BlockTooSmall { bytes }) => sync.read_bytes = bytes,
            Err(ReadError::Damaged { damage, .. }) if others > 1 => {
                // Another replica may have it: the copy goes on when it is put right.
                sync.end_session(now.mono_ms + MEND_MS, &format!("the owner's log is damaged: {damage}"));
                self.met_damage(at, &damage);
                self.tell_syncs(at, effects);
            }
            Err(error) => {
                (sync.stage, sync.level) = (Stage::Failed, false);
                sync.why = format!("the owner's log cannot be read: {error:?}");
                self.tell_syncs(at, effects);
            }
        }
        self.has_business(at);
    }

    fn node_of(&self, at: At, index: usize) -> u64 {
        if let Role::Owner(owner) = &self.partitions[at].role { owner.syncs[index].place.node } else { 0 }
    }
}

/// What one REPLICATE carries.
#[derive(Clone, Copy)]
struct Piece {
    first: u64,
    next: u64,
    rows: u64,
    bytes: usize,
    crc: u32,
}

fn append(run: &mut Run, header: &RecordHeader, record: &[u8]) {
    debug_assert_eq!(run.next, header.record_number, "a group has a partition's records in their order");
    let from = run.bytes.len();
    run.bytes.extend_from_slice(record);
    // In the file it may span padding that does not travel.
    let alone = RecordHeader { span_bytes: length(record.len()), ..*header };
    run.bytes[from..from + RECORD_HEADER_BYTES].copy_from_slice(&alone.seal());
    run.next = header.record_number + 1;
    run.rows += u64::from(header.rows);
}

fn header_at(block: &[u8], at: usize) -> RecordHeader {
    let bytes: &[u8; RecordHeader::SIZE] =
        block[at..at + RecordHeader::SIZE].try_into().expect("a slice holds whole records");
    RecordHeader::read(bytes)
}
