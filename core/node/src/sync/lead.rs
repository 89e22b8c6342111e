//! The owner's side: sessions with replicas, what they answer, and what follows from the mark.

use ringfence_buffer::Pool;
use ringfence_transport::{Inbound, Outbound};
use ringfence_wire::{AnswerHeader, Code, Opcode, RequestHeader, Status};

use super::owner::{Owner, Stage};
use super::peers::Sent;
use super::{Role, Syncs};
use crate::acks::{Then, What};
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::outcome::{Outcome, SyncStatus};
use crate::park::bytes_of;
use crate::partition::{At, Partition};
use crate::refusal::Refusal;

/// Another store is there: the control plane hears of it by the node's heartbeats.
const RETRY_LATE_MS: u64 = 500;

impl Owner {
    pub(super) fn by_session(&self, session: u64) -> Option<usize> {
        self.syncs.iter().position(|sync| session != 0 && sync.session == session)
    }
}

impl Partition {
    pub(super) fn request(&self, epoch: u64, sequence: u64) -> RequestHeader {
        let (topic, partition) = self.key();
        RequestHeader { topic, partition, owner_epoch: epoch, sequence, ..RequestHeader::default() }
    }
}

impl Engine {
    /// The partition's owner, if it has replicas.
    pub(super) fn owner(&mut self, at: At) -> Option<(&mut Partition, &mut Syncs)> {
        let partition = self.partitions.get_mut(at)?;
        if matches!(partition.role, Role::Owner(_)) { Some((partition, &mut self.sync)) } else { None }
    }

    pub(crate) fn peer_opened(&mut self, node: u64, now: Now, effects: &mut Effects) {
        self.sync.peers.opened(node, now);
        self.introduce(node, effects);
        self.try_mends_again();
        for at in 0..self.partitions.places() {
            self.call(at, Some(node), now, effects);
        }
    }

    pub(crate) fn peer_closed(&mut self, node: u64, now: Now, effects: &mut Effects) {
        let lost = self.sync.peers.closed(node, now);
        self.copy_lost(now);
        for at in 0..self.partitions.places() {
            let Some((partition, _)) = self.owner(at) else { continue };
            let Role::Owner(owner) = &mut partition.role else { continue };
            let mut any = false;
            for sync in owner.syncs.iter_mut().filter(|sync| sync.place.node == node) {
                any = true;
                sync.lost_link(lost.as_ref(), now.mono_ms);
            }
            if any {
                self.trim(at);
                self.has_business(at);
                self.tell_syncs(at, effects);
            }
        }
    }

    /// Time concerns this partition until everything about it is calm.
    pub(crate) fn has_business(&mut self, at: At) {
        if let Role::Owner(owner) = &mut self.partitions[at].role
            && !owner.is_restless
        {
            owner.is_restless = true;
            self.sync.restless.push(at);
        }
    }

    /// An answer of another node.
    #[allow(clippy::too_many_arguments)] // an event's parts
    pub(crate) fn peer_answer(
        &mut self,
        node: u64,
        bytes: &[u8; 128],
        body: Inbound<'_>,
        now: Now,
        pool: &mut Pool,
        effects: &mut Effects,
    ) {
        let Ok(header) = AnswerHeader::open(bytes) else {
            effects.peers.push(super::ToPeer::Close { node });
            return;
        };
        let Some(sent) = self.sync.peers.answered(node, header.request_id, now) else { return };
        if sent.opcode == Opcode::Copy {
            return self.copy_answered(sent, &header, body, now, effects);
        }
        self.take_answer(sent, &header, bytes_of(&body), now, effects);
        self.after_answer(sent.at, now, effects);
        self.pump(sent.at, now, pool, effects);
        // Each once: who finds no room now either waits behind them for the next answer.
        for _ in 0..self.sync.peers.starved(node) {
            let Some(at) = self.sync.peers.next_starved(node) else { break };
            self.pump(at, now, pool, effects);
        }
        self.after_marks(now, pool, effects);
    }

    fn take_answer(&mut self, sent: Sent, header: &AnswerHeader, body: &[u8], now: Now, effects: &mut Effects) {
        let Some(partition) = self.partitions.get_mut(sent.at) else { return };
        let Role::Owner(owner) = &mut partition.role else { return };
        let Some(index) = owner.by_session(sent.session) else { return };
        if header.status != Status::Ok as u8 {
            let code = Code::from_number(header.code);
            let why = format!("node {} says {}", owner.syncs[index].place.node, code.map_or("no", Code::name));
            match code {
                Some(Code::Ahead | Code::Unauthorized) => self.ask_again(sent.at, index, &why, now),
                Some(Code::Overloaded) => owner.syncs[index].was_full(now.mono_ms, &why),
                Some(Code::TooLarge) => owner.syncs[index].was_too_large(now.mono_ms, sent.bytes),
                _ => owner.syncs[index].was_refused(now.mono_ms, &why),
            }
            self.has_business(sent.at);
            self.tell_syncs(sent.at, effects);
            return;
        }
        if sent.opcode == Opcode::Fence {
            return self.met(sent.at, index, header, body, now, effects);
        }
        let sync = &mut owner.syncs[index];
        let was = sync.stage.clone();
        if sync.stage == Stage::Begun {
            sync.stage = Stage::Copying;
        }
        sync.unanswered_bytes = sync.unanswered_bytes.saturating_sub(sent.bytes);
        sync.reached(header.sequence);
        sync.heard = sync.heard.max(header.request_id);
        sync.lagged = 0;
        self.advance(sent.at, effects);
        if was == Stage::Begun {
            self.tell_syncs(sent.at, effects);
        }
    }

    /// The replica said where its log ends: where do the two part?
    fn met(&mut self, at: At, index: usize, answer: &AnswerHeader, body: &[u8], now: Now, effects: &mut Effects) {
        let partition = &mut self.partitions[at];
        let own_end = partition.log.end().next_record;
        let Role::Owner(owner) = &mut partition.role else { return };
        let sync = &mut owner.syncs[index];
        if body != sync.place.store {
            // What the lost store had is nowhere.
            sync.durable = 0;
            sync.end_session(now.mono_ms + RETRY_LATE_MS, "the node has another store: it was wiped or replaced");
            self.has_business(at);
            return self.tell_syncs(at, effects);
        }
        let (epoch, end) = (answer.owner_epoch, answer.sequence);
        let (known, known_end) = partition.epochs.last_upto(epoch, own_end);
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::GapCounts) {
            sync.durable = end;
        }
        let common = if end == 0 || known == 0 { 0 } else { end.min(known_end) };
        if common > 0 && known != epoch {
            // It has an epoch that this log has not: nothing of that one counts, and of older ones only what both have.
            return self.ask(at, index, known, now, effects);
        }
        if common < partition.log.first().0 {
            let Role::Owner(owner) = &mut partition.role else { return };
            (owner.syncs[index].stage, owner.syncs[index].anew) = (Stage::Copying, true);
            self.has_business(at);
            return self.tell_syncs(at, effects);
        }
        self.begin(at, index, common, now, effects);
    }

    /// Equal up to `common`: the replica's log goes on there.
    fn begin(&mut self, at: At, index: usize, common: u64, now: Now, effects: &mut Effects) {
        let partition = &mut self.partitions[at];
        let mut header = partition.request(0, common);
        let Role::Owner(owner) = &mut partition.role else { return };
        header.owner_epoch = owner.epoch;
        let sync = &mut owner.syncs[index];
        (sync.stage, sync.next, sync.told) = (Stage::Begun, common, 0);
        let sent = Sent { at, session: sync.session, opcode: Opcode::Replicate, bytes: 0 };
        self.sync.peers.send(sync.place.node, header, Outbound::Empty, sent, now, effects);
    }

    /// What the mark has reached ends now.
    pub(crate) fn advance(&mut self, at: At, effects: &mut Effects) {
        let Role::Owner(owner) = &mut self.partitions[at].role else { return };
        if owner.raise_mark() {
            self.has_business(at);
        }
        loop {
            let partition = &mut self.partitions[at];
            let Role::Owner(owner) = &mut partition.role else { return };
            let Some(waiting) = owner.pop_reached() else { return };
            if waiting.end.offset > partition.mark {
                partition.mark = waiting.end.offset;
                if !partition.waiting.is_empty() && self.woken.last() != Some(&at) {
                    self.woken.push(at);
                }
            }
            match waiting.what {
                What::Batch(batch) => self.answer_batch(at, &batch, effects),
                What::Order { number, finished, then } => {
                    let result = self.order_durable(at, then).map(|()| finished);
                    effects.outcomes.push(Outcome::Order { number, result });
                }
                What::Nothing | What::Replica(_) => {}
            }
        }
    }

    /// Marks moved: fetches and requests that waited for that go on.
    pub(crate) fn after_marks(&mut self, now: Now, pool: &mut Pool, effects: &mut Effects) {
        self.wake(now, pool, effects);
        while let Some(topic) = self.upkeep.opened.pop() {
            self.serve_ahead(topic, now, pool, effects);
        }
    }

    /// Time passed.
    pub(crate) fn tick_syncs(&mut self, now: Now, pool: &mut Pool, effects: &mut Effects) {
        self.sync.peers.tick(now, effects);
        let mut restless = std::mem::take(&mut self.sync.restless);
        restless.retain(|at| self.is_still_restless(*at, now, pool, effects));
        self.sync.restless.append(&mut restless);
        self.after_marks(now, pool, effects);
    }

    fn is_still_restless(&mut self, at: At, now: Now, pool: &mut Pool, effects: &mut Effects) -> bool {
        if self.owner(at).is_none() {
            return false;
        }
        self.call(at, None, now, effects);
        self.pump(at, now, pool, effects);
        self.tell_marks(at, now, effects);
        self.end_unknown(at, now, effects);
        self.end_unconfirmed(at, now, effects);
        let Some(partition) = self.partitions.get_mut(at) else { return false };
        let Role::Owner(owner) = &mut partition.role else { return false };
        owner.is_restless = owner.has_business();
        owner.is_restless
    }

    /// Batches and publishes that wait no longer: appended, and nobody knows whether a quorum will have them.
    fn end_unknown(&mut self, at: At, now: Now, effects: &mut Effects) {
        let Role::Owner(owner) = &mut self.partitions[at].role else { return };
        let mut late = Vec::new();
        for waiting in &mut owner.waiting {
            match waiting.what {
                What::Batch(batch) if batch.deadline_ms <= now.mono_ms => late.push(batch),
                What::Order { number, then: Then::Published { until_ms, .. }, .. } if until_ms <= now.mono_ms => {
                    let why = "appended, and on too few disks in time: it may be published or not; ask again";
                    effects.outcomes.push(Outcome::Order { number, result: Err(why.to_owned()) });
                }
                _ => continue,
            }
            // Its end stays: the mark moves there when it may.
            waiting.what = What::Nothing;
        }
        for batch in late {
            self.answer_unknown(at, &batch, "too few replicas had it on disk in time", effects);
        }
    }

    /// Nobody will know any more from this owner what becomes of what waits: it is one no longer.
    pub(crate) fn give_up_waiting(&mut self, at: At, why: &str, effects: &mut Effects) {
        self.give_up_confirms(at, effects);
        let Role::Owner(owner) = &mut self.partitions[at].role else { return };
        let waiting = std::mem::take(&mut owner.waiting);
        for waiting in waiting {
            self.give_up(at, &waiting.what, why, effects);
        }
    }

    /// What waited for the mark of an owner that is none any more.
    pub(crate) fn give_up(&mut self, at: At, what: &What, why: &str, effects: &mut Effects) {
        match what {
            What::Batch(batch) => self.answer_unknown(at, batch, why, effects),
            &What::Order { number, .. } => {
                effects.outcomes.push(Outcome::Order { number, result: Err(why.to_owned()) });
            }
            What::Nothing | What::Replica(_) => {}
        }
    }

    /// Refused before the append when too few replicas are there.
    pub(crate) fn check_replicas(partition: &Partition) -> Result<(), Refusal> {
        let Role::Owner(owner) = &partition.role else { return Ok(()) };
        let (there, quorum) = (owner.there(), owner.quorum);
        if owner.waiting.len() >= WAITING_MAX {
            return Err(Refusal::new(Code::Overloaded, format!("{WAITING_MAX} batches wait for replicas")));
        }
        if there >= quorum {
            return Ok(());
        }
        let what = format!(
            "partition {}: {there} of its replicas are there, an ack needs {quorum}; nothing was stored",
            partition.log.partition
        );
        let mut refusal = Refusal::new(Code::TooFewReplicas, what);
        refusal.retry_after_ms = TOO_FEW_RETRY_MS;
        Err(refusal.with("there", there as u64).with("quorum", quorum as u64))
    }

    /// An idle replica hears of the mark by an empty REPLICATE.
    fn tell_marks(&mut self, at: At, now: Now, effects: &mut Effects) {
        let partition = &mut self.partitions[at];
        let (mark, mut header) = (partition.mark, partition.request(0, 0));
        let Role::Owner(owner) = &mut partition.role else { return };
        (header.owner_epoch, header.send, header.producer_epoch) = (owner.epoch, owner.mark_record, mark);
        for sync in &mut owner.syncs {
            let is_news = sync.told < owner.mark_record;
            if sync.stage == Stage::Live && is_news && self.sync.peers.has_room(sync.place.node) {
                sync.told = owner.mark_record;
                let header = RequestHeader { sequence: sync.next, ..header };
                let sent = Sent { at, session: sync.session, opcode: Opcode::Replicate, bytes: 0 };
                self.sync.peers.send(sync.place.node, header, Outbound::Empty, sent, now, effects);
            }
        }
    }

    /// Tell the control plane where the copies to learners stand.
    pub(super) fn tell_syncs(&mut self, at: At, effects: &mut Effects) {
        let list = sync_list(&self.partitions[at]);
        effects.outcomes.extend(list.filter(|status| status.change > 0).map(Outcome::Sync));
    }

    /// Every copy that this store's owners make.
    pub fn sync_list(&self) -> Vec<SyncStatus> {
        let mut list: Vec<SyncStatus> = self.partitions.iter().flat_map(sync_list).collect();
        list.sort_by_key(|sync| (sync.topic, sync.partition, sync.change, sync.node));
        list
    }
}

fn sync_list(partition: &Partition) -> impl Iterator<Item = SyncStatus> + '_ {
    let syncs = if let Role::Owner(owner) = &partition.role { owner.syncs.as_slice() } else { &[] };
    let (topic, id) = partition.key();
    let head = partition.log.end();
    syncs.iter().map(move |sync| SyncStatus {
        topic,
        partition: id,
        change: sync.change,
        attempt: sync.attempt,
        node: sync.place.node,
        state: sync.state(),
        why: if sync.level { String::new() } else { sync.why.clone() },
        records: sync.durable,
        gap: head.next_record.saturating_sub(sync.durable),
        bytes: sync.bytes,
        rows: sync.rows,
        chain: if sync.durable == head.next_record { head.chain } else { 0 },
    })
}

/// Batches of one partition between append and mark; 100 bytes each. Producers have 64 under way each.
const WAITING_MAX: usize = 65_536;
/// A replica that was killed is back after seconds; one that lost its connection after 50 ms.
const TOO_FEW_RETRY_MS: u32 = 100;
