//! Claims of members, and what the control plane asks of a COMMIT under way: whether its gates are locked for it, and
//! that decided positions are written. See `docs/design/consumed.md`.

use std::collections::BTreeSet;

use ringfence_transport::Connection;
use ringfence_wire::{Code, ExtensionKind, RequestHeader, SCOPE_EPOCH_MAX, Status, extension};

use crate::api::cohort_rules::Mode;
use crate::api::order::{SeeClaim, SettleCommitted};
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, Outcome};
use crate::api::refusal::Refusal;
use crate::cohorts::claims::claim::Claim;
use crate::cohorts::claims::table::{Answer, ForcedEnd};
use crate::cohorts::cohort_machine::CohortMachine;
use crate::cohorts::gate::claiming::Claimed;
use crate::cohorts::member_requests::{code_of, lines_of, word};
use crate::cohorts::members::SettleOrder;
use crate::cohorts::state::record::GateKey;
use crate::ids::{PartitionIndex, PartitionKey};
use crate::partition::answers::send_bytes;
use crate::transactions::staged::StageId;
use crate::turn::Turn;

/// Bytes of a line: partition, hold, from, through, epoch of the last row, kind and zero.
const CLAIM_BYTES: usize = 48;
const CLAIM_KIND: u64 = 2;

/// So long an order waits for its record, as a publish does, before it fails and is given again.
pub(super) const SETTLE_WAIT_MS: u64 = 2_000;

impl CohortMachine<'_> {
    // ---- ACKNOWLEDGE that claims ----

    /// Lock gates for a COMMIT. Answered immediately: the body lists gates that were not locked. A request for a scope
    /// that is not the cohort's is refused as a whole, and nothing has changed.
    pub(super) fn claim_gates(&mut self, from: Connection, header: &RequestHeader, body: &[u8], turn: &mut Turn<'_>) {
        let found = self.sessions.cohort_of(from, header.producer_id).map_err(Refusal::from);
        let found = found.and_then(|cohort| {
            self.check_claim_mode(header.topic, cohort)?;
            let (front, lines) = parts_of(header, body)?;
            let id = identity_of(front)?;
            self.store.scopes.check_claim(&id, cohort, self.store.gate_rules.index())?;
            Ok((cohort, claims_of(header, &id, lines)?))
        });
        let (cohort, claims) = match found {
            Ok(found) => found,
            Err(refusal) => return self.store.refuse(from, header, &refusal, turn),
        };
        let mut not_taken = Vec::new();
        for (partition, claim, row_epoch) in claims {
            let (number, code) = match self.claim_one(header, GateKey { partition, cohort }, &claim, row_epoch, turn) {
                Ok(()) => continue,
                Err(why) => why,
            };
            not_taken.extend_from_slice(&partition.to_le_bytes());
            not_taken.extend_from_slice(&number.to_le_bytes());
            not_taken.extend_from_slice(&u64::from(code as u16).to_le_bytes());
        }
        let mut answer = self.store.echo(header);
        answer.status = Status::Ok as u8;
        send_bytes(from, answer, not_taken.into(), turn.effects);
    }

    fn check_claim_mode(&self, topic: u64, cohort: u64) -> Result<(), Refusal> {
        self.check_mode(topic, cohort)?;
        let mode = self.store.gate_rules.cohort(topic, cohort).map(|rule| rule.mode);
        if mode == Some(Mode::Stream) {
            return Ok(());
        }
        let what = format!("cohort {cohort} is not STREAM: only positions of such a cohort take part in a COMMIT");
        Err(Refusal::new(Code::InvalidArgument, what).with("cohort", cohort))
    }

    /// # Errors
    /// The number of the gate's hold, and why the gate is not locked.
    fn claim_one(
        &mut self,
        header: &RequestHeader,
        key: GateKey,
        claim: &Claim,
        row_epoch: u64,
        turn: &mut Turn<'_>,
    ) -> Result<(), (u64, Code)> {
        let index = self.log_of(header, key.partition).map_err(|rejection| (0, code_of(&rejection)))?;
        let claimed = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            let of = view.gate(key)?;
            Some((of.hold().number, gates.claim(&of, claim, row_epoch)))
        });
        let Some((number, claimed)) = claimed.flatten() else { return Err((0, Code::Held)) };
        let code = match claimed {
            Claimed::Answered(Answer::Taken) => {
                self.members.claimed.insert(self.store.partitions[index].key());
                return Ok(());
            }
            Claimed::Answered(Answer::Wait) | Claimed::NotOpen => Code::Held,
            Claimed::Answered(Answer::NotAssigned) => Code::NotAssigned,
            Claimed::Answered(Answer::Conflict) => Code::Conflict,
            Claimed::Answered(Answer::Truncated) => Code::Truncated,
            Claimed::UnknownCohort => Code::UnknownCohort,
        };
        Err((number, code))
    }

    // ---- the control plane ----

    /// Rules of scopes were installed: claims are decided or gone, positions are due or confirmed.
    pub(crate) fn scopes_changed(&mut self, gates: &BTreeSet<(u64, u64)>, turn: &mut Turn<'_>) {
        let mut logs = self.members.claimed.clone();
        let rules = &self.store.gate_rules;
        logs.extend(gates.iter().filter_map(|&(topic, partition)| Some((topic, rules.log_of(topic, partition)?))));
        for key in logs {
            match self.store.partitions.find(key.0, key.1) {
                Some(index) => self.gates_changed(index, turn),
                None => drop(self.members.claimed.remove(&key)),
            }
            self.forget_claimed(key);
        }
    }

    /// A log without claims need not be looked at.
    fn forget_claimed(&mut self, key: PartitionKey) {
        let index = self.store.partitions.find(key.0, key.1);
        let gates = index.and_then(|index| self.store.partitions[index].gates.as_ref());
        if gates.is_none_or(|gates| gates.claims.len() == 0) {
            self.members.claimed.remove(&key);
        }
    }

    /// Whether a gate is locked for a commit that is not decided yet, and under which owner epoch (CT5, CT6).
    pub(crate) fn see_claim(&mut self, seen: &SeeClaim, turn: &mut Turn<'_>) -> Result<OrderProgress, OrderError> {
        let of = &seen.position;
        let claim = Claim {
            session: of.session,
            incarnation: of.incarnation,
            hold: of.hold,
            from: of.from,
            through: of.through,
            scope: seen.scope,
            driver: seen.driver,
            epoch: of.epoch,
            token: of.token,
            made_ms: 0,
        };
        let key = GateKey { partition: of.partition, cohort: of.cohort };
        let index = self.gate_log((of.topic, of.partition))?;
        let there = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            Some((gates.epoch, gates.has_claim(&view.gate(key)?, &claim)))
        });
        match there.flatten() {
            Some((epoch, is_there)) => Ok(OrderProgress::Done(Finished::Claimed { epoch, is_there })),
            None => Err(format!("partition {}: the cohort has no gate here", of.partition).into()),
        }
    }

    /// The log with the gates of a partition, open here.
    pub(super) fn gate_log(&self, (topic, partition): (u64, u64)) -> Result<PartitionIndex, OrderError> {
        let log = self.store.gate_rules.log_of(topic, partition);
        let index = log.and_then(|log| self.store.partitions.find(topic, log));
        let is_open = |index: &PartitionIndex| self.store.partitions[*index].has_open_gates();
        index.filter(is_open).ok_or_else(|| format!("partition {partition}: its gates are not open here").into())
    }

    /// Write a position of a commit whose rows are published. Repeating it does no harm.
    pub(crate) fn settle_committed(
        &mut self,
        number: u64,
        position: SettleCommitted,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let deadline_ms = turn.now.mono_ms + SETTLE_WAIT_MS;
        self.go_on(SettleOrder { number, position, deadline_ms }, turn)
    }

    fn go_on(&mut self, order: SettleOrder, turn: &mut Turn<'_>) -> Result<OrderProgress, OrderError> {
        let SettleCommitted { topic, partition, cohort, incarnation, through } = order.position;
        let index = self.gate_log((topic, partition))?;
        let ticket = turn.ticket();
        let written = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
            let of = view.gate(GateKey { partition, cohort })?;
            if of.cohort.incarnation != incarnation {
                return Some(Err("the cohort was sought"));
            }
            let record = gates.settle_committed(&of, through);
            if let Ok(Some(record)) = record {
                gates.wait_for(record, ticket);
            }
            Some(record)
        });
        match written.flatten() {
            Some(Ok(None)) => Ok(OrderProgress::Done(Finished::Done)),
            Some(Ok(Some(_))) => {
                self.members.committed.insert(ticket, order);
                self.gates_changed(index, turn);
                Ok(OrderProgress::WhenDurable)
            }
            Some(Err(why)) => Err(format!("partition {partition}: {why}").into()),
            None => Err(format!("partition {partition}: the cohort has no gate here").into()),
        }
    }

    /// A record that an order waits for is committed. It may lack the position: a seek came first.
    pub(super) fn position_written(&mut self, ticket: u64, turn: &mut Turn<'_>) {
        let Some(order) = self.members.committed.remove(&ticket) else { return };
        let number = order.number;
        match self.go_on(order, turn) {
            Ok(OrderProgress::WhenDurable) => {}
            Ok(OrderProgress::Done(finished)) => {
                turn.effects.outcomes.push(Outcome::Order { number, result: Ok(finished) });
            }
            Err(OrderError::Error(why)) => refuse_order(number, why, turn),
            Err(OrderError::Busy) => refuse_order(number, "no room in the shard".to_owned(), turn),
        }
    }

    /// Claims that keep other members out, or are old: their epochs are to be expired (CT8).
    pub(crate) fn forced_ends(&mut self, now_ms: u64) -> Vec<ForcedEnd> {
        let mut out = Vec::new();
        for &(topic, log) in &self.members.claimed {
            if let Some(index) = self.store.partitions.find(topic, log)
                && self.store.partitions[index].has_open_gates()
            {
                self.store.with_gates(index, now_ms, |gates, view| gates.forced_ends(view, &mut out));
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }

    /// Orders whose record takes too long.
    pub(super) fn end_late_orders(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        let late = |(ticket, order): (&u64, &SettleOrder)| (order.deadline_ms <= now_ms).then_some(*ticket);
        let late: Vec<u64> = self.members.committed.iter().filter_map(late).collect();
        for ticket in late {
            if let Some(order) = self.members.committed.remove(&ticket) {
                refuse_order(order.number, "too few replicas had the position on disk in time".to_owned(), turn);
            }
        }
        self.end_late_parked(turn);
    }
}

pub(super) fn refuse_order(number: u64, why: String, turn: &mut Turn<'_>) {
    turn.effects.outcomes.push(Outcome::Order { number, result: Err(why) });
}

/// The extension and the lines of a body.
fn parts_of<'a>(header: &RequestHeader, body: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Refusal> {
    body.split_at_checked(header.extension_bytes as usize).ok_or_else(|| {
        Refusal::new(Code::BadBody, format!("a body of {} bytes is shorter than its extension", body.len()))
    })
}

/// What lines claim for a scope: partition, claim, owner epoch of the last row.
fn claims_of(header: &RequestHeader, id: &StageId, lines: &[u8]) -> Result<Vec<(u64, Claim, u64)>, Refusal> {
    let mut found: Vec<(u64, Claim, u64)> = Vec::new();
    for line in lines_of(lines, CLAIM_BYTES)? {
        let [partition, hold, from, through, row_epoch, kind] = std::array::from_fn(|at| word(line, at));
        if kind != CLAIM_KIND {
            let what = format!("kind {kind} of an acknowledgement with a scope; {CLAIM_KIND} claims");
            return Err(Refusal::new(Code::InvalidArgument, what).with("kind", kind));
        }
        if found.last().is_some_and(|last| last.0 >= partition) {
            let what = format!("partition {partition} comes twice, or out of order; lines ascend");
            return Err(Refusal::new(Code::InvalidArgument, what).with("partition", partition));
        }
        let claim = Claim {
            session: header.producer_id,
            incarnation: 0,
            hold,
            from,
            through,
            scope: id.scope,
            driver: id.driver,
            epoch: id.epoch,
            token: id.token,
            made_ms: 0,
        };
        found.push((partition, claim, row_epoch));
    }
    Ok(found)
}

fn identity_of(front: &[u8]) -> Result<StageId, Refusal> {
    let mut found = None;
    let walked = extension::each(front, |kind, payload| {
        if kind == ExtensionKind::Stage {
            found = Some(payload);
        }
    });
    walked.map_err(|why| Refusal::new(Code::BadBody, format!("extension: {why}")))?;
    let what = "a claim needs a stage extension: u64 scope, u64 driver, u64 epoch (from 1), u32, u32 zero, token";
    let id = found.and_then(StageId::read).filter(|id| id.epoch <= SCOPE_EPOCH_MAX);
    id.ok_or_else(|| Refusal::new(Code::InvalidArgument, what))
}
