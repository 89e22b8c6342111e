//! Begin FETCH, `OFFSET_FOR_TIME` and `END_OFFSETS`: reads below the mark. Fetches that wait for rows are in
//! `long_polls`, the end of a fetch is in `fetch_answer`.
//!
//! ```text
//! fetch -> position in this log? -> rows below the mark? -> plan + block -> reader thread -> answer: the log's bytes
//!                                            no -> wait in the partition's list until the mark moves or the deadline
//!                                                    no block free -> wait in `queued`
//! ```
//! Waiting costs nothing until the mark of that partition moves: then each of its fetches is looked at once a group.

use std::collections::VecDeque;

use ringfence_log::{PlanError, ReadFrom};
use ringfence_transport::{Connection, Outbound};
use ringfence_wire::{Code, DEADLINE_MS_MAX, FETCH_BYTES_MAX, RedirectReason, RequestHeader, Status};

use crate::api::jobs::ReadJob;
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::partition::answers::send;
use crate::partition::rejection::{Rejection, quarantined};
use crate::partition::state::Partition;
use crate::reads::fetch_position::Misfit;
use crate::reads::pending_reads::{
    EndQuestion, Fetch, QUEUE_LOOK_MS, QUEUED_MS_MAX, UNDER_WAY_MAX, WAITING_MAX, wants_staged,
};
use crate::reads::read_machine::ReadMachine;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// What a FETCH without byte limit gets (docs/protocol.md).
const BYTES_DEFAULT: u64 = 1 << 20;

/// Enough for a header and a small body; a larger first record says how much it needs.
const TIME_READ_BYTES: usize = 64 << 10;

impl ReadMachine<'_> {
    pub(crate) fn fetch(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        turn.counters.fetches += 1;
        let index = match self.readable_by(from, header) {
            Ok(index) => index,
            Err(rejection) => return self.store.answer_rejection(from, header, rejection, turn),
        };
        match self.check_position(index, header) {
            Ok(()) => {}
            Err(Misfit::Truncated(refusal)) => return self.store.refuse(from, header, &refusal, turn),
            Err(Misfit::Ahead(_)) if self.is_closed(index) => {
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
            queued_until_ms: 0,
            member: None,
        };
        self.begin_read(fetch, turn);
    }

    pub(crate) fn offset_for_time(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        match self.readable_by(from, header) {
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
                    queued_until_ms: 0,
                    member: None,
                };
                self.begin_read(fetch, turn);
            }
            Err(rejection) => self.store.answer_rejection(from, header, rejection, turn),
        }
    }

    pub(crate) fn end_offsets(&mut self, from: Connection, header: &RequestHeader, turn: &mut Turn<'_>) {
        match self.readable_by(from, header) {
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
        answer.flags |= self.ended_flag(index, from, u64::MAX);
        let partition = &self.store.partitions[index];
        answer.first_offset = partition.start_offset();
        answer.send = partition.epoch_before(answer.end_offset);
        send(from, answer, Outbound::Empty, turn.effects);
    }

    /// As [`Self::readable`], by a reader that will pass nothing over.
    fn readable_by(&self, from: Connection, header: &RequestHeader) -> Result<PartitionIndex, Rejection> {
        let index = self.readable(header)?;
        self.check_lineage(from, header)?;
        Ok(index)
    }

    /// A partition that may be read here. Reading needs no open gate: a closed partition keeps its rows.
    pub(crate) fn readable(&self, header: &RequestHeader) -> Result<PartitionIndex, Rejection> {
        let index = self.store.locate(header)?;
        self.check_named(header)?;
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
            // It is the owner by the table, and has not reached the end of the log: it does not know all of it.
            Role::Follower(_) if partition.gate.owns_sealed() => Err(Rejection::Redirect(RedirectReason::Closed)),
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

    /// Half the pool at most: a larger read would wait for room forever, and all that queue after it.
    fn read_bytes_max(&self) -> usize {
        FETCH_BYTES_MAX.min(self.store.settings.pool_bytes / 2)
    }

    /// Read, wait for rows, or wait for a block.
    pub(crate) fn begin_read(&mut self, mut fetch: Fetch, turn: &mut Turn<'_>) {
        let Some(partition) = self.read_partition(&fetch) else { return self.answer_dropped(&fetch, turn) };
        let is_time = matches!(fetch.from, ReadFrom::Time(_));
        let rows_max = if is_time { 1 } else { u64::from(fetch.header.rows) };
        let is_ended = partition.gate.ended();
        #[cfg(feature = "planted")]
        let is_ended = is_ended && !ringfence_log::planted::is_on(ringfence_log::planted::Bug::StagedBelowMark);
        let planned = match fetch.from {
            // What was staged and not published is staged again elsewhere, by whoever reads it here.
            ReadFrom::Staged(record) if is_ended => partition.log.plan_staged(record, fetch.bytes),
            from => partition.log.plan(from, partition.mark, fetch.bytes, rows_max),
        };
        let grant = fetch.member.and_then(|member| member.grant);
        let plan = match planned {
            Ok(plan) => plan.ending_with(grant.map_or(u64::MAX, |grant| grant.end)),
            Err(PlanError::Retained { start_offset }) => {
                let what = format!("partition {}: the log begins at {start_offset}", fetch.header.partition);
                let refusal = Refusal::new(Code::Truncated, what).log_start(start_offset);
                return self.refuse_fetch(&fetch, &refusal, turn);
            }
            Err(PlanError::Closed) => {
                let refusal = quarantined(partition);
                return self.refuse_fetch(&fetch, &refusal, turn);
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
            if fetch.queued_until_ms == 0 {
                fetch.queued_until_ms = fetch.deadline_ms.max(turn.now.mono_ms + QUEUED_MS_MAX);
            }
            self.reads.queued.push_back(fetch);
        } else {
            let refusal = Refusal::new(Code::Overloaded, "too many fetches wait for memory");
            self.refuse_fetch(&fetch, &refusal, turn);
        }
    }

    /// Refuse fetches that have waited too long for a block: those who asked ask again, or have gone.
    pub(crate) fn end_queued(&mut self, turn: &mut Turn<'_>) {
        let now_ms = turn.now.mono_ms;
        if self.reads.queued.is_empty() || now_ms < self.reads.queue_look_ms {
            return;
        }
        self.reads.queue_look_ms = now_ms + QUEUE_LOOK_MS;
        let is_late = |fetch: &Fetch| fetch.queued_until_ms <= now_ms;
        if !self.reads.queued.iter().any(is_late) {
            return;
        }
        let (late, waiting): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.reads.queued).into_iter().partition(is_late);
        self.reads.queued = waiting;
        for fetch in late {
            let what =
                format!("partition {}: the fetch waited too long for memory or the disk", fetch.header.partition);
            self.refuse_fetch(&fetch, &Refusal::new(Code::Overloaded, what), turn);
        }
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
