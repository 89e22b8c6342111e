//! Maps by id. Ids are ours (drawn from the metadata log), so no sender chooses which keys are stored; one multiply and
//! one shift-xor spread them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes one or two u64.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

/// 2^64 / golden ratio, odd: Knuth, TAOCP 3, 6.4.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // hashbrown takes its tag from the top bits and its bucket from the low ones: both must depend on all bits.
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(SPREAD);
        mixed ^ (mixed >> 29)
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(29) ^ value).wrapping_mul(SPREAD);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
}

pub type IdMap<V> = HashMap<u64, V, BuildHasherDefault<IdHasher>>;
/// By (topic, partition).
pub type PairMap<V> = HashMap<(u64, u64), V, BuildHasherDefault<IdHasher>>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hash;

    #[test]
    fn ids_in_a_row_spread_over_low_and_high_bits() {
        let (mut low, mut high) = (vec![0u32; 256], vec![0u32; 128]);
        for id in 0..25_600u64 {
            let mut hasher = IdHasher::default();
            (7u64, id).hash(&mut hasher);
            let hash = hasher.finish();
            low[(hash & 255) as usize] += 1;
            high[(hash >> 57) as usize] += 1;
        }
        assert!(low.iter().all(|count| (50..=200).contains(count)), "{low:?}");
        assert!(high.iter().all(|count| (100..=400).contains(count)), "{high:?}");
    }
}
