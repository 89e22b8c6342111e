//! An owner with replicas: who has what, and from that the mark. Pure.

use std::collections::VecDeque;

use ringfence_log::ReadDone;
#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};

use super::confirm::Confirms;
use crate::acks::What;
use crate::order::Place;

/// An end of the log: behind the last record, and behind its last row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    pub record: u64,
    pub offset: u64,
}

/// What happens once the mark has reached `end`.
#[derive(Debug)]
pub struct Waiting {
    pub end: End,
    pub what: What,
}

#[derive(Debug)]
pub struct Owner {
    pub epoch: u64,
    /// Stores that must have a record, this one included.
    pub quorum: usize,
    /// Number of the record that opened the epoch.
    pub epoch_record: u64,
    /// Durable here.
    pub durable: End,
    /// Records below are durable on a quorum; 0 before the epoch's own record is.
    pub mark_record: u64,
    /// In the order of `end`.
    pub waiting: VecDeque<Waiting>,
    pub syncs: Vec<Sync>,
    /// Who asks where the log ends.
    pub confirms: Confirms,
    /// It is in the list of those that time concerns.
    pub is_restless: bool,
}

/// Where the copy to one store stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No connection, or the other side was not ready: asked again at this time.
    Down { retry_at_ms: u64 },
    /// FENCE is under way.
    Asked,
    /// The first REPLICATE is under way.
    Begun,
    /// Read from disk.
    Copying,
    /// Sent from memory: as it becomes durable, or from the tail when its window has room.
    Live,
    /// It cannot go on; an order or a new epoch begins again.
    Failed,
}

#[allow(clippy::struct_excessive_bools)] // each is told apart by who reads it; they come in any combination
#[derive(Debug)]
pub struct Sync {
    pub place: Place,
    /// 0 = a replica of the set: it counts for the quorum.
    pub change: u64,
    pub attempt: u32,
    pub stage: Stage,
    pub why: String,
    /// Questions in a row that it refused because it was not told of this epoch yet.
    pub lagged: u32,
    /// Sessions in a row that ended before anything more was durable there (`futile.rs`).
    pub futile: u32,
    /// Answers to an older session are stale. Unique in a run.
    pub session: u64,
    /// Number of the newest request that it has answered.
    pub heard: u64,
    /// Number of the next record to send.
    pub next: u64,
    /// Durable there, without a gap.
    pub durable: u64,
    /// It had everything once in this session: it counts as there.
    pub level: bool,
    /// It lacks what is gone here: its log begins anew.
    pub anew: bool,
    /// Since it was level: how often the log start has passed what it was to be sent next.
    pub overtaken: u32,
    /// A read for it is under way.
    pub reading: bool,
    /// Block for the next read: larger after a record that did not fit, and while more lies ahead than one read takes;
    /// smaller when a half would do.
    pub read_bytes: usize,
    /// It is copying, and lacks so little that the tail is kept for it.
    pub near: bool,
    /// Records sent in this session that it has not answered.
    pub unanswered_bytes: usize,
    /// The mark that it was told, as an offset.
    pub told: u64,
    pub throttle: Throttle,
    /// Sent to it, each record once.
    pub bytes: u64,
    pub rows: u64,
    /// Records below this number are in the two.
    pub counted: u64,
}

/// How much may be copied: what was there when the sync began. What came later is not held back, else a slow copy would
/// never end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// 0 = none.
    pub bytes_per_s: u64,
    /// Records below this number are throttled.
    pub until_record: u64,
    budget_bytes: u64,
    refilled_ms: u64,
}

impl Throttle {
    pub fn new(bytes_per_s: u64, until_record: u64, now_ms: u64) -> Self {
        Self { bytes_per_s, until_record, budget_bytes: 0, refilled_ms: now_ms }
    }

    /// True if a piece of at most `bytes` may be read from `next` on.
    pub fn allows(&mut self, next: u64, bytes: u64, now_ms: u64) -> bool {
        if !self.holds(next) {
            return true;
        }
        let passed_ms = now_ms.saturating_sub(self.refilled_ms);
        let refill = self.bytes_per_s.saturating_mul(passed_ms) / 1000;
        if refill > 0 {
            self.refilled_ms = now_ms;
        }
        // At most a tenth of a second's worth is saved up, or one piece: no burst after a pause.
        let most = (self.bytes_per_s / 10).max(bytes);
        self.budget_bytes = self.budget_bytes.saturating_add(refill).min(most);
        self.budget_bytes >= bytes.min(most)
    }

    /// True if it has a say about this record.
    pub fn holds(&self, next: u64) -> bool {
        self.bytes_per_s > 0 && next < self.until_record
    }

    /// So many bytes were read.
    pub fn spend(&mut self, bytes: u64) {
        self.budget_bytes = self.budget_bytes.saturating_sub(bytes);
    }
}

impl Sync {
    pub fn new(place: Place, (change, attempt): (u64, u32), throttle: Throttle) -> Self {
        Self {
            place,
            change,
            attempt,
            stage: Stage::Down { retry_at_ms: 0 },
            why: String::new(),
            lagged: 0,
            futile: 0,
            session: 0,
            heard: 0,
            next: 0,
            durable: 0,
            level: false,
            anew: false,
            overtaken: 0,
            reading: false,
            read_bytes: READ_BYTES,
            near: false,
            unanswered_bytes: 0,
            told: 0,
            throttle,
            bytes: 0,
            rows: 0,
            counted: 0,
        }
    }

    pub fn counts(&self) -> bool {
        self.change == 0
    }

    /// The session is over; what it made durable stays true.
    pub fn end_session(&mut self, retry_at_ms: u64, why: &str) {
        if self.stage != Stage::Failed {
            self.stage = Stage::Down { retry_at_ms };
            why.clone_into(&mut self.why);
        }
        (self.level, self.session, self.reading) = (false, 0, false);
    }

    /// The log start has passed what it lacks: a new session finds where it may begin. One that does not count gives up
    /// in time: what it received is dropped, and its change tries again or ends.
    pub fn was_overtaken(&mut self, now_ms: u64) {
        self.overtaken += 1;
        self.end_session(now_ms, "the log start has passed what it lacks: it begins anew");
        if !self.counts() && self.overtaken >= OVERTAKEN_MAX {
            self.stage = Stage::Failed;
            self.why = format!(
                "the log start has passed what it lacks {OVERTAKEN_MAX} times, although retention waited: the partition is \
                 written faster than it is copied; write less for a while, or raise the topic's retention or the throttle"
            );
        }
    }

    /// A session begins: nothing of it is under way.
    pub fn begin_session(&mut self, session: u64) {
        (self.stage, self.session, self.unanswered_bytes) = (Stage::Asked, session, 0);
        (self.level, self.reading, self.near) = (false, false, false);
    }

    /// What becomes durable is kept in memory until it is sent there.
    pub fn takes_from_memory(&self) -> bool {
        match self.stage {
            Stage::Live => true,
            Stage::Copying => self.near && !self.anew && !self.throttle.holds(self.next),
            _ => false,
        }
    }

    /// Something was read for it; `until` is where the tail begins, or would, `budget` what it may keep, `most_bytes`
    /// what one read may take.
    pub fn took(&mut self, done: &ReadDone, until: u64, budget: u64, most_bytes: usize) {
        self.throttle.spend(done.bytes as u64);
        let record_bytes = done.bytes as u64 / u64::from(done.records.max(1));
        let ahead_bytes = until.saturating_sub(done.next_record).saturating_mul(record_bytes);
        self.near = ahead_bytes <= budget;
        if done.bytes <= self.read_bytes / 2 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES);
        } else if !self.throttle.holds(done.next_record) && ahead_bytes > self.read_bytes as u64 {
            self.read_bytes = self.read_bytes.max((self.read_bytes * 2).min(most_bytes));
        }
    }

    pub fn state(&self) -> &'static str {
        match self.stage {
            Stage::Down { .. } | Stage::Asked | Stage::Begun => "waiting",
            Stage::Copying | Stage::Live if !self.level => "copying",
            Stage::Copying | Stage::Live => "contiguous",
            Stage::Failed => "failed",
        }
    }
}

/// One read of a copy that is throttled, or near its end: enough for the disk to stream.
pub const READ_BYTES: usize = 1 << 20;
/// One read of a copy that runs after a log which grows: on a disk that is busy with writes a larger one hardly waits
/// longer. With the headers of four records of 1 MiB.
const READ_BYTES_MAX: usize = (4 << 20) + (4 << 10);
/// Of a copy read from disk and unanswered: while one read is synced there, the next is under way. With half of it the
/// reader stood still for as long as it read. What is appended there for others waits behind no more than this and one
/// read. Of a small node it is half of the window.
pub const COPY_AHEAD_BYTES: usize = 8 << 20;

/// What one read for a copy takes at most: of a small node a quarter of the window.
pub fn read_bytes_max(window_bytes: usize) -> usize {
    (window_bytes / 4).clamp(READ_BYTES, READ_BYTES_MAX)
}

/// The first session of a copy is throttled, those behind it are not: what they lack came later. If that is too slow
/// twice, it will be.
const OVERTAKEN_MAX: u32 = 3;

impl Owner {
    pub fn new(epoch: u64, quorum: usize, epoch_record: u64) -> Self {
        Self {
            epoch,
            quorum,
            epoch_record,
            durable: End::default(),
            mark_record: 0,
            waiting: VecDeque::new(),
            syncs: Vec::new(),
            confirms: Confirms::default(),
            is_restless: false,
        }
    }

    /// Stores of the set that take this owner's records now, itself included.
    pub fn there(&self) -> usize {
        1 + self.syncs.iter().filter(|sync| sync.counts() && sync.level).count()
    }

    /// Up to where this replica lacks records.
    pub fn until(&self, index: usize) -> u64 {
        let until = self.durable.record;
        #[cfg(feature = "planted")]
        let until = if is_on(Bug::CopyShort) && self.syncs[index].change > 0 { until.saturating_sub(1) } else { until };
        #[cfg(not(feature = "planted"))]
        let _ = index;
        until
    }

    /// The first record that somebody is to be sent from memory.
    pub fn lowest_from_memory(&self) -> Option<u64> {
        self.syncs.iter().filter(|sync| sync.takes_from_memory()).map(|sync| sync.next).min()
    }

    /// The first record that a session has yet to send: retention waits for it, within bounds.
    pub fn lowest_to_send(&self) -> Option<u64> {
        let goes_on = |sync: &&Sync| match sync.stage {
            Stage::Begun | Stage::Copying | Stage::Live => !sync.anew,
            Stage::Down { .. } | Stage::Asked | Stage::Failed => false,
        };
        self.syncs.iter().filter(goes_on).map(|sync| sync.next).min()
    }

    /// Raise the mark to what a quorum has durable (S3). False if it stays.
    pub fn raise_mark(&mut self) -> bool {
        let counted = self.syncs.iter().filter(|sync| sync.counts()).map(|sync| sync.durable);
        // Nothing above what is durable here: the mark is this log's, too.
        let mut ends: Vec<u64> = counted.map(|durable| durable.min(self.durable.record)).collect();
        ends.push(self.durable.record);
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let Some(reached) = self.quorum.checked_sub(1).and_then(|at| ends.get(at)).copied() else { return false };
        let least = self.epoch_record;
        #[cfg(feature = "planted")]
        let least = if is_on(Bug::OlderEpochCounts) { 0 } else { least };
        if reached <= least || reached <= self.mark_record {
            return false;
        }
        self.mark_record = reached;
        true
    }

    /// What the mark has reached, oldest first.
    pub fn pop_reached(&mut self) -> Option<Waiting> {
        if self.waiting.front()?.end.record <= self.mark_record { self.waiting.pop_front() } else { None }
    }

    /// True while time may bring something: a retry, a deadline, a mark to tell.
    pub fn has_business(&self, mark: u64) -> bool {
        let calm = |sync: &Sync| match sync.stage {
            Stage::Failed => true,
            Stage::Live => sync.told >= mark && sync.next >= self.durable.record,
            _ => false,
        };
        !self.waiting.is_empty() || !self.confirms.is_empty() || !self.syncs.iter().all(calm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(own: u64, others: &[u64]) -> Owner {
        let mut owner = Owner::new(7, others.len().div_ceil(2) + 1, 10);
        owner.durable.record = own;
        for durable in others {
            let place = Place { node: 2, store: [0; 16] };
            owner.syncs.push(Sync { durable: *durable, ..Sync::new(place, (0, 0), Throttle::default()) });
        }
        owner
    }

    #[cfg_attr(not(feature = "planted"), test)]
    fn the_mark_is_what_a_majority_has_and_never_an_older_epochs_alone() {
        for (own, others, mark) in [
            (20, vec![15, 12], 15),
            (20, vec![0, 0], 0),
            (20, vec![20, 0], 20),
            // The epoch's own record is number 10: a mark of 10 would count older ones alone.
            (20, vec![10, 10], 0),
            (20, vec![11, 0], 11),
            // Others may have more than is durable here; the mark is not above this log.
            (12, vec![30, 30], 12),
            (20, vec![18, 17, 16, 1], 17),
        ] {
            let mut owner = owner(own, &others);
            assert_eq!((owner.raise_mark(), owner.mark_record), (mark > 0, mark), "{own} {others:?}");
            assert!(!owner.raise_mark(), "only once");
        }
    }

    /// Raft, figure 8: an older epoch's record on a majority may still be cut off.
    #[cfg(feature = "planted")]
    #[test]
    fn an_older_epoch_that_counts_alone_is_noticed() {
        use ringfence_log::planted::plant;
        the_mark_is_what_a_majority_has_and_never_an_older_epochs_alone();
        plant(Some(Bug::OlderEpochCounts));
        let found = std::panic::catch_unwind(the_mark_is_what_a_majority_has_and_never_an_older_epochs_alone);
        plant(None);
        assert!(found.is_err());
    }

    #[test]
    fn learners_and_lost_sessions_do_not_take_part_in_what_is_there() {
        let mut owner = owner(20, &[20, 0]);
        owner.syncs[0].level = true;
        owner.syncs[1].change = 5;
        owner.syncs[1].durable = 20;
        owner.syncs[1].level = true;
        assert_eq!(owner.there(), 2);
        owner.syncs[0].end_session(0, "gone");
        assert_eq!((owner.there(), owner.syncs[0].durable), (1, 20));
    }

    #[test]
    fn a_throttle_holds_back_what_was_there_at_the_start_and_nothing_else() {
        let mut throttle = Throttle::new(1000, 50, 0);
        assert!(throttle.allows(50, 1 << 20, 0), "behind the start");
        assert!(!throttle.allows(0, 400, 100));
        assert!(throttle.allows(0, 400, 400));
        throttle.spend(400);
        assert!(!throttle.allows(0, 400, 500));
        assert!(throttle.allows(0, 400, 60_000));
        throttle.spend(400);
        assert!(!throttle.allows(0, 400, 60_001), "nothing is saved up over a pause");
        assert!(Throttle::new(0, 50, 0).allows(0, u64::MAX, 0));
    }

    /// A read that found `bytes` in records of 1 KiB, ending before `next`.
    fn read(sync: &mut Sync, next: u64, until: u64, bytes: usize) -> usize {
        let records = u32::try_from(bytes >> 10).unwrap();
        let done = ReadDone { bytes, records, next_record: next, ..ReadDone::default() };
        sync.took(&done, until, 0, READ_BYTES_MAX);
        sync.read_bytes
    }

    #[test]
    fn a_copy_reads_more_at_once_while_much_lies_ahead_and_nothing_holds_it_back() {
        let place = Place { node: 2, store: [0; 16] };
        let mut sync = Sync::new(place, (5, 1), Throttle::new(1 << 20, 1_000, 0));
        assert_eq!(read(&mut sync, 999, 1 << 20, READ_BYTES), READ_BYTES, "what is throttled goes in small pieces");
        assert_eq!(read(&mut sync, 1_000, 1 << 20, READ_BYTES), 2 * READ_BYTES);
        assert_eq!(read(&mut sync, 3_000, 1 << 20, 2 * READ_BYTES), 4 * READ_BYTES);
        assert_eq!(read(&mut sync, 7_000, 1 << 20, 4 * READ_BYTES), READ_BYTES_MAX);
        // Little was found, or little is left.
        assert_eq!(read(&mut sync, 8_000, 1 << 20, READ_BYTES), READ_BYTES_MAX / 2);
        assert_eq!(read(&mut sync, 10_000, 10_100, 2 * READ_BYTES), READ_BYTES_MAX / 2);
        // A block that had to grow for one record never shrinks below what the next one takes.
        sync.read_bytes = 3 * READ_BYTES_MAX;
        assert_eq!(read(&mut sync, 11_000, 1 << 30, 3 * READ_BYTES_MAX), 3 * READ_BYTES_MAX);
        assert_eq!(read_bytes_max(1 << 20), READ_BYTES, "a small node reads no more than it did");
    }
}
