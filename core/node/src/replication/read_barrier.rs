//! What an owner tells of its log's end is confirmed by a quorum: one that was paused, or is cut off, tells no old tales.
//!
//! The request waits until enough replicas have answered something that was sent after it came: they follow this owner's
//! epoch still, so no newer owner has acknowledged anything. One round at a time: what comes meanwhile waits for the next.
//!
//! What may be a little late needs no round while the owner was confirmed lately ([`FRESH_MS`]): any answer of a quorum
//! confirms it, those to records among them.

use ringfence_transport::Outbound;
use ringfence_wire::{Code, Opcode, RequestHeader};

use crate::api::refusal::Refusal;
use crate::engine::Parts;
use crate::ids::PartitionIndex;
use crate::reads::state::Fetch;
use crate::replication::state::confirms::{EndQuestion, PendingQuestion};
use crate::replication::state::peers::SentRequest;
use crate::replication::state::progress::SessionState;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// Questions that wait at one partition; 200 bytes each.
const CONFIRMS_MAX: usize = 4096;

/// A round takes a sync of a loaded disk. Who hears nothing for so long is told so, and asks again.
const CONFIRM_MS: u64 = 2_000;

const RETRY_MS: u32 = 100;

impl Parts {
    /// Answer now, or when a quorum was heard.
    pub(crate) fn confirm(&mut self, index: PartitionIndex, asked: EndQuestion, turn: &mut Turn<'_>) {
        let Role::Owner(owner) = &mut self.partitions[index].role else {
            return self.answer_asked(index, &asked, turn);
        };
        if owner.quorum == 1 {
            return self.answer_asked(index, &asked, turn);
        }
        if owner.confirms.len() >= CONFIRMS_MAX {
            return self.refuse_asked(&asked, Code::Overloaded, "too many questions wait for replicas", turn);
        }
        owner.confirms.next.push(PendingQuestion { asked, deadline_ms: turn.now.mono_ms + CONFIRM_MS });
        self.needs_tick(index);
        self.begin_round(index, turn);
    }

    /// A fetch found nothing. What it is told is a second old at most, also where this owner is cut off.
    pub(crate) fn end_empty(&mut self, fetch: Fetch, turn: &mut Turn<'_>) {
        match &self.partitions[fetch.index].role {
            Role::Owner(owner) if !owner.is_fresh(turn.now.mono_ms) => {
                self.confirm(fetch.index, EndQuestion::Empty(Box::new(fetch)), turn);
            }
            _ => self.answer_empty(&fetch, turn),
        }
    }

    /// Ask the replicas, unless a round is under way.
    fn begin_round(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let partition = &mut self.partitions[index];
        let (mark, mut header) = (partition.mark, partition.request(0, 0));
        let Role::Owner(owner) = &mut partition.role else { return };
        if !owner.confirms.round.is_empty() || owner.confirms.next.is_empty() {
            return;
        }
        owner.confirms.round = std::mem::take(&mut owner.confirms.next);
        (owner.confirms.since, owner.confirms.began_ms) = (self.replication.peers.next_request(), turn.now.mono_ms);
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
        let Some((partition, replica)) = self.owner(index) else { return };
        let Role::Owner(owner) = &mut partition.role else { return };
        owner.watch(replica.peers.next_request(), turn.now.mono_ms);
        if owner.confirms.round.is_empty() || !owner.is_heard(owner.confirms.since) {
            return;
        }
        let began_ms = Some(owner.confirms.began_ms);
        owner.confirms.confirmed_ms = owner.confirms.confirmed_ms.max(began_ms);
        for PendingQuestion { asked, .. } in std::mem::take(&mut owner.confirms.round) {
            self.answer_asked(index, &asked, turn);
        }
        self.begin_round(index, turn);
    }

    pub(crate) fn end_unconfirmed(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Role::Owner(owner) = &mut self.partitions[index].role else { return };
        for asked in owner.confirms.take_late(turn.now.mono_ms) {
            let why = "too few replicas have confirmed where the log ends";
            self.refuse_asked(&asked, Code::TooFewReplicas, why, turn);
        }
        self.begin_round(index, turn);
    }

    /// The owner is one no longer: others know.
    pub(crate) fn give_up_confirms(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Role::Owner(owner) = &mut self.partitions[index].role else { return };
        for asked in owner.confirms.take_all() {
            self.refuse_asked(&asked, Code::TooFewReplicas, "the partition has another owner", turn);
        }
    }

    fn answer_asked(&mut self, index: PartitionIndex, asked: &EndQuestion, turn: &mut Turn<'_>) {
        match asked {
            EndQuestion::Ends { from, header } => self.answer_ends(index, *from, header, turn),
            EndQuestion::Position { from, header, refusal } => match self.end_is_unknown(index) {
                Some(reason) => self.redirect(*from, header, reason, turn),
                None => self.refuse(*from, header, refusal, turn),
            },
            EndQuestion::Empty(fetch) => self.answer_empty(fetch, turn),
            EndQuestion::Resolve { from, header } => self.answer_resolved(index, *from, header, turn),
        }
    }

    fn refuse_asked(&mut self, asked: &EndQuestion, code: Code, why: &str, turn: &mut Turn<'_>) {
        let (to, header) = match asked {
            EndQuestion::Ends { from, header }
            | EndQuestion::Position { from, header, .. }
            | EndQuestion::Resolve { from, header } => (*from, header.as_ref()),
            EndQuestion::Empty(fetch) => (fetch.connection, &fetch.header),
        };
        let mut refusal = Refusal::new(code, format!("partition {}: {why}", header.partition));
        refusal.retry_after_ms = RETRY_MS;
        self.refuse(to, header, &refusal, turn);
    }
}
