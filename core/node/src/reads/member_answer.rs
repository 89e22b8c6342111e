//! Answers to FETCH of a member: under the number of its hold, and only while the hold stands (CG4). The lease of the
//! holder begins again with each (CG12), so a quorum must have been heard within L (CG11).

use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{ANSWER_FLAG_ELSEWHERE, ANSWER_FLAG_MORE, Code, RedirectReason, RequestHeader, Status};

use crate::api::refusal::Refusal;
use crate::cohorts::state::record::GateKey;
use crate::ids::PartitionIndex;
use crate::partition::answers::{length, send, send_packed};
use crate::partition::store::Store;
use crate::reads::pending_reads::{EndQuestion, Fetch, MemberFetch, MemberRead};
use crate::reads::read_machine::ReadMachine;
use crate::turn::Turn;

impl ReadMachine<'_> {
    /// Rows were read for a member. They go out once a quorum was heard within L.
    pub(super) fn member_read(&mut self, read: MemberRead, turn: &mut Turn<'_>) {
        let index = read.fetch.index;
        if self.replication().is_fresh(index, turn) {
            self.answer_member_read(read, turn);
        } else {
            self.confirm(index, EndQuestion::Member(Box::new(read)), turn);
        }
    }

    pub(super) fn answer_member_read(&mut self, read: MemberRead, turn: &mut Turn<'_>) {
        if let Some(grant) = read.member.grant {
            return self.answer_queue_read(read, grant.number, turn);
        }
        let MemberRead { fetch, member, done, end } = read;
        if !self.may_answer(&fetch, &member, done.next_offset, turn) {
            return;
        }
        let mut answer = self.store.echo_at(fetch.index, &fetch.header);
        answer.status = Status::Ok as u8;
        (answer.sequence, answer.send) = (member.number, fetch.header.sequence);
        (answer.first_offset, answer.owner_epoch) = (done.first_offset, done.owner_epoch);
        answer.rows = u32::try_from(done.rows).unwrap_or(u32::MAX);
        if done.next_offset < answer.end_offset {
            answer.flags |= ANSWER_FLAG_MORE;
        }
        answer.body_bytes = length(done.bytes);
        answer.body_crc = end.sums.whole();
        send(fetch.connection, answer, Outbound::Block { block: end.block, bytes: done.bytes }, turn.effects);
    }

    /// No rows came until the deadline: the hold stands.
    pub(super) fn answer_member_empty(&mut self, fetch: &Fetch, member: &MemberFetch, turn: &mut Turn<'_>) {
        if member.grant.is_some() {
            return self.store.answer_no_rows(fetch.connection, &fetch.header, member.number, turn);
        }
        let offset = fetch.header.sequence;
        if !self.may_answer(fetch, member, offset, turn) {
            return;
        }
        let mut answer = self.store.echo_at(fetch.index, &fetch.header);
        answer.status = Status::Ok as u8;
        (answer.sequence, answer.send, answer.first_offset) = (member.number, offset, offset);
        answer.owner_epoch = fetch.header.owner_epoch;
        send(fetch.connection, answer, Outbound::Empty, turn.effects);
    }

    /// Extend the lease by an answer, or refuse what is not to be answered.
    fn may_answer(&mut self, fetch: &Fetch, member: &MemberFetch, end: u64, turn: &mut Turn<'_>) -> bool {
        if self.read_partition(fetch).is_none() {
            self.answer_dropped(fetch, turn);
            return false;
        }
        if let Some(reason) = self.end_is_unknown(fetch.index) {
            self.store.redirect(fetch.connection, &fetch.header, reason, turn);
            return false;
        }
        if !self.replication().is_fresh(fetch.index, turn) {
            let what = format!("partition {}: too few replicas have confirmed its owner", fetch.header.partition);
            let refusal = Refusal::new(Code::TooFewReplicas, what);
            self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
            return false;
        }
        let (key, now_ms) = (member.key(&fetch.header), turn.now.mono_ms);
        let is_open = self.store.partitions[fetch.index].has_open_gates();
        let delivered = self.store.with_gates(fetch.index, now_ms, |gates, view| {
            view.gate(key).is_some_and(|of| gates.deliver(&of, fetch.header.producer_id, member.number, end))
        });
        if is_open && delivered == Some(true) {
            return true;
        }
        if !is_open {
            self.store.redirect(fetch.connection, &fetch.header, RedirectReason::Closed, turn);
            return false;
        }
        self.store.refuse_not_assigned(fetch.index, fetch.connection, &fetch.header, key, turn);
        false
    }

    /// Polls whose hold is over are answered: their members hear of it without a push.
    pub(crate) fn end_member_polls(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let Some(partition) = self.store.partitions.get(index) else { return };
        let is_open = partition.has_open_gates();
        let waiting: Vec<u64> = partition.waiting.iter().copied().filter(|ticket| self.is_of_member(*ticket)).collect();
        let mut ended = Vec::new();
        for ticket in waiting {
            let Some(fetch) = self.reads.polls.get(&ticket) else { continue };
            let Some(member) = fetch.member.filter(|member| member.grant.is_none()) else { continue };
            let (key, session) = (member.key(&fetch.header), fetch.header.producer_id);
            let holds = self.store.with_gates(index, turn.now.mono_ms, |gates, view| {
                view.gate(key).is_some_and(|of| gates.holds(&of, session, member.number))
            });
            if (!is_open || holds != Some(true))
                && let Some(fetch) = self.reads.end_poll(ticket)
            {
                ended.push(ticket);
                if is_open {
                    self.store.refuse_not_assigned(index, fetch.connection, &fetch.header, key, turn);
                } else {
                    self.store.redirect(fetch.connection, &fetch.header, RedirectReason::Closed, turn);
                }
            }
        }
        if !ended.is_empty() {
            self.store.partitions[index].waiting.retain(|ticket| !ended.contains(ticket));
        }
    }

    fn is_of_member(&self, ticket: u64) -> bool {
        self.reads.polls.get(&ticket).is_some_and(|fetch| fetch.member.is_some())
    }
}

impl MemberFetch {
    pub fn key(&self, header: &RequestHeader) -> GateKey {
        GateKey { partition: header.partition, cohort: self.cohort }
    }
}

impl Store {
    /// Where the rows of a sealed partition begin for a member, and end; they are read at its own owner.
    pub(crate) fn answer_elsewhere(
        &mut self,
        index: PartitionIndex,
        (to, header): (Connection, &RequestHeader),
        (number, settled, epoch, end): (u64, u64, u64, u64),
        turn: &mut Turn<'_>,
    ) {
        let mut answer = self.echo_at(index, header);
        (answer.status, answer.flags) = (Status::Ok as u8, ANSWER_FLAG_ELSEWHERE);
        (answer.sequence, answer.send, answer.first_offset) = (number, settled, settled);
        (answer.end_offset, answer.owner_epoch) = (end, epoch);
        send(to, answer, Outbound::Empty, turn.effects);
    }

    /// Another session has the gate, or the hold is over: the newest number, and the generation of the plan here.
    pub(crate) fn refuse_not_assigned(
        &mut self,
        index: PartitionIndex,
        to: Connection,
        header: &RequestHeader,
        key: GateKey,
        turn: &mut Turn<'_>,
    ) {
        let found = self.with_gates(index, turn.now.mono_ms, |_, view| {
            view.gate(key).map(|of| (of.hold().number, of.cohort.generation))
        });
        let (number, generation) = found.flatten().unwrap_or_default();
        let what = format!("partition {}: another member has it, or the hold is over; ask for the plan", key.partition);
        let refusal = Refusal::new(Code::NotAssigned, what).with("hold", number).with("generation", generation);
        turn.counters.refuse(Code::NotAssigned);
        let mut answer = self.echo_at(index, header);
        (answer.status, answer.code) = (Status::Refused as u8, Code::NotAssigned as u16);
        (answer.sequence, answer.send) = (number, generation);
        send_packed(to, answer, crate::codec::pack::refused(&refusal), turn.effects);
    }
}
