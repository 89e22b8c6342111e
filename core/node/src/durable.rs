//! What follows when a writer's job is done: answers, marks, waiting fetches, requests that waited for room.

use ringfence_buffer::Pool;
use ringfence_log::{JobDone, ShardStatus};
use ringfence_transport::Outbound;
use ringfence_wire::{AnswerHeader, Code, Opcode, Status as AnswerStatus};

use crate::acks::{BatchDue, Due, Shared, Then, What};
use crate::answers::send;
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::outcome::Outcome;
use crate::pack;
use crate::partition::At;
use crate::refusal::Refusal;
use crate::sync::{Role, Waiting};

impl Engine {
    pub(crate) fn job_done(&mut self, mut done: JobDone, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let shard = done.shard;
        let written = if self.sync.streaming > 0 { done.take_durable_group() } else { None };
        let at = usize::from(shard);
        let had_group = done.group.is_some();
        let progress = self.shards[at].on_done(done, now.mono_ms);
        if let ShardStatus::Failed(why) = &progress.status {
            let why = why.clone();
            self.shard_failed(shard, progress.durable_group, &why, effects);
        } else {
            self.counters.groups += u64::from(had_group);
            self.groups_durable(shard, progress.durable_group, effects);
        }
        if let Some(written) = written {
            self.stream(at, written, now, effects);
        }
        self.tell_status(shard, progress.status, effects);
        self.end_awaited(now, effects);
        self.after_marks(now, pool, effects);
        self.serve_orders(now, pool, effects);
        self.serve_stalled(shard, now, pool, effects);
        self.serve_queued_reads(now, pool, effects);
    }

    /// Everything up to `group` is on disk.
    fn groups_durable(&mut self, shard: u16, group: u64, effects: &mut Effects) {
        while let Some(due) = self.acks[usize::from(shard)].pop(group) {
            match due.shared {
                Some(upto) => self.durable_here(due, upto, effects),
                None => self.durable_enough(due.partition, due.what, effects),
            }
        }
    }

    /// What is durable here ends now: nobody else needs to have it.
    fn durable_enough(&mut self, at: At, what: What, effects: &mut Effects) {
        match what {
            What::Batch(batch) => self.batch_durable(at, &batch, effects),
            What::Order { number, finished, then } => {
                let result = self.order_durable(at, then).map(|()| finished);
                // 0: one of several records of an order, and not its last.
                if number > 0 {
                    effects.outcomes.push(Outcome::Order { number, result });
                }
            }
            What::Replica(replica) => self.replica_durable(at, &replica, effects),
            What::Nothing => {}
        }
    }

    /// Durable on this store; what is due waits for enough of the others.
    fn durable_here(&mut self, due: Due, Shared { end, epoch }: Shared, effects: &mut Effects) {
        let at = due.partition;
        let partition = &mut self.partitions[at];
        let newest = partition.log.end().owner_epoch;
        match &mut partition.role {
            Role::Owner(owner) if owner.epoch == epoch => {
                owner.durable = owner.durable.max(end);
                owner.waiting.push_back(Waiting { end, what: due.what });
                self.has_business(at);
                self.advance(at, effects);
            }
            // Its only copy was stopped while this was written: the same owner is its own quorum again. Given up, the
            // mark would not reach it, and every repeat of it would wait for that.
            Role::Alone if newest == epoch => self.durable_enough(at, due.what, effects),
            // Another owner came since, and may have cut it off.
            _ => self.give_up(at, &due.what, "the owner changed before enough replicas had it on disk", effects),
        }
    }

    fn batch_durable(&mut self, at: At, batch: &BatchDue, effects: &mut Effects) {
        self.raise_mark(at, batch.end_offset());
        self.answer_batch(at, batch, effects);
    }

    /// Rows below this offset are durable.
    fn raise_mark(&mut self, at: At, end_offset: u64) {
        let partition = &mut self.partitions[at];
        if end_offset > partition.mark {
            partition.mark = end_offset;
            if !partition.waiting.is_empty() && self.woken.last() != Some(&at) {
                self.woken.push(at);
            }
        }
    }

    /// # Errors
    /// A read found damage meanwhile: the epoch record is durable, and the partition stays closed (I4).
    pub(crate) fn order_durable(&mut self, at: At, then: Then) -> Result<(), String> {
        match then {
            Then::Nothing => {}
            Then::Open { epoch, end_offset } => {
                let partition = &mut self.partitions[at];
                // A newer OPEN or a fence may have come since: the gate compares them all.
                if partition.opening == epoch {
                    partition.opening = 0;
                    if let Some(why) = partition.quarantine() {
                        return Err(format!("partition {} is quarantined: {why}", partition.log.partition));
                    }
                    partition.gate.open(epoch);
                    self.upkeep.opened.push(partition.log.topic);
                    self.raise_mark(at, end_offset);
                }
            }
            Then::Published { end_offset, .. } => self.raise_mark(at, end_offset),
            Then::Dropped => {
                self.upkeep.dropped.push(at);
                self.upkeep.holes.dropped(at);
            }
        }
        Ok(())
    }

    /// The shard's storage failed. What is not durable may be on disk or not: nobody knows, and everybody is told so.
    fn shard_failed(&mut self, shard: u16, durable_group: u64, why: &str, effects: &mut Effects) {
        self.groups_durable(shard, durable_group, effects);
        // First of all, so that who hears of an order's end knows why: what the order did is not known.
        self.tell_status(shard, ShardStatus::Failed(why.to_owned()), effects);
        for Due { partition, what, .. } in self.acks[usize::from(shard)].take_all() {
            match what {
                What::Batch(batch) => {
                    let why = format!("the disk failed before it was known durable: {why}");
                    self.answer_unknown(partition, &batch, &why, effects);
                }
                What::Order { number, .. } => {
                    let result = Err(format!("shard {shard} failed, the order may be on disk or not: {why}"));
                    effects.outcomes.push(Outcome::Order { number, result });
                }
                // Its owner hears nothing, and counts this store as gone.
                What::Replica(_) | What::Nothing => {}
            }
        }
    }

    /// `why`: what happened between the append and the answer.
    pub(crate) fn answer_unknown(&mut self, at: At, batch: &BatchDue, why: &str, effects: &mut Effects) {
        self.counters.refused += 1;
        self.counters.refused_by_code[Code::UnknownOutcome as usize] += 1;
        let message = format!("appended, but {why}; send the same sequence again");
        let body = pack::refused(&Refusal::new(Code::UnknownOutcome, message));
        let partition = &self.partitions[at];
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
            body_bytes: crate::answers::length(body.len()),
            body_crc: ringfence_wire::crc_of(&body),
            ..AnswerHeader::default()
        };
        send(batch.connection, header, Outbound::Bytes(body), effects);
    }

    /// Start the reads of fetches whose partition has new rows: once per partition and group, whatever else waits.
    pub(crate) fn wake(&mut self, now: Now, pool: &mut Pool, effects: &mut Effects) {
        let mut woken = std::mem::take(&mut self.woken);
        for at in woken.drain(..) {
            let tickets = std::mem::take(&mut self.partitions[at].waiting);
            for ticket in tickets {
                if let Some(fetch) = self.reads.end_poll(ticket) {
                    self.begin_read(fetch, now, pool, effects);
                }
            }
        }
        self.woken = woken;
    }
}
