//! Backoff for replicas that make no progress, for example with a full disk or a smaller body limit. Pure.

use crate::replication::state::peer_connections::LostRequest;
use crate::replication::state::replica_progress::{ReplicaProgress, SessionState};

/// It said no, because its disk is full, say. Not worth more than a question a second, and less if that stays.
const REFUSED_MS: u64 = 500;

/// It has no room now: the next group commit makes some. Hundreds of partitions that open at the same time fill a shard
/// of a replica, and each waits for it until it is acknowledged.
const FULL_MS: u64 = 20;

/// A connection that broke once is there again as soon as the node is.
const BROKE_MS: u64 = 50;

/// An operator who gave it room waits no longer than that. A largest record each time is 13 MB/s.
const PAUSE_MS_MAX: u64 = 5_000;

/// A learner's copy fails then, after 16 s at least: its change tries again or ends, and reports the reason.
const BREAKS_MAX: u32 = 9;

/// After so many tries in a row that brought nothing.
fn pause_ms(least_ms: u64, tries: u32) -> u64 {
    least_ms.saturating_mul(1 << tries.min(16)).min(PAUSE_MS_MAX)
}

impl ReplicaProgress {
    /// It answered that it does not take what it was sent.
    pub fn was_refused(&mut self, now_ms: u64, why: &str) {
        let pause_ms = pause_ms(REFUSED_MS, self.failed_attempts);
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        self.become_down(now_ms + pause_ms, why);
    }

    /// It answered that it has no room for what it was sent at the moment.
    pub fn was_full(&mut self, now_ms: u64, why: &str) {
        let pause_ms = pause_ms(FULL_MS, self.failed_attempts);
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        self.become_down(now_ms + pause_ms, why);
    }

    /// It answered that none of its files has room for a record as large: that stays so until it is started with other
    /// settings. A learner's copy fails immediately, and its change reports the reason.
    pub fn was_too_large(&mut self, now_ms: u64, bytes: usize) {
        let why = format!(
            "node {} stores no record as large as one of {bytes} bytes that it was sent: its segment_bytes are smaller than \
             here; start it with as much as this node has",
            self.place.node
        );
        self.was_refused(now_ms, &why);
        if !self.counts() {
            self.become_given_up();
        }
    }

    /// The connection to its node broke. `lost`: the largest body that was on its way. Of several sessions only that
    /// one's waits: the receiver closes for a body's size, and the others go on beside the pause.
    pub fn lost_link(&mut self, lost: Option<&LostRequest>, now_ms: u64) {
        let own = lost.filter(|lost| self.session == Some(lost.sent.session));
        let Some(LostRequest { sent, number }) = own else {
            let (why, retry_at_ms) = match self.stage {
                SessionState::Down { retry_at_ms } if self.failed_attempts > 0 => {
                    (std::mem::take(&mut self.why), retry_at_ms)
                }
                _ if self.failed_attempts > 0 => (std::mem::take(&mut self.why), 0),
                _ => ("no connection".to_owned(), 0),
            };
            return self.become_down(retry_at_ms, &why);
        };
        let pause_ms = pause_ms(BROKE_MS, self.failed_attempts);
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        if self.failed_attempts == 1 {
            return self.become_down(now_ms + pause_ms, "no connection");
        }
        let why = format!(
            "the connection to node {} broke {} times while record {number} of {} bytes was on its way: its message_bytes, \
             budget_bytes or segment_bytes may be smaller than here, or it is too slow to answer",
            self.place.node, self.failed_attempts, sent.bytes
        );
        self.become_down(now_ms + pause_ms, &why);
        if !self.counts() && self.failed_attempts >= BREAKS_MAX {
            self.become_given_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::peer_connections::SentRequest;
    use super::super::throttle::Throttle;
    use super::*;
    use crate::api::order::Place;
    use ringfence_wire::Opcode;

    fn replica(learner: Option<(u64, u32)>) -> ReplicaProgress {
        ReplicaProgress::new(Place { node: 2, store: [0; 16] }, learner, Throttle::default())
    }

    /// Until when it pauses after this break, and whether it gave up.
    fn breaks(replica: &mut ReplicaProgress, session: u64, now_ms: u64) -> Option<u64> {
        replica.become_asked(session);
        let sent = SentRequest { index: 0, session, opcode: Opcode::Replicate, bytes: 9_000_000 };
        replica.lost_link(Some(&LostRequest { sent, number: 7 }), now_ms);
        if let SessionState::Down { retry_at_ms } = replica.stage { Some(retry_at_ms - now_ms) } else { None }
    }

    #[test]
    fn a_replica_of_the_set_is_tried_ever_more_rarely_and_a_learner_gives_up() {
        let (mut replica, mut learner) = (replica(None), replica(Some((5, 1))));
        let pauses: Vec<_> = (1..=10).map(|session| breaks(&mut replica, session, 1_000)).collect();
        let expected = [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000].map(Some);
        assert_eq!(pauses, expected);
        let gone: Vec<_> = (1..=9).map(|session| breaks(&mut learner, session, 1_000).is_none()).collect();
        assert_eq!(gone.iter().filter(|gone| **gone).count(), 1, "{gone:?}");
        assert!(gone[8] && learner.why.contains("broke 9 times while record 7 of 9000000 bytes"), "{}", learner.why);
    }

    #[test]
    fn what_was_taken_ends_the_pauses_and_anothers_break_does_not_shorten_them() {
        let mut replica = replica(None);
        for session in 1..=6 {
            breaks(&mut replica, session, 1_000);
        }
        replica.lost_link(None, 1_100);
        assert_eq!(replica.stage, SessionState::Down { retry_at_ms: 2_600 });
        assert!(replica.why.contains("6 times"), "{}", replica.why);
        replica.become_asked(7);
        // Of two sessions whose bodies were under way the one with the larger waits.
        let mut other = self::replica(None);
        other.become_asked(70);
        let sent = SentRequest { index: 0, session: 7, opcode: Opcode::Replicate, bytes: 9_000_000 };
        other.lost_link(Some(&LostRequest { sent, number: 7 }), 1_200);
        assert_eq!((other.stage, other.failed_attempts), (SessionState::Down { retry_at_ms: 0 }, 0));
        replica.reached(0);
        assert_eq!(replica.failed_attempts, 6, "nothing new");
        replica.reached(8);
        assert_eq!((replica.failed_attempts, replica.why.as_str()), (0, ""));
        assert_eq!(breaks(&mut replica, 8, 5_000), Some(50));
        replica.was_refused(6_000, "node 2 says disk_full");
        assert_eq!(replica.stage, SessionState::Down { retry_at_ms: 7_000 });
    }

    #[test]
    fn a_replica_without_room_is_asked_after_a_group_commit_and_ever_more_rarely() {
        let mut replica = replica(None);
        let mut pauses = Vec::new();
        for session in 1..=10 {
            replica.become_asked(session);
            replica.was_full(1_000, "node 2 says overloaded");
            let SessionState::Down { retry_at_ms } = replica.stage else { panic!("a session goes on") };
            pauses.push(retry_at_ms - 1_000);
        }
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_000, 5_000]);
        assert_eq!(replica.why, "node 2 says overloaded");
    }
}
