//! Orders about sealed partitions: OPEN SEALED and FOLLOW SEALED. See `replication/sealed.rs` for the four ways in
//! which a log may stand beside its seal.

use std::sync::Arc;

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};

use crate::api::completion::{Completion, OnDurable};
use crate::api::jobs::ReadEnd;
use crate::api::order::{Order, Place};
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::Finished;
use crate::ids::{PartitionIndex, PartitionKey};
use crate::orders::order_machine::OrderMachine;
use crate::partition::seal::{Seal, Sealed};
use crate::partition::sealing::SealStanding;
use crate::partition::state::Partition;
use crate::partition::topic::Plans;
use crate::replication::sealed::LongerLog;
use crate::replication::state::follower::Follower;
use crate::replication::state::node_wide::SealCheck;
use crate::replication::state::role::Role;
use crate::turn::Turn;

impl OrderMachine<'_> {
    /// Serve a sealed partition. Nothing is appended to its log: no epoch record, and no majority is asked, for the
    /// COMMIT has proved that one has it.
    pub(crate) fn open_sealed(
        &mut self,
        number: u64,
        order: &Order,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let Order::OpenSealed { topic, partition: id, lo, hi, epoch, replicas, end } = order else {
            return Err(format!("{order:?} is no order about a sealed partition").into());
        };
        let (key, epoch, sealed) = ((*topic, *id), *epoch, Sealed::ordered(end, *epoch));
        let majority = u16::try_from(replicas.len().div_ceil(2) + 1).unwrap_or(u16::MAX);
        self.replication().check_set(replicas, majority)?;
        let (index, plans) = self.sealed_here(key, (*lo, *hi), &sealed)?;
        let partition = &mut self.store.partitions[index];
        partition.others = replicas.iter().map(|place| place.node).collect();
        let partition = &self.store.partitions[index];
        let newest = newest_epoch(&partition.role, sealed_epoch(partition), partition.gate.open_epoch());
        let is_followed = matches!(&partition.role, Role::Follower(follower) if follower.epoch == epoch);
        if epoch < newest || is_followed {
            return Err(format!("partition {id}: epoch {epoch} is not above {newest}").into());
        }
        #[cfg(feature = "planted")]
        if is_on(Bug::SealedIsOpened) {
            return self.open(number, key, (*lo, *hi), epoch, (replicas, majority), turn);
        }
        match partition.standing_to(&sealed.seal) {
            SealStanding::Short => return Err(incomplete(*id, partition.log.end().next_record, &sealed.seal).into()),
            _ if partition.is_incomplete() => return Err(stale_table(*id).into()),
            SealStanding::Reached => {}
            SealStanding::Diverged => return Err(diverged(*id, &sealed.seal).into()),
            SealStanding::Longer => {
                self.replication().check_longer(index, sealed, number, order.clone(), turn)?;
                return Ok(OrderProgress::WhenDurable);
            }
        }
        if partition.gate.ended() && sealed_epoch(partition) == epoch && self.replication().owns(index, epoch, replicas)
        {
            return self.store.when_here_durable(number, index, reached(&sealed.seal));
        }
        self.serve_sealed(number, index, (sealed, epoch), replicas, (plans, (*lo, *hi)), turn)
    }

    fn serve_sealed(
        &mut self,
        number: u64,
        index: PartitionIndex,
        (sealed, epoch): (Sealed, u64),
        replicas: &[Place],
        (plans, slots): (Arc<Plans>, (u16, u16)),
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let known = self.store.partitions[index].sealed.clone();
        self.store.partitions[index].seal_as(sealed);
        let placed = match self.replication().record_seal(index, turn) {
            Ok(placed) => placed,
            Err(refusal) => {
                self.store.partitions[index].sealed = known;
                return Err(refusal.into());
            }
        };
        let partition = &mut self.store.partitions[index];
        (partition.plans, partition.slots, partition.opening) = (Some(plans), slots, None);
        partition.gate.close();
        // This log is the one: what no commit names any more goes.
        self.store.settle_stages(index);
        self.replication().own_sealed(index, epoch, replicas, turn);
        let (finished, on_durable) = (reached(&sealed.seal), OnDurable::Ended { epoch });
        #[cfg(feature = "planted")]
        if is_on(Bug::SealInMemory) {
            self.store.seal_durable(index, epoch, turn)?;
            return Ok(OrderProgress::Done(finished));
        }
        let partition = &self.store.partitions[index];
        let group = placed.map_or(partition.last_group, |placed| placed.group);
        if group <= self.store.shards[usize::from(partition.shard)].durable_group() {
            self.store.seal_durable(index, epoch, turn)?;
            return Ok(OrderProgress::Done(finished));
        }
        let completion = Completion::Order { number, finished, on_durable };
        self.store.when_group_durable(index, group, None, completion);
        Ok(OrderProgress::WhenDurable)
    }

    /// Follow the owner of a sealed partition, and take nothing beyond its end.
    pub(crate) fn follow_sealed(
        &mut self,
        number: u64,
        order: &Order,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let Order::FollowSealed { topic, partition: id, epoch, end, .. } = order else {
            return Err(format!("{order:?} is no order about a sealed partition").into());
        };
        let sealed = Sealed::ordered(end, *epoch);
        let found = self.store.partitions.find(*topic, *id).filter(|index| !self.store.partitions[*index].dropped);
        if let Some(index) = found {
            let partition = &self.store.partitions[index];
            partition.check_seal(&sealed)?;
            // One whose tables are of no log begins from its first record in any case.
            let is_longer = partition.standing_to(&sealed.seal) == SealStanding::Longer && !partition.is_incomplete();
            if is_longer && !partition.is_quarantined() {
                self.replication().check_longer(index, sealed, number, order.clone(), turn)?;
                return Ok(OrderProgress::WhenDurable);
            }
        }
        self.follow_to_seal(order, turn)
    }

    /// As [`Self::follow_sealed`], of a log that is not longer than its seal, or has diverged below it.
    fn follow_to_seal(&mut self, order: &Order, turn: &mut Turn<'_>) -> Result<OrderProgress, OrderError> {
        let Order::FollowSealed { topic, partition: id, lo, hi, epoch, owner, end } = order else {
            return Err(format!("{order:?} is no order about a sealed partition").into());
        };
        let sealed = Sealed::ordered(end, *epoch);
        if sealed.seal.records == 0 {
            return Err(format!("partition {id}: no partition is sealed before its first record").into());
        }
        let follower = Follower::new(*epoch, *owner, None, 0);
        let progress = self.replication().follow((*topic, *id), (*lo, *hi), follower, turn)?;
        let index = self.store.hosted((*topic, *id))?;
        self.store.partitions[index].seal_as(sealed);
        self.replication().record_seal(index, turn)?;
        Ok(progress)
    }

    /// The record before the end of a longer log was read: the order goes on, or says why not. `None`: from its start.
    pub(crate) fn seal_checked(
        &mut self,
        check: &SealCheck,
        read: &ReadEnd,
        turn: &mut Turn<'_>,
    ) -> Option<Result<OrderProgress, OrderError>> {
        let (Order::OpenSealed { partition, epoch, end, .. } | Order::FollowSealed { partition, epoch, end, .. }) =
            &check.order
        else {
            return Some(Err(format!("{:?} is no order about a sealed partition", check.order).into()));
        };
        let sealed = Sealed::ordered(end, *epoch);
        match self.replication().longer_read(check, &sealed, read, turn) {
            LongerLog::Cut => None,
            LongerLog::Refused(why) => Some(Err(why.into())),
            LongerLog::Diverged | LongerLog::GivenUp if matches!(check.order, Order::FollowSealed { .. }) => {
                Some(self.follow_to_seal(&check.order, turn))
            }
            LongerLog::GivenUp => Some(Err(stale_table(*partition).into())),
            LongerLog::Diverged => Some(Err(diverged(*partition, &sealed.seal).into())),
        }
    }

    /// The partition that an order to serve it names, with its topic's plans.
    fn sealed_here(
        &self,
        key: PartitionKey,
        slots: (u16, u16),
        sealed: &Sealed,
    ) -> Result<(PartitionIndex, Arc<Plans>), OrderError> {
        let Some(plans) = self.store.topics.get(&key.0).map(|topic| topic.plans.clone()) else {
            return Err(format!("topic {} is not installed; install it before its partitions", key.0).into());
        };
        if slots.0 > slots.1 {
            return Err(format!("partition {}: slots {}..={} are no range", key.1, slots.0, slots.1).into());
        }
        let found = self.store.partitions.find(key.0, key.1).filter(|index| !self.store.partitions[*index].dropped);
        let Some(index) = found else { return Err(incomplete(key.1, 0, &sealed.seal).into()) };
        let partition = &self.store.partitions[index];
        if let Some(why) = partition.quarantine() {
            return Err(format!("partition {} is quarantined: {why}", key.1).into());
        }
        partition.check_seal(sealed)?;
        Ok((index, plans))
    }
}

fn sealed_epoch(partition: &Partition) -> u64 {
    partition.sealed.as_deref().map_or(0, |sealed| sealed.epoch)
}

/// The newest owner epoch that this store was ordered to serve or follow in this run.
fn newest_epoch(role: &Role, sealed: u64, open: u64) -> u64 {
    match role {
        Role::Follower(follower) => follower.epoch,
        Role::Owner(owner) => owner.epoch(),
        Role::Alone => sealed.max(open),
        Role::None => 0,
    }
}

fn reached(seal: &Seal) -> Finished {
    Finished::Opened { records: seal.records, end_offset: seal.offset }
}

fn incomplete(id: u64, records: u64, seal: &Seal) -> String {
    format!("partition {id}: incomplete: {records} of {} records are on this store", seal.records)
}

fn stale_table(id: u64) -> String {
    format!("partition {id}: its producer table is not that of its log; it must follow a store that has the sealed one")
}

fn diverged(id: u64, seal: &Seal) -> String {
    format!(
        "partition {id}: its log differs from the sealed one below record {}; it must follow a store that has that one",
        seal.records
    )
}
