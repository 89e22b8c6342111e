//! Sample the slots of a body's rows while they are checked, so that the owner of a partition knows where its load is.
//!
//! The first row of each sample is drawn. Rows that repeat in turn (four sensors, one row each) would otherwise show the
//! slot of one of them only. Larger bodies are sampled at larger distances, each row with more weight: the weight of a
//! body is a quarter of its rows on average.

/// Rows of one sample, where slots are computed anyway: 2 KiB.
const CHECKED_ROWS_MAX: usize = 1024;

/// Of these, the distance between two rows at least.
const CHECKED_STEP: usize = 4;

/// Rows of one sample that are hashed for the sample alone, each in some 20 ns.
const UNCHECKED_ROWS_MAX: usize = 16;

/// Of these, the distance between two rows at least: bodies of a few rows must not pay for a row each.
const UNCHECKED_STEP: usize = 64;

/// Slots of some rows of one body. Reused, so that a check allocates nothing.
#[derive(Debug)]
pub struct Sample {
    slots: [u16; CHECKED_ROWS_MAX],
    taken: usize,
    /// The next row to take.
    next: usize,
    /// Distance between two rows, a power of two.
    step: usize,
    /// State of the random numbers: an LCG modulo 2^64 with Knuth's constants, of which the upper half is used.
    random: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self { slots: [0; CHECKED_ROWS_MAX], taken: 0, next: 0, step: CHECKED_STEP, random: 0 }
    }
}

impl Sample {
    /// Forget the body before.
    pub fn clear(&mut self) {
        self.taken = 0;
    }

    /// Slots of the sampled rows.
    #[must_use]
    pub fn slots(&self) -> &[u16] {
        &self.slots[..self.taken]
    }

    /// Weight of each sampled row: how many times four rows it stands for.
    #[must_use]
    pub fn weight(&self) -> u32 {
        (self.step / CHECKED_STEP) as u32
    }

    /// Begin the sample of a body whose slots are all computed.
    pub(super) fn begin_checked(&mut self, rows: usize) {
        self.begin(rows, CHECKED_STEP, CHECKED_ROWS_MAX);
    }

    /// Begin the sample of a body whose slots are not computed. False: none of its rows is sampled.
    pub(super) fn begin_unchecked(&mut self, rows: usize) -> bool {
        self.begin(rows, UNCHECKED_STEP, UNCHECKED_ROWS_MAX);
        self.next < rows
    }

    fn begin(&mut self, rows: usize, step: usize, rows_max: usize) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.step = step * rows.div_ceil(step * rows_max).next_power_of_two();
        self.next = (self.random >> 32) as usize & (self.step - 1);
        self.taken = 0;
    }

    /// Take the rows of the sample among those whose hashes these are, the first of them row `start`.
    #[inline]
    pub(super) fn take(&mut self, start: usize, hashes: &[u64]) {
        let here = hashes.get(self.next.wrapping_sub(start)..).unwrap_or_default().iter().step_by(self.step);
        let mut count = 0;
        for (place, hash) in self.slots[self.taken..].iter_mut().zip(here) {
            *place = (hash >> 48) as u16;
            count += 1;
        }
        self.taken += count;
        self.next += count * self.step;
    }

    /// The rows of the sample among the first `rows`, for [`Self::push`] in this order.
    pub(super) fn rows(&self, rows: usize) -> impl Iterator<Item = usize> + use<> {
        (self.next..rows).step_by(self.step)
    }

    /// Take the next row of the sample by its hash.
    pub(super) fn push(&mut self, hash: u64) {
        self.take(self.next, &[hash]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows taken of a body of which row `n` has the slot `n % 65,536`, in chunks.
    fn sampled(sample: &mut Sample, rows: usize, chunk: usize) -> Vec<u16> {
        sample.begin_checked(rows);
        for start in (0..rows).step_by(chunk) {
            let hashes: Vec<u64> = (start..rows.min(start + chunk)).map(|row| (row as u64) << 48).collect();
            sample.take(start, &hashes);
        }
        sample.slots().to_vec()
    }

    #[test]
    fn the_weight_of_a_body_is_a_quarter_of_its_rows() {
        let mut sample = Sample::default();
        for rows in [1, 3, 4, 5, 64, 1000, 1024, 4095, 4096, 4097, 40_000, 100_000, 1 << 22] {
            let (mut sum, times) = (0, if rows > 1 << 20 { 1 } else { 400 });
            for _ in 0..times {
                let (taken, weight) = (sampled(&mut sample, rows, 1024).len(), sample.weight() as usize);
                assert!(taken <= CHECKED_ROWS_MAX && taken * 4 * weight < rows + sample.step);
                sum += taken * weight;
            }
            let off = (4 * sum).abs_diff(rows * times);
            assert!(25 * off <= times * (20 + rows), "{times} bodies of {rows} rows weigh {sum}");
        }
    }

    #[test]
    fn chunks_change_nothing() {
        for rows in [1, 5, 1023, 1024, 1025, 5000, 70_000] {
            let whole = sampled(&mut Sample::default(), rows, rows);
            for chunk in [1, 3, 1024] {
                assert_eq!(sampled(&mut Sample::default(), rows, chunk), whole, "{rows} rows in chunks of {chunk}");
            }
        }
    }

    #[test]
    fn rows_that_repeat_in_turn_are_all_seen() {
        let (mut sample, mut seen) = (Sample::default(), [0; 4]);
        for _ in 0..400 {
            for row in sampled(&mut sample, 64, 64) {
                seen[usize::from(row % 4)] += 1;
            }
        }
        assert!(seen.iter().all(|count| (1200..2000).contains(count)), "{seen:?}");
    }

    #[test]
    fn bodies_that_are_not_checked_cost_few_rows() {
        let mut sample = Sample::default();
        for rows in [1, 10, 64, 1000, 1024, 5000, 1 << 24] {
            let (mut sum, mut hashed) = (0, 0);
            for _ in 0..4000 {
                let any = sample.begin_unchecked(rows);
                let found = sample.rows(rows).count();
                assert!(found <= UNCHECKED_ROWS_MAX && any == (found > 0), "{found} of {rows} rows");
                (sum, hashed) = (sum + found * sample.weight() as usize, hashed + found);
            }
            let off = (4 * sum).abs_diff(rows * 4000);
            assert!(5 * off <= 4000 * (10 + rows), "4,000 bodies of {rows} rows weigh {sum}");
            assert!(60 * hashed <= 4000 * (2 + rows), "of 4,000 bodies of {rows} rows {hashed} are hashed");
        }
    }
}
