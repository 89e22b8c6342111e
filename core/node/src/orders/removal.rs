//! Orders that end a partition on this store: DROP, and DISCARD of what was received.

use ringfence_log::{Placement, Shard};

use crate::api::completion::{Completion, OnDurable};
use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::Finished;
use crate::ids::{PartitionIndex, PartitionKey};
use crate::orders::order_machine::OrderMachine;
use crate::partition::dedupe::Producers;
use crate::replication::state::role::Role;
use crate::transactions::staged_batches::Stages;
use crate::turn::Turn;

impl OrderMachine<'_> {
    pub(crate) fn drop_partition(
        &mut self,
        number: u64,
        key: PartitionKey,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        self.store.partitions.forget_start(key);
        if let Some(index) = self.store.partitions.find(key.0, key.1).filter(|index| self.store.is_going(*index)) {
            return self.store.when_last_durable(number, index, Finished::Done, OnDurable::Nothing);
        }
        let index = self.store.hosted(key)?;
        let placed = self.bury(key, turn)?;
        Ok(self.store.when_durable(number, index, &placed, Finished::Done, OnDurable::Dropped))
    }

    /// Append the record that ends the partition; it is gone when that is durable.
    pub(crate) fn bury(&mut self, key: PartitionKey, turn: &mut Turn<'_>) -> Result<Placement, OrderError> {
        let index = self.store.hosted(key)?;
        let placed = self.store.append(index, turn, Shard::append_drop)?;
        self.replication().take_role(index, Role::None, turn);
        self.store.doubted.remove(&key);
        self.store.absent.remove(&key);
        let partition = &mut self.store.partitions[index];
        partition.dropped = true;
        partition.gate.close();
        self.store.change_tables(index, |partition| {
            partition.producers = Producers::default();
            partition.stages = Stages::default();
        });
        let partition = &mut self.store.partitions[index];
        turn.follow_ups.ended_polls.append(&mut partition.waiting);
        Ok(placed)
    }

    /// Drop what was received under this change, and free its space.
    pub(crate) fn discard(
        &mut self,
        number: u64,
        (change, attempt): (u64, u32),
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        let mut ended = None;
        for index in 0..self.store.partitions.places() {
            let Some(partition) = self.store.partitions.get(index).filter(|partition| !partition.dropped) else {
                continue;
            };
            let Role::Follower(follower) = &partition.role else { continue };
            if follower.learner != Some((change, attempt)) {
                continue;
            }
            let key = partition.key();
            self.store.partitions[index].discarded = Some((change, attempt));
            if let Some((index, placed)) = ended.replace((index, self.bury(key, turn)?)) {
                // One outcome an order: the last of them tells, and records of one shard are durable in order.
                let what = Completion::Order { number: 0, finished: Finished::Done, on_durable: OnDurable::Dropped };
                self.store.when_group_durable(index, placed.group, None, what);
            }
        }
        let Some((index, placed)) = ended else { return self.when_given_up(number, (change, attempt)) };
        Ok(self.store.when_durable(number, index, &placed, Finished::Done, OnDurable::Dropped))
    }

    /// Nothing is left to give up; what was may be on its way to the disk yet.
    fn when_given_up(&mut self, number: u64, under: (u64, u32)) -> Result<OrderProgress, OrderError> {
        let places = 0..self.store.partitions.places();
        let is_it =
            |index: &PartitionIndex| self.store.partitions.get(*index).is_some_and(|one| one.discarded == Some(under));
        let going: Vec<PartitionIndex> = places.filter(|index| is_it(index) && self.store.is_going(*index)).collect();
        let Some((last, others)) = going.split_last() else { return Ok(OrderProgress::Done(Finished::Done)) };
        for index in others {
            self.store.when_last_durable(0, *index, Finished::Done, OnDurable::Nothing)?;
        }
        self.store.when_last_durable(number, *last, Finished::Done, OnDurable::Nothing)
    }
}
