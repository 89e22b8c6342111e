//! Punch holes in segment files to free the space of dropped partitions while others still use the files.
//!
//! One file at a time: the reader's thread carries a plan out between its reads. A start does not go on with what a
//! stop or a crash left: that space comes back with its files.

use ringfence_log::StorageError;

use crate::ids::PartitionIndex;
use crate::maintenance::maintenance_machine::MaintenanceMachine;
use crate::turn::Turn;

impl MaintenanceMachine<'_> {
    /// The next file, if none is under way. Before files are given back: a plan holds its own.
    pub(crate) fn punch_dropped(&mut self, turn: &mut Turn<'_>) {
        let holes = &mut self.maintenance.upkeep.holes;
        if self.store.is_stopping() || holes.is_under_way {
            return;
        }
        if holes.files.is_empty() {
            let (partitions, shards) = (&self.store.partitions, &self.store.shards);
            holes.waiting.retain(|index| partitions.get(*index).is_some_and(|partition| partition.dropped));
            let plan = |index: &PartitionIndex| {
                let partition = partitions.get(*index)?;
                partition.log.punch_plan(shards[usize::from(partition.shard)].durable_group())
            };
            let found = holes.waiting.iter().enumerate().find_map(|(place, index)| Some((place, plan(index)?)));
            if let Some((place, plan)) = found {
                holes.waiting.swap_remove(place);
                holes.files.extend(plan.files());
            }
        }
        if let Some(plan) = holes.files.pop_front() {
            holes.is_under_way = true;
            turn.effects.punches.push(plan);
        }
    }

    pub(crate) fn punched(&mut self, result: &Result<u64, StorageError>, turn: &mut Turn<'_>) {
        self.maintenance.upkeep.holes.is_under_way = false;
        match result {
            Ok(bytes) => turn.counters.punched_bytes += bytes,
            Err(_) => turn.counters.punch_failures += 1,
        }
    }
}
