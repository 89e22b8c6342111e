//! Orders about one partition. Those that change its log end when their record is durable.

use ringfence_log::{Body, PartitionLog, Placement, ShardStatus};
use ringfence_wire::{NAME_BYTES_MAX, RecordHeader, RecordKind, crc_of};

use crate::api::answer::length;
use crate::api::completion::{Completion, OnDurable, PendingCompletion, ReplicatedEnd};
use crate::api::order::Place;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, ResumePoint};
use crate::engine::Parts;
use crate::ids::{End, PartitionIndex, PartitionKey};
use crate::partition::dedupe::Source;
use crate::partition::producer::Resume;
use crate::partition::state::{Idleness, Partition};
use crate::partition::state_blob;
use crate::replication::state::owner::AwaitingMark;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl Parts {
    pub(crate) fn hosted(&self, (topic, partition): PartitionKey) -> Result<PartitionIndex, OrderError> {
        match self.partitions.find(topic, partition) {
            Some(index) if !self.partitions[index].dropped => Ok(index),
            _ => Err(format!("partition {partition} of topic {topic} is not on this store").into()),
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
        let partition = &mut self.partitions[index];
        partition.last_group = placed.group;
        let completion = Completion::Order { number, finished, on_durable };
        self.acks[usize::from(placed.shard)].push(PendingCompletion {
            group: placed.group,
            partition: index,
            shared,
            completion,
        });
        OrderProgress::WhenDurable
    }

    /// What the order asks for stands in the log already: it ends when everything that the log has now is durable, on a
    /// quorum where replicas share it.
    ///
    /// # Errors
    /// The shard has failed, or its disk is full: no group of it ends any more, or nobody knows when. What is asked
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
                if owner.mark_record >= end.record {
                    return Ok(OrderProgress::Done(finished));
                }
                if owner.durable >= end {
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
                self.acks[shard].push(PendingCompletion { group, partition: index, shared: upto, completion });
                Ok(OrderProgress::WhenDurable)
            }
        }
    }

    /// Where the log ends now, if replicas share it.
    pub(crate) fn shared_end(&self, index: PartitionIndex) -> Option<ReplicatedEnd> {
        let head = self.partitions[index].log.end();
        self.partitions[index].shared(End { record: head.next_record, offset: head.next_offset })
    }

    /// Host the partition under a new epoch. From here on no older owner appends; appends are admitted when the epoch
    /// record is durable.
    pub(crate) fn open(
        &mut self,
        number: u64,
        key: PartitionKey,
        slots: (u16, u16),
        epoch: u64,
        (replicas, quorum): (&[Place], u16),
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        self.check_set(replicas, quorum)?;
        let Some(plans) = self.topics.get(&key.0).map(|topic| topic.plans.clone()) else {
            return Err(format!("topic {} is not installed; install it before its partitions", key.0).into());
        };
        if slots.0 > slots.1 {
            return Err(format!("partition {}: slots {}..={} are no range", key.1, slots.0, slots.1).into());
        }
        let (index, new) = match self.partitions.find(key.0, key.1) {
            Some(index) => (index, false),
            None => (self.host(key), true),
        };
        self.partitions[index].others = replicas.iter().map(|place| place.node).collect();
        match self.append_epoch(index, epoch, turn) {
            Ok(placed) => {
                let partition = &mut self.partitions[index];
                partition.plans = Some(plans);
                partition.slots = slots;
                let head = partition.log.end();
                let finished = Finished::Opened { records: head.next_record, end_offset: head.next_offset };
                self.open_as(index, epoch, placed.record_number, replicas, quorum, turn);
                // At once: a producer that waits for its new owner also waits for this owner's followers.
                self.replication.peers.tick(turn);
                self.call(index, None, turn);
                let on_durable = OnDurable::Open { epoch, end_offset: placed.first_offset };
                Ok(self.when_durable_upto(self.shared_end(index), number, index, &placed, finished, on_durable))
            }
            Err(error) => {
                if new {
                    self.partitions.remove(index);
                }
                Err(error)
            }
        }
    }

    /// A partition without records, which the topic's table may name already.
    pub(crate) fn host(&mut self, (topic, partition): PartitionKey) -> PartitionIndex {
        let shard = partition % self.shards.len() as u64;
        let new = Partition::new(PartitionLog::new(topic, partition), u16::try_from(shard).expect("at most 64"));
        let mut new = self.seen_in_table(new);
        new.cut = self.doubted.contains(&(topic, partition));
        new.reach = self.absent.remove(&(topic, partition)).unwrap_or_default();
        self.partitions.insert(new)
    }

    fn seen_in_table(&self, mut new: Partition) -> Partition {
        let (topic, partition) = new.key();
        if let Some(table) = self.tables.get(topic) {
            match table.of_partition(partition) {
                Some(entry) => new.gate.see_table(table.version, entry.epoch, entry.owner == self.settings.node),
                None => new.gate.leave_table(table.version),
            }
        }
        new
    }

    /// A partition that was dropped here is to be here again: its log begins anew in the same place.
    ///
    /// # Errors
    /// [`OrderError::Busy`] until the drop is durable and nobody reads what was dropped.
    pub(crate) fn revive(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) -> Result<(), OrderError> {
        if !self.upkeep.dropped.contains(&index) {
            return Err(OrderError::Busy);
        }
        let partition = &mut self.partitions[index];
        let shard = &self.shards[usize::from(partition.shard)];
        let dropped = partition.log.punch_plan(shard.durable_group());
        shard.recreate(&mut partition.log)?;
        let (key, shard) = (partition.key(), partition.shard);
        let log = std::mem::replace(&mut partition.log, PartitionLog::new(key.0, key.1));
        let fresh = self.seen_in_table(Partition::new(log, shard));
        self.partitions.revive(index, fresh);
        self.upkeep.dropped.retain(|dropped| *dropped != index);
        self.upkeep.holes.revived(index, dropped);
        turn.counters.revived += 1;
        Ok(())
    }

    fn append_epoch(
        &mut self,
        index: PartitionIndex,
        epoch: u64,
        turn: &mut Turn<'_>,
    ) -> Result<Placement, OrderError> {
        let partition = &mut self.partitions[index];
        let id = partition.log.partition;
        if let Some(why) = partition.quarantine() {
            return Err(format!("partition {id} is quarantined: {why}").into());
        }
        if partition.dropped {
            return Err(format!("partition {id} is being dropped").into());
        }
        if partition.log.is_anchored() {
            return Err(
                format!("partition {id}: nothing of its log is on this store yet, it cannot go on with it").into()
            );
        }
        let newest = partition.log.end().owner_epoch.max(partition.opening);
        if epoch <= newest {
            return Err(format!("partition {id}: epoch {epoch} is not above {newest}; draw a newer one").into());
        }
        self.end_incomplete(index, turn)?;
        let partition = &mut self.partitions[index];
        let mut fence = partition.gate.fence();
        fence.raise(epoch).map_err(|stale| format!("partition {id}: {stale}"))?;
        let record = RecordHeader {
            kind: RecordKind::Epoch as u8,
            topic: partition.log.topic,
            partition: id,
            layout_version: partition.gate.version(),
            owner_epoch: epoch,
            time_ms: turn.now.unix_ms,
            ..RecordHeader::default()
        };
        let shard = &mut self.shards[usize::from(partition.shard)];
        let append = shard.append(turn.pool, &mut partition.log, record, Body::Copy(&[]));
        let placed = append.map_err(|refused| refused.refusal)?;
        partition.gate.close();
        partition.gate.set_fence(fence);
        (partition.opening, partition.acknowledged_ms) = (epoch, (0, 0));
        partition.epochs.begin(placed.first_offset, epoch, placed.record_number);
        Ok(placed)
    }

    /// Of a partition that is not here, too: a replica that died before it had anything of it holds an empty log, and
    /// without its fence nobody could ever be chosen.
    pub(crate) fn fence(
        &mut self,
        number: u64,
        key: PartitionKey,
        epoch: u64,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        match self.partitions.find(key.0, key.1) {
            None => {
                self.host(key);
            }
            Some(index) if self.partitions[index].dropped => self.revive(index, turn)?,
            Some(_) => {}
        }
        self.fence_at(number, key, epoch, false, turn)
    }

    /// `is_hold`: it ends only when the mark has reached everything that was appended.
    pub(crate) fn fence_at(
        &mut self,
        number: u64,
        key: PartitionKey,
        epoch: u64,
        is_hold: bool,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.hosted(key)?;
        let partition = &mut self.partitions[index];
        let mut fence = partition.gate.fence();
        fence.raise(epoch).map_err(|stale| format!("partition {}: {stale}", key.1))?;
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = shard.append_fence(turn.pool, &mut partition.log, epoch)?;
        partition.gate.set_fence(fence);
        let head = partition.log.end();
        let (records, end_offset, chain) = (head.next_record, head.next_offset, head.chain);
        let (last, cut) = (head.owner_epoch, partition.cut);
        let finished = Finished::Fenced { epoch: last, records, end_offset, chain, cut };
        let upto = if is_hold { self.shared_end(index) } else { None };
        Ok(self.when_durable_upto(upto, number, index, &placed, finished, OnDurable::Nothing))
    }

    /// No appends until the next OPEN; reading goes on.
    pub(crate) fn close(&mut self, key: PartitionKey) -> Result<OrderProgress, OrderError> {
        let index = self.hosted(key)?;
        let partition = &mut self.partitions[index];
        partition.opening = 0;
        partition.gate.close();
        Ok(OrderProgress::Done(Finished::Done))
    }

    pub(crate) fn drop_partition(
        &mut self,
        number: u64,
        key: PartitionKey,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        self.partitions.forget_start(key);
        if let Some(index) = self.partitions.find(key.0, key.1).filter(|index| self.is_going(*index)) {
            return self.when_last_durable(number, index, Finished::Done, OnDurable::Nothing);
        }
        let index = self.hosted(key)?;
        let placed = self.bury(key, turn)?;
        Ok(self.when_durable(number, index, &placed, Finished::Done, OnDurable::Dropped))
    }

    /// It is dropped, and its record not on disk yet: the next start may find it again, so nobody may hear that it is
    /// gone.
    pub(crate) fn is_going(&self, index: PartitionIndex) -> bool {
        let partition = &self.partitions[index];
        partition.dropped && partition.last_group > self.shards[usize::from(partition.shard)].durable_group()
    }

    /// Append the record that ends the partition; it is gone when that is durable.
    pub(crate) fn bury(&mut self, key: PartitionKey, turn: &mut Turn<'_>) -> Result<Placement, OrderError> {
        let index = self.hosted(key)?;
        let partition = &mut self.partitions[index];
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = shard.append_drop(turn.pool, &mut partition.log)?;
        self.take_role(index, Role::None, turn);
        self.doubted.remove(&key);
        self.absent.remove(&key);
        let partition = &mut self.partitions[index];
        (partition.dropped, partition.last_group) = (true, placed.group);
        partition.gate.close();
        self.producers_bytes -= partition.producers.bytes();
        partition.producers = crate::partition::dedupe::Producers::default();
        partition.stages = crate::transactions::staging::Stages::default();
        for ticket in std::mem::take(&mut partition.waiting) {
            if let Some(fetch) = self.reads.end_poll(ticket) {
                self.answer_dropped(&fetch, turn);
            }
        }
        Ok(placed)
    }

    /// Give up the rows below `to`.
    pub(crate) fn move_start(
        &mut self,
        index: PartitionIndex,
        to: u64,
        turn: &mut Turn<'_>,
    ) -> Result<Placement, OrderError> {
        let partition = &mut self.partitions[index];
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = shard.append_start(turn.pool, &mut partition.log, to)?;
        partition.epochs.forget_before(partition.log.first());
        partition.settle_stages();
        partition.last_group = placed.group;
        Ok(placed)
    }

    /// Raise a named producer's epoch: its predecessor is fenced from here on. Every open writes an entry, so without one
    /// the state of an opened predecessor was evicted: an empty resume point would let its rows be stored again.
    pub(crate) fn open_producer(
        &mut self,
        number: u64,
        key: PartitionKey,
        (id, epoch, previous): (u64, u64, u64),
        name: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.hosted(key)?;
        let partition = &mut self.partitions[index];
        let who = format!("partition {}, producer {id}", key.1);
        if id == 0 || epoch == 0 || name.len() > NAME_BYTES_MAX {
            return Err(format!("{who}: id {id}, epoch {epoch} or a name of {} bytes cannot be", name.len()).into());
        }
        if !partition.gate.admits() {
            return Err(format!("{who}: the partition is not open here; open it, or ask its owner").into());
        }
        if previous > 0 && partition.producers.get(id).is_none() {
            return Ok(OrderProgress::Done(Finished::ProducerForgotten));
        }
        if let Err(known) = partition.producers.may_open(id, epoch) {
            return Err(format!("{who}: epoch {epoch} is not above {known}; draw a newer one").into());
        }
        if let Err(full) = self.check_room_to_open(&self.partitions[index], id) {
            return Ok(OrderProgress::Done(Finished::ProducersFull(full.message)));
        }
        let partition = &mut self.partitions[index];
        let record = RecordHeader {
            kind: RecordKind::Producer as u8,
            topic: key.0,
            partition: key.1,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.open_epoch(),
            producer_id: id,
            producer_epoch: epoch,
            time_ms: turn.now.unix_ms,
            body_bytes: length(name.len()),
            body_crc: crc_of(name),
            ..RecordHeader::default()
        };
        let shard = &mut self.shards[usize::from(partition.shard)];
        let parts = [name];
        let append = shard.append(turn.pool, &mut partition.log, record, Body::Copy(&parts));
        let placed = append.map_err(|refused| refused.refusal)?;
        let before = partition.producers.bytes();
        let source = Source {
            record: placed.record_number,
            first_offset: placed.first_offset,
            time_ms: placed.time_ms,
            mark: partition.mark,
        };
        let resume = partition.producers.opened(id, epoch, !name.is_empty(), source).map(resume_point);
        self.producers_bytes = self.producers_bytes + partition.producers.bytes() - before;
        partition.idleness = Idleness::Active;
        let finished = Finished::ProducerOpened(resume);
        Ok(self.when_durable_upto(self.shared_end(index), number, index, &placed, finished, OnDurable::Nothing))
    }

    /// End a quarantine by an operator's word. The partition stays closed until the next OPEN.
    pub(crate) fn release_quarantine(
        &mut self,
        number: u64,
        key: PartitionKey,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let index = self.hosted(key)?;
        let partition = &mut self.partitions[index];
        if partition.quarantine().is_none() {
            return Ok(OrderProgress::Done(Finished::Done));
        }
        let mut bytes = Vec::new();
        state_blob::write(partition, self.settings.level, self.settings.producers.bytes, &mut bytes);
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = shard.append_release(turn.pool, &mut partition.log, &bytes)?;
        partition.damage = None;
        partition.released = true;
        partition.gate.close();
        partition.mark = partition.mark.max(partition.log.start_offset()).min(partition.log.end_offset());
        Ok(self.when_durable(number, index, &placed, Finished::Done, OnDurable::Nothing))
    }
}

fn resume_point(resume: &Resume) -> ResumePoint {
    ResumePoint {
        sequence: resume.sequence,
        send: resume.send,
        note: resume.note.as_deref().map(<[u8]>::to_vec),
        offset: resume.first_offset,
        rows: resume.rows,
    }
}
