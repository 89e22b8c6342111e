//! ATTACH and ACKNOWLEDGE. START HERE for requests of members; FETCH and `MEMBER_BEAT` have files of their own.

use ringfence_transport::Connection;
use ringfence_wire::{ACKNOWLEDGE_ENTRIES_MAX, Code, GATE_LEASE_MS, RequestHeader, Status};

use crate::api::deadline::patience_ms;
use crate::api::outcome::Outcome;
use crate::api::refusal::Refusal;
use crate::codec::cursor::Cursor;
use crate::cohorts::cohort_machine::CohortMachine;
use crate::cohorts::gate::acknowledge::{Settlement, Taken};
use crate::cohorts::members::PendingSettle;
use crate::cohorts::sessions::table::{Attach, Attached};
use crate::cohorts::state::record::GateKey;
use crate::partition::answers::send_bytes;
use crate::partition::rejection::Rejection;
use crate::turn::Turn;

/// Bytes of a line: partition, hold, through, epoch, kind and zero.
const SETTLEMENT_BYTES: usize = 40;

impl CohortMachine<'_> {
    pub(crate) fn attach(&mut self, from: Connection, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        match self.try_attach(from, header, body, turn) {
            Ok(generation) => self.answer_member(from, header, generation, &[], turn),
            Err(refusal) => self.store.refuse(from, header, &refusal, turn),
        }
    }

    fn try_attach(
        &mut self,
        from: Connection,
        header: &RequestHeader,
        proof: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<u64, Refusal> {
        let (session, cohort) = (header.producer_id, header.producer_epoch);
        let generation = self.registered(header.topic, cohort, session)?;
        let credential = self.connections.rights(from).credential();
        let ask = Attach { connection: from, cohort, session, credential, proof };
        if let Attached::TookOver(older) = self.sessions.attach(turn.now.mono_ms, &ask)? {
            for fetch in self.members.end_fetches(|fetch| fetch.connection == older) {
                let what = format!("a newer connection has session {session}");
                let refusal = Refusal::new(Code::FencedMember, what).with("moved", 1);
                self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
            }
        }
        Ok(generation)
    }

    /// The generation of the session's cohort, if this node's metadata has both.
    pub(super) fn registered(&self, topic: u64, cohort: u64, session: u64) -> Result<u64, Refusal> {
        let index = self.store.gate_rules.index();
        let ahead =
            |what: &str, id: u64| Refusal::new(Code::Ahead, format!("{what} {id} is newer than this node's metadata"));
        let Some(rule) = self.store.gate_rules.cohort(topic, cohort) else {
            if cohort >> 16 > index {
                return Err(ahead("cohort", cohort));
            }
            let what = format!("cohort {cohort} is not one of topic {topic}");
            return Err(Refusal::new(Code::UnknownCohort, what).with("cohort", cohort));
        };
        if rule.sessions.binary_search(&session).is_ok() {
            return Ok(rule.generation);
        }
        if session >> 16 > index {
            return Err(ahead("session", session));
        }
        let what = format!("session {session} is not registered any more; join again");
        Err(Refusal::new(Code::FencedMember, what).with("session", session))
    }

    pub(super) fn answer_member(
        &mut self,
        to: Connection,
        header: &RequestHeader,
        generation: u64,
        body: &[u8],
        turn: &mut Turn<'_>,
    ) {
        let mut answer = self.store.echo(header);
        (answer.status, answer.sequence, answer.send) = (Status::Ok as u8, generation, GATE_LEASE_MS as u64);
        send_bytes(to, answer, body.into(), turn.effects);
    }

    // ---- acknowledgements ----

    pub(crate) fn acknowledge(&mut self, from: Connection, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        if header.extension_bytes > 0 {
            return self.claim_gates(from, header, body, turn);
        }
        if let Some(cohort) = self.queue_of(from, header) {
            return self.acknowledge_rows(from, header, (cohort, body), turn);
        }
        let found = self.sessions.cohort_of(from, header.producer_id).map_err(Refusal::from);
        let found = found.and_then(|cohort| {
            self.check_mode(header.topic, cohort)?;
            Ok((cohort, settlements_of(header, body)?))
        });
        let (cohort, settlements) = match found {
            Ok(found) => found,
            Err(refusal) => return self.store.refuse(from, header, &refusal, turn),
        };
        if !self.members.settling.insert(from.0) {
            let what = "an ACKNOWLEDGE of this connection is under way; wait for its answer";
            return self.store.refuse(from, header, &Refusal::new(Code::Overloaded, what), turn);
        }
        let ticket = turn.ticket();
        let deadline_ms = turn.now.mono_ms.saturating_add(patience_ms(header));
        // One more than it waits for, until all lines are looked at.
        let pending =
            PendingSettle { connection: from, header: *header, remaining: 1, not_taken: Vec::new(), deadline_ms };
        self.members.settles.insert(ticket, pending);
        let mut logs = Vec::new();
        for (partition, settlement) in settlements {
            self.settle_one(header, GateKey { partition, cohort }, &settlement, (ticket, &mut logs), turn);
        }
        self.settled(ticket, turn);
        logs.sort_unstable();
        logs.dedup();
        for index in logs {
            self.gates_changed(index, turn);
        }
    }

    fn settle_one(
        &mut self,
        header: &RequestHeader,
        key: GateKey,
        settlement: &Settlement,
        (ticket, logs): (u64, &mut Vec<u32>),
        turn: &mut Turn<'_>,
    ) {
        let taken = match self.log_of(header, key.partition) {
            Ok(index) => {
                logs.push(index);
                self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
                    let taken = gates.acknowledge(&view.gate(key)?, settlement);
                    if let Taken::With(record) = taken {
                        gates.wait_for(record, ticket);
                    }
                    Some(taken)
                })
            }
            Err(rejection) => return self.not_taken(ticket, key.partition, 0, code_of(&rejection)),
        };
        match taken.flatten() {
            Some(Taken::Now) => {}
            Some(Taken::With(_)) => {
                if let Some(settle) = self.members.settles.get_mut(&ticket) {
                    settle.remaining += 1;
                }
            }
            Some(Taken::NotAssigned { number }) => self.not_taken(ticket, key.partition, number, Code::NotAssigned),
            Some(Taken::Truncated { number }) => self.not_taken(ticket, key.partition, number, Code::Truncated),
            Some(Taken::UnknownCohort) => self.not_taken(ticket, key.partition, 0, Code::UnknownCohort),
            Some(Taken::Claimed { number }) => self.not_taken(ticket, key.partition, number, Code::Conflict),
            Some(Taken::NotOpen) | None => self.not_taken(ticket, key.partition, 0, Code::Held),
        }
    }

    fn not_taken(&mut self, ticket: u64, partition: u64, number: u64, code: Code) {
        if let Some(settle) = self.members.settles.get_mut(&ticket) {
            settle.not_taken.extend_from_slice(&partition.to_le_bytes());
            settle.not_taken.extend_from_slice(&number.to_le_bytes());
            settle.not_taken.extend_from_slice(&u64::from(code as u16).to_le_bytes());
        }
    }

    /// One record that an ACKNOWLEDGE waits for is committed: the last one answers it (CA5).
    pub(super) fn settled(&mut self, ticket: u64, turn: &mut Turn<'_>) {
        let Some(settle) = self.members.settles.get_mut(&ticket) else {
            return self.position_written(ticket, turn);
        };
        settle.remaining -= 1;
        if settle.remaining > 0 {
            return;
        }
        let Some(settle) = self.members.settles.remove(&ticket) else { return };
        self.members.settling.remove(&settle.connection.0);
        let mut answer = self.store.echo(&settle.header);
        answer.status = Status::Ok as u8;
        send_bytes(settle.connection, answer, settle.not_taken.into(), turn.effects);
    }

    /// It is not known whether all of it will be in the log: the member sends it again.
    pub(super) fn refuse_settle(&mut self, ticket: u64, refusal: &Refusal, turn: &mut Turn<'_>) {
        if let Some(order) = self.members.committed.remove(&ticket) {
            let result = Err(refusal.message.clone());
            return turn.effects.outcomes.push(Outcome::Order { number: order.number, result });
        }
        if let Some(order) = self.members.parked.remove(&ticket) {
            let result = Err(refusal.message.clone());
            return turn.effects.outcomes.push(Outcome::Order { number: order.number, result });
        }
        let Some(settle) = self.members.settles.remove(&ticket) else {
            return self.refuse_rows(ticket, refusal, turn);
        };
        self.members.settling.remove(&settle.connection.0);
        self.store.refuse(settle.connection, &settle.header, refusal, turn);
    }
}

/// What a line of an answer says of a partition that is not here, or not open.
pub(super) fn code_of(rejection: &Rejection) -> Code {
    match rejection {
        Rejection::Refuse(refusal) => refusal.code,
        // The member takes a newer table, and asks the owner of then.
        Rejection::Redirect(_) | Rejection::Sealed(..) => Code::UnknownPartition,
        _ => Code::Ahead,
    }
}

/// The lines of a body: all of one size, not more than a request may have.
pub(super) fn lines_of(body: &[u8], size: usize) -> Result<impl Iterator<Item = &[u8]>, Refusal> {
    let count = body.len() / size;
    if !body.len().is_multiple_of(size) || count > ACKNOWLEDGE_ENTRIES_MAX {
        let what = format!("a body of {} bytes; lines have {size}, at most {ACKNOWLEDGE_ENTRIES_MAX}", body.len());
        return Err(Refusal::new(Code::BadBody, what).with("bytes", body.len() as u64));
    }
    Ok(body.chunks_exact(size))
}

/// A word of a line, which has as many as its size says.
pub(super) fn word(line: &[u8], at: usize) -> u64 {
    Cursor(&line[at * 8..]).u64("word").unwrap_or_default()
}

/// What an ACKNOWLEDGE settles: a body with lines, or one partition in the header.
fn settlements_of(header: &RequestHeader, body: &[u8]) -> Result<Vec<(u64, Settlement)>, Refusal> {
    let of = |hold, through, epoch, kind: u64| {
        if kind > 1 {
            let what =
                format!("kind {kind} of an acknowledgement; 0 settles, 1 releases, too, 2 claims and has a scope");
            return Err(Refusal::new(Code::InvalidArgument, what).with("kind", kind));
        }
        Ok(Settlement { session: header.producer_id, hold, through, epoch, is_release: kind == 1 })
    };
    if body.is_empty() {
        let one = of(header.producer_epoch, header.sequence, header.owner_epoch, u64::from(header.schema_id))?;
        return Ok(vec![(header.partition, one)]);
    }
    let mut found: Vec<(u64, Settlement)> = Vec::new();
    for line in lines_of(body, SETTLEMENT_BYTES)? {
        let partition = word(line, 0);
        if found.last().is_some_and(|last| last.0 >= partition) {
            let what = format!("partition {partition} comes twice, or out of order; lines ascend");
            return Err(Refusal::new(Code::InvalidArgument, what).with("partition", partition));
        }
        found.push((partition, of(word(line, 1), word(line, 2), word(line, 3), word(line, 4))?));
    }
    Ok(found)
}
