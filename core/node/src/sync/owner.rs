//! An owner with replicas: who has what, and from that the mark. Pure.

use std::collections::VecDeque;

use ringfence_log::ReadDone;
#[cfg(feature = "planted")]
use ringfence_log::planted::{Bug, is_on};

use super::confirm::Confirms;
use super::throttle::Throttle;
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
    /// Block for the next read that nothing throttles: larger after a record that did not fit, and while more lies ahead
    /// than one read takes; smaller when a half would do.
    read_bytes: usize,
    /// What a record took in the last read, or that of the one that did not fit.
    record_bytes: usize,
    /// It is copying, and lacks so little that the tail is kept for it.
    pub near: bool,
    /// Records sent in this session that it has not answered.
    pub unanswered_bytes: usize,
    /// The mark that it was told, as a record number.
    pub told: u64,
    pub throttle: Throttle,
    /// Sent to it, each record once.
    pub bytes: u64,
    pub rows: u64,
    /// Records below this number are in the two.
    pub counted: u64,
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
            record_bytes: 0,
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

    /// What the next read is to take, and the block for it: of what is throttled a tenth of a second's worth, in a block
    /// with room for one record, so that one that is larger goes alone.
    pub fn next_read(&self) -> (usize, usize) {
        if !self.throttle.holds(self.next) {
            return (self.read_bytes, self.read_bytes);
        }
        let piece = usize::try_from(self.throttle.piece_bytes()).map_or(READ_BYTES, |piece| piece.min(READ_BYTES));
        (piece, piece.max(self.record_bytes))
    }

    /// One record takes more than the block for the read had.
    pub fn needs(&mut self, bytes: usize) {
        (self.record_bytes, self.read_bytes) = (bytes, self.read_bytes.max(bytes));
    }

    /// Something was read for it; `until` is where the tail begins, or would, `budget` what it may keep, `most_bytes`
    /// what one read may take.
    pub fn took(&mut self, done: &ReadDone, until: u64, budget: u64, most_bytes: usize) {
        if self.throttle.holds(self.next) {
            self.throttle.spend(done.bytes as u64);
        }
        self.record_bytes = done.bytes / done.records.max(1) as usize;
        let ahead_bytes = until.saturating_sub(done.next_record).saturating_mul(self.record_bytes as u64);
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

/// One read of a copy that is near its end, or throttled to what many of them are in a second: enough for the disk to
/// stream.
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
    pub fn has_business(&self) -> bool {
        let calm = |sync: &Sync| match sync.stage {
            Stage::Failed => true,
            Stage::Live => sync.told >= self.mark_record && sync.next >= self.durable.record,
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
    fn a_throttled_copy_moves_a_tenth_of_a_second_or_one_record_which_it_pays_for_behind_it() {
        let place = Place { node: 2, store: [0; 16] };
        let mut sync = Sync::new(place, (5, 1), Throttle::new(64 << 10, 1_000, 0));
        assert_eq!(sync.next_read(), (6_553, 6_553));
        assert!(!sync.throttle.allows(0, 6_553, 99) && sync.throttle.allows(0, 6_553, 100));
        sync.needs(64 << 10);
        assert_eq!(sync.next_read(), (6_553, 64 << 10), "room for the record, and no longer saved up for");
        let done = ReadDone { bytes: 64 << 10, records: 1, next_record: 1, ..ReadDone::default() };
        sync.took(&done, 1 << 20, 0, READ_BYTES_MAX);
        // Its second, and what the next piece is.
        assert!(!sync.throttle.allows(0, 6_553, 1_000) && sync.throttle.allows(0, 6_553, 1_102));
        let done = ReadDone { bytes: 6_400, records: 100, next_record: 101, ..ReadDone::default() };
        sync.took(&done, 1 << 20, 0, READ_BYTES_MAX);
        assert_eq!(sync.next_read(), (6_553, 6_553), "records are small again");
        // Set live: as few as none, and as many as reads of an unthrottled copy.
        for (bytes_per_s, read) in [(1, 1), (1 << 40, READ_BYTES), (0, READ_BYTES), (5 << 20, 512 << 10)] {
            sync.throttle.bytes_per_s = bytes_per_s;
            assert_eq!(sync.next_read().0, read, "at {bytes_per_s} bytes a second");
        }
        // What went while nothing held it back is not paid for later.
        sync.throttle.bytes_per_s = 0;
        sync.took(&ReadDone { bytes: 1 << 30, ..done }, 1 << 20, 0, READ_BYTES_MAX);
        sync.throttle.bytes_per_s = 1 << 10;
        assert!(sync.throttle.allows(0, 102, 60_000));
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
