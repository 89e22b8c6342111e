//! FETCH of a member: find its gate, decide, and read, wait or refuse.

use ringfence_log::ReadFrom;
use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{
    ANSWER_FLAG_BLOCKED, Code, DEADLINE_MS_MAX, FETCH_BYTES_MAX, REQUEST_FLAG_REOPEN, RedirectReason, RequestHeader,
    Status,
};

use crate::api::refusal::Refusal;
use crate::codec::pack;
use crate::cohorts::cohort_machine::CohortMachine;
use crate::cohorts::gate::fetch::{Ask, Decision};
use crate::cohorts::members::{GATE_WAITING_MAX, QuorumQuestion, WAITING_MAX, WaitingFetch};
use crate::cohorts::planted::{Bug, is_on};
use crate::cohorts::state::record::GateKey;
use crate::ids::PartitionIndex;
use crate::partition::answers::{send, send_packed};
use crate::partition::rejection::{Rejection, quarantined};
use crate::reads::fetch_position::Misfit;
use crate::reads::pending_reads::{EndQuestion, Fetch, MemberFetch};
use crate::turn::Turn;

const BYTES_DEFAULT: usize = 1 << 20;

/// "Where the cohort stands" as a first wanted offset.
const STANDS: u64 = u64::MAX;

impl CohortMachine<'_> {
    pub(crate) fn member_fetch(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        turn.counters.fetches += 1;
        if let Some(cohort) = self.queue_of(from, header) {
            return self.fetch_of_queue(from, header, cohort, turn);
        }
        match self.gate_of(from, header) {
            Ok((index, key)) => {
                self.end_earlier(from, key, header, turn);
                let deadline_ms = turn.now.mono_ms + u64::from(header.deadline_ms).min(DEADLINE_MS_MAX as u64);
                let fetch = WaitingFetch { connection: from, header: *header, key, deadline_ms, is_blocked: false };
                self.decide(index, fetch, turn);
                self.write(index, turn);
            }
            Err(rejection) => self.store.answer_rejection(from, header, rejection, turn),
        }
    }

    /// The log that has the gate of a member's FETCH.
    fn gate_of(&self, from: Connection, header: &RequestHeader) -> Result<(PartitionIndex, GateKey), Rejection> {
        let cohort = self.sessions.cohort_of(from, header.producer_id).map_err(Refusal::from)?;
        self.check_mode(header.topic, cohort)?;
        let key = GateKey { partition: header.partition, cohort };
        Ok((self.log_of(header, key.partition)?, key))
    }

    pub(super) fn check_mode(&self, topic: u64, cohort: u64) -> Result<(), Refusal> {
        if self.store.gate_rules.cohort(topic, cohort).is_some() {
            return Ok(());
        }
        let what = format!("cohort {cohort} is not one of topic {topic}");
        Err(Refusal::new(Code::UnknownCohort, what).with("cohort", cohort))
    }

    /// The log with the gates of a partition, open here.
    pub(super) fn log_of(&self, header: &RequestHeader, partition: u64) -> Result<PartitionIndex, Rejection> {
        let Some(log) = self.store.gate_rules.log_of(header.topic, partition) else {
            let index = self.store.locate(&RequestHeader { partition, ..*header })?;
            let is_sealed = self.store.partitions[index].gate.ended();
            return Err(if is_sealed {
                Rejection::Sealed(index, None)
            } else {
                Rejection::Redirect(RedirectReason::NotOwner)
            });
        };
        let index = self.store.locate(&RequestHeader { partition: log, ..*header })?;
        let here = &self.store.partitions[index];
        if here.is_quarantined() {
            return Err(quarantined(here).into());
        }
        if here.has_open_gates() { Ok(index) } else { Err(Rejection::Redirect(RedirectReason::Closed)) }
    }

    /// CG14: one FETCH a member and partition is under way; an earlier one is answered without rows.
    fn end_earlier(&mut self, from: Connection, key: GateKey, header: &RequestHeader, turn: &mut Turn<'_>) {
        let is_same =
            |fetch: &WaitingFetch| fetch.connection == from && fetch.key == key && fetch.header.topic == header.topic;
        for earlier in self.members.end_fetches(is_same) {
            self.answer_waiting(&earlier, turn);
        }
    }

    /// Serve, refuse, or wait until something of the gate has changed.
    fn decide(&mut self, index: PartitionIndex, mut fetch: WaitingFetch, turn: &mut Turn<'_>) {
        let header = &fetch.header;
        let ask = Ask {
            session: header.producer_id,
            hold: header.producer_epoch,
            is_reopening: u16::from(header.flags) & REQUEST_FLAG_REOPEN != 0,
            offset: Some(header.sequence).filter(|offset| *offset != STANDS),
            generation: u64::from(header.schema_id),
        };
        let key = fetch.key;
        let decision = self
            .store
            .with_gates(index, turn.now.mono_ms, |gates, view| view.gate(key).map(|of| gates.fetch(&of, &ask)));
        let refusal = match decision.flatten() {
            None => Refusal::new(Code::UnknownCohort, format!("cohort {} has no gate here", key.cohort)),
            Some(Decision::Wait { is_blocked }) => {
                fetch.is_blocked = is_blocked;
                return self.wait(index, fetch, turn);
            }
            Some(Decision::NotAssigned { .. }) => {
                return self.store.refuse_not_assigned(index, fetch.connection, header, key, turn);
            }
            Some(Decision::Serve { number, offset, epoch }) => {
                return self.serve(index, &fetch, (number, offset, epoch), turn);
            }
            Some(Decision::Elsewhere { number }) => return self.tell_end(index, fetch, number, turn),
            Some(Decision::Missed { number, pruned, begin }) => {
                return self.refuse_with(&fetch, Code::Truncated, number, pack::missed_rows(&pruned, begin), turn);
            }
            Some(Decision::HasPosition { number, begin, settled, parents }) => {
                let body = pack::store_position(begin, settled, &parents);
                return self.refuse_with(&fetch, Code::Conflict, number, body, turn);
            }
            Some(Decision::UnknownCohort) => {
                Refusal::new(Code::UnknownCohort, format!("cohort {} was deleted", key.cohort))
            }
            Some(Decision::Full) => {
                let what = format!("partition {}: its log has the gates of as many cohorts as it may", key.partition);
                Refusal::new(Code::Overloaded, what)
            }
        };
        self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
    }

    fn serve(
        &mut self,
        index: PartitionIndex,
        fetch: &WaitingFetch,
        (number, offset, epoch): (u64, u64, u64),
        turn: &mut Turn<'_>,
    ) {
        let epoch = if offset == fetch.header.sequence { fetch.header.owner_epoch } else { epoch };
        let header = RequestHeader { sequence: offset, owner_epoch: epoch, ..fetch.header };
        let from = fetch.connection;
        let mut reads = self.reads();
        match reads.check_position(index, &header) {
            Ok(()) => {}
            Err(Misfit::Truncated(refusal)) => {
                return self.store.refuse(from, &header, &refusal.expecting(number), turn);
            }
            Err(Misfit::Ahead(refusal)) => {
                let refusal = Box::new(refusal.expecting(number));
                return reads.confirm(index, EndQuestion::Position { from, header: Box::new(header), refusal }, turn);
            }
        }
        let wanted = usize::try_from(header.send).unwrap_or(FETCH_BYTES_MAX);
        let wanted = if wanted == 0 { BYTES_DEFAULT } else { wanted };
        let read = Fetch {
            connection: from,
            header,
            index,
            incarnation: reads.store.partitions[index].incarnation(),
            from: ReadFrom::Offset(offset),
            bytes: wanted.min(FETCH_BYTES_MAX).min(reads.store.settings.pool_bytes / 2),
            deadline_ms: fetch.deadline_ms,
            held_until_ms: 0,
            queued_until_ms: 0,
            member: Some(MemberFetch { cohort: fetch.key.cohort, number, grant: None }),
        };
        reads.begin_read(read, turn);
    }

    fn wait(&mut self, index: PartitionIndex, fetch: WaitingFetch, turn: &mut Turn<'_>) {
        let log = self.store.partitions[index].key();
        let at_gate = self
            .members
            .fetches
            .get(&log)
            .map_or(0, |fetches| fetches.iter().filter(|one| one.key == fetch.key).count());
        let is_full = at_gate >= GATE_WAITING_MAX || self.members.waiting >= WAITING_MAX;
        if is_full || fetch.deadline_ms <= turn.now.mono_ms {
            return self.end_waiting(index, fetch, turn);
        }
        self.members.waiting += 1;
        self.members.fetches.entry(log).or_default().push(fetch);
    }

    /// A FETCH has waited long enough. One whose hold of a sealed partition stands is told so again.
    fn end_waiting(&mut self, index: PartitionIndex, fetch: WaitingFetch, turn: &mut Turn<'_>) {
        let (session, number) = (fetch.header.producer_id, fetch.header.producer_epoch);
        let holds = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            view.gate(fetch.key).is_some_and(|of| of.rule.end.is_some() && gates.holds(&of, session, number))
        });
        let is_reopening = u16::from(fetch.header.flags) & REQUEST_FLAG_REOPEN != 0;
        if holds == Some(true) && !is_reopening {
            self.tell_end(index, fetch, number, turn);
        } else {
            self.answer_waiting(&fetch, turn);
        }
    }

    /// Say where a sealed partition ends, under a hold that stands. Its lease begins again with the answer.
    fn tell_end(&mut self, index: PartitionIndex, fetch: WaitingFetch, number: u64, turn: &mut Turn<'_>) {
        if self.is_heard(index, turn) || is_on(Bug::UnheardEndIsTold) {
            self.answer_end(index, &fetch, number, turn);
        } else {
            self.ask_quorum(index, QuorumQuestion::End { fetch: Box::new(fetch), number }, turn);
        }
    }

    /// A quorum was heard within L.
    pub(super) fn answer_end(&mut self, index: PartitionIndex, fetch: &WaitingFetch, number: u64, turn: &mut Turn<'_>) {
        let (key, header) = (fetch.key, &fetch.header);
        let told = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            gates.tell_end(&view.gate(key)?, header.producer_id, number)
        });
        match told.flatten() {
            Some((place, end)) => {
                let what = (number, place.offset, place.epoch, end);
                self.store.answer_elsewhere(index, (fetch.connection, header), what, turn);
            }
            None => self.store.refuse_not_assigned(index, fetch.connection, header, key, turn),
        }
    }

    /// Nothing to say yet: blocked, or another member's turn is not over.
    fn answer_waiting(&mut self, fetch: &WaitingFetch, turn: &mut Turn<'_>) {
        let mut answer = self.store.echo(&fetch.header);
        answer.status = Status::Ok as u8;
        answer.flags = if fetch.is_blocked || is_on(Bug::AlwaysBlocked) { ANSWER_FLAG_BLOCKED } else { 0 };
        answer.sequence = 0;
        send(fetch.connection, answer, Outbound::Empty, turn.effects);
    }

    fn refuse_with(&mut self, fetch: &WaitingFetch, code: Code, number: u64, body: Box<[u8]>, turn: &mut Turn<'_>) {
        turn.counters.refuse(code);
        let mut answer = self.store.echo(&fetch.header);
        (answer.status, answer.code, answer.sequence) = (Status::Refused as u8, code as u16, number);
        send_packed(fetch.connection, answer, body, turn.effects);
    }

    /// Decide again about the fetches that wait at this log's gates.
    pub(super) fn look_at_fetches(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let partition = &self.store.partitions[index];
        let is_open = partition.has_open_gates();
        let Some(fetches) = self.members.fetches.remove(&partition.key()) else { return };
        self.members.waiting -= fetches.len();
        for fetch in fetches {
            if is_open {
                self.decide(index, fetch, turn);
            } else {
                self.store.redirect(fetch.connection, &fetch.header, RedirectReason::Closed, turn);
            }
        }
    }

    /// Fetches and acknowledgements whose deadline has passed.
    pub(super) fn end_late(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        for fetch in self.members.end_fetches(|fetch| fetch.deadline_ms <= now_ms) {
            let log = self.store.gate_rules.log_of(fetch.header.topic, fetch.key.partition);
            match log.and_then(|log| self.store.partitions.find(fetch.header.topic, log)) {
                Some(index) => self.end_waiting(index, fetch, turn),
                None => self.answer_waiting(&fetch, turn),
            }
        }
        let is_late = |deadline_ms: u64| deadline_ms <= now_ms;
        self.end_late_orders(turn);
        let late: Vec<u64> = self
            .members
            .settles
            .iter()
            .filter(|(_, one)| is_late(one.deadline_ms))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in late {
            let what = "too few replicas had the acknowledgement on disk in time; send it again";
            self.refuse_settle(ticket, &Refusal::new(Code::TooFewReplicas, what), turn);
        }
    }
}
