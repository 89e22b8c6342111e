//! Orders that wait until a log here has so many durable records: a move's target proves that it has all of the source's.

use crate::engine::Engine;
use crate::event::{Effects, Now};
use crate::orders::{Halt, Step};
use crate::orders_partition::Key;
use crate::outcome::{Finished, Outcome};

/// An order that waits.
#[derive(Debug)]
pub struct Awaited {
    number: u64,
    key: Key,
    records: u64,
    /// The order ends then at the latest, in ms of the monotonic clock.
    until_ms: u64,
}

impl Engine {
    pub(crate) fn await_records(
        &mut self,
        number: u64,
        key: Key,
        records: u64,
        timeout_ms: u64,
        now: Now,
    ) -> Result<Step, Halt> {
        if let Some(finished) = self.has_records(key, records)? {
            return Ok(Step::Done(finished));
        }
        self.sync.awaited.push(Awaited { number, key, records, until_ms: now.mono_ms.saturating_add(timeout_ms) });
        Ok(Step::WhenDurable)
    }

    /// End the orders whose records are durable now, and those whose time is over.
    pub(crate) fn end_awaited(&mut self, now: Now, effects: &mut Effects) {
        if self.sync.awaited.is_empty() {
            return;
        }
        let mut awaited = std::mem::take(&mut self.sync.awaited);
        awaited.retain(|one| {
            let result = match self.has_records(one.key, one.records) {
                Ok(None) if now.mono_ms < one.until_ms => return true,
                Ok(None) => Err(format!("partition {} has fewer than {} records yet", one.key.1, one.records)),
                Ok(Some(finished)) => Ok(finished),
                Err(why) => Err(why),
            };
            effects.outcomes.push(Outcome::Order { number: one.number, result });
            false
        });
        self.sync.awaited = awaited;
    }

    /// Where the log ends, if that is durable and not below `records`.
    ///
    /// # Errors
    /// The partition is not on this store.
    fn has_records(&self, key: Key, records: u64) -> Result<Option<Finished>, String> {
        let found = self.partitions.find(key.0, key.1).and_then(|at| self.partitions.get(at));
        let Some(partition) = found.filter(|partition| !partition.dropped) else {
            return Err(format!("partition {} of topic {} is not on this store", key.1, key.0));
        };
        let head = partition.log.end();
        let is_durable = partition.last_group <= self.shards[usize::from(partition.shard)].durable_group();
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
