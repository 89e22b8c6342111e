//! The owner's side: sessions with replicas, their answers, and completions that the mark reaches.

use ringfence_transport::Outbound;
use ringfence_wire::{AnswerHeader, Code, Opcode, RequestHeader, Status};

use crate::api::completion::{Completion, OnDurable, ReplicatedEnd};
use crate::api::outcome::Outcome;
use crate::ids::PartitionIndex;
use crate::replication::owned_partition::OwnerMut;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::owner::AwaitingMark;
use crate::replication::state::peer_connections::SentRequest;
use crate::replication::state::replica_progress::SessionState;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// Another store is there: the control plane hears of it by the node's heartbeats.
const RETRY_LATE_MS: u64 = 500;

impl ReplicationMachine<'_> {
    pub(crate) fn peer_opened(&mut self, node: u64, turn: &mut Turn<'_>) {
        for index in 0..self.store.partitions.places() {
            if let Some(mut owner) = self.owner_mut(index) {
                owner.call(Some(node), turn);
            }
        }
    }

    pub(crate) fn peer_closed(&mut self, node: u64, turn: &mut Turn<'_>) {
        let lost = self.replication.peers.closed(node, turn.now);
        for index in 0..self.store.partitions.places() {
            let Some(mut lent) = self.owner_mut(index) else { continue };
            let mut any = false;
            for replica in lent.owner.replicas.iter_mut().filter(|replica| replica.place().node == node) {
                any = true;
                replica.lost_link(lost.as_ref(), turn.now.mono_ms);
            }
            if any {
                lent.trim();
                lent.needs_tick();
                lent.report_progress(turn);
            }
        }
    }

    /// An answer of another node.
    pub(crate) fn peer_answered(
        &mut self,
        node: u64,
        sent: SentRequest,
        header: &AnswerHeader,
        body: &[u8],
        turn: &mut Turn<'_>,
    ) {
        self.take_answer(sent, header, body, turn);
        if let Some(mut owner) = self.owner_mut(sent.index) {
            owner.after_answer(turn);
        }
        self.pump(sent.index, turn);
        // Each once: a partition that finds no room now either waits for the next answer.
        for _ in 0..self.replication.peers.starved(node) {
            let Some(index) = self.replication.peers.next_starved(node) else { break };
            self.pump(index, turn);
        }
    }

    fn take_answer(&mut self, sent: SentRequest, header: &AnswerHeader, body: &[u8], turn: &mut Turn<'_>) {
        let Some(mut lent) = self.owner_mut(sent.index) else { return };
        let Some(replica_index) = lent.owner.by_session(sent.session) else { return };
        if header.status != Status::Ok as u8 {
            return lent.refused(replica_index, sent, header, turn);
        }
        if sent.opcode == Opcode::Fence {
            return lent.met(replica_index, header, body, turn);
        }
        let replica = &mut lent.owner.replicas[replica_index];
        let was_begun = replica.become_copying();
        replica.take_answer(header.request_id, header.sequence, sent.bytes);
        self.advance(sent.index, turn);
        if was_begun && let Some(owner) = self.owner_mut(sent.index) {
            owner.report_progress(turn);
        }
    }

    /// Durable on this store: the completion now waits for a quorum. Back comes one that needs none.
    pub(crate) fn durable_here(
        &mut self,
        index: PartitionIndex,
        ReplicatedEnd { end, epoch }: ReplicatedEnd,
        completion: Completion,
        turn: &mut Turn<'_>,
    ) -> Option<Completion> {
        let partition = &mut self.store.partitions[index];
        let newest = partition.log.end().owner_epoch;
        match &mut partition.role {
            Role::Owner(owner) if owner.epoch() == epoch => {
                owner.become_durable(end);
                owner.waiting.push_back(AwaitingMark { end, completion });
                self.store.needs_tick(index);
                self.advance(index, turn);
                None
            }
            // Its only copy was stopped while this was written: the same owner is its own quorum again. Given up, the
            // mark would not reach it, and every repeat of it would wait for that.
            Role::Alone if newest == epoch => Some(completion),
            // Another owner came since, and may have cut it off.
            _ => {
                let why = "the owner changed before enough replicas had it on disk";
                self.give_up(index, &completion, why, turn);
                None
            }
        }
    }

    /// What the mark has reached ends now.
    pub(crate) fn advance(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Role::Owner(owner) = &mut self.store.partitions[index].role else { return };
        if owner.raise_mark() {
            self.store.needs_tick(index);
        }
        loop {
            let partition = &mut self.store.partitions[index];
            let Role::Owner(owner) = &mut partition.role else { return };
            let Some(waiting) = owner.pop_reached() else { return };
            if waiting.end.offset > partition.mark {
                partition.mark = waiting.end.offset;
                if partition.is_awaited() && turn.follow_ups.new_rows.last() != Some(&index) {
                    turn.follow_ups.new_rows.push(index);
                }
            }
            match waiting.completion {
                Completion::Batch(batch) => self.store.answer_batch(index, &batch, turn),
                Completion::Order { number, finished, on_durable } => {
                    let result = self.store.order_durable(index, on_durable, turn).map(|()| finished);
                    turn.effects.outcomes.push(Outcome::Order { number, result });
                }
                Completion::Cohort { record } => self.store.cohort_record_durable(index, record, turn),
                Completion::Nothing | Completion::Replica(_) => {}
            }
        }
    }

    /// Tick all owned partitions with something to do.
    pub(crate) fn tick_replication(&mut self, turn: &mut Turn<'_>) {
        self.replication.peers.tick(turn);
        let mut ticking = std::mem::take(&mut self.store.ticking);
        ticking.retain(|index| self.keeps_ticking(*index, turn));
        self.store.ticking.append(&mut ticking);
    }

    fn keeps_ticking(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) -> bool {
        let Some(mut owner) = self.owner_mut(index) else { return false };
        owner.call(None, turn);
        self.pump(index, turn);
        if let Some(mut owner) = self.owner_mut(index) {
            owner.tell_marks(turn);
        }
        self.end_unknown(index, turn);
        let Some(mut lent) = self.owner_mut(index) else { return false };
        lent.end_unconfirmed(turn);
        lent.owner.keep_ticking()
    }

    /// End the waits of batches and publishes whose deadline has passed: appended, and not known to reach a quorum.
    fn end_unknown(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Role::Owner(owner) = &mut self.store.partitions[index].role else { return };
        let mut late = Vec::new();
        for waiting in &mut owner.waiting {
            match waiting.completion {
                Completion::Batch(batch) if batch.deadline_ms <= turn.now.mono_ms => late.push(batch),
                Completion::Order { number, on_durable: OnDurable::Published { until_ms, .. }, .. }
                    if until_ms <= turn.now.mono_ms =>
                {
                    let why = "appended, and on too few disks in time: it may be published or not; ask again";
                    turn.effects.outcomes.push(Outcome::Order { number, result: Err(why.to_owned()) });
                }
                _ => continue,
            }
            // Its end stays: the mark moves there when it may.
            waiting.completion = Completion::Nothing;
        }
        for batch in late {
            self.store.answer_unknown(index, &batch, "too few replicas had it on disk in time", turn);
        }
    }

    /// Complete what waits for the mark with `unknown_outcome`: this store is no longer the owner.
    pub(crate) fn give_up_waiting(&mut self, index: PartitionIndex, why: &str, turn: &mut Turn<'_>) {
        let Some(mut lent) = self.owner_mut(index) else { return };
        lent.give_up_confirms(turn);
        let waiting = std::mem::take(&mut lent.owner.waiting);
        for waiting in waiting {
            self.give_up(index, &waiting.completion, why, turn);
        }
    }

    /// What waited for the mark of an owner that is none any more.
    pub(crate) fn give_up(&mut self, index: PartitionIndex, completion: &Completion, why: &str, turn: &mut Turn<'_>) {
        match completion {
            Completion::Batch(batch) => self.store.answer_unknown(index, batch, why, turn),
            &Completion::Order { number, .. } => {
                turn.effects.outcomes.push(Outcome::Order { number, result: Err(why.to_owned()) });
            }
            Completion::Cohort { .. } => turn.follow_ups.cohort_records_lost.push(index),
            Completion::Nothing | Completion::Replica(_) => {}
        }
    }
}

impl OwnerMut<'_> {
    /// A replica has refused a request.
    fn refused(&mut self, replica_index: usize, sent: SentRequest, header: &AnswerHeader, turn: &mut Turn<'_>) {
        let code = Code::from_number(header.code);
        let now_ms = turn.now.mono_ms;
        let replica = &mut self.owner.replicas[replica_index];
        let why = format!("node {} says {}", replica.place().node, code.map_or("no", Code::name));
        match code {
            Some(Code::Ahead | Code::Unauthorized) => self.ask_again(replica_index, &why, turn.now),
            Some(Code::Overloaded) => replica.was_full(now_ms, &why),
            Some(Code::TooLarge) => replica.was_too_large(now_ms, sent.bytes),
            _ => replica.was_refused(now_ms, &why),
        }
        self.needs_tick();
        self.report_progress(turn);
    }

    /// The replica said where its log ends: where do the two part?
    fn met(&mut self, replica_index: usize, answer: &AnswerHeader, body: &[u8], turn: &mut Turn<'_>) {
        let own_end = self.log.end().next_record;
        let replica = &mut self.owner.replicas[replica_index];
        if body != replica.place().store {
            replica.become_wiped(turn.now.mono_ms + RETRY_LATE_MS);
            self.needs_tick();
            return self.report_progress(turn);
        }
        let (epoch, end) = (answer.owner_epoch, answer.sequence);
        let (known, known_end) = self.epochs.last_upto(epoch, own_end);
        #[cfg(feature = "planted")]
        if ringfence_log::planted::is_on(ringfence_log::planted::Bug::GapCounts) {
            replica.plant_durable(end);
        }
        let common = if end == 0 || known == 0 { 0 } else { end.min(known_end) };
        if common > 0 && known != epoch {
            // It has an epoch that this log has not: nothing of that one counts, and of older ones only what both have.
            return self.ask(replica_index, known, turn);
        }
        if common < self.log.first().0 {
            self.owner.replicas[replica_index].become_empty();
            self.needs_tick();
            return self.report_progress(turn);
        }
        self.begin(replica_index, common, turn);
    }

    /// Equal up to `common`: the replica's log goes on there.
    fn begin(&mut self, replica_index: usize, common: u64, turn: &mut Turn<'_>) {
        let mut header = self.request(0, common);
        header.owner_epoch = self.owner.epoch();
        let replica = &mut self.owner.replicas[replica_index];
        replica.become_begun(common);
        let sent = SentRequest { index: self.index, session: replica.session(), opcode: Opcode::Replicate, bytes: 0 };
        self.replication.peers.send(replica.place().node, header, Outbound::Empty, sent, turn);
    }

    /// An idle replica hears of the mark by an empty REPLICATE.
    fn tell_marks(&mut self, turn: &mut Turn<'_>) {
        let (mark, mark_record, mut header) = (self.mark, self.owner.mark_record(), self.request(0, 0));
        (header.owner_epoch, header.send, header.producer_epoch) = (self.owner.epoch(), mark_record, mark);
        for replica in &mut self.owner.replicas {
            let (node, is_news) = (replica.place().node, replica.mark_sent() < mark_record);
            if *replica.stage() == SessionState::Live && is_news && self.replication.peers.has_room(node) {
                replica.send_mark(mark_record);
                let header = RequestHeader { sequence: replica.next(), ..header };
                let sent =
                    SentRequest { index: self.index, session: replica.session(), opcode: Opcode::Replicate, bytes: 0 };
                self.replication.peers.send(node, header, Outbound::Empty, sent, turn);
            }
        }
    }
}
