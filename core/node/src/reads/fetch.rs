//! Serve FETCH, `OFFSET_FOR_TIME` and `END_OFFSETS`: reads below the mark. Fetches that wait for rows are in `polls`.
//!
//! ```text
//! fetch -> position in this log? -> rows below the mark? -> plan + block -> reader thread -> answer: the log's bytes
//!                                            no -> wait in the partition's list until the mark moves or the deadline
//!                                                    no block free -> wait in `queued`
//! ```
//! Waiting costs nothing until the mark of that partition moves: then each of its fetches is looked at once a group.

use ringfence_log::{Damage, PlanError, ReadDone, ReadError, ReadFrom, parse_segment_name};
use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{
    ANSWER_FLAG_MORE, Code, DEADLINE_MS_MAX, FETCH_BYTES_MAX, RECORD_HEADER_BYTES, RedirectReason, RequestHeader,
    Status,
};

use crate::api::answer::{length, send};
use crate::api::jobs::{ReadEnd, ReadJob};
use crate::api::outcome::Outcome;
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::partition::admission::{Rejection, quarantined};
use crate::partition::state::Partition;
use crate::reads::machine::ReadMachine;
use crate::reads::position::Misfit;
use crate::reads::state::{EndQuestion, Fetch, UNDER_WAY_MAX, WAITING_MAX, wants_staged};
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// What a FETCH without byte limit gets (docs/protocol.md).
const BYTES_DEFAULT: u64 = 1 << 20;

/// Enough for a header and a small body; a larger first record says how much it needs.
const TIME_READ_BYTES: usize = 64 << 10;

impl ReadMachine<'_> {
    pub(crate) fn fetch(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        turn.counters.fetches += 1;
        let index = match self.readable(header) {
            Ok(index) => index,
            Err(rejection) => return self.store.answer_rejection(from, header, rejection, turn),
        };
        match self.check_position(index, header) {
            Ok(()) => {}
            Err(Misfit::Truncated(refusal)) => return self.store.refuse(from, header, &refusal, turn),
            Err(Misfit::Ahead(_)) if !self.store.partitions[index].gate.admits() => {
                return self.store.redirect(from, header, RedirectReason::Closed, turn);
            }
            Err(Misfit::Ahead(refusal)) => {
                let asked = EndQuestion::Position { from, header: Box::new(*header), refusal: Box::new(refusal) };
                return self.confirm(index, asked, turn);
            }
        }
        let wanted = if header.send == 0 { BYTES_DEFAULT } else { header.send };
        let fetch = Fetch {
            connection: from,
            header: *header,
            index,
            incarnation: self.store.partitions[index].incarnation(),
            from: if wants_staged(header) {
                ReadFrom::Staged(header.sequence)
            } else {
                ReadFrom::Offset(header.sequence)
            },
            bytes: usize::try_from(wanted).map_or(self.read_bytes_max(), |bytes| bytes.min(self.read_bytes_max())),
            deadline_ms: turn.now.mono_ms + u64::from(header.deadline_ms).min(DEADLINE_MS_MAX as u64),
            held_until_ms: 0,
        };
        self.begin_read(fetch, turn);
    }

    pub(crate) fn offset_for_time(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        match self.readable(header) {
            Ok(index) => {
                let (from_time, deadline_ms) = (ReadFrom::Time(header.sequence), turn.now.mono_ms);
                let fetch = Fetch {
                    connection: from,
                    header: *header,
                    index,
                    incarnation: self.store.partitions[index].incarnation(),
                    from: from_time,
                    bytes: TIME_READ_BYTES,
                    deadline_ms,
                    held_until_ms: 0,
                };
                self.begin_read(fetch, turn);
            }
            Err(rejection) => self.store.answer_rejection(from, header, rejection, turn),
        }
    }

    pub(crate) fn end_offsets(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        match self.readable(header) {
            Ok(index) => self.confirm(index, EndQuestion::Ends { from, header: Box::new(*header) }, turn),
            Err(rejection) => self.store.answer_rejection(from, header, rejection, turn),
        }
    }

    pub(crate) fn answer_ends(
        &mut self,
        index: PartitionIndex,
        from: Connection,
        header: &RequestHeader,
        turn: &mut Turn<'_>,
    ) {
        if let Some(reason) = self.end_is_unknown(index) {
            return self.store.redirect(from, header, reason, turn);
        }
        let mut answer = self.store.echo_at(index, header);
        answer.status = Status::Ok as u8;
        let partition = &self.store.partitions[index];
        answer.first_offset = partition.start_offset();
        answer.send = partition.epoch_before(answer.end_offset);
        send(from, answer, Outbound::Empty, turn.effects);
    }

    /// A partition that may be read here. Reading needs no open gate: a closed partition keeps its rows.
    pub(crate) fn readable(&self, header: &RequestHeader) -> Result<PartitionIndex, Rejection> {
        let index = self.store.locate(header)?;
        let partition = &self.store.partitions[index];
        if partition.plans.is_none() {
            let what = format!("topic {} is not known here", header.topic);
            return Err(Refusal::new(Code::UnknownTopic, what).with("topic", header.topic).into());
        }
        if partition.is_quarantined() {
            return Err(quarantined(partition).into());
        }
        if self.is_elsewhere(index) {
            return Err(Rejection::Redirect(RedirectReason::NotOwner));
        }
        match &partition.role {
            // Since its start this node was not told its role for the partition: its log may end too early, or hold
            // rows that no quorum has.
            Role::None => Err(Rejection::Redirect(RedirectReason::Closed)),
            // A replica does not know which of its rows are confirmed: the client asks the wrong node.
            Role::Follower(_) => Err(Rejection::Redirect(RedirectReason::NotOwner)),
            // The mark is not known before this epoch's own record is on a quorum.
            Role::Owner(owner) if !owner.has_mark() => Err(Rejection::Redirect(RedirectReason::Closed)),
            _ => Ok(index),
        }
    }

    /// The partition that is read; `None` when it was dropped, also if it is here again or another one has its place.
    pub(crate) fn read_partition(&self, fetch: &Fetch) -> Option<&Partition> {
        self.store
            .partitions
            .get(fetch.index)
            .filter(|partition| !partition.dropped && partition.incarnation() == fetch.incarnation)
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

    /// Half the pool at most: a larger read would wait for room forever, and all that queue after it.
    fn read_bytes_max(&self) -> usize {
        FETCH_BYTES_MAX.min(self.store.settings.pool_bytes / 2)
    }

    /// Read, wait for rows, or wait for a block.
    pub(crate) fn begin_read(&mut self, fetch: Fetch, turn: &mut Turn<'_>) {
        let Some(partition) = self.read_partition(&fetch) else { return self.answer_dropped(&fetch, turn) };
        let is_time = matches!(fetch.from, ReadFrom::Time(_));
        let rows_max = if is_time { 1 } else { u64::from(fetch.header.rows) };
        let plan = match partition.log.plan(fetch.from, partition.mark, fetch.bytes, rows_max) {
            Ok(plan) => plan,
            Err(PlanError::Retained { start_offset }) => {
                let what = format!("partition {}: the log begins at {start_offset}", fetch.header.partition);
                let refusal = Refusal::new(Code::Truncated, what).log_start(start_offset);
                return self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
            }
            Err(PlanError::Closed) => {
                let refusal = quarantined(partition);
                return self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
            }
            Err(PlanError::Empty | PlanError::Beyond { .. }) => return self.wait_for_rows(fetch, turn),
        };
        // A quarter of the pool is never read into: slow readers must not stop appends.
        let room = turn.pool.free_bytes() >= fetch.bytes + self.store.settings.pool_bytes / 4;
        let may = room && self.reads.under_way.len() < UNDER_WAY_MAX;
        if let Some(block) = may.then(|| turn.pool.take(fetch.bytes)).flatten() {
            let ticket = turn.ticket();
            self.reads.under_way.insert(ticket, fetch);
            turn.effects.reads.push(ReadJob { ticket, plan, block, in_pieces: false });
        } else if self.reads.queued.len() < WAITING_MAX {
            self.reads.queued.push_back(fetch);
        } else {
            let refusal = Refusal::new(Code::Overloaded, "too many fetches wait for memory");
            self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
        }
    }

    /// Answer OK without a body: no rows came. `OFFSET_FOR_TIME`: the mark.
    pub(crate) fn answer_empty(&mut self, fetch: &Fetch, turn: &mut Turn<'_>) {
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
        send(fetch.connection, answer, Outbound::Empty, turn.effects);
    }

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
                self.answer_read(&fetch, done, end, turn);
            }
            Err(ReadError::BlockTooSmall { bytes }) if *bytes > fetch.bytes => {
                fetch.bytes = *bytes;
                self.begin_read(fetch, turn);
            }
            Err(ReadError::Damaged { resume_offset, .. }) if self.is_released(fetch.index) => {
                // An operator gave the damaged rows up: reading goes on after them.
                fetch.from = ReadFrom::Offset(*resume_offset);
                self.begin_read(fetch, turn);
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
            return send(fetch.connection, answer, Outbound::Empty, turn.effects);
        }
        answer.owner_epoch = done.owner_epoch;
        answer.rows = u32::try_from(done.rows).unwrap_or(u32::MAX);
        if done.next_offset < answer.end_offset {
            answer.flags |= ANSWER_FLAG_MORE;
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
        self.store.refuse(fetch.connection, &fetch.header, &refusal, turn);
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

    /// Serve fetches that wait for a block.
    pub(crate) fn serve_queued_reads(&mut self, turn: &mut Turn<'_>) {
        for _ in 0..self.reads.queued.len() {
            if self.reads.under_way.len() >= UNDER_WAY_MAX {
                return;
            }
            let Some(fetch) = self.reads.queued.pop_front() else { return };
            let queued = self.reads.queued.len();
            self.begin_read(fetch, turn);
            if self.reads.queued.len() > queued {
                // It went to the back: no block. To the front again, in its turn.
                if let Some(fetch) = self.reads.queued.pop_back() {
                    self.reads.queued.push_front(fetch);
                }
                return;
            }
        }
    }
}
