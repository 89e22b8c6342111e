//! Read barrier. An owner answers questions about the end of its log only after a quorum has confirmed its epoch, so a
//! paused or partitioned owner returns no stale offsets.
//!
//! The request waits until enough replicas have answered something that was sent after it came: they follow this
//! owner's epoch still, so no newer owner has acknowledged anything. One round at a time: what comes meanwhile waits
//! for the next.
//!
//! What may be a little late needs no round while the owner was confirmed lately ([`FRESH_MS`]): any answer of a quorum
//! confirms it, those to records among them.

use ringfence_transport::Outbound;
use ringfence_wire::{Opcode, RequestHeader};

use crate::ids::PartitionIndex;
use crate::replication::owned_partition::OwnerMut;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::peer_connections::SentRequest;
use crate::replication::state::replica_progress::SessionState;
use crate::replication::state::role::Role;
use crate::turn::{Confirmation, Turn};

/// Questions that wait at one partition; 200 bytes each.
const CONFIRMS_MAX: usize = 4096;

/// A round takes a sync of a loaded disk. A question that is not confirmed for so long is refused, and asked again.
const CONFIRM_MS: u64 = 2_000;

/// Whether a question about the end of a log must wait for a quorum.
pub enum Barrier {
    /// This store is its own quorum.
    None,
    /// Answered when this ticket is confirmed.
    Ticket(u64),
    /// Too many questions wait.
    Full,
}

impl ReplicationMachine<'_> {
    /// True if a quorum has followed this owner's epoch until lately, or is not needed.
    pub(crate) fn is_fresh(&self, index: PartitionIndex, turn: &Turn<'_>) -> bool {
        match &self.store.partitions[index].role {
            Role::Owner(owner) => owner.is_fresh(turn.now.mono_ms),
            _ => true,
        }
    }
}

impl OwnerMut<'_> {
    /// Ask a quorum to confirm this owner, if it has replicas that count.
    pub(crate) fn confirm(&mut self, turn: &mut Turn<'_>) -> Barrier {
        if self.owner.quorum() == 1 {
            return Barrier::None;
        }
        if self.owner.confirms.len() >= CONFIRMS_MAX {
            return Barrier::Full;
        }
        let ticket = turn.ticket();
        self.owner.confirms.add(ticket, turn.now.mono_ms + CONFIRM_MS);
        self.needs_tick();
        self.begin_round(turn);
        Barrier::Ticket(ticket)
    }

    /// Ask the replicas, unless a round is under way.
    fn begin_round(&mut self, turn: &mut Turn<'_>) {
        let (mark, mark_record, mut header) = (self.mark, self.owner.mark_record(), self.request(0, 0));
        if !self.owner.confirms.begin_round(self.replication.peers.next_request(), turn.now.mono_ms) {
            return;
        }
        (header.owner_epoch, header.send, header.producer_epoch) = (self.owner.epoch(), mark_record, mark);
        for replica in &mut self.owner.replicas {
            // One that is copying answers its next piece.
            if replica.counts() && *replica.stage() == SessionState::Live {
                replica.send_mark(mark_record);
                let header = RequestHeader { sequence: replica.next(), ..header };
                let sent =
                    SentRequest { index: self.index, session: replica.session(), opcode: Opcode::Replicate, bytes: 0 };
                self.replication.peers.send(replica.place().node, header, Outbound::Empty, sent, turn);
            }
        }
    }

    /// A replica has answered. Meanwhile the partition may be dropped, and its place empty.
    pub(crate) fn after_answer(&mut self, turn: &mut Turn<'_>) {
        self.owner.watch(self.replication.peers.next_request(), turn.now.mono_ms);
        if !self.owner.confirms.round_since().is_some_and(|since| self.owner.is_heard(since)) {
            return;
        }
        let round = self.owner.confirms.end_round().map(|ticket| (ticket, Confirmation::Confirmed));
        turn.follow_ups.confirmations.extend(round);
        self.begin_round(turn);
    }

    pub(crate) fn end_unconfirmed(&mut self, turn: &mut Turn<'_>) {
        let late = self.owner.confirms.take_late(turn.now.mono_ms).into_iter();
        turn.follow_ups.confirmations.extend(late.map(|ticket| (ticket, Confirmation::TooLate)));
        self.begin_round(turn);
    }

    /// The owner is one no longer: others know.
    pub(crate) fn give_up_confirms(&mut self, turn: &mut Turn<'_>) {
        let all = self.owner.confirms.take_all();
        turn.follow_ups.confirmations.extend(all.map(|ticket| (ticket, Confirmation::OwnerChanged)));
    }
}
