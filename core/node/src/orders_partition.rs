//! Orders about one partition. Those that change its log end when their record is durable.

use ringfence_buffer::Pool;
use ringfence_log::{Body, PartitionLog, Placement, ShardStatus};
use ringfence_wire::{NAME_BYTES_MAX, RecordHeader, RecordKind, crc_of};

use crate::acks::{Due, Shared, Then, What};
use crate::answers::length;
use crate::blob;
use crate::dedupe::Source;
use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::order::Place;
use crate::orders::{Halt, Step};
use crate::outcome::{Finished, ResumePoint};
use crate::partition::{At, Partition, Rest};
use crate::producer::Resume;
use crate::sync::{End, Role, Waiting};

/// (topic, partition).
pub(crate) type Key = (u64, u64);

impl Engine {
    pub(crate) fn hosted(&self, (topic, partition): Key) -> Result<At, Halt> {
        match self.partitions.find(topic, partition) {
            Some(at) if !self.partitions[at].dropped => Ok(at),
            _ => Err(format!("partition {partition} of topic {topic} is not on this store").into()),
        }
    }

    /// The order ends with this store's own record.
    pub(crate) fn when_durable(
        &mut self,
        number: u64,
        at: At,
        placed: &Placement,
        finished: Finished,
        then: Then,
    ) -> Step {
        self.when_durable_upto(None, number, at, placed, finished, then)
    }

    /// The order ends when the mark has reached `end`, too.
    pub(crate) fn when_durable_upto(
        &mut self,
        shared: Option<Shared>,
        number: u64,
        at: At,
        placed: &Placement,
        finished: Finished,
        then: Then,
    ) -> Step {
        let partition = &mut self.partitions[at];
        partition.last_group = placed.group;
        let what = What::Order { number, finished, then };
        self.acks[usize::from(placed.shard)].push(Due { group: placed.group, partition: at, shared, what });
        Step::WhenDurable
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
        at: At,
        finished: Finished,
        then: Then,
    ) -> Result<Step, Halt> {
        let upto = self.shared_end(at);
        let partition = &mut self.partitions[at];
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        let is_here = group <= self.shards[shard].durable_group();
        let what = What::Order { number, finished: finished.clone(), then };
        match (&mut partition.role, upto) {
            (Role::Owner(owner), Some(Shared { end, .. })) => {
                if owner.mark_record >= end.record {
                    return Ok(Step::Done(finished));
                }
                if owner.durable >= end {
                    owner.waiting.push_back(Waiting { end, what });
                    self.has_business(at);
                    return Ok(Step::WhenDurable);
                }
            }
            _ if is_here => return Ok(Step::Done(finished)),
            _ => {}
        }
        self.wait_for_last(upto, at, what)
    }

    /// `when_last_durable` for what is of this store alone: no other replica is waited for.
    pub(crate) fn when_here_durable(&mut self, number: u64, at: At, finished: Finished) -> Result<Step, Halt> {
        let partition = &self.partitions[at];
        if partition.last_group <= self.shards[usize::from(partition.shard)].durable_group() {
            return Ok(Step::Done(finished));
        }
        self.wait_for_last(None, at, What::Order { number, finished, then: Then::Nothing })
    }

    fn wait_for_last(&mut self, upto: Option<Shared>, at: At, what: What) -> Result<Step, Halt> {
        let partition = &self.partitions[at];
        let (shard, group) = (usize::from(partition.shard), partition.last_group);
        match self.shards[shard].status() {
            ShardStatus::Failed(why) => {
                Err(format!("shard {shard} failed, what is asked for may be on disk or not: {why}").into())
            }
            ShardStatus::DiskFull => Err(format!("shard {shard} finds no space for its last group; ask again").into()),
            ShardStatus::Serving => {
                self.acks[shard].push(Due { group, partition: at, shared: upto, what });
                Ok(Step::WhenDurable)
            }
        }
    }

    /// Where the log ends now, if replicas share it.
    pub(crate) fn shared_end(&self, at: At) -> Option<Shared> {
        let head = self.partitions[at].log.end();
        self.partitions[at].shared(End { record: head.next_record, offset: head.next_offset })
    }

    /// Host the partition under a new epoch. From here on no older owner appends; appends are admitted when the epoch
    /// record is durable.
    #[allow(clippy::too_many_arguments)] // the fields of one order
    pub(crate) fn open(
        &mut self,
        number: u64,
        key: Key,
        slots: (u16, u16),
        epoch: u64,
        (replicas, quorum): (&[Place], u16),
        now: Now,
        pool: &mut Pool,
        effects: &mut Effects,
    ) -> Result<Step, Halt> {
        self.check_set(replicas, quorum)?;
        let Some(plans) = self.topics.get(&key.0).map(|topic| topic.plans.clone()) else {
            return Err(format!("topic {} is not installed; install it before its partitions", key.0).into());
        };
        if slots.0 > slots.1 {
            return Err(format!("partition {}: slots {}..={} are no range", key.1, slots.0, slots.1).into());
        }
        let (at, new) = match self.partitions.find(key.0, key.1) {
            Some(at) => (at, false),
            None => (self.host(key), true),
        };
        self.partitions[at].others = replicas.iter().map(|place| place.node).collect();
        match self.append_epoch(at, epoch, now, pool) {
            Ok(placed) => {
                let partition = &mut self.partitions[at];
                partition.plans = Some(plans);
                partition.slots = slots;
                let head = partition.log.end();
                let finished = Finished::Opened { records: head.next_record, end_offset: head.next_offset };
                self.open_as(at, epoch, placed.record_number, replicas, quorum, effects);
                // At once: a producer that waits for its new owner also waits for this owner's followers.
                self.sync.peers.tick(now, effects);
                self.call(at, None, now, effects);
                let then = Then::Open { epoch, end_offset: placed.first_offset };
                Ok(self.when_durable_upto(self.shared_end(at), number, at, &placed, finished, then))
            }
            Err(halt) => {
                if new {
                    self.partitions.remove(at);
                }
                Err(halt)
            }
        }
    }

    /// A partition without records, which the topic's table may name already.
    pub(crate) fn host(&mut self, (topic, partition): Key) -> At {
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
    /// [`Halt::Busy`] until the drop is durable and nobody reads what was dropped.
    pub(crate) fn revive(&mut self, at: At) -> Result<(), Halt> {
        if !self.upkeep.dropped.contains(&at) {
            return Err(Halt::Busy);
        }
        let partition = &mut self.partitions[at];
        let shard = &self.shards[usize::from(partition.shard)];
        let dropped = partition.log.punch_plan(shard.durable_group());
        shard.recreate(&mut partition.log)?;
        let (key, shard) = (partition.key(), partition.shard);
        let log = std::mem::replace(&mut partition.log, PartitionLog::new(key.0, key.1));
        let fresh = self.seen_in_table(Partition::new(log, shard));
        self.partitions.revive(at, fresh);
        self.upkeep.dropped.retain(|dropped| *dropped != at);
        self.upkeep.holes.revived(at, dropped);
        self.counters.revived += 1;
        Ok(())
    }

    fn append_epoch(&mut self, at: At, epoch: u64, now: Now, pool: &mut Pool) -> Result<Placement, Halt> {
        let partition = &mut self.partitions[at];
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
        self.end_incomplete(at, pool)?;
        let partition = &mut self.partitions[at];
        let mut fence = partition.gate.fence();
        fence.raise(epoch).map_err(|stale| format!("partition {id}: {stale}"))?;
        let record = RecordHeader {
            kind: RecordKind::Epoch as u8,
            topic: partition.log.topic,
            partition: id,
            layout_version: partition.gate.version(),
            owner_epoch: epoch,
            time_ms: now.unix_ms,
            ..RecordHeader::default()
        };
        let shard = &mut self.shards[usize::from(partition.shard)];
        let append = shard.append(pool, &mut partition.log, record, Body::Copy(&[]));
        let placed = append.map_err(|refused| refused.refusal)?;
        partition.gate.close();
        partition.gate.set_fence(fence);
        (partition.opening, partition.acknowledged_ms) = (epoch, (0, 0));
        partition.epochs.begin(placed.first_offset, epoch, placed.record_number);
        Ok(placed)
    }

    /// Of a partition that is not here, too: a replica that died before it had anything of it holds an empty log, and
    /// without its fence nobody could ever be chosen.
    pub(crate) fn fence(&mut self, number: u64, key: Key, epoch: u64, pool: &mut Pool) -> Result<Step, Halt> {
        match self.partitions.find(key.0, key.1) {
            None => {
                self.host(key);
            }
            Some(at) if self.partitions[at].dropped => self.revive(at)?,
            Some(_) => {}
        }
        self.fence_at(number, key, epoch, false, pool)
    }

    /// `is_hold`: it ends only when the mark has reached everything that was appended.
    pub(crate) fn fence_at(
        &mut self,
        number: u64,
        key: Key,
        epoch: u64,
        is_hold: bool,
        pool: &mut Pool,
    ) -> Result<Step, Halt> {
        let at = self.hosted(key)?;
        let partition = &mut self.partitions[at];
        let mut fence = partition.gate.fence();
        fence.raise(epoch).map_err(|stale| format!("partition {}: {stale}", key.1))?;
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = shard.append_fence(pool, &mut partition.log, epoch)?;
        partition.gate.set_fence(fence);
        let head = partition.log.end();
        let (records, end_offset, chain) = (head.next_record, head.next_offset, head.chain);
        let (last, cut) = (head.owner_epoch, partition.cut);
        let finished = Finished::Fenced { epoch: last, records, end_offset, chain, cut };
        let upto = if is_hold { self.shared_end(at) } else { None };
        Ok(self.when_durable_upto(upto, number, at, &placed, finished, Then::Nothing))
    }

    /// No appends until the next OPEN; reading goes on.
    pub(crate) fn close(&mut self, key: Key) -> Result<Step, Halt> {
        let at = self.hosted(key)?;
        let partition = &mut self.partitions[at];
        partition.opening = 0;
        partition.gate.close();
        Ok(Step::Done(Finished::Done))
    }

    pub(crate) fn drop_partition(
        &mut self,
        number: u64,
        key: Key,
        pool: &mut Pool,
        effects: &mut Effects,
    ) -> Result<Step, Halt> {
        self.partitions.forget_start(key);
        if let Some(at) = self.partitions.find(key.0, key.1).filter(|at| self.is_going(*at)) {
            return self.when_last_durable(number, at, Finished::Done, Then::Nothing);
        }
        let at = self.hosted(key)?;
        let placed = self.bury(key, pool, effects)?;
        Ok(self.when_durable(number, at, &placed, Finished::Done, Then::Dropped))
    }

    /// It is dropped, and its record not on disk yet: the next start may find it again, so nobody may hear that it is
    /// gone.
    pub(crate) fn is_going(&self, at: At) -> bool {
        let partition = &self.partitions[at];
        partition.dropped && partition.last_group > self.shards[usize::from(partition.shard)].durable_group()
    }

    /// Append the record that ends the partition; it is gone when that is durable.
    pub(crate) fn bury(&mut self, key: Key, pool: &mut Pool, effects: &mut Effects) -> Result<Placement, Halt> {
        let at = self.hosted(key)?;
        let partition = &mut self.partitions[at];
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = shard.append_drop(pool, &mut partition.log)?;
        self.take_role(at, Role::None, effects);
        self.doubted.remove(&key);
        self.absent.remove(&key);
        let partition = &mut self.partitions[at];
        (partition.dropped, partition.last_group) = (true, placed.group);
        partition.gate.close();
        self.producers_bytes -= partition.producers.bytes();
        partition.producers = crate::dedupe::Producers::default();
        partition.stages = crate::stage_table::Stages::default();
        for ticket in std::mem::take(&mut partition.waiting) {
            if let Some(fetch) = self.reads.end_poll(ticket) {
                self.answer_dropped(&fetch, effects);
            }
        }
        Ok(placed)
    }

    /// Give up the rows below `to`.
    pub(crate) fn move_start(&mut self, at: At, to: u64, pool: &mut Pool) -> Result<Placement, Halt> {
        let partition = &mut self.partitions[at];
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = shard.append_start(pool, &mut partition.log, to)?;
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
        key: Key,
        (id, epoch, previous): (u64, u64, u64),
        name: &[u8],
        now: Now,
        pool: &mut Pool,
    ) -> Result<Step, Halt> {
        let at = self.hosted(key)?;
        let partition = &mut self.partitions[at];
        let who = format!("partition {}, producer {id}", key.1);
        if id == 0 || epoch == 0 || name.len() > NAME_BYTES_MAX {
            return Err(format!("{who}: id {id}, epoch {epoch} or a name of {} bytes cannot be", name.len()).into());
        }
        if !partition.gate.admits() {
            return Err(format!("{who}: the partition is not open here; open it, or ask its owner").into());
        }
        if previous > 0 && partition.producers.get(id).is_none() {
            return Ok(Step::Done(Finished::ProducerForgotten));
        }
        if let Err(known) = partition.producers.may_open(id, epoch) {
            return Err(format!("{who}: epoch {epoch} is not above {known}; draw a newer one").into());
        }
        if let Err(full) = self.check_room_to_open(&self.partitions[at], id) {
            return Ok(Step::Done(Finished::ProducersFull(full.message)));
        }
        let partition = &mut self.partitions[at];
        let record = RecordHeader {
            kind: RecordKind::Producer as u8,
            topic: key.0,
            partition: key.1,
            layout_version: partition.gate.version(),
            owner_epoch: partition.gate.open_epoch(),
            producer_id: id,
            producer_epoch: epoch,
            time_ms: now.unix_ms,
            body_bytes: length(name.len()),
            body_crc: crc_of(name),
            ..RecordHeader::default()
        };
        let shard = &mut self.shards[usize::from(partition.shard)];
        let parts = [name];
        let append = shard.append(pool, &mut partition.log, record, Body::Copy(&parts));
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
        partition.rest = Rest::Fresh;
        let finished = Finished::ProducerOpened(resume);
        Ok(self.when_durable_upto(self.shared_end(at), number, at, &placed, finished, Then::Nothing))
    }

    /// End a quarantine by an operator's word. The partition stays closed until the next OPEN.
    pub(crate) fn release_quarantine(&mut self, number: u64, key: Key, pool: &mut Pool) -> Result<Step, Halt> {
        let at = self.hosted(key)?;
        let partition = &mut self.partitions[at];
        if partition.quarantine().is_none() {
            return Ok(Step::Done(Finished::Done));
        }
        let mut bytes = Vec::new();
        blob::write(partition, self.settings.level, self.settings.producers.bytes, &mut bytes);
        let shard = &mut self.shards[usize::from(partition.shard)];
        let placed = shard.append_release(pool, &mut partition.log, &bytes)?;
        (partition.damage, partition.damaged_file) = (None, None);
        partition.released = true;
        partition.gate.close();
        partition.mark = partition.mark.max(partition.log.start_offset()).min(partition.log.end_offset());
        Ok(self.when_durable(number, at, &placed, Finished::Done, Then::Nothing))
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
