//! Which parts of the mapping are free: a buddy allocator over units of 4 KiB. Pure arithmetic.
//!
//! A block of order `n` is `1 << n` units and begins at a multiple of that. A freed block joins its buddy while that
//! is free too, so a pool from which everything was returned is whole again. Invariant: every unit belongs
//! to exactly one block, free or taken.

/// Orders 0..=20: 4 KiB to 4 GiB; enough for any pool below.
const ORDERS: usize = 21;

/// Free blocks by order. Lists are linked through an array, so nothing allocates after `new`.
pub struct Buddy {
    /// For a unit that begins a free block: the next free block of its order.
    next: Box<[u32]>,
    previous: Box<[u32]>,
    /// Order of the free block that begins here, or `TAKEN`.
    free_order: Box<[u8]>,
    heads: [u32; ORDERS],
    free_units: usize,
}

const NONE: u32 = u32::MAX;
const TAKEN: u8 = u8::MAX;

impl Buddy {
    /// All `units` free. Bounded by `u32`: 16 TiB of 4 KiB units.
    pub fn new(units: usize) -> Self {
        assert!(units < NONE as usize, "a pool of {units} units is beyond its index type");
        let mut made = Self {
            next: vec![NONE; units].into(),
            previous: vec![NONE; units].into(),
            free_order: vec![TAKEN; units].into(),
            heads: [NONE; ORDERS],
            free_units: 0,
        };
        let mut at = 0;
        while at < units {
            let by_alignment = if at == 0 { ORDERS - 1 } else { (at.trailing_zeros() as usize).min(ORDERS - 1) };
            let by_room = (units - at).ilog2() as usize;
            let order = by_alignment.min(by_room);
            made.push(at, order);
            made.free_units += 1 << order;
            at += 1 << order;
        }
        made
    }

    pub const fn free_units(&self) -> usize {
        self.free_units
    }

    /// The smallest order that holds `units`.
    pub const fn order_for(units: usize) -> usize {
        units.next_power_of_two().trailing_zeros() as usize
    }

    /// First unit of a block of `order`, or none.
    pub fn take(&mut self, order: usize) -> Option<usize> {
        let found = (order..ORDERS).find(|candidate| self.heads[*candidate] != NONE)?;
        let at = self.heads[found] as usize;
        self.unlink(at, found);
        for smaller in (order..found).rev() {
            self.push(at + (1 << smaller), smaller);
        }
        self.free_units -= 1 << order;
        Some(at)
    }

    /// First of `units` units, cut from the smallest block that holds them; the rest stays free.
    pub fn take_units(&mut self, units: usize) -> Option<usize> {
        let order = Self::order_for(units);
        let at = self.take(order)?;
        self.give_units(at + units, (1 << order) - units);
        Some(at)
    }

    /// Give a run of units back, as the aligned blocks it consists of.
    pub fn give_units(&mut self, mut at: usize, mut units: usize) {
        while units > 0 {
            let order = (at.trailing_zeros() as usize).min(units.ilog2() as usize).min(ORDERS - 1);
            self.give(at, order);
            at += 1 << order;
            units -= 1 << order;
        }
    }

    /// Give a block back that `take` gave out with this order.
    pub fn give(&mut self, mut at: usize, mut order: usize) {
        assert!(self.free_order[at] == TAKEN, "block at unit {at} is returned twice");
        self.free_units += 1 << order;
        while order + 1 < ORDERS {
            let buddy = at ^ (1 << order);
            if buddy >= self.free_order.len() || usize::from(self.free_order[buddy]) != order {
                break;
            }
            self.unlink(buddy, order);
            at = at.min(buddy);
            order += 1;
        }
        self.push(at, order);
    }

    fn push(&mut self, at: usize, order: usize) {
        let head = self.heads[order];
        self.next[at] = head;
        self.previous[at] = NONE;
        if head != NONE {
            self.previous[head as usize] = index(at);
        }
        self.heads[order] = index(at);
        self.free_order[at] = u8::try_from(order).expect("orders are below 21");
    }

    fn unlink(&mut self, at: usize, order: usize) {
        let (before, after) = (self.previous[at], self.next[at]);
        if before == NONE {
            self.heads[order] = after;
        } else {
            self.next[before as usize] = after;
        }
        if after != NONE {
            self.previous[after as usize] = before;
        }
        self.free_order[at] = TAKEN;
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("checked in new")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator with a seed, so that a failure can be run again.
    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn taken_blocks_never_overlap_and_everything_comes_together_again() {
        for seed in 1..200u64 {
            let (mut state, units) = (seed * 0x9E37_79B9, 1000 + usize::try_from(seed).unwrap());
            let mut buddy = Buddy::new(units);
            let mut owner = vec![false; units];
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for _ in 0..500 {
                if random(&mut state) % 3 < 2 {
                    let count = usize::try_from(random(&mut state) % 200 + 1).unwrap();
                    if let Some(at) = buddy.take_units(count) {
                        assert!(owner[at..at + count].iter().all(|used| !used), "seed {seed}: overlap at {at}");
                        owner[at..at + count].fill(true);
                        taken.push((at, count));
                    }
                } else if !taken.is_empty() {
                    let pick = usize::try_from(random(&mut state)).unwrap() % taken.len();
                    let (at, count) = taken.swap_remove(pick);
                    owner[at..at + count].fill(false);
                    buddy.give_units(at, count);
                }
                assert_eq!(buddy.free_units(), owner.iter().filter(|used| !**used).count());
            }
            for (at, count) in taken {
                buddy.give_units(at, count);
            }
            let whole = Buddy::new(units);
            assert_eq!(buddy.free_order, whole.free_order, "seed {seed}: not whole again");
        }
    }

    #[test]
    #[should_panic(expected = "returned twice")]
    fn a_block_returned_twice_is_a_defect() {
        let mut buddy = Buddy::new(64);
        let at = buddy.take(0).unwrap();
        let _keeps_the_buddy_taken = buddy.take(0).unwrap();
        buddy.give(at, 0);
        buddy.give(at, 0);
    }
}
