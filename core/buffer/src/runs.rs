//! Which pages are free: two-level segregated fit over page numbers. Pure; the memory itself is not touched.
//!
//! Not a buddy allocator: a body of 8 MiB behind its record header is 8 MiB + 192 bytes, for which
//! powers of two would reserve 16 MiB. Here it takes 2049 pages. A free run knows its length at both of
//! its ends, so a returned run finds and merges with both neighbours at once. Free runs of one size
//! class hang in a list, last returned first (its cache lines are the warmest); classes are an eighth of
//! a power of two wide, and a bit map finds the first class that surely fits, in constant time.
//! (TLSF: Masmano, Ripoll, Crespo, Real, ECRTS 2004.)
//!
//! Invariants: no two free runs touch; `ends` is non-zero only at the first and last page of a free run.

use crate::block::Run;

/// Sub-classes of a power of two, as a power of two.
const SPLIT_BITS: u32 = 3;
const SPLIT: u32 = 1 << SPLIT_BITS;
/// Classes of runs up to 2^32 pages.
const CLASSES: usize = ((32 - SPLIT_BITS + 1) * SPLIT) as usize;
const NONE: u32 = u32::MAX;

pub struct Runs {
    /// Pages of the free run that begins or ends here, else 0.
    ends: Box<[u32]>,
    /// Neighbours in the list of a size class, by first page.
    next: Box<[u32]>,
    previous: Box<[u32]>,
    heads: [u32; CLASSES],
    /// Bit c of the map: class c has a run.
    filled: [u64; CLASSES.div_ceil(64)],
}

impl Runs {
    /// All of `pages` free, as one run.
    pub fn new(pages: u32) -> Self {
        let side = || vec![0; pages as usize].into_boxed_slice();
        let mut runs = Self {
            ends: side(),
            next: side(),
            previous: side(),
            heads: [NONE; CLASSES],
            filled: [0; CLASSES.div_ceil(64)],
        };
        runs.insert(Run { first: 0, pages });
        runs
    }

    /// A run of exactly `pages` pages, or `None` when no free run is known to be long enough.
    pub fn take(&mut self, pages: u32) -> Option<Run> {
        let first = self.find(pages)?;
        let found = Run { first, pages: self.ends[first as usize] };
        self.remove(found);
        if found.pages > pages {
            self.insert(Run { first: first + pages, pages: found.pages - pages });
        }
        Some(Run { first, pages })
    }

    /// Take back a run from `take`.
    pub fn give(&mut self, mut run: Run) {
        debug_assert!(self.ends[run.first as usize] == 0, "given twice");
        if let Some(before) = run.first.checked_sub(1) {
            let pages = self.ends[before as usize];
            if pages > 0 {
                let neighbour = Run { first: run.first - pages, pages };
                self.remove(neighbour);
                run = Run { first: neighbour.first, pages: run.pages + pages };
            }
        }
        if let Some(&pages) = self.ends.get((run.first + run.pages) as usize)
            && pages > 0
        {
            self.remove(Run { first: run.first + run.pages, pages });
            run.pages += pages;
        }
        self.insert(run);
    }

    /// First page of a free run of at least `pages`: any of a class whose shortest run fits, else the
    /// newest of the class that `pages` itself falls into, if that one fits.
    fn find(&self, pages: u32) -> Option<u32> {
        let class = class_of(pages);
        let newest = self.heads[class];
        if newest != NONE && self.ends[newest as usize] >= pages {
            return Some(newest);
        }
        let class = self.next_filled(class + 1)?;
        Some(self.heads[class])
    }

    fn next_filled(&self, class: usize) -> Option<usize> {
        let (word, bit) = (class / 64, class % 64);
        let mut bits = self.filled.get(word)? & (u64::MAX << bit);
        let mut at = word;
        while bits == 0 {
            at += 1;
            bits = *self.filled.get(at)?;
        }
        Some(at * 64 + bits.trailing_zeros() as usize)
    }

    fn insert(&mut self, run: Run) {
        let (first, class) = (run.first as usize, class_of(run.pages));
        self.ends[first] = run.pages;
        self.ends[first + run.pages as usize - 1] = run.pages;
        let head = self.heads[class];
        self.next[first] = head;
        self.previous[first] = NONE;
        if head != NONE {
            self.previous[head as usize] = run.first;
        }
        self.heads[class] = run.first;
        self.filled[class / 64] |= 1 << (class % 64);
    }

    fn remove(&mut self, run: Run) {
        let (first, class) = (run.first as usize, class_of(run.pages));
        self.ends[first] = 0;
        self.ends[first + run.pages as usize - 1] = 0;
        let (next, previous) = (self.next[first], self.previous[first]);
        if next != NONE {
            self.previous[next as usize] = previous;
        }
        if previous != NONE {
            self.next[previous as usize] = next;
            return;
        }
        self.heads[class] = next;
        if next == NONE {
            self.filled[class / 64] &= !(1 << (class % 64));
        }
    }
}

/// Size class of a run of `pages >= 1`: exact below `SPLIT`, then `SPLIT` classes for each power of two.
fn class_of(pages: u32) -> usize {
    if pages < SPLIT {
        return pages as usize;
    }
    let power = pages.ilog2();
    let part = (pages >> (power - SPLIT_BITS)) & (SPLIT - 1);
    ((power - SPLIT_BITS + 1) * SPLIT + part) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_and_every_run_of_a_later_class_is_longer() {
        let mut last = class_of(1);
        for pages in 2..200_000 {
            let class = class_of(pages);
            assert!(class == last || class == last + 1, "{pages} pages: class {class} after {last}");
            last = class;
        }
        assert!(class_of(u32::MAX) < CLASSES);
    }

    #[test]
    fn whatever_order_runs_come_back_in_they_become_one_again() {
        let mut runs = Runs::new(1000);
        let mut taken: Vec<Run> = (1..=40).map(|pages| runs.take(pages).expect("820 of 1000 pages")).collect();
        while !taken.is_empty() {
            let at = (taken.len() * 7919) % taken.len().max(3) % taken.len();
            runs.give(taken.swap_remove(at));
            taken.reverse();
        }
        assert_eq!(runs.take(1000), Some(Run { first: 0, pages: 1000 }));
        assert_eq!(runs.take(1), None);
    }
}
