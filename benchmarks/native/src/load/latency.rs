//! Exact percentiles of the time from handing a request to the socket's queue until its answer.

/// Times in units of 100 ns, so that 32 bits hold seven minutes and ten million requests 40 MB.
pub struct Latencies {
    units: Vec<u32>,
}

const NS_PER_UNIT: u64 = 100;

impl Latencies {
    pub fn with_capacity(requests: usize) -> Self {
        Self { units: Vec::with_capacity(requests) }
    }

    pub fn add(&mut self, ns: u64) {
        self.units.push(u32::try_from(ns / NS_PER_UNIT).unwrap_or(u32::MAX));
    }

    pub fn clear(&mut self) {
        self.units.clear();
    }

    /// Milliseconds at each of `fractions` (0.5 = median), by nearest rank; zeros when nothing was added.
    pub fn percentiles_ms<const N: usize>(&mut self, fractions: [f64; N]) -> [f64; N] {
        self.units.sort_unstable();
        fractions.map(|fraction| {
            let rank = (fraction * self.units.len() as f64).ceil() as usize;
            self.units.get(rank.max(1) - 1).map_or(0.0, |unit| f64::from(*unit) * NS_PER_UNIT as f64 / 1e6)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut latencies = Latencies::with_capacity(100);
        for hundredth in (1..=100).rev() {
            latencies.add(hundredth * 1_000_000);
        }
        assert_eq!(latencies.percentiles_ms([0.5, 0.99, 1.0]), [50.0, 99.0, 100.0]);
    }

    #[test]
    fn nothing_has_percentile_zero() {
        assert_eq!(Latencies::with_capacity(0).percentiles_ms([0.5]), [0.0]);
    }
}
