//! The 65,536-entry slot table, in pages of 256 slots: a page that lies in one partition is one word, so a topic of few
//! partitions takes about 1 KiB instead of 128, and a look-up is at most two loads.

/// Set in a top word: the rest is the number of a page; else it is the entry itself.
const IS_PAGE: u32 = 1 << 31;
const PAGE_SLOTS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    top: Box<[u32; PAGE_SLOTS]>,
    pages: Vec<[u16; PAGE_SLOTS]>,
}

impl Pages {
    /// `ranges`: (lo, hi) inclusive, ascending, tiling 0..=65535 without gap; entry i is `ranges[i]`.
    pub fn new(ranges: &[(u16, u16)]) -> Self {
        let mut built = Self { top: Box::new([0; PAGE_SLOTS]), pages: Vec::new() };
        let mut at = 0;
        for page in 0..PAGE_SLOTS {
            let (first, last) = (page * PAGE_SLOTS, page * PAGE_SLOTS + PAGE_SLOTS - 1);
            if usize::from(ranges[at].1) >= last {
                built.top[page] = u32::try_from(at).expect("at most 65,536 entries");
            } else {
                let mut slots = [0; PAGE_SLOTS];
                for (slot, entry) in slots.iter_mut().enumerate() {
                    while usize::from(ranges[at].1) < first + slot {
                        at += 1;
                    }
                    *entry = u16::try_from(at).expect("at most 65,536 entries");
                }
                built.top[page] = IS_PAGE | u32::try_from(built.pages.len()).expect("at most 256 pages");
                built.pages.push(slots);
            }
            if usize::from(ranges[at].1) == last {
                at += 1;
            }
        }
        built
    }

    /// The entry of a slot.
    #[inline]
    pub fn entry(&self, slot: u16) -> usize {
        let word = self.top[usize::from(slot) / PAGE_SLOTS];
        if word & IS_PAGE == 0 {
            word as usize
        } else {
            usize::from(self.pages[(word & !IS_PAGE) as usize][usize::from(slot) % PAGE_SLOTS])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ranges: &[(u16, u16)]) {
        let pages = Pages::new(ranges);
        for slot in 0..=u16::MAX {
            let (lo, hi) = ranges[pages.entry(slot)];
            assert!(lo <= slot && slot <= hi, "slot {slot} in {lo}..={hi}");
        }
    }

    #[test]
    fn every_slot_finds_its_range_for_any_cut() {
        check(&[(0, u16::MAX)]);
        check(&[(0, 255), (256, 511), (512, u16::MAX)]);
        check(&[(0, 0), (1, 65534), (65535, 65535)]);
        check(&[(0, 100), (101, 256), (257, 40_000), (40_001, u16::MAX)]);
        let all: Vec<_> = (0..=u16::MAX).map(|slot| (slot, slot)).collect();
        check(&all);
        check(&[(0, 21_844), (21_845, 43_689), (43_690, u16::MAX)]);
    }
}
