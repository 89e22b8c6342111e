//! Read barrier. An owner answers questions about the end of its log only after a quorum has confirmed its epoch, so a
//! paused or partitioned owner returns no stale offsets.
//!
//! The request waits until enough replicas have answered something that was sent after it came: they follow this owner's
//! epoch still, so no newer owner has acknowledged anything. One round at a time: what comes meanwhile waits for the next.
//!
//! What may be a little late needs no round while the owner was confirmed lately ([`FRESH_MS`]): any answer of a quorum
//! confirms it, those to records among them.

use ringfence_transport::Outbound;
use ringfence_wire::{Opcode, RequestHeader};

use crate::ids::PartitionIndex;
use crate::replication::machine::ReplicationMachine;
use crate::replication::state::peers::SentRequest;
use crate::replication::state::progress::SessionState;
use crate::replication::state::role::Role;
use crate::turn::{Confirmation, Turn};

/// Questions that wait at one partition; 200 bytes each.
const CONFIRMS_MAX: usize = 4096;

/// A round takes a sync of a loaded disk. Who hears nothing for so long is told so, and asks again.
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
    /// Ask a quorum to confirm this owner, if it has replicas that count.
    pub(crate) fn confirm(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) -> Barrier {
        let Role::Owner(owner) = &mut self.store.partitions[index].role else { return Barrier::None };
        if owner.quorum == 1 {
            return Barrier::None;
        }
        if owner.confirms.len() >= CONFIRMS_MAX {
            return Barrier::Full;
        }
        let ticket = turn.ticket();
        owner.confirms.add(ticket, turn.now.mono_ms + CONFIRM_MS);
        self.store.needs_tick(index);
        self.begin_round(index, turn);
        Barrier::Ticket(ticket)
    }

    /// True if a quorum has followed this owner's epoch until lately, or is not needed.
    pub(crate) fn is_fresh(&self, index: PartitionIndex, turn: &Turn<'_>) -> bool {
        match &self.store.partitions[index].role {
            Role::Owner(owner) => owner.is_fresh(turn.now.mono_ms),
            _ => true,
        }
    }

    /// Ask the replicas, unless a round is under way.
    fn begin_round(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let partition = &mut self.store.partitions[index];
        let (mark, mut header) = (partition.mark, partition.request(0, 0));
        let Role::Owner(owner) = &mut partition.role else { return };
        if !owner.confirms.begin_round(self.replication.peers.next_request(), turn.now.mono_ms) {
            return;
        }
        (header.owner_epoch, header.send, header.producer_epoch) = (owner.epoch, owner.mark_record, mark);
        for replica in &mut owner.replicas {
            // One that is copying answers its next piece.
            if replica.counts() && replica.stage == SessionState::Live {
                replica.mark_sent = owner.mark_record;
                let header = RequestHeader { sequence: replica.next, ..header };
                let sent = SentRequest { index, session: replica.session, opcode: Opcode::Replicate, bytes: 0 };
                self.replication.peers.send(replica.place.node, header, Outbound::Empty, sent, turn);
            }
        }
    }

    /// A replica has answered. Meanwhile the partition may be dropped, and its place empty.
    pub(crate) fn after_answer(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Some((partition, replication)) = self.owner(index) else { return };
        let Role::Owner(owner) = &mut partition.role else { return };
        owner.watch(replication.peers.next_request(), turn.now.mono_ms);
        if !owner.confirms.round_since().is_some_and(|since| owner.is_heard(since)) {
            return;
        }
        let round = owner.confirms.end_round().map(|ticket| (ticket, Confirmation::Confirmed));
        turn.follow_ups.confirmations.extend(round);
        self.begin_round(index, turn);
    }

    pub(crate) fn end_unconfirmed(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Role::Owner(owner) = &mut self.store.partitions[index].role else { return };
        let late = owner.confirms.take_late(turn.now.mono_ms).into_iter();
        turn.follow_ups.confirmations.extend(late.map(|ticket| (ticket, Confirmation::TooLate)));
        self.begin_round(index, turn);
    }

    /// The owner is one no longer: others know.
    pub(crate) fn give_up_confirms(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Role::Owner(owner) = &mut self.store.partitions[index].role else { return };
        let all = owner.confirms.take_all();
        turn.follow_ups.confirmations.extend(all.map(|ticket| (ticket, Confirmation::OwnerChanged)));
    }
}
