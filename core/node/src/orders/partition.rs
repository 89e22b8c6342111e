//! Orders about one partition. Those that change its log end when their record is durable.

use ringfence_log::Placement;
use ringfence_wire::{RecordHeader, RecordKind};

use crate::api::completion::OnDurable;
use crate::api::order::Place;
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::Finished;
use crate::ids::{PartitionIndex, PartitionKey};
use crate::orders::order_machine::OrderMachine;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl OrderMachine<'_> {
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
        self.replication().check_set(replicas, quorum)?;
        let Some(plans) = self.store.topics.get(&key.0).map(|topic| topic.plans.clone()) else {
            return Err(format!("topic {} is not installed; install it before its partitions", key.0).into());
        };
        if slots.0 > slots.1 {
            return Err(format!("partition {}: slots {}..={} are no range", key.1, slots.0, slots.1).into());
        }
        let (index, new) = match self.store.partitions.find(key.0, key.1) {
            Some(index) => (index, false),
            None => (self.store.host(key), true),
        };
        if self.is_open_as(index, epoch, slots, replicas, quorum) {
            let head = self.store.partitions[index].log.end();
            let finished = Finished::Opened { records: head.next_record, end_offset: head.next_offset };
            return self.store.when_last_durable(number, index, finished, OnDurable::Nothing);
        }
        self.store.partitions[index].others = replicas.iter().map(|place| place.node).collect();
        match self.append_epoch(index, epoch, turn) {
            Ok(placed) => {
                let partition = &mut self.store.partitions[index];
                partition.plans = Some(plans);
                partition.slots = slots;
                let head = partition.log.end();
                let finished = Finished::Opened { records: head.next_record, end_offset: head.next_offset };
                // From here on this log is the one: what no commit names any more goes.
                self.store.settle_stages(index);
                self.replication().open_as(index, epoch, placed.record_number, replicas, quorum, turn);
                // Immediately: a producer that waits for its new owner also waits for this owner's followers.
                self.replication.peers.tick(turn);
                if let Some(mut owner) = self.replication().owner_mut(index) {
                    owner.call(None, turn);
                }
                let on_durable = OnDurable::Open { epoch, end_offset: placed.first_offset };
                Ok(self.store.when_durable_upto(
                    self.store.shared_end(index),
                    number,
                    index,
                    &placed,
                    finished,
                    on_durable,
                ))
            }
            Err(error) => {
                if new {
                    self.store.partitions.remove(index);
                }
                Err(error)
            }
        }
    }

    /// True if this very OPEN was executed: the partition is open, or will be once its record is on a quorum.
    fn is_open_as(
        &mut self,
        index: PartitionIndex,
        epoch: u64,
        slots: (u16, u16),
        replicas: &[Place],
        quorum: u16,
    ) -> bool {
        let partition = &self.store.partitions[index];
        let is_begun = partition.opening == Some(epoch) || partition.gate.open_epoch() == epoch;
        let is_free = partition.gate.fence().admit(epoch).is_ok() && !partition.is_quarantined() && !partition.dropped;
        let has_quorum = match &partition.role {
            Role::Owner(owner) => owner.quorum() == usize::from(quorum),
            _ => quorum == 1,
        };
        let is_same = epoch != 0 && is_begun && is_free && has_quorum && partition.slots == slots;
        is_same && self.replication().owns(index, epoch, replicas)
    }

    fn append_epoch(
        &mut self,
        index: PartitionIndex,
        epoch: u64,
        turn: &mut Turn<'_>,
    ) -> Result<Placement, OrderError> {
        let partition = &mut self.store.partitions[index];
        let id = partition.log.partition;
        if let Some(why) = partition.quarantine() {
            return Err(format!("partition {id} is quarantined: {why}").into());
        }
        if partition.dropped {
            return Err(format!("partition {id} is being dropped").into());
        }
        let sealed = partition.sealed.as_deref();
        #[cfg(feature = "planted")]
        let sealed = sealed.filter(|_| !ringfence_log::planted::is_on(ringfence_log::planted::Bug::SealedIsOpened));
        if let Some(sealed) = sealed {
            let (number, end) = (sealed.seal.number, sealed.seal.records);
            let what =
                format!("partition {id}: it was sealed at record {end} by layout change {number}: it takes nothing");
            return Err(what.into());
        }
        if partition.log.is_anchored() {
            return Err(
                format!("partition {id}: nothing of its log is on this store yet, it cannot go on with it").into()
            );
        }
        let newest = partition.log.end().owner_epoch.max(partition.opening.unwrap_or(0));
        if epoch <= newest {
            return Err(format!("partition {id}: epoch {epoch} is not above {newest}; draw a newer one").into());
        }
        self.replication().end_incomplete(index, turn)?;
        let partition = &mut self.store.partitions[index];
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
        let placed = self.store.append_record(index, record, &[], turn)?;
        let partition = &mut self.store.partitions[index];
        partition.gate.close();
        partition.gate.set_fence(fence);
        (partition.opening, partition.acknowledged_ms) = (Some(epoch), None);
        partition.epochs.begin(placed.first_offset, epoch, placed.record_number);
        Ok(placed)
    }

    /// Of a partition that is not here, too: a replica that died before it had anything of it holds an empty log, and
    /// without its fence no owner could ever be chosen.
    pub(crate) fn fence(
        &mut self,
        number: u64,
        key: PartitionKey,
        epoch: u64,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        match self.store.partitions.find(key.0, key.1) {
            None => {
                self.store.host(key);
            }
            Some(index) if self.store.partitions[index].dropped => self.store.revive(index, turn)?,
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
        let index = self.store.hosted(key)?;
        let partition = &mut self.store.partitions[index];
        let mut fence = partition.gate.fence();
        fence.raise(epoch).map_err(|stale| format!("partition {}: {stale}", key.1))?;
        let placed = self.store.append(index, turn, |shard, pool, log| shard.append_fence(pool, log, epoch))?;
        let partition = &mut self.store.partitions[index];
        partition.gate.set_fence(fence);
        let head = partition.log.end();
        let (records, end_offset, chain) = (head.next_record, head.next_offset, head.chain);
        let (last, cut) = (head.owner_epoch, partition.cut);
        let finished = Finished::Fenced { epoch: last, records, end_offset, chain, cut };
        let upto = if is_hold { self.store.shared_end(index) } else { None };
        Ok(self.store.when_durable_upto(upto, number, index, &placed, finished, OnDurable::Nothing))
    }

    /// No appends until the next OPEN; reading goes on.
    pub(crate) fn close(&mut self, key: PartitionKey) -> Result<OrderProgress, OrderError> {
        let index = self.store.hosted(key)?;
        let partition = &mut self.store.partitions[index];
        partition.opening = None;
        partition.gate.close();
        Ok(OrderProgress::Done(Finished::Done))
    }

    /// A fence that ends when the mark has reached all that was appended before it.
    pub(crate) fn hold(
        &mut self,
        number: u64,
        key: PartitionKey,
        epoch: u64,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        self.fence_at(number, key, epoch, true, turn)
    }
}
