//! Answers to FETCH of members of queues: records, and after them the trailer that says which of their rows are on lease.
//!
//! ```text
//! u32 version = 1 | u32 lines | u64 floor | u64 zero | u64 zero | line* | zeros up to 64 bytes
//! line: u64 first | u32 rows | u8 again | u8 count | u16 zero
//! ```

use ringfence_log::{ReadDone, ReadFrom};
use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{
    ANSWER_FLAG_ELSEWHERE, ANSWER_FLAG_MORE, BODY_ALIGN_BYTES, Code, RecordHeader, RequestHeader, Status, crc_combine,
    crc_of,
};

use crate::api::refusal::Refusal;
use crate::cohorts::gate::queues::{Granted, is_planted};
use crate::cohorts::state::record::GateKey;
use crate::ids::PartitionIndex;
use crate::partition::answers::{length, send};
use crate::partition::store::Store;
use crate::reads::pending_reads::{Fetch, MemberRead};
use crate::reads::read_machine::ReadMachine;
use crate::turn::Turn;

const TRAILER_VERSION: u32 = 1;

impl ReadMachine<'_> {
    /// Rows on lease were read. What is not in these records comes back.
    pub(super) fn answer_queue_read(&mut self, read: MemberRead, grant: u64, turn: &mut Turn<'_>) {
        let MemberRead { fetch, member, done, end } = read;
        let (to, index) = (fetch.connection, fetch.index);
        if self.read_partition(&fetch).is_none() {
            return self.answer_dropped(&fetch, turn);
        }
        if let Some(reason) = self.end_is_unknown(index) {
            self.give_back(&fetch, turn);
            return self.store.redirect(to, &fetch.header, reason, turn);
        }
        if !self.replication().is_fresh(index, turn) {
            let what = format!("partition {}: too few replicas have confirmed its owner", fetch.header.partition);
            return self.refuse_fetch(&fetch, &Refusal::new(Code::TooFewReplicas, what), turn);
        }
        let key = member.key(&fetch.header);
        for rows in missing_rows(&fetch, &done, &end.block) {
            self.store.settle_missing(index, key, (member.number, grant), rows, turn);
        }
        let Some(granted) = self.store.granted(index, key, (member.number, grant, done.next_offset), turn) else {
            return self.store.answer_no_rows(to, &fetch.header, member.number, turn);
        };
        let trailer = trailer_of(&granted);
        let mut answer = self.store.echo_at(index, &fetch.header);
        (answer.status, answer.sequence, answer.send) = (Status::Ok as u8, member.number, trailer.len() as u64);
        (answer.first_offset, answer.owner_epoch) = (done.first_offset, done.owner_epoch);
        answer.rows = u32::try_from(done.rows).unwrap_or(u32::MAX);
        if done.next_offset < answer.end_offset {
            answer.flags |= ANSWER_FLAG_MORE;
        }
        let bytes = done.bytes + trailer.len();
        answer.body_bytes = length(bytes);
        answer.body_crc = crc_combine(end.sums.whole(), crc_of(&trailer), trailer.len());
        let mut block = end.block;
        let body = if let Some(room) = block.get_mut(done.bytes..bytes) {
            room.copy_from_slice(&trailer);
            Outbound::Block { block, bytes }
        } else {
            Outbound::Bytes([&block[..done.bytes], &trailer].concat().into())
        };
        send(to, answer, body, turn.effects);
    }

    /// An operator gave up the rows from where this read began up to `resume_offset`: a queue settles those that it has
    /// on lease. False: nothing else is on lease, and the FETCH is answered.
    pub(super) fn goes_on_from(&mut self, fetch: &Fetch, resume_offset: u64, turn: &mut Turn<'_>) -> bool {
        let (Some(member), ReadFrom::Offset(from)) = (fetch.member, fetch.from) else { return true };
        let Some(grant) = member.grant else { return true };
        if is_planted!(GivenUpComesAgain) || from >= resume_offset {
            return true;
        }
        let (key, numbers) = (member.key(&fetch.header), (member.number, grant.number));
        let goes_on = self.store.settle_missing(fetch.index, key, numbers, (from, resume_offset), turn);
        if !goes_on {
            self.store.answer_no_rows(fetch.connection, &fetch.header, member.number, turn);
        }
        goes_on
    }

    /// Refuse a fetch. Rows on lease for it may be leased again: who asked has not heard of them.
    pub(super) fn refuse_fetch(&mut self, fetch: &Fetch, refusal: &Refusal, turn: &mut Turn<'_>) {
        self.give_back(fetch, turn);
        self.store.refuse(fetch.connection, &fetch.header, refusal, turn);
    }

    fn give_back(&mut self, fetch: &Fetch, turn: &mut Turn<'_>) {
        let Some(member) = fetch.member else { return };
        let Some(grant) = member.grant else { return };
        if self.read_partition(fetch).is_none() || !self.store.partitions[fetch.index].has_open_gates() {
            return;
        }
        let key = member.key(&fetch.header);
        let given = self.store.with_gates(fetch.index, turn.now.mono_ms, |gates, _| gates.give_back(key, grant.number));
        if given == Some(true) {
            turn.follow_ups.new_rows.push(fetch.index);
        }
    }
}

/// Rows from the first one on lease to the end of an answer that none of its records has: an operator gave them up.
fn missing_rows(fetch: &Fetch, done: &ReadDone, block: &[u8]) -> Vec<(u64, u64)> {
    let from = fetch.header.sequence;
    let is_whole = done.next_offset.checked_sub(done.first_offset) == Some(done.rows);
    if (is_whole && done.first_offset <= from) || is_planted!(GivenUpComesAgain) {
        return Vec::new();
    }
    let (mut missing, mut next, mut rest) = (Vec::new(), from, &block[..done.bytes]);
    while let Some(bytes) = rest.first_chunk() {
        let header = RecordHeader::read(bytes);
        if header.first_offset > next {
            missing.push((next, header.first_offset));
        }
        next = next.max(header.first_offset + u64::from(header.rows));
        rest = rest.get((header.span_bytes as usize).max(RecordHeader::SIZE)..).unwrap_or_default();
    }
    missing
}

impl Store {
    /// Settle rows of a grant that no record has. False: nothing of the grant is on lease any more.
    fn settle_missing(
        &mut self,
        index: PartitionIndex,
        key: GateKey,
        (incarnation, grant): (u64, u64),
        rows: (u64, u64),
        turn: &mut Turn<'_>,
    ) -> bool {
        if !self.partitions[index].has_open_gates() {
            return false;
        }
        let goes_on = self.with_gates(index, turn.now.mono_ms, |gates, view| {
            view.gate(key).is_some_and(|of| gates.settle_missing(&of, incarnation, grant, rows))
        });
        goes_on == Some(true)
    }

    /// The rows of a grant in the records up to `end`.
    fn granted(
        &mut self,
        index: PartitionIndex,
        key: GateKey,
        (incarnation, grant, end): (u64, u64, u64),
        turn: &mut Turn<'_>,
    ) -> Option<Granted> {
        if !self.partitions[index].has_open_gates() {
            return None;
        }
        let granted = self.with_gates(index, turn.now.mono_ms, |gates, view| {
            gates.granted(&view.gate(key)?, incarnation, grant, end)
        });
        let granted = granted.flatten()?;
        if granted.given_back {
            turn.follow_ups.new_rows.push(index);
        }
        Some(granted)
    }

    /// Rows on lease of a sealed partition: the member reads them at its own owner.
    pub(crate) fn answer_rows_elsewhere(
        &mut self,
        index: PartitionIndex,
        (to, header): (Connection, &RequestHeader),
        (cohort, incarnation, grant): (u64, u64, u64),
        turn: &mut Turn<'_>,
    ) {
        let key = GateKey { partition: header.partition, cohort };
        let Some(granted) = self.granted(index, key, (incarnation, grant, u64::MAX), turn) else {
            return self.answer_no_rows(to, header, incarnation, turn);
        };
        let trailer = trailer_of(&granted);
        let mut answer = self.echo_at(index, header);
        (answer.status, answer.flags) = (Status::Ok as u8, ANSWER_FLAG_ELSEWHERE);
        (answer.sequence, answer.send, answer.owner_epoch) = (incarnation, trailer.len() as u64, 0);
        answer.first_offset = granted.deliveries[0].first;
        answer.end_offset = granted.deliveries.last().map_or(0, |last| last.first + u64::from(last.rows));
        (answer.body_bytes, answer.body_crc) = (length(trailer.len()), crc_of(&trailer));
        send(to, answer, Outbound::Bytes(trailer.into()), turn.effects);
    }

    /// No rows: the member asks again.
    pub(crate) fn answer_no_rows(
        &mut self,
        to: Connection,
        header: &RequestHeader,
        incarnation: u64,
        turn: &mut Turn<'_>,
    ) {
        let mut answer = self.echo(header);
        (answer.status, answer.sequence) = (Status::Ok as u8, incarnation);
        send(to, answer, Outbound::Empty, turn.effects);
    }
}

fn trailer_of(granted: &Granted) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&TRAILER_VERSION.to_le_bytes());
    out.extend_from_slice(&u32::try_from(granted.deliveries.len()).unwrap_or(u32::MAX).to_le_bytes());
    for word in [granted.floor, 0, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for line in &granted.deliveries {
        out.extend_from_slice(&line.first.to_le_bytes());
        out.extend_from_slice(&line.rows.to_le_bytes());
        out.extend_from_slice(&[u8::from(line.again), line.count, 0, 0]);
    }
    out.resize(out.len().next_multiple_of(BODY_ALIGN_BYTES), 0);
    out
}
