//! Partitions that appear on this store, and come back after they were dropped.

use ringfence_log::PartitionLog;

use crate::api::order_step::OrderError;
use crate::ids::{PartitionIndex, PartitionKey};
use crate::partition::state::Partition;
use crate::partition::store::Store;
use crate::turn::Turn;

impl Store {
    pub(crate) fn hosted(&self, (topic, partition): PartitionKey) -> Result<PartitionIndex, OrderError> {
        match self.partitions.find(topic, partition) {
            Some(index) if !self.partitions[index].dropped => Ok(index),
            _ => Err(format!("partition {partition} of topic {topic} is not on this store").into()),
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
            new.gate.see(table, partition, self.settings.node);
            new.see_parents(table.ancestors(partition));
        }
        new
    }

    /// Create a dropped partition again, with an empty log in the same slot.
    ///
    /// # Errors
    /// [`OrderError::Busy`] until the drop is durable and no reader uses the dropped log.
    pub(crate) fn revive(&mut self, index: PartitionIndex, turn: &mut Turn<'_>) -> Result<(), OrderError> {
        if !self.dropped.contains(&index) {
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
        self.dropped.retain(|dropped| *dropped != index);
        turn.follow_ups.revived.push((index, dropped));
        turn.counters.revived += 1;
        Ok(())
    }

    /// True while a drop is not durable yet: the next start may find the partition again, so it must not be reported as
    /// gone.
    pub(crate) fn is_going(&self, index: PartitionIndex) -> bool {
        let partition = &self.partitions[index];
        partition.dropped && partition.last_group > self.shards[usize::from(partition.shard)].durable_group()
    }
}
