//! The clocks of a running node, read together. A wall clock that jumps far ahead is not believed before it has stood.
//!
//! Records carry the time, and a log's time never goes back: one record of a clock that is 400 days ahead for seconds
//! would keep age retention still for 400 days, make times of offsets useless, and expire every producer.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::api::event::Now;

/// It goes on while the machine sleeps, as clients' clocks do: who wakes after a night has no lease any more, neither
/// as an owner nor as a member that it extended.
#[cfg(target_os = "linux")]
const STEADY: rustix::time::ClockId = rustix::time::ClockId::Boottime;
/// There is no such clock by that name.
#[cfg(not(target_os = "linux"))]
const STEADY: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// Milliseconds of a clock that no hand sets.
fn steady_ms() -> u64 {
    let read = rustix::time::clock_gettime(STEADY);
    let ms = |number: i64| u64::try_from(number).unwrap_or(0);
    ms(read.tv_sec).saturating_mul(1_000) + ms(read.tv_nsec) / 1_000_000
}

/// A jump up to this is believed immediately: machines that were suspended, leap seconds, a clock that is set by hand.
const AHEAD_MS_MAX: u64 = 3_600_000;
/// A larger jump is believed after this time: an operator or NTP has set a wrong clock back by then.
const STANDS_MS: u64 = 600_000;

/// Wall clock and steady clock.
pub struct Clock {
    /// Of the steady clock.
    start_ms: u64,
    believed: Believed,
    pub now: Now,
}

impl Clock {
    pub fn start() -> Self {
        let mut clock = Self { start_ms: steady_ms(), believed: Believed::default(), now: Now::default() };
        clock.read();
        clock
    }

    pub fn read(&mut self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        let mono_ms = steady_ms().saturating_sub(self.start_ms);
        self.now = Now { unix_ms: self.believed.unix_ms(unix_ms, mono_ms), mono_ms };
        self.now
    }
}

/// What is believed of the wall clock.
#[derive(Debug, Default)]
struct Believed {
    /// The last reading that was believed; none before the first.
    last: Option<Now>,
    /// Monotonic time since which the clock is too far ahead.
    ahead_since_ms: Option<u64>,
}

impl Believed {
    fn unix_ms(&mut self, unix_ms: u64, mono_ms: u64) -> u64 {
        let last = self.last.unwrap_or(Now { unix_ms, mono_ms });
        let expected_ms = last.unix_ms.saturating_add(mono_ms.saturating_sub(last.mono_ms));
        if unix_ms > expected_ms.saturating_add(AHEAD_MS_MAX) {
            let since_ms = *self.ahead_since_ms.get_or_insert(mono_ms);
            if mono_ms.saturating_sub(since_ms) < STANDS_MS {
                return expected_ms;
            }
        }
        (self.last, self.ahead_since_ms) = (Some(Now { unix_ms, mono_ms }), None);
        unix_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    const NOW_MS: u64 = 20_000 * DAY_MS;

    #[cfg(target_os = "linux")]
    #[test]
    fn leases_count_on_a_clock_that_goes_on_while_the_machine_sleeps() {
        assert_eq!(STEADY, rustix::time::ClockId::Boottime);
        let mut clock = Clock::start();
        let began_ms = steady_ms();
        let read = clock.read();
        assert!(read.mono_ms <= steady_ms() - began_ms + 1_000, "it begins at 0");
        assert!(clock.read().mono_ms >= read.mono_ms);
    }

    #[test]
    fn a_clock_400_days_ahead_for_seconds_is_not_believed() {
        let mut believed = Believed::default();
        assert_eq!(believed.unix_ms(NOW_MS, 5), NOW_MS);
        for second in 1..=30 {
            let ahead_ms = NOW_MS + 400 * DAY_MS + second * 1000;
            assert_eq!(believed.unix_ms(ahead_ms, 5 + second * 1000), NOW_MS + second * 1000);
        }
        assert_eq!(believed.unix_ms(NOW_MS + 31_007, 31_005), NOW_MS + 31_007, "it was set right");
        // Another one later is no second half of the first.
        let late_ms = 5 + STANDS_MS;
        assert_eq!(believed.unix_ms(NOW_MS + 400 * DAY_MS, late_ms), NOW_MS + 31_007 + late_ms - 31_005);
    }

    #[test]
    fn a_clock_that_stands_there_is_the_clock() {
        let mut believed = Believed::default();
        believed.unix_ms(NOW_MS, 0);
        let ahead_ms = NOW_MS + 2 * DAY_MS;
        assert_eq!(believed.unix_ms(ahead_ms, 10), NOW_MS + 10);
        assert_eq!(believed.unix_ms(ahead_ms + STANDS_MS, 10 + STANDS_MS), ahead_ms + STANDS_MS);
        assert_eq!(believed.unix_ms(ahead_ms + STANDS_MS + 3, 13 + STANDS_MS), ahead_ms + STANDS_MS + 3);
    }

    #[test]
    fn small_steps_and_steps_back_are_believed() {
        let mut believed = Believed::default();
        for (unix_ms, mono_ms) in [(NOW_MS, 0), (NOW_MS + AHEAD_MS_MAX, 0), (NOW_MS - DAY_MS, 1), (NOW_MS - DAY_MS, 2)]
        {
            assert_eq!(believed.unix_ms(unix_ms, mono_ms), unix_ms);
        }
    }
}
