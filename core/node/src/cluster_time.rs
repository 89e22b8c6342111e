//! The cluster's time, as the control plane tells it: no record gets a time far above it.
//!
//! A node alone cannot tell a wrong wall clock from a right one. Most of the cluster's clocks can. Only a clock that is
//! ahead is capped: a log's time never goes back, so one that is behind does no harm.

use crate::event::Now;

/// How far a wall clock may be ahead of the cluster's time. Clocks that are kept by NTP differ by milliseconds.
pub(crate) const AHEAD_MS_MAX: u64 = 300_000;

#[derive(Debug, Default)]
pub(crate) struct ClusterTime {
    /// The cluster's time, and the monotonic time at which it was told.
    told: Option<Now>,
}

impl ClusterTime {
    pub fn set(&mut self, unix_ms: u64, now: Now) {
        self.told = Some(Now { unix_ms, mono_ms: now.mono_ms });
    }

    /// `now`, with a wall clock that is at most [`AHEAD_MS_MAX`] ahead of the cluster's time. Before that was told it is
    /// believed.
    pub fn capped(&self, now: Now) -> Now {
        let Some(told) = self.told else { return now };
        let passed_ms = now.mono_ms.saturating_sub(told.mono_ms);
        let most = told.unix_ms.saturating_add(passed_ms).saturating_add(AHEAD_MS_MAX);
        Now { unix_ms: now.unix_ms.min(most), ..now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_790_000_000_000;
    const DAY_MS: u64 = 86_400_000;

    #[test]
    fn a_clock_that_was_wrong_from_the_start_is_capped_and_time_goes_on() {
        let mut time = ClusterTime::default();
        let ahead = Now { unix_ms: NOW_MS + 400 * DAY_MS, mono_ms: 10 };
        assert_eq!(time.capped(ahead).unix_ms, ahead.unix_ms, "nothing was told yet");
        time.set(NOW_MS, ahead);
        assert_eq!(time.capped(ahead).unix_ms, NOW_MS + AHEAD_MS_MAX);
        let later = Now { unix_ms: ahead.unix_ms + DAY_MS, mono_ms: 10 + DAY_MS };
        assert_eq!(time.capped(later), Now { unix_ms: NOW_MS + DAY_MS + AHEAD_MS_MAX, ..later });
    }

    #[test]
    fn a_clock_that_is_right_or_behind_is_left_alone() {
        let mut time = ClusterTime::default();
        time.set(NOW_MS, Now { unix_ms: 5, mono_ms: 1_000 });
        for unix_ms in [0, NOW_MS - DAY_MS, NOW_MS, NOW_MS + AHEAD_MS_MAX] {
            let now = Now { unix_ms, mono_ms: 1_000 };
            assert_eq!(time.capped(now), now);
        }
    }
}
