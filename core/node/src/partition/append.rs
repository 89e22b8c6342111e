//! Append to a partition's log, note what the record changes, and queue what happens once it is durable: the only
//! callers of `Shard::append*` and of `Acks::push`.

use ringfence_log::{Body, PartitionLog, Placement, Refusal as LogRefusal, Shard, ShardStatus};
use ringfence_transport::{Inbound, Payload};
use ringfence_wire::RecordHeader;

use crate::api::completion::{Completion, OnDurable, PendingCompletion, ReplicatedEnd};
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::Finished;
use crate::ids::{End, PartitionIndex};
use crate::partition::rejection::{Rejection, rejection_of};
use crate::partition::seal::Seal;
use crate::partition::state::Partition;
use crate::partition::store::Store;
use crate::replication::state::owner::AwaitingMark;
use crate::replication::state::role::Role;
use crate::turn::Turn;
use ringfence_buffer::Pool;

impl Store {
    /// Append a record to the log of one partition: `append` calls the shard's function for its kind. Nothing else
    /// reaches a shard together with a log, so the partition's `last_group` is right.
    #[inline]
    pub(crate) fn append<E>(
        &mut self,
        index: PartitionIndex,
        turn: &mut Turn<'_>,
        append: impl FnOnce(&mut Shard, &mut Pool, &mut PartitionLog) -> Result<Placement, E>,
    ) -> Result<Placement, E> {
        let partition = &mut self.partitions[index];
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = append(shard, turn.pool, &mut partition.log)?;
        partition.last_group = placed.group;
        Ok(placed)
    }

    /// Append a record, and note in the partition what it changes there: one step, as the follow-up of a record is
    /// never left out.
    #[inline]
    pub(crate) fn append_noting<T, E>(
        &mut self,
        index: PartitionIndex,
        turn: &mut Turn<'_>,
        append: impl FnOnce(&mut Shard, &mut Pool, &mut PartitionLog) -> Result<Placement, E>,
        note: impl FnOnce(&mut Partition, Placement) -> T,
    ) -> Result<T, E> {
        let placed = self.append(index, turn, append)?;
        let partition = &mut self.partitions[index];
        let before = partition.producers.bytes();
        let noted = note(partition, placed);
        self.producers_bytes = changed(self.producers_bytes, before, partition.producers.bytes());
        Ok(noted)
    }

    /// Append a record whose body is copied.
    #[inline]
    pub(crate) fn append_record(
        &mut self,
        index: PartitionIndex,
        record: RecordHeader,
        body: &[&[u8]],
        turn: &mut Turn<'_>,
    ) -> Result<Placement, LogRefusal> {
        let append = |shard: &mut Shard, pool: &mut Pool, log: &mut PartitionLog| {
            shard.append(pool, log, record, Body::Copy(body)).map_err(|refused| refused.refusal)
        };
        self.append(index, turn, append)
    }

    /// Append, and queue what happens once the record is durable on this store.
    pub(crate) fn append_then<E>(
        &mut self,
        index: PartitionIndex,
        completion: Completion,
        turn: &mut Turn<'_>,
        append: impl FnOnce(&mut Shard, &mut Pool, &mut PartitionLog) -> Result<Placement, E>,
    ) -> Result<Placement, E> {
        let placed = self.append(index, turn, append)?;
        self.when_group_durable(index, placed.group, None, completion);
        Ok(placed)
    }

    /// Queue what happens once this group is durable, here or, up to `replicated`, on a quorum. With
    /// [`Self::append_body`] the only caller of `Acks::push`.
    #[inline]
    pub(crate) fn when_group_durable(
        &mut self,
        index: PartitionIndex,
        group: u64,
        replicated: Option<ReplicatedEnd>,
        completion: Completion,
    ) {
        let shard = usize::from(self.partitions[index].shard);
        self.acks[shard].push(PendingCompletion { group, partition: index, shared: replicated, completion });
    }

    /// Change what a partition remembers, without a record: the bytes of all producer tables are counted here and in
    /// [`Self::append_noting`].
    #[inline]
    pub(crate) fn change_tables<T>(&mut self, index: PartitionIndex, change: impl FnOnce(&mut Partition) -> T) -> T {
        let partition = &mut self.partitions[index];
        let before = partition.producers.bytes();
        let result = change(partition);
        self.producers_bytes = changed(self.producers_bytes, before, partition.producers.bytes());
        result
    }

    /// The mark may have moved since the log start was ordered.
    pub(crate) fn reach_wanted_start(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) {
        let partition = &self.partitions[index];
        let to = partition.wanted_now();
        if to > partition.log.start_offset()
            && let Ok(placed) = self.move_start(index, to, turn)
        {
            self.when_group_durable(index, placed.group, None, Completion::Nothing);
        }
    }

    /// The order ends with this store's own record.
    pub(crate) fn when_durable(
        &mut self,
        number: u64,
        index: PartitionIndex,
        placed: &Placement,
        finished: Finished,
        on_durable: OnDurable,
    ) -> OrderProgress {
        self.when_durable_upto(None, number, index, placed, finished, on_durable)
    }

    /// The order ends when the mark has reached `end`, too.
    pub(crate) fn when_durable_upto(
        &mut self,
        shared: Option<ReplicatedEnd>,
        number: u64,
        index: PartitionIndex,
        placed: &Placement,
        finished: Finished,
        on_durable: OnDurable,
    ) -> OrderProgress {
        let completion = Completion::Order { number, finished, on_durable };
        self.when_group_durable(index, placed.group, shared, completion);
        OrderProgress::WhenDurable
    }

    /// What the order asks for stands in the log already: it ends when everything that the log has now is durable, on a
    /// quorum where replicas share it.
    ///
    /// # Errors
    /// The shard has failed, or its disk is full: no group of it ends any more, or at an unknown time. What is asked
    /// for is on disk already, so that asking again is as good as waiting.
    pub(crate) fn when_last_durable(
        &mut self,
        number: u64,
        index: PartitionIndex,
        finished: Finished,
        on_durable: OnDurable,
    ) -> Result<OrderProgress, OrderError> {
        let upto = self.shared_end(index);
        let partition = &mut self.partitions[index];
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        let is_here = group <= self.shards[shard].durable_group();
        let completion = Completion::Order { number, finished: finished.clone(), on_durable };
        match (&mut partition.role, upto) {
            (Role::Owner(owner), Some(ReplicatedEnd { end, .. })) => {
                if owner.mark_record() >= end.record {
                    return Ok(OrderProgress::Done(finished));
                }
                if owner.durable() >= end {
                    owner.waiting.push_back(AwaitingMark { end, completion });
                    self.needs_tick(index);
                    return Ok(OrderProgress::WhenDurable);
                }
            }
            _ if is_here => return Ok(OrderProgress::Done(finished)),
            _ => {}
        }
        self.wait_for_last(upto, index, completion)
    }

    /// `when_last_durable` for what is of this store alone: no other replica is waited for.
    pub(crate) fn when_here_durable(
        &mut self,
        number: u64,
        index: PartitionIndex,
        finished: Finished,
    ) -> Result<OrderProgress, OrderError> {
        let partition = &self.partitions[index];
        if partition.last_group <= self.shards[usize::from(partition.shard)].durable_group() {
            return Ok(OrderProgress::Done(finished));
        }
        self.wait_for_last(None, index, Completion::Order { number, finished, on_durable: OnDurable::Nothing })
    }

    fn wait_for_last(
        &mut self,
        upto: Option<ReplicatedEnd>,
        index: PartitionIndex,
        completion: Completion,
    ) -> Result<OrderProgress, OrderError> {
        let partition = &self.partitions[index];
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        match self.shards[shard].status() {
            ShardStatus::Failed(why) => {
                Err(format!("shard {shard} failed, what is asked for may be on disk or not: {why}").into())
            }
            ShardStatus::DiskFull => Err(format!("shard {shard} finds no space for its last group; ask again").into()),
            ShardStatus::Serving => {
                self.when_group_durable(index, group, upto, completion);
                Ok(OrderProgress::WhenDurable)
            }
        }
    }

    /// Where the log ends now, if replicas share it.
    pub(crate) fn shared_end(&self, index: PartitionIndex) -> Option<ReplicatedEnd> {
        self.partitions[index].shared_end()
    }

    /// Give up the rows below `to`.
    pub(crate) fn move_start(
        &mut self,
        index: PartitionIndex,
        to: u64,
        turn: &mut Turn<'_>,
    ) -> Result<Placement, OrderError> {
        let placed = self.append(index, turn, |shard, pool, log| shard.append_start(pool, log, to))?;
        let partition = &mut self.partitions[index];
        partition.epochs.forget_before(partition.log.first());
        partition.settle_stages();
        Ok(placed)
    }

    /// Rows below this offset are durable.
    pub(crate) fn raise_mark(&mut self, index: PartitionIndex, end_offset: u64, turn: &mut Turn<'_>) {
        let partition = &mut self.partitions[index];
        if end_offset > partition.mark {
            partition.mark = end_offset;
            if partition.is_awaited() && turn.follow_ups.new_rows.last() != Some(&index) {
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
                if partition.opening == Some(epoch) {
                    partition.opening = None;
                    if let Some(why) = partition.quarantine() {
                        return Err(format!("partition {} is quarantined: {why}", partition.log.partition));
                    }
                    partition.settle_sources();
                    partition.gate.open(epoch);
                    turn.follow_ups.opened_topics.push(partition.log.topic);
                    turn.follow_ups.opened_logs.push(index);
                    self.raise_mark(index, end_offset, turn);
                }
            }
            OnDurable::Published { end_offset, .. } => self.raise_mark(index, end_offset, turn),
            OnDurable::Ended { epoch } => self.seal_durable(index, epoch, turn)?,
            OnDurable::Dropped => {
                self.dropped.push(index);
                turn.follow_ups.dropped.push(index);
            }
        }
        Ok(())
    }

    /// That the log has reached its seal is on disk: all of it may be read, whoever else has it.
    pub(crate) fn seal_durable(
        &mut self,
        index: PartitionIndex,
        epoch: u64,
        turn: &mut Turn<'_>,
    ) -> Result<(), String> {
        let partition = &mut self.partitions[index];
        let sealed = partition.sealed.as_deref().filter(|sealed| sealed.epoch == epoch && sealed.is_recorded);
        let Some(Seal { records, offset, .. }) = sealed.map(|sealed| sealed.seal) else { return Ok(()) };
        if let Some(why) = partition.quarantine() {
            return Err(format!("partition {} is quarantined: {why}", partition.log.partition));
        }
        match &mut partition.role {
            Role::Owner(owner) if owner.epoch() == epoch => owner.end_at(End { record: records, offset }),
            Role::Alone => {}
            // Another order came since.
            _ => return Ok(()),
        }
        partition.gate.end();
        if !partition.waiting.is_empty() {
            // Polls are answered immediately: there is no row to wait for.
            turn.follow_ups.new_rows.push(index);
        }
        turn.follow_ups.opened_topics.push(partition.log.topic);
        self.raise_mark(index, offset, turn);
        self.trust(index);
        self.needs_tick(index);
        Ok(())
    }

    /// Append a body as it came, and queue its acknowledgement; the body stays the caller's when there is no room.
    /// `note` is as in [`Self::append_noting`], and returns what happens once the record is durable: here or, up to an
    /// end, on a quorum.
    pub(crate) fn append_body(
        &mut self,
        index: PartitionIndex,
        record: RecordHeader,
        body: &mut Option<Inbound<'_>>,
        turn: &mut Turn<'_>,
        note: impl FnOnce(&mut Partition, &Placement) -> (Option<ReplicatedEnd>, Completion),
    ) -> Result<(), Rejection> {
        let shard = self.partitions[index].shard;
        let note = |partition: &mut Partition, placed: Placement| {
            let (upto, completion) = note(partition, &placed);
            PendingCompletion { group: placed.group, partition: index, shared: upto, completion }
        };
        let pending = match body.take() {
            Some(Inbound::Large(Payload { block, at: place, bytes })) => {
                let given = Body::Block { block, bytes };
                let append =
                    |shard: &mut Shard, pool: &mut Pool, log: &mut PartitionLog| shard.append(pool, log, record, given);
                self.append_noting(index, turn, append, note).map_err(|refused| {
                    if let Body::Block { block, bytes } = refused.body {
                        *body = Some(Inbound::Large(Payload { block, at: place, bytes }));
                    }
                    refused.refusal
                })
            }
            small => {
                let bytes = if let Some(Inbound::Small(bytes)) = small { bytes } else { &[][..] };
                *body = Some(Inbound::Small(bytes));
                let append = |shard: &mut Shard, pool: &mut Pool, log: &mut PartitionLog| {
                    shard.append(pool, log, record, Body::Copy(&[bytes])).map_err(|refused| refused.refusal)
                };
                self.append_noting(index, turn, append, note)
            }
        };
        self.acks[usize::from(shard)].push(pending.map_err(|refusal| rejection_of(refusal, shard))?);
        Ok(())
    }

    /// Tick this partition until none of its replicas has anything to do.
    pub(crate) fn needs_tick(&mut self, index: PartitionIndex) {
        if let Role::Owner(owner) = &mut self.partitions[index].role
            && owner.start_ticking()
        {
            self.ticking.push(index);
        }
    }
}

/// A sum after one of its parts has changed.
const fn changed(sum: usize, before: usize, after: usize) -> usize {
    sum.wrapping_add(after.wrapping_sub(before))
}
