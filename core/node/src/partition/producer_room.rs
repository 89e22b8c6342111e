//! Refuse what producer tables have no room for: the exactly-once state of live producers is never given up for it.

use ringfence_wire::{Code, RequestHeader};

use crate::api::refusal::Refusal;
use crate::partition::state::Partition;
use crate::partition::store::Store;

/// Producers that are known may grow to this many times the limits: their windows fill, and their notes change.
const GROWTH: usize = 2;

/// Producers become idle, or an operator makes room: neither happens within milliseconds.
const RETRY_MS: u32 = 1_000;

impl Store {
    /// A batch of a new producer is refused while the tables are full, one that makes them larger still above twice
    /// that.
    ///
    /// # Errors
    /// `overloaded`, with the figures and the ways out; nothing has changed.
    pub(crate) fn check_producer_room(&self, partition: &Partition, header: &RequestHeader) -> Result<(), Refusal> {
        let (limits, budget) = (self.settings.producers, self.settings.producers_bytes);
        let producers = &partition.producers;
        if self.producers_bytes <= budget && !producers.is_full(limits) {
            return Ok(());
        }
        let is_known = producers.get(header.producer_id).is_some();
        let is_small = self.producers_bytes <= GROWTH * budget && producers.bytes() <= GROWTH * limits.bytes;
        if is_known && (is_small || !producers.grows_with(header.producer_id, header.extension_bytes as usize)) {
            return Ok(());
        }
        Err(self.no_producer_room(partition, header.producer_id))
    }

    /// A name is opened in a partition that does not know its producer.
    pub(crate) fn check_room_to_open(&self, partition: &Partition, producer_id: u64) -> Result<(), Refusal> {
        let header = RequestHeader { producer_id, ..RequestHeader::default() };
        self.check_producer_room(partition, &header)
    }

    fn no_producer_room(&self, partition: &Partition, producer_id: u64) -> Refusal {
        let (limits, budget) = (self.settings.producers, self.settings.producers_bytes);
        let producers = &partition.producers;
        let what = format!(
            "partition {}, producer {producer_id}: the producer tables of this node take {} bytes (limit {budget}), \
             that of this partition has {} producers in {} bytes (limits {} and {}); nothing was stored. Wait until \
             producers without a name are idle for ten minutes, forget names that are not needed, write shorter \
             notes, or raise budget_bytes or producers_max",
            partition.log.partition,
            self.producers_bytes,
            producers.len(),
            producers.bytes(),
            limits.entries,
            limits.bytes,
        );
        let mut refusal = Refusal::new(Code::Overloaded, what);
        refusal.retry_after_ms = RETRY_MS;
        refusal.with("producers", producers.len() as u64).with("bytes", self.producers_bytes as u64)
    }
}
