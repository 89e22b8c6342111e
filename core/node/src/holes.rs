//! Space of dropped partitions, given back as holes while their files still hold what is others'.
//!
//! One file at a time: the reader's thread carries a plan out between its reads. A start does not go on with what a
//! stop or a crash left: that space comes back with its files.

use std::collections::VecDeque;

use ringfence_log::{PunchPlan, StorageError};

use crate::engine::Engine;
use crate::event::Effects;
use crate::partition::At;

#[derive(Debug, Default)]
pub struct Holes {
    /// Their drop is durable; somebody may still read them. At most as many as there are partitions.
    waiting: Vec<At>,
    /// Files of one of them, and of those that came back since.
    files: VecDeque<PunchPlan>,
    is_under_way: bool,
}

impl Holes {
    pub(crate) fn dropped(&mut self, at: At) {
        self.waiting.push(at);
    }

    /// The partition is here again: what was dropped of it is still punched. A plan ends at the drop, so a walk meets
    /// nothing of the log behind it.
    pub(crate) fn revived(&mut self, at: At, dropped: Option<PunchPlan>) {
        if let Some(place) = self.waiting.iter().position(|waiting| *waiting == at) {
            self.waiting.swap_remove(place);
            self.files.extend(dropped.into_iter().flat_map(PunchPlan::files));
        }
    }
}

impl Engine {
    /// The next file, if none is under way. Before files are given back: a plan holds its own.
    pub(crate) fn punch_dropped(&mut self, effects: &mut Effects) {
        let holes = &mut self.upkeep.holes;
        if self.stopping || holes.is_under_way {
            return;
        }
        if holes.files.is_empty() {
            let (partitions, shards) = (&self.partitions, &self.shards);
            holes.waiting.retain(|at| partitions.get(*at).is_some_and(|partition| partition.dropped));
            let plan = |at: &At| {
                let partition = partitions.get(*at)?;
                partition.log.punch_plan(shards[usize::from(partition.shard)].durable_group())
            };
            let found = holes.waiting.iter().enumerate().find_map(|(place, at)| Some((place, plan(at)?)));
            if let Some((place, plan)) = found {
                holes.waiting.swap_remove(place);
                holes.files.extend(plan.files());
            }
        }
        if let Some(plan) = holes.files.pop_front() {
            holes.is_under_way = true;
            effects.punches.push(plan);
        }
    }

    pub(crate) fn punched(&mut self, result: &Result<u64, StorageError>) {
        self.upkeep.holes.is_under_way = false;
        match result {
            Ok(bytes) => self.counters.punched_bytes += bytes,
            Err(_) => self.counters.punch_failures += 1,
        }
    }
}
