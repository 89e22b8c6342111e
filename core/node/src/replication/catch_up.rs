//! Catch up replicas from disk: bounded reads of the log after the replica's end, one at a time.

use std::sync::Arc;

use ringfence_log::{PlanError, ReadError};
use ringfence_transport::Outbound;

use crate::api::event::Now;
use crate::api::jobs::{Piece, ReadEnd, ReadJob};
use crate::ids::PartitionIndex;
use crate::replication::owned_partition::OwnerMut;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::ReplicaRead;
use crate::replication::state::replica_progress::{COPY_AHEAD_BYTES, SessionState, read_bytes_max};
use crate::turn::Turn;

/// Reads for replicas at a time: with those of fetches below what the reader's queue holds.
pub const READS_MAX: usize = 32;

/// A copy that met damage asks again: a repair takes milliseconds, unless no replica has the record.
const MEND_MS: u64 = 500;

impl ReplicationMachine<'_> {
    /// Give each replica what is next for it, from memory or from disk, or find that it has everything.
    pub(crate) fn pump(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let replicas = self.owner_mut(index).map_or(0, |lent| lent.owner.replicas.len());
        for replica_index in 0..replicas {
            let Some(mut owner) = self.owner_mut(index) else { return };
            if owner.pump(replica_index, turn) {
                self.send_anchor(index, replica_index, turn);
            }
        }
        if let Some(mut owner) = self.owner_mut(index) {
            owner.trim();
        }
    }

    /// A read for a copy ended.
    pub(crate) fn copied(&mut self, index: PartitionIndex, session: u64, end: ReadEnd, turn: &mut Turn<'_>) {
        if self.owner_mut(index).is_some_and(|mut owner| owner.copy_read(session, end, turn)) {
            self.pump(index, turn);
        }
    }
}

impl OwnerMut<'_> {
    /// True if the replica is to be sent the beginning of the log now.
    fn pump(&mut self, replica_index: usize, turn: &mut Turn<'_>) -> bool {
        self.feed(replica_index, turn);
        let replica = &self.owner.replicas[replica_index];
        if *replica.stage() != SessionState::Copying || replica.is_reading() {
            return false;
        }
        // What this store itself has is not known before its first sync: nothing is sent before that.
        let is_known = self.owner.until(replica_index) > 0;
        if is_known && replica.needs_bootstrap() && self.replication.peers.has_room(replica.place().node) {
            return true;
        }
        self.pump_one(replica_index, turn);
        false
    }

    fn pump_one(&mut self, replica_index: usize, turn: &mut Turn<'_>) {
        let until = self.owner.until(replica_index);
        let replica = &mut self.owner.replicas[replica_index];
        if until == 0 {
            // The end of this store's own log is not known before its first sync: no replica is level before that.
            return;
        }
        if replica.needs_bootstrap() {
            return self.replication.peers.starve(replica.place().node, self.index);
        }
        let next = replica.next();
        if next >= until {
            // Above: this store has not synced its own yet.
            if next == until && replica.become_complete() {
                self.report_progress(turn);
            }
            return;
        }
        if !replica.throttle().holds(next) && self.replication.tails.find(self.index, next).is_some() {
            replica.become_live();
            return self.feed(replica_index, turn);
        }
        if !self.may_read(replica_index, turn.now) {
            return;
        }
        let replica = &mut self.owner.replicas[replica_index];
        let (session, (bytes, block_bytes)) = (replica.session(), replica.next_read());
        let tail = self.replication.tails.first(self.index);
        let begins = tail.filter(|first| *first > next).map_or(until, |first| first.min(until));
        // The index may have no record between the two: then the piece goes on into the tail.
        let plan = self.log.plan_records(next, begins, bytes);
        let empty = matches!(plan, Err(PlanError::Empty)) && begins < until;
        let plan = if empty { self.log.plan_records(next, until, bytes) } else { plan };
        let plan = match plan {
            Ok(plan) => plan,
            Err(PlanError::Empty | PlanError::Beyond { .. }) => return,
            Err(PlanError::Retained { .. }) => {
                replica.become_overtaken(turn.now.mono_ms);
                self.needs_tick();
                return self.report_progress(turn);
            }
            Err(PlanError::Closed) => {
                replica.become_failed("the owner's log is damaged".to_owned());
                return self.report_progress(turn);
            }
        };
        // As for fetches: a quarter of the pool is never read into.
        let room = self.replication.reads_under_way() < READS_MAX
            && turn.pool.free_bytes() >= block_bytes + self.pool_bytes / 4;
        let Some(block) = room.then(|| turn.pool.take(block_bytes)).flatten() else {
            return self.needs_tick();
        };
        self.owner.replicas[replica_index].begin_read();
        let ticket = turn.ticket();
        self.replication.add_read(ticket, ReplicaRead::Copy { index: self.index, session });
        turn.effects.reads.push(ReadJob { ticket, plan, block, in_pieces: true });
    }

    /// Whether the next piece may be read now; else an answer or time goes on with it.
    fn may_read(&mut self, replica_index: usize, now: Now) -> bool {
        let replica = &mut self.owner.replicas[replica_index];
        if replica.unanswered_bytes() >= COPY_AHEAD_BYTES.min(self.replication.peers.window_bytes() / 2) {
            // One of its own answers goes on with it. It does not wait for room at the node: partitions that do are
            // pumped as long as there is some.
            return false;
        }
        let node = replica.place().node;
        if !self.replication.peers.has_room(node) {
            self.replication.peers.starve(node, self.index);
            return false;
        }
        let (bytes, _) = replica.next_read();
        replica.may_read(bytes as u64, now.mono_ms)
    }

    /// True if the next read may begin immediately; else time or an answer begins it.
    fn copy_read(&mut self, session: u64, end: ReadEnd, turn: &mut Turn<'_>) -> bool {
        // A read of a session that is over is dropped.
        let Some(replica_index) = self.owner.by_session(session) else { return false };
        let others = self.owner.replicas.iter().filter(|replica| replica.counts()).count();
        let until = self.replication.tails.first(self.index).unwrap_or(self.owner.durable().record);
        let budget = self.replication.tails.budget_bytes as u64;
        let most_bytes = read_bytes_max(self.replication.peers.window_bytes());
        let replica = &mut self.owner.replicas[replica_index];
        replica.end_read();
        let mut goes_on = false;
        match end.result {
            Ok(done) if done.records > 0 && *replica.stage() == SessionState::Copying => {
                replica.took(&done, until, budget, most_bytes);
                let mut first = replica.next();
                turn.counters.copied_bytes += done.bytes as u64;
                let block = Arc::new(end.block);
                for (from, piece) in end.sums.into_pieces() {
                    let body = Outbound::SharedBlock { block: block.clone(), at: from, bytes: piece.bytes };
                    self.replicate_to(replica_index, Piece { first, ..piece }, body, turn);
                    first = piece.next;
                }
                goes_on = true;
            }
            Ok(_) => {}
            Err(ReadError::BlockTooSmall { bytes }) => {
                replica.needs(bytes);
                goes_on = true;
            }
            Err(ReadError::Damaged { damage, .. }) if others > 1 => {
                // Another replica may have it: the copy goes on when it is repaired.
                replica.become_down(turn.now.mono_ms + MEND_MS, &format!("the owner's log is damaged: {damage}"));
                turn.follow_ups.damage.push((self.index, damage));
                self.report_progress(turn);
            }
            Err(error) if replica.counts() => {
                // A read that fails once may succeed later, and only the owner brings a replica of the set up to here.
                replica.become_down(turn.now.mono_ms + MEND_MS, &format!("the owner's log cannot be read: {error:?}"));
                self.report_progress(turn);
            }
            Err(error) => {
                replica.become_failed(format!("the owner's log cannot be read: {error:?}"));
                self.report_progress(turn);
            }
        }
        self.needs_tick();
        goes_on
    }
}
