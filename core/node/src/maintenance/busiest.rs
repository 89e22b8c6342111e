//! Choose the partitions that have a sketch: those that are among the busiest of the node. Pure: rows of partitions come
//! in by rounds, changes of sketches go out.
//!
//! Limits: [`SKETCHES_MAX`] partitions among the busiest, as many with a sketch, and three times as many changes a round.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};

use crate::ids::PartitionIndex;

/// Partitions with a sketch: 1 MiB a node. A load report names as many (`PARTS_MAX` of `rebalance/loads.py`).
pub const SKETCHES_MAX: usize = 256;

/// For so long a partition is among the busiest before it has a sketch: a burst is no reason to split.
const BUSY_MS: u64 = 10_000;

/// So long a partition that is not among the busiest keeps its sketch: a load that comes in waves keeps it.
const KEPT_MS: u64 = 600_000;

/// Time between two halvings: a sketch is of some minutes.
const HALVED_MS: u64 = 60_000;

/// A partition at a place, and its incarnation number: another one may have the place later.
pub type Candidate = (PartitionIndex, u64);

/// What becomes of a partition's sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SketchChange {
    Give(Candidate),
    Free(Candidate),
    /// Halve its counts so many times.
    Halve(Candidate, u32),
}

#[derive(Debug)]
struct Busy {
    who: Candidate,
    /// Among the busiest in each round since then.
    since_ms: u64,
}

#[derive(Debug)]
struct Holder {
    who: Candidate,
    /// When it was among the busiest last.
    busy_ms: u64,
    halved_ms: u64,
    /// Seen in the round that goes on.
    is_seen: bool,
}

#[derive(Debug, Default)]
pub struct Busiest {
    /// Rows and partition, the least on top: the busiest of the round that goes on.
    round: BinaryHeap<Reverse<(u64, Reverse<Candidate>)>>,
    /// The busiest of the round before, by place.
    busy: Vec<Busy>,
    /// Partitions with a sketch, by place.
    holders: Vec<Holder>,
}

impl Busiest {
    /// A partition that may have a sketch, and its rows since the round before. Once a round.
    pub fn saw(&mut self, who: Candidate, rows: u64) {
        if let Ok(place) = self.holder(who) {
            self.holders[place].is_seen = true;
        }
        if rows == 0 {
            return;
        }
        let entry = Reverse((rows, Reverse(who)));
        if self.round.len() < SKETCHES_MAX {
            self.round.push(entry);
        } else if let Some(mut least) = self.round.peek_mut()
            && *least > entry
        {
            *least = entry;
        }
    }

    /// All partitions were seen.
    pub fn end_round(&mut self, now_ms: u64, changes: &mut Vec<SketchChange>) {
        self.rank(now_ms);
        self.free(now_ms, changes);
        self.halve(now_ms, changes);
        self.give(now_ms, changes);
    }

    fn holder(&self, who: Candidate) -> Result<usize, usize> {
        self.holders.binary_search_by_key(&who, |holder| holder.who)
    }

    /// The busiest of this round are the busiest.
    fn rank(&mut self, now_ms: u64) {
        let before = std::mem::take(&mut self.busy);
        let since = |who| before.binary_search_by_key(&who, |busy| busy.who).map(|place| before[place].since_ms);
        let ranked = self.round.drain().map(|Reverse((_, Reverse(who)))| who);
        self.busy = ranked.map(|who| Busy { who, since_ms: since(who).unwrap_or(now_ms) }).collect();
        self.busy.sort_unstable_by_key(|busy| busy.who);
    }

    /// Sketches of partitions that may have none any more, or were not busy for long.
    fn free(&mut self, now_ms: u64, changes: &mut Vec<SketchChange>) {
        let busy = &self.busy;
        self.holders.retain_mut(|holder| {
            if busy.binary_search_by_key(&holder.who, |busy| busy.who).is_ok() {
                holder.busy_ms = now_ms;
            }
            let is_kept = std::mem::take(&mut holder.is_seen) && now_ms.saturating_sub(holder.busy_ms) < KEPT_MS;
            if !is_kept {
                changes.push(SketchChange::Free(holder.who));
            }
            is_kept
        });
    }

    fn halve(&mut self, now_ms: u64, changes: &mut Vec<SketchChange>) {
        #[cfg(feature = "planted")]
        if is_on(Bug::SketchNotHalved) {
            return;
        }
        for holder in &mut self.holders {
            let times = now_ms.saturating_sub(holder.halved_ms) / HALVED_MS;
            if times > 0 {
                holder.halved_ms += times * HALVED_MS;
                changes.push(SketchChange::Halve(holder.who, u32::try_from(times).unwrap_or(u32::MAX)));
            }
        }
    }

    /// Give sketches to partitions that are busy for long. Where there is no room the holder that is not busy for the
    /// longest time loses its own.
    fn give(&mut self, now_ms: u64, changes: &mut Vec<SketchChange>) {
        for place in 0..self.busy.len() {
            let Busy { who, since_ms } = self.busy[place];
            if now_ms.saturating_sub(since_ms) < BUSY_MS || self.holder(who).is_ok() {
                continue;
            }
            if self.holders.len() >= SKETCHES_MAX {
                // Those that are among the busiest have the time of this round.
                let idle = (0..SKETCHES_MAX).filter(|at| self.holders[*at].busy_ms < now_ms);
                let Some(oldest) = idle.min_by_key(|at| self.holders[*at].busy_ms) else { return };
                changes.push(SketchChange::Free(self.holders.remove(oldest).who));
            }
            if let Err(free) = self.holder(who) {
                self.holders.insert(free, Holder { who, busy_ms: now_ms, halved_ms: now_ms, is_seen: false });
                changes.push(SketchChange::Give(who));
            }
        }
    }

    /// # Errors
    /// A list is too long, or not in order.
    pub fn check(&self) -> Result<(), String> {
        let lengths = [self.round.len(), self.busy.len(), self.holders.len()];
        if lengths.iter().any(|length| *length > SKETCHES_MAX) {
            return Err(format!("sketches: lists of {lengths:?} partitions, the limit is {SKETCHES_MAX}"));
        }
        if !self.busy.is_sorted_by(|one, next| one.who < next.who)
            || !self.holders.is_sorted_by(|one, next| one.who < next.who)
        {
            return Err("sketches: a list is not in the order of places".to_owned());
        }
        Ok(())
    }

    /// Partitions with a sketch.
    pub fn sketches(&self) -> usize {
        self.holders.len()
    }
}

#[cfg(test)]
#[path = "busiest_tests.rs"]
mod tests;
