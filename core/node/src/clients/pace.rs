//! What one follower was given, and what it acknowledged: one table at a time is on its way to it. Pure.

/// What is not acknowledged for so long does not hold the next table up: a client in another language may never
/// acknowledge.
pub const ON_ITS_WAY_MS: u64 = 1_000;

/// For so long after its first table a connection that acknowledged none counts for `floor`: its first acknowledgement
/// may be on its way. A client that never acknowledges holds nothing up for longer.
pub const FIRST_ACKNOWLEDGEMENT_MS: u64 = 10_000;

/// Of one (connection, topic), or of one watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Generation at which what it was sent last had changed; 0: nothing was sent.
    pub given: u64,
    /// Newest generation that it acknowledged, 0: none yet.
    pub acknowledged: u64,
    /// Monotonic time of the first frame.
    first_ms: u64,
    /// Monotonic time of the last frame, until it is acknowledged.
    sent_ms: Option<u64>,
}

impl Pace {
    /// It was sent what changed at `content`.
    pub fn give(&mut self, content: u64, now_ms: u64) {
        if self.given == 0 {
            self.first_ms = now_ms;
        }
        self.given = self.given.max(content);
        self.sent_ms = Some(now_ms);
    }

    /// It holds this generation. Never lowers anything.
    pub fn acknowledge(&mut self, generation: u64) {
        self.acknowledged = self.acknowledged.max(generation);
        if self.acknowledged >= self.given {
            self.sent_ms = None;
        }
    }

    /// Until when something is on its way; `None`: the next one may be sent.
    pub fn busy_until(&self, now_ms: u64) -> Option<u64> {
        let until = self.sent_ms? + ON_ITS_WAY_MS;
        (now_ms < until).then_some(until)
    }

    /// The generation that counts as held, of what last changed at `content`; `newest`: what is known of it here.
    pub fn floor(&self, content: u64, newest: u64, now_ms: u64) -> Option<u64> {
        let is_first = now_ms < self.first_ms + FIRST_ACKNOWLEDGEMENT_MS;
        #[cfg(feature = "planted")]
        let is_first = is_first && !ringfence_log::planted::is_on(ringfence_log::planted::Bug::FirstNotCounted);
        let counts = self.given > 0 && (self.acknowledged > 0 || is_first);
        counts.then_some(if self.acknowledged >= content { newest } else { self.acknowledged })
    }

    /// It was given a table and never acknowledged one.
    pub fn is_silent(&self) -> bool {
        self.given > 0 && self.acknowledged == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_is_on_its_way_until_its_acknowledgement_or_a_second() {
        let mut pace = Pace::default();
        assert_eq!(pace.busy_until(0), None);
        pace.give(12, 100);
        assert_eq!(
            (pace.busy_until(100), pace.busy_until(1_099), pace.busy_until(1_100)),
            (Some(1_100), Some(1_100), None)
        );
        pace.acknowledge(11);
        assert_eq!(pace.busy_until(100), Some(1_100), "of an older one");
        pace.acknowledge(14);
        assert_eq!(pace.busy_until(100), None);
        pace.acknowledge(3);
        assert_eq!(pace.acknowledged, 14, "late, and lower");
        pace.give(20, 30_000);
        assert_eq!(pace.busy_until(30_001), Some(31_000));
    }

    #[test]
    fn a_follower_counts_from_its_first_table_and_stops_if_it_never_acknowledges() {
        let mut pace = Pace::default();
        assert_eq!((pace.floor(5, 9, 0), pace.is_silent()), (None, false), "nothing was sent");
        pace.give(5, 1_000);
        assert_eq!((pace.floor(5, 9, 10_999), pace.floor(5, 9, 11_000)), (Some(0), None));
        assert!(pace.is_silent());
        pace.give(6, 20_000);
        assert_eq!(pace.floor(6, 9, 20_000), None, "from its first table on");
        pace.acknowledge(5);
        assert_eq!((pace.floor(6, 9, 99_000), pace.floor(5, 9, 99_000)), (Some(5), Some(9)));
    }
}
