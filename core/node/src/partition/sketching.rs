//! A partition beside its sketch: whether it may have one, and what is counted.

use crate::ids::PartitionIndex;
use crate::partition::state::Partition;
use crate::partition::store::Store;

impl Partition {
    /// True of an ACTIVE partition of this owner if a sketch shows where to split it.
    pub(crate) fn may_have_sketch(&self) -> bool {
        let has_key = self.plans.as_ref().is_some_and(|plans| plans.has_key());
        let has_other_slots = self.sketch.as_ref().is_some_and(|sketch| sketch.slots() != self.slots);
        self.gate.admits() && has_key && self.slots.0 < self.slots.1 && !has_other_slots
    }

    /// Rows since the last call: what makes a partition one of the busiest.
    pub(crate) fn rows_since(&mut self) -> u64 {
        let end = self.log.end_offset();
        end.saturating_sub(std::mem::replace(&mut self.rows_seen, end))
    }

    /// Bytes of the sketch; empty where there is none, or the partition is not the owner's and ACTIVE any more.
    pub(crate) fn sketch_bytes(&self) -> Vec<u8> {
        let sketch = self.sketch.as_ref().filter(|_| self.may_have_sketch());
        sketch.map_or_else(Vec::new, |sketch| sketch.to_bytes())
    }
}

impl Store {
    /// Count the sampled rows of the batch that was checked last, and is appended now: rows that are refused, or are
    /// checked again because they found no room, count nothing.
    #[inline]
    pub(crate) fn count_slots(&mut self, index: PartitionIndex) {
        let partition = &mut self.partitions[index];
        if let Some(sketch) = &mut partition.sketch
            && sketch.slots() == partition.slots
        {
            sketch.add(self.sample.slots(), self.sample.weight());
        }
    }
}
