//! What follows when a writer's job is done: answers, marks, waiting fetches, requests that waited for room.

use ringfence_log::{JobDone, ShardStatus};
use ringfence_transport::Outbound;
use ringfence_wire::{AnswerHeader, Code, Opcode, Status as AnswerStatus};

use crate::api::answer::send;
use crate::api::completion::{BatchAck, Completion, OnDurable, PendingCompletion, ReplicatedEnd};
use crate::api::outcome::Outcome;
use crate::api::refusal::Refusal;
use crate::codec::pack;
use crate::engine::Parts;
use crate::ids::PartitionIndex;
use crate::replication::state::owner::AwaitingMark;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl Parts {
    pub(crate) fn job_done(&mut self, mut done: JobDone, turn: &mut Turn<'_>) {
        let shard = done.shard;
        let written = if self.replication.streaming > 0 { done.take_durable_group() } else { None };
        let at = usize::from(shard);
        let had_group = done.group.is_some();
        let progress = self.shards[at].on_done(done, turn.now.mono_ms);
        if let ShardStatus::Failed(why) = &progress.status {
            let why = why.clone();
            self.shard_failed(shard, progress.durable_group, &why, turn);
        } else {
            turn.counters.groups += u64::from(had_group);
            self.groups_durable(shard, progress.durable_group, turn);
        }
        if let Some(written) = written {
            self.stream(at, written, turn);
        }
        self.tell_status(shard, progress.status, turn);
        self.after_marks(turn);
        self.serve_orders(turn);
        self.serve_stalled(shard, turn);
        self.serve_queued_reads(turn);
    }

    /// Everything up to `group` is on disk.
    fn groups_durable(&mut self, shard: u16, group: u64, turn: &mut Turn<'_>) {
        while let Some(due) = self.acks[usize::from(shard)].pop(group) {
            match due.shared {
                Some(upto) => self.durable_here(due, upto, turn),
                None => self.durable_enough(due.partition, due.completion, turn),
            }
        }
    }

    /// What is durable here ends now: nobody else needs to have it.
    fn durable_enough(&mut self, index: PartitionIndex, completion: Completion, turn: &mut Turn<'_>) {
        match completion {
            Completion::Batch(batch) => self.batch_durable(index, &batch, turn),
            Completion::Order { number, finished, on_durable } => {
                let result = self.order_durable(index, on_durable, turn).map(|()| finished);
                // 0: one of several records of an order, and not its last.
                if number > 0 {
                    turn.effects.outcomes.push(Outcome::Order { number, result });
                }
            }
            Completion::Replica(replica) => self.replica_durable(index, &replica, turn),
            Completion::Nothing => {}
        }
    }

    /// Durable on this store; what is due waits for enough of the others.
    fn durable_here(
        &mut self,
        due: PendingCompletion,
        ReplicatedEnd { end, epoch }: ReplicatedEnd,
        turn: &mut Turn<'_>,
    ) {
        let index = due.partition;
        let partition = &mut self.partitions[index];
        let newest = partition.log.end().owner_epoch;
        match &mut partition.role {
            Role::Owner(owner) if owner.epoch == epoch => {
                owner.durable = owner.durable.max(end);
                owner.waiting.push_back(AwaitingMark { end, completion: due.completion });
                self.needs_tick(index);
                self.advance(index, turn);
            }
            // Its only copy was stopped while this was written: the same owner is its own quorum again. Given up, the
            // mark would not reach it, and every repeat of it would wait for that.
            Role::Alone if newest == epoch => self.durable_enough(index, due.completion, turn),
            // Another owner came since, and may have cut it off.
            _ => {
                let why = "the owner changed before enough replicas had it on disk";
                self.give_up(index, &due.completion, why, turn);
            }
        }
    }

    fn batch_durable(&mut self, index: PartitionIndex, batch: &BatchAck, turn: &mut Turn<'_>) {
        self.raise_mark(index, batch.end_offset(), turn);
        self.answer_batch(index, batch, turn);
    }

    /// Rows below this offset are durable.
    fn raise_mark(&mut self, index: PartitionIndex, end_offset: u64, turn: &mut Turn<'_>) {
        let partition = &mut self.partitions[index];
        if end_offset > partition.mark {
            partition.mark = end_offset;
            if !partition.waiting.is_empty() && turn.follow_ups.new_rows.last() != Some(&index) {
                turn.follow_ups.new_rows.push(index);
            }
        }
    }

    /// # Errors
    /// A read found damage meanwhile: the epoch record is durable, and the partition stays closed (I4).
    pub(crate) fn order_durable(
        &mut self,
        index: PartitionIndex,
        on_durable: OnDurable,
        turn: &mut Turn<'_>,
    ) -> Result<(), String> {
        match on_durable {
            OnDurable::Nothing => {}
            OnDurable::Open { epoch, end_offset } => {
                let partition = &mut self.partitions[index];
                // A newer OPEN or a fence may have come since: the gate compares them all.
                if partition.opening == epoch {
                    partition.opening = 0;
                    if let Some(why) = partition.quarantine() {
                        return Err(format!("partition {} is quarantined: {why}", partition.log.partition));
                    }
                    partition.gate.open(epoch);
                    turn.follow_ups.opened_topics.push(partition.log.topic);
                    self.raise_mark(index, end_offset, turn);
                }
            }
            OnDurable::Published { end_offset, .. } => self.raise_mark(index, end_offset, turn),
            OnDurable::Dropped => {
                self.upkeep.dropped.push(index);
                self.upkeep.holes.dropped(index);
            }
        }
        Ok(())
    }

    /// The shard's storage failed. What is not durable may be on disk or not: nobody knows, and everybody is told so.
    fn shard_failed(&mut self, shard: u16, durable_group: u64, why: &str, turn: &mut Turn<'_>) {
        self.groups_durable(shard, durable_group, turn);
        // First of all, so that who hears of an order's end knows why: what the order did is not known.
        self.tell_status(shard, ShardStatus::Failed(why.to_owned()), turn);
        for PendingCompletion { partition, completion, .. } in self.acks[usize::from(shard)].take_all() {
            match completion {
                Completion::Batch(batch) => {
                    let why = format!("the disk failed before it was known durable: {why}");
                    self.answer_unknown(partition, &batch, &why, turn);
                }
                Completion::Order { number, .. } => {
                    let result = Err(format!("shard {shard} failed, the order may be on disk or not: {why}"));
                    turn.effects.outcomes.push(Outcome::Order { number, result });
                }
                // Its owner hears nothing, and counts this store as gone.
                Completion::Replica(_) | Completion::Nothing => {}
            }
        }
    }

    /// `why`: what happened between the append and the answer.
    pub(crate) fn answer_unknown(&mut self, index: PartitionIndex, batch: &BatchAck, why: &str, turn: &mut Turn<'_>) {
        turn.counters.refused += 1;
        turn.counters.refused_by_code[Code::UnknownOutcome as usize] += 1;
        let message = format!("appended, but {why}; send the same sequence again");
        let body = pack::refused(&Refusal::new(Code::UnknownOutcome, message));
        let partition = &self.partitions[index];
        let header = AnswerHeader {
            opcode: (if batch.staged { Opcode::Stage } else { Opcode::Publish }) as u8,
            status: AnswerStatus::Refused as u8,
            code: Code::UnknownOutcome as u16,
            request_id: batch.request_id,
            topic: partition.log.topic,
            partition: partition.log.partition,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.epoch(),
            end_offset: partition.mark,
            sequence: batch.sequence,
            generation: self.generation,
            credit_bytes: self.credit_bytes,
            flags: ringfence_wire::ANSWER_FLAG_CONTROL,
            body_bytes: crate::api::answer::length(body.len()),
            body_crc: ringfence_wire::crc_of(&body),
            ..AnswerHeader::default()
        };
        send(batch.connection, header, Outbound::Bytes(body), turn.effects);
    }

    /// Start the reads of fetches whose partition has new rows: once per partition and group, whatever else waits.
    pub(crate) fn wake(&mut self, turn: &mut Turn<'_>) {
        let mut partitions_with_new_rows = std::mem::take(&mut turn.follow_ups.new_rows);
        for index in partitions_with_new_rows.drain(..) {
            let tickets = std::mem::take(&mut self.partitions[index].waiting);
            for ticket in tickets {
                if let Some(fetch) = self.reads.end_poll(ticket) {
                    self.begin_read(fetch, turn);
                }
            }
        }
        turn.follow_ups.new_rows = partitions_with_new_rows;
    }
}
