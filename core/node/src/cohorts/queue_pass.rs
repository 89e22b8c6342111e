//! One pass over the fetches that wait of a queue: which partitions are still to be looked at. Pure.
//!
//! Rows go to those who have waited longest. A partition that had none for a FETCH has none for the next one either, so
//! a pass costs a look at each partition, and one for each FETCH that is served: not their product.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::cohorts::gate::queues::is_planted;

/// How much a FETCH may be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub rows: u64,
    pub bytes: usize,
}

/// What a look at a partition brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Leased,
    /// No rows for a FETCH with these limits, and for none with smaller ones.
    Empty,
    /// Not for this FETCH: it has another table, say.
    NotHere,
}

#[derive(Debug)]
pub struct Pass {
    /// Partitions that may have rows.
    open: BTreeSet<u64>,
    /// The greatest limits of all fetches. A full gate may have a piece that fits these, and no smaller ones.
    greatest: Limits,
    /// Rows on lease, by session.
    leased_rows: BTreeMap<u64, u64>,
}

impl Pass {
    pub fn new(
        partitions: impl IntoIterator<Item = u64>,
        limits: impl IntoIterator<Item = Limits>,
        leased_rows: BTreeMap<u64, u64>,
    ) -> Self {
        let greatest = limits.into_iter().fold(Limits::default(), |all, one| Limits {
            rows: all.rows.max(one.rows),
            bytes: all.bytes.max(one.bytes),
        });
        Self { open: partitions.into_iter().collect(), greatest, leased_rows }
    }

    /// Rows on lease of a session when the pass began. A member has one FETCH, so it is given no more meanwhile.
    pub fn leased_rows(&self, session: u64) -> u64 {
        self.leased_rows.get(&session).copied().unwrap_or(0)
    }

    /// Look at partitions after `last`, then at those before it, until one has rows. `wanted`: at this one only; 0: at
    /// any. True if there were rows.
    pub fn serve(&mut self, last: u64, wanted: u64, limits: Limits, mut look: impl FnMut(u64) -> Look) -> bool {
        let (mut at, mut left) = (last, self.open.len());
        while left > 0 {
            let found = if wanted == 0 { self.after(at) } else { Some(wanted).filter(|one| self.open.contains(one)) };
            let Some(partition) = found else { return false };
            (at, left) = (partition, if wanted == 0 { left - 1 } else { 0 });
            match look(partition) {
                Look::Leased => return true,
                _ if is_planted!(QueueLooksAgain) => {}
                Look::Empty if limits.rows >= self.greatest.rows && limits.bytes >= self.greatest.bytes => {
                    self.open.remove(&partition);
                }
                Look::Empty | Look::NotHere => {}
            }
        }
        false
    }

    fn after(&self, at: u64) -> Option<u64> {
        let next = self.open.range((Bound::Excluded(at), Bound::Unbounded)).next();
        next.or_else(|| self.open.first()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{Limits, Look, Pass};

    const LIMITS: Limits = Limits { rows: 10, bytes: 100 };
    const SMALLER: Limits = Limits { rows: 5, bytes: 100 };

    fn pass() -> Pass {
        Pass::new([1, 2, 3, 4], [LIMITS, SMALLER, LIMITS], [(7, 20)].into())
    }

    /// The partitions that are looked at; only `has` has rows.
    fn looks(pass: &mut Pass, last: u64, wanted: u64, limits: Limits, has: u64) -> Vec<u64> {
        let mut looks = Vec::new();
        let is_served = pass.serve(last, wanted, limits, |partition| {
            looks.push(partition);
            if partition == has { Look::Leased } else { Look::Empty }
        });
        assert_eq!(is_served, looks.contains(&has));
        looks
    }

    #[test]
    fn the_partition_after_the_last_one_comes_first_and_one_without_rows_is_not_looked_at_again() {
        let mut pass = pass();
        assert_eq!(looks(&mut pass, 2, 0, LIMITS, 1), [3, 4, 1]);
        assert_eq!(looks(&mut pass, 1, 0, LIMITS, 1), [2, 1]);
        assert_eq!(looks(&mut pass, 1, 0, LIMITS, 0), [1]);
        assert_eq!(looks(&mut pass, 1, 0, LIMITS, 0), [0; 0]);
        assert_eq!((pass.leased_rows(7), pass.leased_rows(8)), (20, 0));
    }

    #[test]
    fn a_fetch_with_smaller_limits_says_nothing_of_greater_ones() {
        let mut pass = pass();
        assert_eq!(looks(&mut pass, 0, 0, SMALLER, 0), [1, 2, 3, 4]);
        assert_eq!(looks(&mut pass, 0, 0, LIMITS, 4), [1, 2, 3, 4]);
        assert_eq!(looks(&mut pass, 0, 0, SMALLER, 0), [4]);
    }

    #[test]
    fn a_fetch_of_one_partition_looks_at_it_alone() {
        let mut pass = pass();
        assert_eq!(looks(&mut pass, 1, 3, LIMITS, 3), [3]);
        assert_eq!(looks(&mut pass, 1, 3, LIMITS, 0), [3]);
        assert_eq!(looks(&mut pass, 1, 3, LIMITS, 0), [0; 0]);
        assert_eq!(looks(&mut pass, 1, 9, LIMITS, 0), [0; 0]);
    }

    #[test]
    fn what_is_not_here_for_one_fetch_may_be_for_the_next() {
        let mut pass = pass();
        assert!(!pass.serve(0, 0, LIMITS, |_| Look::NotHere));
        assert_eq!(looks(&mut pass, 0, 0, LIMITS, 2), [1, 2]);
    }
}
