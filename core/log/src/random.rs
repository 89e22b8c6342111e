//! Random numbers from a seed for tests and simulations: equal seeds give equal numbers on every machine.

/// A small generator (splitmix64; Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    // The sequence never ends: an `Option` would only be unwrapped.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 <= number < end.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in `times` of `of` cases.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }
}
