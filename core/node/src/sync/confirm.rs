//! What an owner tells of its log's end is confirmed by a quorum: one that was paused, or is cut off, tells no old tales.
//!
//! The request waits until enough replicas have answered something that was sent after it came: they follow this owner's
//! epoch still, so no newer owner has acknowledged anything. One round at a time: what comes meanwhile waits for the next.
//!
//! What may be a little late needs no round while the owner was confirmed lately ([`FRESH_MS`]): any answer of a quorum
//! confirms it, those to records among them.

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{Code, Opcode, RequestHeader};

use super::Role;
use super::owner::{Owner, Stage};
use super::peers::Sent;
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::fetch::Fetch;
use crate::partition::At;
use crate::refusal::Refusal;

/// What is answered once a quorum was heard.
#[derive(Debug)]
pub enum Asked {
    Ends {
        from: Connection,
        header: Box<RequestHeader>,
    },
    /// A FETCH at a position that this log does not have.
    Position {
        from: Connection,
        header: Box<RequestHeader>,
        refusal: Box<Refusal>,
    },
    /// A poll that found nothing.
    Empty(Box<Fetch>),
    /// What is stored of a producer.
    Resolve {
        from: Connection,
        header: Box<RequestHeader>,
    },
}

#[derive(Debug)]
pub struct Confirm {
    asked: Asked,
    deadline_ms: u64,
}

/// Of one owner.
#[derive(Debug, Default)]
pub struct Confirms {
    /// Answered when requests from number `since` on were answered by enough.
    round: Vec<Confirm>,
    since: u64,
    began_ms: u64,
    next: Vec<Confirm>,
    /// Request number and time: once a quorum has answered something from that number on, it is confirmed as of then.
    watched: Option<(u64, u64)>,
    /// When the newest confirmed moment was.
    confirmed_ms: Option<u64>,
}

impl Confirms {
    pub fn is_empty(&self) -> bool {
        self.round.is_empty() && self.next.is_empty()
    }

    fn len(&self) -> usize {
        self.round.len() + self.next.len()
    }

    pub fn take_all(&mut self) -> Vec<Asked> {
        let all = self.round.drain(..).chain(self.next.drain(..));
        all.map(|confirm| confirm.asked).collect()
    }

    fn take_late(&mut self, now_ms: u64) -> Vec<Asked> {
        let mut late = Vec::new();
        for list in [&mut self.round, &mut self.next] {
            let (over, rest): (Vec<_>, Vec<_>) =
                std::mem::take(list).into_iter().partition(|confirm| confirm.deadline_ms <= now_ms);
            *list = rest;
            late.extend(over.into_iter().map(|confirm| confirm.asked));
        }
        late
    }
}

/// Questions that wait at one partition; 200 bytes each.
const CONFIRMS_MAX: usize = 4096;
/// A round takes a sync of a loaded disk. Who hears nothing for so long is told so, and asks again.
const CONFIRM_MS: u64 = 2_000;
const RETRY_MS: u32 = 100;
/// So late an empty FETCH may be. An owner of an idle partition asks its replicas once in this time, however often it is
/// polled. Less than a failover takes: a node fails after it was silent for 3 s.
const FRESH_MS: u64 = 1_000;

impl Owner {
    /// True if a quorum, this store included, has answered what was sent from request `since` on.
    fn is_heard(&self, since: u64) -> bool {
        1 + self.syncs.iter().filter(|sync| sync.counts() && sync.heard >= since).count() >= self.quorum
    }

    /// A replica has answered; the next request will have this number.
    fn watch(&mut self, next_request: u64, now_ms: u64) {
        match self.confirms.watched {
            Some((since, _)) if !self.is_heard(since) => return,
            Some((_, at_ms)) => self.confirms.confirmed_ms = self.confirms.confirmed_ms.max(Some(at_ms)),
            None => {}
        }
        self.confirms.watched = Some((next_request, now_ms));
    }

    /// A quorum has followed this owner's epoch until lately.
    fn is_fresh(&self, now_ms: u64) -> bool {
        self.quorum == 1 || self.confirms.confirmed_ms.is_some_and(|at_ms| now_ms < at_ms + FRESH_MS)
    }
}

impl Engine {
    /// Answer now, or when a quorum was heard.
    pub(crate) fn confirm(&mut self, at: At, asked: Asked, now: Now, effects: &mut Effects) {
        let Role::Owner(owner) = &mut self.partitions[at].role else { return self.answer_asked(at, &asked, effects) };
        if owner.quorum == 1 {
            return self.answer_asked(at, &asked, effects);
        }
        if owner.confirms.len() >= CONFIRMS_MAX {
            return self.refuse_asked(&asked, Code::Overloaded, "too many questions wait for replicas", effects);
        }
        owner.confirms.next.push(Confirm { asked, deadline_ms: now.mono_ms + CONFIRM_MS });
        self.has_business(at);
        self.begin_round(at, now, effects);
    }

    /// A fetch found nothing. What it is told is a second old at most, also where this owner is cut off.
    pub(crate) fn end_empty(&mut self, fetch: Fetch, now: Now, effects: &mut Effects) {
        match &self.partitions[fetch.at].role {
            Role::Owner(owner) if !owner.is_fresh(now.mono_ms) => {
                self.confirm(fetch.at, Asked::Empty(Box::new(fetch)), now, effects);
            }
            _ => self.answer_empty(&fetch, effects),
        }
    }

    /// Ask the replicas, unless a round is under way.
    fn begin_round(&mut self, at: At, now: Now, effects: &mut Effects) {
        let partition = &mut self.partitions[at];
        let (mark, mut header) = (partition.mark, partition.request(0, 0));
        let Role::Owner(owner) = &mut partition.role else { return };
        if !owner.confirms.round.is_empty() || owner.confirms.next.is_empty() {
            return;
        }
        owner.confirms.round = std::mem::take(&mut owner.confirms.next);
        (owner.confirms.since, owner.confirms.began_ms) = (self.sync.peers.next_request(), now.mono_ms);
        (header.owner_epoch, header.send, header.producer_epoch) = (owner.epoch, owner.mark_record, mark);
        for sync in &mut owner.syncs {
            // One that is copying answers its next piece.
            if sync.counts() && sync.stage == Stage::Live {
                sync.told = owner.mark_record;
                let header = RequestHeader { sequence: sync.next, ..header };
                let sent = Sent { at, session: sync.session, opcode: Opcode::Replicate, bytes: 0 };
                self.sync.peers.send(sync.place.node, header, Outbound::Empty, sent, now, effects);
            }
        }
    }

    /// A replica has answered. Meanwhile the partition may be dropped, and its place empty.
    pub(super) fn after_answer(&mut self, at: At, now: Now, effects: &mut Effects) {
        let Some((partition, sync)) = self.owner(at) else { return };
        let Role::Owner(owner) = &mut partition.role else { return };
        owner.watch(sync.peers.next_request(), now.mono_ms);
        if owner.confirms.round.is_empty() || !owner.is_heard(owner.confirms.since) {
            return;
        }
        let began_ms = Some(owner.confirms.began_ms);
        owner.confirms.confirmed_ms = owner.confirms.confirmed_ms.max(began_ms);
        for Confirm { asked, .. } in std::mem::take(&mut owner.confirms.round) {
            self.answer_asked(at, &asked, effects);
        }
        self.begin_round(at, now, effects);
    }

    pub(super) fn end_unconfirmed(&mut self, at: At, now: Now, effects: &mut Effects) {
        let Role::Owner(owner) = &mut self.partitions[at].role else { return };
        for asked in owner.confirms.take_late(now.mono_ms) {
            let why = "too few replicas have confirmed where the log ends";
            self.refuse_asked(&asked, Code::TooFewReplicas, why, effects);
        }
        self.begin_round(at, now, effects);
    }

    /// The owner is one no longer: others know.
    pub(super) fn give_up_confirms(&mut self, at: At, effects: &mut Effects) {
        let Role::Owner(owner) = &mut self.partitions[at].role else { return };
        for asked in owner.confirms.take_all() {
            self.refuse_asked(&asked, Code::TooFewReplicas, "the partition has another owner", effects);
        }
    }

    fn answer_asked(&mut self, at: At, asked: &Asked, effects: &mut Effects) {
        match asked {
            Asked::Ends { from, header } => self.answer_ends(at, *from, header, effects),
            Asked::Position { from, header, refusal } => match self.end_is_unknown(at) {
                Some(reason) => self.redirect(*from, header, reason, effects),
                None => self.refuse(*from, header, refusal, effects),
            },
            Asked::Empty(fetch) => self.answer_empty(fetch, effects),
            Asked::Resolve { from, header } => self.answer_resolved(at, *from, header, effects),
        }
    }

    fn refuse_asked(&mut self, asked: &Asked, code: Code, why: &str, effects: &mut Effects) {
        let (to, header) = match asked {
            Asked::Ends { from, header } | Asked::Position { from, header, .. } | Asked::Resolve { from, header } => {
                (*from, header.as_ref())
            }
            Asked::Empty(fetch) => (fetch.connection, &fetch.header),
        };
        let mut refusal = Refusal::new(code, format!("partition {}: {why}", header.partition));
        refusal.retry_after_ms = RETRY_MS;
        self.refuse(to, header, &refusal, effects);
    }
}
