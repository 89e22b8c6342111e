//! Truncate a replica's log where it differs from the owner's.

use ringfence_log::{LogEnd, PlanError, Position, ReadFrom, Refusal as LogRefusal};
use ringfence_wire::Code;

use crate::api::jobs::{ReadEnd, ReadJob};
use crate::api::refusal::Refusal;
use crate::ids::PartitionIndex;
use crate::partition::rejection::Rejection;
use crate::partition::state::{Idleness, UNKNOWN};
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::{ReplicaRead, TruncateRequest};
use crate::replication::state::replicate_bodies::record_at;
use crate::replication::state::role::Role;
use crate::turn::Turn;

/// A head's worth of bytes.
const HEAD_BYTES: usize = 4096;

impl ReplicationMachine<'_> {
    /// Find the record before the cut; the rest follows when it is read.
    pub(crate) fn begin_cut(
        &mut self,
        index: PartitionIndex,
        begin: TruncateRequest,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejection> {
        let number = begin.header.sequence;
        if number == 0 {
            self.cut(index, &begin, Some(LogEnd::default()), turn);
            return Ok(());
        }
        let partition = &mut self.store.partitions[index];
        let end = partition.log.end().next_record;
        let plan = match partition.log.plan_records(number - 1, end, HEAD_BYTES) {
            Ok(mut plan) => {
                plan.head_only = true;
                debug_assert!(matches!(plan.from, ReadFrom::Record(_)));
                plan
            }
            Err(PlanError::Retained { .. }) => {
                self.cut(index, &begin, None, turn);
                return Ok(());
            }
            Err(error) => return Err(cannot_cut(number, &error).into()),
        };
        let Some(block) = turn.pool.take(HEAD_BYTES) else {
            return Err(Refusal::new(Code::Overloaded, "no block to read into").into());
        };
        let ticket = turn.ticket();
        if let Role::Follower(follower) = &mut partition.role {
            follower.begin_cut(ticket);
        }
        self.replication.add_read(ticket, ReplicaRead::Truncate { index, begin: Box::new(begin) });
        turn.effects.reads.push(ReadJob { ticket, plan, block, in_pieces: false });
        Ok(())
    }

    pub(crate) fn cut_read(
        &mut self,
        index: PartitionIndex,
        begin: &TruncateRequest,
        end: &ReadEnd,
        turn: &mut Turn<'_>,
    ) {
        let Some(partition) = self.store.partitions.get(index) else { return };
        // Another session has begun meanwhile, or another role: the owner asks again.
        if !matches!(&partition.role, Role::Follower(follower) if follower.is_cutting_by(end.ticket)) {
            return;
        }
        let read = end.result.as_ref().ok().filter(|done| done.records == 1);
        let found = read.and_then(|_| record_at(&end.block, 0).ok());
        match found {
            Some(record) if record.record_number + 1 == begin.header.sequence => {
                let to = LogEnd::after(&record, Position(record.previous_position));
                self.cut(index, begin, Some(to), turn);
            }
            _ => {
                let why = format!("record {} cannot be read: {:?}", begin.header.sequence - 1, end.result);
                self.end_cut(index, begin, Some(&Refusal::new(Code::Internal, why)), turn);
            }
        }
    }

    fn end_cut(
        &mut self,
        index: PartitionIndex,
        begin: &TruncateRequest,
        refusal: Option<&Refusal>,
        turn: &mut Turn<'_>,
    ) {
        if let Role::Follower(follower) = &mut self.store.partitions[index].role {
            follower.end_cut();
            if refusal.is_none() {
                follower.begun(begin.connection);
            }
        }
        if let Some(refusal) = refusal {
            return self.store.refuse(begin.connection, &begin.header, refusal, turn);
        }
        turn.counters.cuts += 1;
        self.acknowledge(index, begin.connection, &begin.header, turn);
    }

    /// The log ends at `to` from here on, durably; then the session has begun. `None`: it begins above that point.
    fn cut(&mut self, index: PartitionIndex, begin: &TruncateRequest, to: Option<LogEnd>, turn: &mut Turn<'_>) {
        if to.is_some_and(|to| to.next_record == 0) && self.store.partitions[index].is_incomplete() {
            return match self.begin_from_nothing(index, turn) {
                Ok(()) => self.end_cut(index, begin, None, turn),
                Err(refusal) => self.end_cut(index, begin, Some(&cannot_end(&refusal)), turn),
            };
        }
        let partition = &self.store.partitions[index];
        let (start, mark) = (partition.log.start_offset(), partition.mark);
        // Without its first records the log cannot be cut below them.
        let to = to.filter(|to| to.next_offset >= start);
        // Cut at its first record the log is empty. The record before is gone, so its end cannot be told; but no marked
        // row lies above, and the log may begin from scratch.
        let (first, first_offset) = partition.log.first();
        let is_emptied = to.is_none() && begin.header.sequence == first && first_offset >= mark;
        if !is_emptied && to.is_none_or(|to| to.next_offset < mark) {
            let Some(forced) = partition.forced_above_mark() else {
                let what = format!(
                    "partition {}: an owner wants its log cut at record {}, below its mark (row {mark}) or start (row \
                     {start}), and no choice of an owner by force is known that has given these rows up",
                    partition.log.partition, begin.header.sequence
                );
                return self.end_cut(index, begin, Some(&Refusal::new(Code::Conflict, what)), turn);
            };
            self.give_up_marked(index, to.as_ref(), forced, turn);
        }
        let partition = &mut self.store.partitions[index];
        let can_cut = |to: &LogEnd| partition.can_cut(to.next_record);
        let Some(to) = to.filter(can_cut) else {
            // The owner asks again, hears of an empty log, and sends records and tables from its first one on.
            partition.known_upto = UNKNOWN;
            let what = format!(
                "partition {}: record {} is before all that its log or its tables can take back; it begins from scratch",
                partition.log.partition, begin.header.sequence
            );
            return self.end_cut(index, begin, Some(&Refusal::new(Code::SequenceGap, what).expecting(0)), turn);
        };
        let append = self.store.append(index, turn, |shard, pool, log| shard.append_truncate(pool, log, to));
        if let Err(refusal) = append {
            return self.end_cut(index, begin, Some(&cannot_end(&refusal)), turn);
        }
        self.store.change_tables(index, |partition| {
            partition.cut_tables(to.next_record, to.next_offset);
            partition.idleness = Idleness::Active;
        });
        self.end_cut(index, begin, None, turn);
    }
}

fn cannot_end(refusal: &LogRefusal) -> Refusal {
    let code = if *refusal == LogRefusal::Busy { Code::Overloaded } else { Code::StorageFailed };
    Refusal::new(code, format!("the log cannot be cut: {refusal:?}"))
}

fn cannot_cut(number: u64, error: &PlanError) -> Refusal {
    Refusal::new(Code::Internal, format!("the record before {number} is not found in this log: {error:?}"))
}
