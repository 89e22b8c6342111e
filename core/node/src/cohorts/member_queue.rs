//! FETCH and ACKNOWLEDGE of members of queues: rows on lease, and what becomes of them.

use std::collections::BTreeMap;

use ringfence_log::ReadFrom;
use ringfence_transport::Connection;
use ringfence_wire::{Code, DEADLINE_MS_MAX, FETCH_BYTES_MAX, RequestHeader, Status};

use crate::api::cohort_rules::Mode;
use crate::api::deadline::patience_ms;
use crate::api::refusal::Refusal;
use crate::cohorts::cohort_machine::CohortMachine;
use crate::cohorts::gate::queues::is_planted;
use crate::cohorts::members::WAITING_MAX;
use crate::cohorts::queue::acknowledge::{Acknowledgement, What};
use crate::cohorts::queue::bounds::LEASE_ROWS_MAX;
use crate::cohorts::queue::lease::Ask;
use crate::cohorts::queue::state::{Answer, Queue, Reply};
use crate::cohorts::queue_body::items_of;
use crate::cohorts::queue_members::{CONNECTION_WAIT_MS, MEMBER_ROWS_MAX, PendingRows, QueueFetch};
use crate::cohorts::queue_pass::{Limits, Look, Pass};
use crate::cohorts::state::record::GateKey;
use crate::ids::PartitionIndex;
use crate::partition::answers::send_bytes;
use crate::reads::pending_reads::{Fetch, Grant, MemberFetch};
use crate::turn::Turn;

const BYTES_DEFAULT: usize = 1 << 20;

impl CohortMachine<'_> {
    /// The cohort of an attached member, if it is a queue.
    pub(super) fn queue_of(&self, from: Connection, header: &RequestHeader) -> Option<u64> {
        let cohort = self.sessions.cohort_of(from, header.producer_id).ok()?;
        let rule = self.store.gate_rules.cohort(header.topic, cohort)?;
        (rule.mode == Mode::Queue).then_some(cohort)
    }

    pub(super) fn fetch_of_queue(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        cohort: u64,
        turn: &mut Turn<'_>,
    ) {
        for earlier in self.members.queue.end_fetches(|fetch| fetch.connection == from) {
            self.store.answer_no_rows(from, &earlier.header, 0, turn);
        }
        if header.partition > 0
            && let Err(rejection) = self.log_of(header, header.partition)
        {
            return self.store.answer_rejection(from, header, rejection, turn);
        }
        if self.members.queue.waiting >= WAITING_MAX {
            let what = format!("{WAITING_MAX} fetches of members wait at this node; retry");
            return self.store.refuse(from, header, &Refusal::new(Code::Overloaded, what), turn);
        }
        let deadline_ms = turn.now.mono_ms + u64::from(header.deadline_ms).min(DEADLINE_MS_MAX as u64);
        let fetch = QueueFetch { connection: from, header: *header, deadline_ms };
        self.members.queue.push((header.topic, cohort), fetch);
        self.serve_queue((header.topic, cohort), turn);
        self.end_late_of_queues(turn);
    }

    /// Cohorts of these gates are served once what happens now is over.
    fn note_due(&mut self, index: PartitionIndex) {
        if self.members.queue.fetches.is_empty() {
            return;
        }
        let (topic, log) = self.store.partitions[index].key();
        let cohorts = self.store.gate_rules.of_log(topic, log).map(|(key, _)| (topic, key.cohort));
        self.members.queue.due.extend(cohorts);
    }

    /// Serve each cohort once of whose gates something has changed.
    pub(super) fn serve_due(&mut self, turn: &mut Turn<'_>) {
        while let Some(cohort) = self.members.queue.due.pop_first() {
            self.serve_queue(cohort, turn);
        }
    }

    /// Give rows to the members that wait, in the order in which they came.
    fn serve_queue(&mut self, cohort: (u64, u64), turn: &mut Turn<'_>) {
        let Some(fetches) = self.members.queue.fetches.remove(&cohort) else { return };
        self.members.queue.waiting -= fetches.len();
        let partitions: Vec<u64> = self.store.gate_rules.partitions_of(cohort.0, cohort.1).collect();
        let leased_rows = self.leased_rows(cohort, &partitions);
        let limits: Vec<Limits> = fetches.iter().map(|fetch| self.limits_of(fetch)).collect();
        let mut pass = Pass::new(partitions, limits.iter().copied(), leased_rows);
        for (fetch, limits) in fetches.into_iter().zip(limits) {
            let last = self.members.queue.served.get(&cohort).copied().unwrap_or(0);
            let spare_rows = MEMBER_ROWS_MAX.saturating_sub(pass.leased_rows(fetch.header.producer_id));
            let limits = Limits { rows: limits.rows.min(spare_rows), ..limits };
            let look = |partition| self.lease_of(cohort, partition, &fetch, limits, turn);
            if limits.rows == 0 || !pass.serve(last, fetch.header.partition, limits, look) {
                self.members.queue.push(cohort, fetch);
            }
        }
    }

    fn limits_of(&self, fetch: &QueueFetch) -> Limits {
        let wanted = usize::try_from(fetch.header.send).unwrap_or(FETCH_BYTES_MAX);
        let wanted = if wanted == 0 { BYTES_DEFAULT } else { wanted };
        let bytes = wanted.min(FETCH_BYTES_MAX).min(self.store.settings.pool_bytes / 2);
        let rows = if fetch.header.rows == 0 { LEASE_ROWS_MAX } else { u64::from(fetch.header.rows) };
        Limits { rows, bytes }
    }

    /// Rows on lease at this node, by session.
    fn leased_rows(&self, (topic, cohort): (u64, u64), partitions: &[u64]) -> BTreeMap<u64, u64> {
        let mut rows = BTreeMap::new();
        for &partition in partitions {
            let log = self.store.gate_rules.log_of(topic, partition);
            let index = log.and_then(|log| self.store.partitions.find(topic, log));
            let gates = index.and_then(|index| self.store.partitions.get(index)?.gates.as_deref());
            let queue = gates.and_then(|gates| gates.queues.get(GateKey { partition, cohort }));
            for (session, leased) in queue.into_iter().flat_map(Queue::leased_by_session) {
                *rows.entry(session).or_default() += leased;
            }
        }
        rows
    }

    /// Lease rows of one partition, and read them.
    fn lease_of(
        &mut self,
        cohort: (u64, u64),
        partition: u64,
        fetch: &QueueFetch,
        limits: Limits,
        turn: &mut Turn<'_>,
    ) -> Look {
        turn.counters.queue_looks += 1;
        let header = RequestHeader { partition, ..fetch.header };
        let Ok(index) = self.log_of(&header, partition) else { return Look::NotHere };
        if self.reads().end_is_unknown(index).is_some() {
            return Look::Empty;
        }
        let Limits { rows, bytes } = limits;
        let ask = Ask { session: header.producer_id, now_ms: turn.now.mono_ms, bytes: bytes as u64, rows };
        let key = GateKey { partition, cohort: cohort.1 };
        let is_elsewhere = self.store.gate_rules.gate(cohort.0, self.store.partitions[index].log.partition, key);
        let is_elsewhere = is_elsewhere.is_some_and(|rule| rule.end.is_some());
        if is_elsewhere && !self.reads().replication().is_fresh(index, turn) {
            // The quorum is asked now; the FETCH is looked at again with the next tick.
            if let Some(mut owner) = self.reads().replication().owner_mut(index) {
                owner.confirm(turn);
            }
            return Look::Empty;
        }
        let unix_ms = turn.now.unix_ms;
        let leased = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            gates.queues.unix_ms = unix_ms;
            let leased = view.gate(key).and_then(|of| gates.lease(&of, &ask));
            gates.queues.is_awaited |= leased.is_none();
            (leased, gates.queues.is_active())
        });
        let Some((leased, is_active)) = leased else { return Look::Empty };
        if is_active {
            // A lease ends with time, or that of the owner before does: ticks look.
            self.members.busy.insert(self.store.partitions[index].key());
        }
        let Some(leased) = leased else { return Look::Empty };
        self.members.queue.served.insert(cohort, partition);
        if is_elsewhere {
            let what = (key.cohort, leased.incarnation, leased.grant);
            self.store.answer_rows_elsewhere(index, (fetch.connection, &header), what, turn);
            return Look::Leased;
        }
        let header = RequestHeader { sequence: leased.first, owner_epoch: 0, ..header };
        let grant = Some(Grant { number: leased.grant, end: leased.end });
        let member = MemberFetch { cohort: key.cohort, number: leased.incarnation, grant };
        let mut reads = self.reads();
        let read = Fetch {
            connection: fetch.connection,
            header,
            index,
            incarnation: reads.store.partitions[index].incarnation(),
            from: ReadFrom::Offset(leased.first),
            bytes,
            deadline_ms: fetch.deadline_ms,
            held_until_ms: 0,
            queued_until_ms: 0,
            member: Some(member),
        };
        reads.begin_read(read, turn);
        Look::Leased
    }

    /// Rows came into partitions: fetches of queues are looked at again.
    pub(crate) fn rows_came(&mut self, turn: &mut Turn<'_>) {
        if is_planted!(QueueNotWoken) {
            return;
        }
        for at in 0..turn.follow_ups.new_rows.len() {
            let index = turn.follow_ups.new_rows[at];
            let Some(partition) = self.store.partitions.get_mut(index) else { continue };
            if partition.gates.as_mut().is_some_and(|gates| std::mem::take(&mut gates.queues.is_awaited)) {
                self.note_due(index);
            }
        }
        self.serve_due(turn);
    }

    /// Something of the gates of a log has changed: end what is over, and answer. Rows are given by `serve_due`.
    pub(super) fn queue_changed(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        self.end_leases_of_missing(index, turn);
        let answers = self.store.with_gates(index, turn.now.mono_ms, |gates, _| gates.queues.take_answers());
        for answer in answers.unwrap_or_default() {
            self.rows_settled(answer, turn);
        }
        self.note_due(index);
    }

    /// Sessions that are not registered any more, or whose connection ended and did not come back in time.
    fn end_leases_of_missing(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Some(partition) = self.store.partitions.get(index) else { return };
        let topic = partition.log.topic;
        let Some(gates) = partition.gates.as_deref() else { return };
        let now_ms = turn.now.mono_ms;
        let mut over = Vec::new();
        for (cohort, session) in gates.queues.sessions() {
            let rule = self.store.gate_rules.cohort(topic, cohort);
            let is_registered = rule.is_some_and(|rule| rule.sessions.binary_search(&session).is_ok());
            let since_ms = self.members.queue.missing_since(session, self.sessions.is_attached(session), now_ms);
            let is_kept = is_planted!(QueueConnectionKept);
            if !is_registered
                || since_ms.filter(|_| !is_kept).is_some_and(|since_ms| now_ms >= since_ms + CONNECTION_WAIT_MS)
            {
                over.push(session);
            }
        }
        for session in over {
            // Other logs look at the same time: since when it is missing is forgotten later.
            self.store.with_gates(index, now_ms, |gates, view| {
                gates.queues.end_session(session);
                gates.rules_changed(view);
            });
        }
    }

    // ---- acknowledgements ----

    pub(super) fn acknowledge_rows(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        (cohort, body): (u64, &[u8]),
        turn: &mut Turn<'_>,
    ) {
        let items = match items_of(header, body) {
            Ok(items) => items,
            Err(refusal) => return self.store.refuse(from, header, &refusal, turn),
        };
        let index = match self.log_of(header, header.partition) {
            Ok(index) => index,
            Err(rejection) => return self.store.answer_rejection(from, header, rejection, turn),
        };
        let has_slot = items.iter().any(|item| !matches!(item.what, What::Begun | What::Extend));
        if has_slot && !self.members.settling.insert(from.0) {
            let what = "an ACKNOWLEDGE of this connection is under way; wait for its answer";
            return self.store.refuse(from, header, &Refusal::new(Code::Overloaded, what), turn);
        }
        let ticket = turn.ticket();
        let deadline_ms = turn.now.mono_ms.saturating_add(patience_ms(header));
        let pending = PendingRows { connection: from, header: *header, has_slot, deadline_ms };
        self.members.queue.settles.insert(ticket, pending);
        let (session, incarnation) = (header.producer_id, header.producer_epoch);
        let told = Acknowledgement { ticket, session, incarnation, items };
        let (key, unix_ms) = (GateKey { partition: header.partition, cohort }, turn.now.unix_ms);
        let is_taken = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            gates.queues.unix_ms = unix_ms;
            view.gate(key).is_some_and(|of| gates.acknowledge_rows(&of, &told))
        });
        if is_taken != Some(true) {
            let what = format!("partition {}: the cohort has not begun here; retry", key.partition);
            return self.refuse_rows(ticket, &Refusal::new(Code::Held, what), turn);
        }
        self.gates_changed(index, turn);
    }

    fn rows_settled(&mut self, answer: Answer, turn: &mut Turn<'_>) {
        if self.members.parked.contains_key(&answer.ticket) {
            return self.parked_settled(answer, turn);
        }
        let not_taken = match answer.reply {
            Reply::Acknowledged(not_taken) => not_taken,
            Reply::BeforeSeek => {
                let what = "these rows are of before a seek of the cohort; fetch again";
                return self.refuse_rows(answer.ticket, &Refusal::new(Code::NotAssigned, what), turn);
            }
            Reply::Operated(_) => return,
        };
        let Some(settle) = self.take_rows(answer.ticket) else { return };
        let mut lines = Vec::with_capacity(not_taken.len() * 16);
        for line in not_taken {
            lines.extend_from_slice(&line.first.to_le_bytes());
            lines.extend_from_slice(&line.rows.to_le_bytes());
            lines.extend_from_slice(&(line.why as u32).to_le_bytes());
        }
        let mut header = self.store.echo(&settle.header);
        header.status = Status::Ok as u8;
        send_bytes(settle.connection, header, lines.into(), turn.effects);
    }

    fn take_rows(&mut self, ticket: u64) -> Option<PendingRows> {
        let settle = self.members.queue.settles.remove(&ticket)?;
        if settle.has_slot {
            self.members.settling.remove(&settle.connection.0);
        }
        Some(settle)
    }

    pub(super) fn refuse_rows(&mut self, ticket: u64, refusal: &Refusal, turn: &mut Turn<'_>) {
        let Some(settle) = self.take_rows(ticket) else { return };
        self.store.refuse(settle.connection, &settle.header, refusal, turn);
    }

    /// Fetches and acknowledgements whose deadline has passed.
    pub(super) fn end_late_of_queues(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        self.members.queue.forget_missing(now_ms);
        for fetch in self.members.queue.end_fetches(|fetch| fetch.deadline_ms <= now_ms) {
            self.store.answer_no_rows(fetch.connection, &fetch.header, 0, turn);
        }
        let settles = self.members.queue.settles.iter();
        let late: Vec<u64> = settles.filter(|(_, one)| one.deadline_ms <= now_ms).map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            let what = "too few replicas had the acknowledgement on disk in time; send it again";
            self.refuse_rows(ticket, &Refusal::new(Code::TooFewReplicas, what), turn);
        }
    }
}
