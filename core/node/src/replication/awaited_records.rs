//! Orders that wait until a log here has so many durable records. With one the target of a move proves that it has all
//! records of the source.

use crate::api::order_step::{OrderError, OrderProgress};
use crate::api::outcome::{Finished, Outcome};
use crate::ids::PartitionKey;
use crate::replication::replication_machine::ReplicationMachine;
use crate::replication::state::node_wide::AwaitedRecords;
use crate::turn::Turn;

impl ReplicationMachine<'_> {
    pub(crate) fn await_records(
        &mut self,
        number: u64,
        key: PartitionKey,
        records: u64,
        timeout_ms: u64,
        turn: &mut Turn<'_>,
    ) -> Result<OrderProgress, OrderError> {
        if let Some(finished) = self.has_records(key, records)? {
            return Ok(OrderProgress::Done(finished));
        }
        let until_ms = turn.now.mono_ms.saturating_add(timeout_ms);
        self.replication.awaited.push(AwaitedRecords { number, key, records, until_ms });
        Ok(OrderProgress::WhenDurable)
    }

    /// End the orders whose records are durable now, and those whose time is over.
    pub(crate) fn end_awaited(&mut self, turn: &mut Turn<'_>) {
        if self.replication.awaited.is_empty() {
            return;
        }
        let mut awaited = std::mem::take(&mut self.replication.awaited);
        awaited.retain(|one| {
            let result = match self.has_records(one.key, one.records) {
                Ok(None) if turn.now.mono_ms < one.until_ms => return true,
                Ok(None) => Err(format!("partition {} has fewer than {} records yet", one.key.1, one.records)),
                Ok(Some(finished)) => Ok(finished),
                Err(why) => Err(why),
            };
            turn.effects.outcomes.push(Outcome::Order { number: one.number, result });
            false
        });
        self.replication.awaited = awaited;
    }

    /// Where the log ends, if that is durable and not below `records`.
    ///
    /// # Errors
    /// The partition is not on this store.
    fn has_records(&self, key: PartitionKey, records: u64) -> Result<Option<Finished>, String> {
        let found = self.store.partitions.find(key.0, key.1).and_then(|index| self.store.partitions.get(index));
        let Some(partition) = found.filter(|partition| !partition.dropped) else {
            return Err(format!("partition {} of topic {} is not on this store", key.1, key.0));
        };
        let head = partition.log.end();
        let is_durable = partition.last_group <= self.store.shards[usize::from(partition.shard)].durable_group();
        let finished = Finished::Fenced {
            epoch: head.owner_epoch,
            records: head.next_record,
            end_offset: partition.mark,
            chain: head.chain,
            cut: partition.cut,
        };
        Ok((is_durable && head.next_record >= records).then_some(finished))
    }
}
