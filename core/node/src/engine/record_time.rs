//! Bound the times of records by a window, which the control plane derives from the clocks of most nodes.
//!
//! A node alone cannot tell a wrong wall clock from a right one. A time from the future would stay in the log, whose
//! time never goes back, and stop age retention. A time from the past would let age retention delete new rows.

use crate::api::event::{Now, TimeWindow};

#[derive(Debug, Default)]
pub(crate) struct RecordTime {
    /// The last window, and the monotonic time at which it was set.
    window: Option<(TimeWindow, u64)>,
}

impl RecordTime {
    pub fn set(&mut self, window: TimeWindow, now: Now) {
        self.window = Some((window, now.mono_ms));
    }

    /// `now` with a wall clock inside of the window, which moves on with the monotonic clock. Without a window the wall
    /// clock is believed.
    pub fn bounded(&self, now: Now) -> Now {
        let Some((window, set_ms)) = self.window else { return now };
        let passed_ms = now.mono_ms.saturating_sub(set_ms);
        let latest_ms = window.latest_ms.saturating_add(passed_ms);
        let earliest_ms = window.earliest_ms.saturating_add(passed_ms);
        Now { unix_ms: now.unix_ms.min(latest_ms).max(earliest_ms), ..now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_790_000_000_000;
    const DAY_MS: u64 = 86_400_000;
    const WINDOW: TimeWindow = TimeWindow { earliest_ms: NOW_MS - 300, latest_ms: NOW_MS + 300 };

    fn at(unix_ms: u64, mono_ms: u64) -> Now {
        Now { unix_ms, mono_ms }
    }

    #[test]
    fn a_wrong_clock_is_bounded_and_time_goes_on() {
        let mut time = RecordTime::default();
        let ahead = NOW_MS + 400 * DAY_MS;
        assert_eq!(time.bounded(at(ahead, 10)), at(ahead, 10), "no window yet");
        time.set(WINDOW, at(ahead, 10));
        assert_eq!(time.bounded(at(ahead, 10)), at(NOW_MS + 300, 10));
        assert_eq!(time.bounded(at(ahead + DAY_MS, 10 + DAY_MS)), at(NOW_MS + DAY_MS + 300, 10 + DAY_MS));
        assert_eq!(time.bounded(at(0, 10)), at(NOW_MS - 300, 10));
        assert_eq!(time.bounded(at(5, 10 + DAY_MS)), at(NOW_MS + DAY_MS - 300, 10 + DAY_MS));
    }

    #[test]
    fn a_clock_inside_of_the_window_is_left_alone() {
        let mut time = RecordTime::default();
        time.set(WINDOW, at(5, 1_000));
        for unix_ms in [NOW_MS - 300, NOW_MS - 1, NOW_MS, NOW_MS + 300] {
            assert_eq!(time.bounded(at(unix_ms, 1_000)), at(unix_ms, 1_000));
        }
    }

    #[test]
    fn a_window_that_cannot_be_is_no_panic() {
        let mut time = RecordTime::default();
        time.set(TimeWindow { earliest_ms: u64::MAX, latest_ms: 0 }, at(5, 0));
        assert_eq!(time.bounded(at(NOW_MS, 1)), at(u64::MAX, 1));
    }
}
