//! End a fetch: its read has ended, or nothing came. Answer it with rows, with none, or with the reason.

use ringfence_log::{Damage, ReadDone, ReadError, ReadFrom, parse_segment_name};
use ringfence_transport::Outbound;
use ringfence_wire::{ANSWER_FLAG_MORE, Code, RECORD_HEADER_BYTES, RedirectReason, Status};

use crate::api::jobs::ReadEnd;
use crate::api::outcome::Outcome;
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::partition::answers::{length, send};
use crate::partition::rejection::Rejection;
use crate::reads::pending_reads::{Fetch, MemberRead};
use crate::reads::read_machine::ReadMachine;
use crate::turn::Turn;

impl ReadMachine<'_> {
    /// Back comes a fetch that met damage: whether it may wait for a repair is not decided here.
    pub(crate) fn read_ended(&mut self, end: ReadEnd, turn: &mut Turn<'_>) -> Option<(Fetch, Box<Damage>)> {
        let mut fetch = self.reads.under_way.remove(&end.ticket)?;
        if self.read_partition(&fetch).is_none() {
            self.answer_dropped(&fetch, turn);
            return None;
        }
        match &end.result {
            Ok(done) if done.records == 0 && self.goes_on(&fetch, done) => {
                // A stretch without rows: the log says where the next one begins.
                fetch.from = match fetch.from {
                    ReadFrom::Staged(_) => ReadFrom::Staged(done.next_record),
                    _ => ReadFrom::Offset(done.next_offset),
                };
                self.begin_read(fetch, turn);
            }
            Ok(done) => {
                let done = *done;
                turn.counters.reads += 1;
                turn.counters.bytes_read += done.bytes as u64;
                match fetch.member.filter(|_| done.records > 0) {
                    Some(member) => self.member_read(MemberRead { fetch, member, done, end }, turn),
                    None => self.answer_read(&fetch, done, end, turn),
                }
            }
            Err(ReadError::BlockTooSmall { bytes }) if *bytes > fetch.bytes => {
                fetch.bytes = *bytes;
                self.begin_read(fetch, turn);
            }
            Err(ReadError::Damaged { resume_offset, .. }) if self.is_released(fetch.index) => {
                // An operator gave the damaged rows up: reading goes on after them.
                if self.goes_on_from(&fetch, *resume_offset, turn) {
                    fetch.from = ReadFrom::Offset(*resume_offset);
                    self.begin_read(fetch, turn);
                }
            }
            Err(ReadError::Damaged { damage, .. }) => return Some((fetch, damage.clone())),
            Err(error) => self.read_failed(&fetch, error, turn),
        }
        None
    }

    fn answer_read(&mut self, fetch: &Fetch, done: ReadDone, end: ReadEnd, turn: &mut Turn<'_>) {
        if done.records == 0 {
            return self.answer_empty(fetch, turn);
        }
        let mut answer = self.store.echo_at(fetch.index, &fetch.header);
        answer.status = Status::Ok as u8;
        answer.first_offset = done.first_offset;
        if matches!(fetch.from, ReadFrom::Time(_)) {
            let partition = &self.store.partitions[fetch.index];
            answer.first_offset = answer.first_offset.max(partition.start_offset());
            answer.send = partition.epoch_before(answer.first_offset);
            answer.flags |= self.ended_flag(fetch.index, fetch.connection, u64::MAX);
            return send(fetch.connection, answer, Outbound::Empty, turn.effects);
        }
        answer.owner_epoch = done.owner_epoch;
        answer.rows = u32::try_from(done.rows).unwrap_or(u32::MAX);
        if done.next_offset < answer.end_offset {
            answer.flags |= ANSWER_FLAG_MORE;
        }
        if matches!(fetch.from, ReadFrom::Offset(_)) {
            answer.flags |= self.ended_flag(fetch.index, fetch.connection, done.next_offset);
        }
        answer.body_bytes = length(done.bytes);
        answer.body_crc = end.sums.whole();
        debug_assert!(done.bytes >= RECORD_HEADER_BYTES);
        send(fetch.connection, answer, Outbound::Block { block: end.block, bytes: done.bytes }, turn.effects);
    }

    fn goes_on(&self, fetch: &Fetch, done: &ReadDone) -> bool {
        if let (ReadFrom::Staged(record), Some(partition)) = (fetch.from, self.store.partitions.get(fetch.index)) {
            return done.next_record > record && done.next_record < partition.log.end().next_record;
        }
        let from = if let ReadFrom::Offset(offset) = fetch.from { offset } else { 0 };
        let mark = self.store.partitions.get(fetch.index).map_or(0, |partition| partition.mark);
        matches!(fetch.from, ReadFrom::Offset(_)) && done.next_offset > from && done.next_offset < mark
    }

    fn is_released(&self, index: PartitionIndex) -> bool {
        self.store.partitions.get(index).is_some_and(|partition| partition.released)
    }

    fn read_failed(&mut self, fetch: &Fetch, error: &ReadError, turn: &mut Turn<'_>) {
        let refusal = match error {
            ReadError::Damaged { damage, .. } => return self.read_damaged(fetch, damage, turn),
            ReadError::Storage(error) => Refusal::new(Code::StorageFailed, format!("reading failed: {error}")),
            ReadError::BlockTooSmall { bytes } => {
                Refusal::new(Code::Internal, format!("a record of {bytes} bytes does not fit the block made for it"))
            }
        };
        self.refuse_fetch(fetch, &refusal, turn);
    }

    /// The damage was not repaired in time: quarantine the partition until it is.
    pub(crate) fn read_damaged(&mut self, fetch: &Fetch, damage: &Damage, turn: &mut Turn<'_>) {
        let why = damage.to_string();
        if let Some(partition) = self.store.partitions.get_mut(fetch.index)
            && !partition.is_quarantined()
        {
            let (topic, partition_id) = partition.key();
            partition.damage = Some(why.clone());
            partition.damaged_file = parse_segment_name(&damage.file).map(|(file, _)| file);
            partition.closed_epoch = Some(partition.gate.open_epoch());
            partition.gate.close();
            turn.effects.outcomes.push(Outcome::Quarantined { topic, partition: partition_id, why: why.clone() });
        }
        let refusal = Refusal::new(Code::Quarantined, format!("the partition's log is damaged: {why}"));
        self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
    }

    /// Answer OK without a body: no rows came. `OFFSET_FOR_TIME`: the mark.
    pub(crate) fn answer_empty(&mut self, fetch: &Fetch, turn: &mut Turn<'_>) {
        if let Some(member) = fetch.member {
            return self.answer_member_empty(fetch, &member, turn);
        }
        if self.read_partition(fetch).is_some()
            && let Some(reason) = self.end_is_unknown(fetch.index)
        {
            return self.store.redirect(fetch.connection, &fetch.header, reason, turn);
        }
        let mut answer = match self.store.partitions.get(fetch.index) {
            Some(_) => self.store.echo_at(fetch.index, &fetch.header),
            None => self.store.echo(&fetch.header),
        };
        answer.status = Status::Ok as u8;
        answer.first_offset = match fetch.from {
            ReadFrom::Offset(offset) => offset,
            _ => answer.end_offset,
        };
        if let (ReadFrom::Time(_), Some(partition)) = (fetch.from, self.store.partitions.get(fetch.index)) {
            answer.send = partition.epoch_before(answer.first_offset);
        }
        answer.owner_epoch = fetch.header.owner_epoch;
        if self.read_partition(fetch).is_some() && !matches!(fetch.from, ReadFrom::Staged(_)) {
            let upto = if let ReadFrom::Offset(offset) = fetch.from { offset } else { u64::MAX };
            answer.flags |= self.ended_flag(fetch.index, fetch.connection, upto);
        }
        send(fetch.connection, answer, Outbound::Empty, turn.effects);
    }

    /// As a request that comes now: a partition that has moved is read on elsewhere, one of a topic that is deleted is
    /// no more.
    pub(crate) fn answer_dropped(&mut self, fetch: &Fetch, turn: &mut Turn<'_>) {
        let rejection = match self.store.locate(&fetch.header) {
            Err(rejection) => rejection,
            // It is here again, or another one with its number: asked again, that one answers.
            Ok(_) => Rejection::Redirect(RedirectReason::Closed),
        };
        self.store.answer_rejection(fetch.connection, &fetch.header, rejection, turn);
    }
}
