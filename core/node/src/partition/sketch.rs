//! Sketch of a partition: its rows by equal parts of its slots, so that a split is placed where half of the load is.
//!
//! Soft state of the owner of an ACTIVE partition: not in the log, not in state records, not replicated. Which
//! partitions have one is decided in `maintenance/busiest.rs`.

#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};

/// Counters of one sketch. In a range of at most so many slots each slot has a counter of its own.
pub const BUCKETS: usize = 1024;

/// The fraction bits of `scale`: with 48 of them the bucket of each slot is exact for every number of slots.
const SCALE_BITS: u32 = 48;

#[derive(Debug)]
pub struct Sketch {
    counts: [u32; BUCKETS],
    /// The partition's slots, inclusive, when it was made.
    slots: (u16, u16),
    /// One divided by the number of slots, rounded up: a multiplication in place of a division a row.
    scale: usize,
}

impl Sketch {
    pub fn new(slots: (u16, u16)) -> Self {
        let size = usize::from(slots.1.saturating_sub(slots.0)) + 1;
        Self { counts: [0; BUCKETS], slots, scale: (1_usize << SCALE_BITS).div_ceil(size) }
    }

    /// The part of the partition's slots that has this one: (slot - lo) * 1024 / number of slots, rounded down.
    #[inline]
    fn bucket(&self, slot: u16) -> usize {
        #[cfg(feature = "planted")]
        if is_on(Bug::SketchOfAllSlots) {
            return (usize::from(slot) * BUCKETS) >> 16;
        }
        let place = usize::from(slot.wrapping_sub(self.slots.0)) * BUCKETS;
        (place.wrapping_mul(self.scale) >> SCALE_BITS) % BUCKETS
    }

    /// The slots that it counts.
    pub fn slots(&self) -> (u16, u16) {
        self.slots
    }

    /// Count sampled rows.
    pub fn add(&mut self, slots: &[u16], weight: u32) {
        for slot in slots {
            let count = &mut self.counts[self.bucket(*slot)];
            *count = count.saturating_add(weight);
        }
    }

    /// Halve all counts so many times.
    pub fn halve(&mut self, times: u32) {
        for count in &mut self.counts {
            *count = count.checked_shr(times).unwrap_or(0);
        }
    }

    /// The counts, little endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.counts.map(u32::to_le_bytes).as_flattened().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sketch: &Sketch) -> u64 {
        sketch.counts.iter().map(|count| u64::from(*count)).sum()
    }

    #[test]
    fn each_slot_of_any_range_counts_in_its_bucket() {
        for size in (1..=5000).chain([8191, 8192, 10_007, 32_768, 65_521, 65_535, 65_536]) {
            for lo in [0, (65_536 - size) / 2, 65_536 - size] {
                let slot = |place: usize| u16::try_from(lo + place).unwrap();
                let sketch = Sketch::new((slot(0), slot(size - 1)));
                for place in 0..size {
                    let bucket = place * BUCKETS / size;
                    assert_eq!(sketch.bucket(slot(place)), bucket, "slot {place} of {size} from {lo} on");
                }
            }
        }
    }

    #[test]
    fn a_slot_of_a_narrow_range_has_a_bucket_of_its_own() {
        for size in [2, 3, 700, 1023, 1024_u16] {
            let sketch = Sketch::new((500, 500 + size - 1));
            let mut buckets: Vec<usize> = (500..500 + size).map(|slot| sketch.bucket(slot)).collect();
            buckets.dedup();
            assert_eq!(buckets.len(), usize::from(size));
        }
    }

    #[test]
    fn counts_saturate_and_are_halved() {
        let mut sketch = Sketch::new((100, 199));
        sketch.add(&[100, 199, 199], u32::MAX - 1);
        assert_eq!(counts(&sketch), u64::from(u32::MAX - 1) + u64::from(u32::MAX));
        sketch.halve(1);
        sketch.halve(2);
        assert_eq!(counts(&sketch), u64::from((u32::MAX - 1) >> 3) + u64::from(u32::MAX >> 3));
        sketch.halve(99);
        assert_eq!(counts(&sketch), 0);
    }

    #[test]
    fn bytes_are_little_endian_words() {
        let mut sketch = Sketch::new((7, 8));
        sketch.add(&[7, 8, 8], 1);
        let bytes = sketch.to_bytes();
        assert_eq!(bytes.len(), 4 * BUCKETS);
        assert_eq!((&bytes[..4], &bytes[2048..2052]), (&[1, 0, 0, 0][..], &[2, 0, 0, 0][..]));
    }
}
