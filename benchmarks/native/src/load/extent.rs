//! Whether the answers of one partition tile its offsets, in constant memory.
//!
//! Ranges tile `first .. end` if every other bound appears once as an end and once as a start. So the sum of
//! `hash(end) - hash(start)` over all ranges must be `hash(end) - hash(first)` of the whole: a gap here that makes
//! up for an overlap there changes the sum, except for one in 2^64.

/// Offsets seen of one partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    pub first_offset: u64,
    pub end_offset: u64,
    pub rows: u64,
    balance: u64,
}

/// The finalizer of `SplitMix64`: every bit of the input changes half of the output's.
const fn hash(offset: u64) -> u64 {
    let mut mixed = offset.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Extent {
    /// Take in an answer: `rows`, more than none, from `first_offset` on.
    pub fn add(&mut self, first_offset: u64, rows: u32) {
        let end_offset = first_offset + u64::from(rows);
        self.first_offset = if self.rows == 0 { first_offset } else { self.first_offset.min(first_offset) };
        self.end_offset = self.end_offset.max(end_offset);
        self.rows += u64::from(rows);
        self.balance = self.balance.wrapping_add(hash(end_offset)).wrapping_sub(hash(first_offset));
    }

    /// True when no offset between the first and the last is missing or was given twice.
    pub const fn is_whole(&self) -> bool {
        self.end_offset - self.first_offset == self.rows
            && self.balance == hash(self.end_offset).wrapping_sub(hash(self.first_offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(ranges: &[(u64, u32)]) -> bool {
        let mut extent = Extent::default();
        for (first, rows) in ranges {
            extent.add(*first, *rows);
        }
        extent.is_whole()
    }

    #[test]
    fn a_tiling_in_any_order_is_whole() {
        assert!(whole(&[(10, 5), (15, 1), (20, 4), (16, 4)]));
    }

    #[test]
    fn gaps_overlaps_and_both_at_once_are_not() {
        assert!(!whole(&[(0, 5), (6, 1)]));
        assert!(!whole(&[(0, 5), (4, 2)]));
        assert!(!whole(&[(0, 5), (0, 5), (10, 5)]), "an overlap that makes up for a gap");
    }
}
