//! How fast the buckets of all logs of a node fill (CA3): slower while their records are too many for the node. Pure.

/// A coin comes to a bucket in this time: 50 a second.
const COIN_MS: u64 = 20;
/// The slowest: one coin a second, so that no position waits for longer.
const COIN_MS_MAX: u64 = 1_000;
/// More records of cohorts than a node's disks shall take beside the rows, a second: 2.5 MB of 256 B each.
const RECORDS_MAX: u32 = 10_000;
const WINDOW_MS: u64 = 1_000;
/// After so many quiet windows every pace is the quickest again.
const QUIET_WINDOWS: u64 = 6;

/// The node's records of cohorts in the second that goes on, and what the seconds before have made of the pace.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    coin_ms: u64,
    window_ms: u64,
    records: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { coin_ms: COIN_MS, window_ms: 0, records: 0 }
    }
}

impl Pace {
    /// In how many milliseconds a bucket gets a coin.
    pub fn coin_ms(&mut self, now_ms: u64) -> u64 {
        self.roll(now_ms);
        self.coin_ms
    }

    /// A record was appended to some log.
    pub fn count(&mut self, now_ms: u64) {
        self.roll(now_ms);
        self.records = self.records.saturating_add(1);
    }

    /// A second above the limit doubles the time of a coin. One with at most half of the limit halves it: what fits twice
    /// is within the limit then, so the pace does not swing.
    fn roll(&mut self, now_ms: u64) {
        let windows = now_ms.saturating_sub(self.window_ms) / WINDOW_MS;
        if windows == 0 {
            return;
        }
        self.coin_ms = match self.records {
            records if records > RECORDS_MAX => (self.coin_ms * 2).min(COIN_MS_MAX),
            records if records <= RECORDS_MAX / 2 => (self.coin_ms / 2).max(COIN_MS),
            _ => self.coin_ms,
        };
        for _ in 1..windows.min(QUIET_WINDOWS) {
            self.coin_ms = (self.coin_ms / 2).max(COIN_MS);
        }
        self.window_ms += windows * WINDOW_MS;
        self.records = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(pace: &mut Pace, number: u64, records: u32) -> u64 {
        (0..records).for_each(|_| pace.count(number * WINDOW_MS));
        pace.coin_ms((number + 1) * WINDOW_MS)
    }

    #[test]
    fn a_second_above_the_limit_halves_the_filling_down_to_one_coin_a_second() {
        let mut pace = Pace::default();
        assert_eq!(second(&mut pace, 0, RECORDS_MAX), COIN_MS, "as many as may be");
        let seen: Vec<u64> = (1..=7).map(|number| second(&mut pace, number, RECORDS_MAX + 1)).collect();
        assert_eq!(seen, [40, 80, 160, 320, 640, 1_000, 1_000]);
    }

    #[test]
    fn a_pace_that_the_node_bears_is_kept_and_half_of_the_limit_makes_it_quicker() {
        let mut pace = Pace::default();
        assert_eq!(second(&mut pace, 0, RECORDS_MAX + 1), 40);
        assert_eq!(second(&mut pace, 1, RECORDS_MAX / 2 + 1), 40, "twice as many would be too many");
        assert_eq!(second(&mut pace, 2, RECORDS_MAX / 2), 20);
        assert_eq!(second(&mut pace, 3, 0), 20);
    }

    #[test]
    fn a_node_without_records_is_as_quick_as_at_its_start() {
        let mut pace = Pace::default();
        (0..6).for_each(|number| _ = second(&mut pace, number, RECORDS_MAX + 1));
        assert_eq!(pace.coin_ms(6 * WINDOW_MS), COIN_MS_MAX);
        assert_eq!(pace.coin_ms(8 * WINDOW_MS), 250, "two seconds");
        assert_eq!(pace.coin_ms(3_600_000), COIN_MS);
    }
}
