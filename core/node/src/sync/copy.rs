//! Pieces of the log that the reader fetched, for replicas that are behind.

use std::sync::Arc;

use ringfence_buffer::Pool;
use ringfence_log::{PlanError, ReadError};
use ringfence_transport::Outbound;

use super::owner::{COPY_AHEAD_BYTES, Stage, read_bytes_max};
use super::tail::Piece;
use super::{Read, Role};
use crate::engine::Engine;
use crate::event::{Effects, Now, ReadEnd, ReadJob};
use crate::partition::At;

/// Reads for replicas at a time: with those of fetches below what the reader's queue holds.
pub(super) const READS_MAX: usize = 32;
/// A copy that met damage asks again: a repair takes milliseconds, unless nobody has the record.
const MEND_MS: u64 = 500;

impl Engine {
    /// Give each replica what is next for it, from memory or from disk, or find that it has everything.
    pub(super) fn pump(&mut self, at: At, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let Some((partition, _)) = self.owner(at) else { return };
        let Role::Owner(owner) = &partition.role else { return };
        for index in 0..owner.syncs.len() {
            self.feed(at, index, now, effects);
            let Role::Owner(owner) = &self.partitions[at].role else { return };
            if owner.syncs[index].stage == Stage::Copying && !owner.syncs[index].reading {
                self.pump_one(at, index, now, pool, effects);
            }
        }
        self.trim(at);
    }

    fn pump_one(&mut self, at: At, index: usize, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let partition = &mut self.partitions[at];
        let Role::Owner(owner) = &mut partition.role else { return };
        let until = owner.until(index);
        let sync = &mut owner.syncs[index];
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
                    (sync.level, sync.overtaken) = (true, 0);
                    self.tell_syncs(at, effects);
                }
            }
            return;
        }
        if !sync.throttle.holds(sync.next) && self.sync.tails.find(at, sync.next).is_some() {
            sync.stage = Stage::Live;
            return self.feed(at, index, now, effects);
        }
        if !self.may_read(at, index, now) {
            return;
        }
        let partition = &mut self.partitions[at];
        let Role::Owner(owner) = &mut partition.role else { return };
        let sync = &mut owner.syncs[index];
        let (session, (bytes, block_bytes)) = (sync.session, sync.next_read());
        let begins =
            self.sync.tails.first(at).filter(|first| *first > sync.next).map_or(until, |first| first.min(until));
        // The index may have no record between the two: then the piece goes on into the tail.
        let plan = partition.log.plan_records(sync.next, begins, bytes);
        let empty = matches!(plan, Err(PlanError::Empty)) && begins < until;
        let plan = if empty { partition.log.plan_records(sync.next, until, bytes) } else { plan };
        let plan = match plan {
            Ok(plan) => plan,
            Err(PlanError::Empty | PlanError::Beyond { .. }) => return,
            Err(PlanError::Retained { .. }) => {
                sync.was_overtaken(now.mono_ms);
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
        let room = self.sync.reads.len() < READS_MAX && pool.free_bytes() >= block_bytes + self.settings.pool_bytes / 4;
        let Some(block) = room.then(|| pool.take(block_bytes)).flatten() else { return self.has_business(at) };
        let Role::Owner(owner) = &mut self.partitions[at].role else { return };
        owner.syncs[index].reading = true;
        let ticket = self.reads.ticket();
        self.sync.reads.insert(ticket, Read::Copy { at, session });
        effects.reads.push(ReadJob { ticket, plan, block, in_pieces: true });
    }

    /// Whether the next piece may be read now; else an answer or time goes on with it.
    fn may_read(&mut self, at: At, index: usize, now: Now) -> bool {
        let Role::Owner(owner) = &mut self.partitions[at].role else { return false };
        let sync = &mut owner.syncs[index];
        if sync.unanswered_bytes >= COPY_AHEAD_BYTES.min(self.sync.peers.window_bytes / 2) {
            // One of its own answers goes on with it. It lacks no room at the node: who waits for that is looked at as
            // long as there is some.
            return false;
        }
        if !self.sync.peers.has_room(sync.place.node) {
            self.sync.peers.starve(sync.place.node, at);
            return false;
        }
        let (bytes, _) = sync.next_read();
        sync.throttle.allows(sync.next, bytes as u64, now.mono_ms)
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
            Some(Read::Copy { at, session }) => {
                if self.copy_read(at, session, end, now, effects) {
                    self.pump(at, now, pool, effects);
                }
            }
            Some(Read::Cut { at, begin }) => self.cut_read(at, &begin, &end, pool, effects),
            Some(Read::Serve(serve)) => self.copy_served(&serve, end, pool, effects),
        }
        None
    }

    /// True if the next read may begin at once; else time or an answer begins it.
    fn copy_read(&mut self, at: At, session: u64, end: ReadEnd, now: Now, effects: &mut Effects) -> bool {
        let Some(partition) = self.partitions.get_mut(at) else { return false };
        let Role::Owner(owner) = &mut partition.role else { return false };
        // Of a session that is over: nobody waits for it.
        let Some(index) = owner.by_session(session) else { return false };
        let others = owner.syncs.iter().filter(|sync| sync.counts()).count();
        let until = self.sync.tails.first(at).unwrap_or(owner.durable.record);
        let budget = self.sync.tails.budget_bytes as u64;
        let most_bytes = read_bytes_max(self.sync.peers.window_bytes);
        let sync = &mut owner.syncs[index];
        sync.reading = false;
        let mut goes_on = false;
        match end.result {
            Ok(done) if done.records > 0 && sync.stage == Stage::Copying => {
                sync.took(&done, until, budget, most_bytes);
                let mut first = sync.next;
                self.counters.copied_bytes += done.bytes as u64;
                let block = Arc::new(end.block);
                for (from, piece) in end.sums.into_pieces() {
                    let body = Outbound::SharedBlock { block: block.clone(), at: from, bytes: piece.bytes };
                    self.replicate_to(at, index, Piece { first, ..piece }, body, now, effects);
                    first = piece.next;
                }
                goes_on = true;
            }
            Ok(_) => {}
            Err(ReadError::BlockTooSmall { bytes }) => {
                sync.needs(bytes);
                goes_on = true;
            }
            Err(ReadError::Damaged { damage, .. }) if others > 1 => {
                // Another replica may have it: the copy goes on when it is put right.
                sync.end_session(now.mono_ms + MEND_MS, &format!("the owner's log is damaged: {damage}"));
                self.met_damage(at, &damage);
                self.tell_syncs(at, effects);
            }
            Err(error) if sync.counts() => {
                // A read that fails once may succeed later, and nobody else brings a replica of the set up to here.
                sync.end_session(now.mono_ms + MEND_MS, &format!("the owner's log cannot be read: {error:?}"));
                self.tell_syncs(at, effects);
            }
            Err(error) => {
                (sync.stage, sync.level) = (Stage::Failed, false);
                sync.why = format!("the owner's log cannot be read: {error:?}");
                self.tell_syncs(at, effects);
            }
        }
        self.has_business(at);
        goes_on
    }
}
