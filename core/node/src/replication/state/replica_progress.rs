//! Progress of one replica or learner, as its owner sees it: session, position, what is durable there. Pure.

use ringfence_log::ReadDone;
use ringfence_wire::RECORD_HEADER_BYTES;

use crate::api::jobs::Piece;
use crate::api::order::Place;
use crate::replication::state::replicate_bodies::{header_at, placed_rows};
use crate::replication::state::throttle::Throttle;

/// Where the copy to one store stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
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
pub struct ReplicaProgress {
    pub place: Place,
    /// 0 = a replica of the set: it counts for the quorum.
    pub change: u64,
    pub attempt: u32,
    pub stage: SessionState,
    pub why: String,
    /// Questions in a row that it refused because it was not told of this epoch yet.
    pub lagged: u32,
    /// Sessions in a row that ended before anything more was durable there (`backoff.rs`).
    pub failed_attempts: u32,
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
    /// Retention has removed records that it needs: it must be bootstrapped from the current log start.
    pub needs_bootstrap: bool,
    /// Since it was level: how often the log start has passed what it was to be sent next.
    pub overtaken: u32,
    /// A read for it is under way.
    pub reading: bool,
    /// Block for the next read that nothing throttles: larger after a record that did not fit, and while more lies
    /// ahead than one read takes; smaller when a half would do.
    read_bytes: usize,
    /// What a record took in the last read, or that of the one that did not fit.
    record_bytes: usize,
    /// It is copying, and lacks so little that the tail is kept for it.
    pub near: bool,
    /// Records sent in this session that it has not answered.
    pub unanswered_bytes: usize,
    /// The mark that it was told, as a record number.
    pub mark_sent: u64,
    pub throttle: Throttle,
    /// Sent to it, each record once.
    pub bytes: u64,
    pub rows: u64,
    /// Records below this number are in the two.
    pub counted: u64,
}

impl ReplicaProgress {
    pub fn new(place: Place, (change, attempt): (u64, u32), throttle: Throttle) -> Self {
        Self {
            place,
            change,
            attempt,
            stage: SessionState::Down { retry_at_ms: 0 },
            why: String::new(),
            lagged: 0,
            failed_attempts: 0,
            session: 0,
            heard: 0,
            next: 0,
            durable: 0,
            level: false,
            needs_bootstrap: false,
            overtaken: 0,
            reading: false,
            read_bytes: READ_BYTES,
            record_bytes: 0,
            near: false,
            unanswered_bytes: 0,
            mark_sent: 0,
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
        if self.stage != SessionState::Failed {
            self.stage = SessionState::Down { retry_at_ms };
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
            self.stage = SessionState::Failed;
            self.why = format!(
                "the log start has passed what it lacks {OVERTAKEN_MAX} times, although retention waited: the partition is \
                 written faster than it is copied; write less for a while, or raise the topic's retention or the throttle"
            );
        }
    }

    /// A session begins: nothing of it is under way.
    pub fn begin_session(&mut self, session: u64) {
        (self.stage, self.session, self.unanswered_bytes) = (SessionState::Asked, session, 0);
        (self.level, self.reading, self.near) = (false, false, false);
    }

    /// What becomes durable is kept in memory until it is sent there.
    pub fn takes_from_memory(&self) -> bool {
        match self.stage {
            SessionState::Live => true,
            SessionState::Copying => self.near && !self.needs_bootstrap && !self.throttle.holds(self.next),
            _ => false,
        }
    }

    /// What the next read is to take, and the block for it: of what is throttled a tenth of a second's worth, in a
    /// block with room for one record, so that one that is larger goes alone.
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
            SessionState::Down { .. } | SessionState::Asked | SessionState::Begun => "waiting",
            SessionState::Copying | SessionState::Live if !self.level => "copying",
            SessionState::Copying | SessionState::Live => "contiguous",
            SessionState::Failed => "failed",
        }
    }
}

/// One read of a copy that is near its end, or throttled to what many of them are in a second: enough for the disk to
/// stream.
pub const READ_BYTES: usize = 1 << 20;

/// One read of a copy that runs after a log which grows: on a disk that is busy with writes a larger one hardly waits
/// longer. With the headers of four records of 1 MiB.
pub const READ_BYTES_MAX: usize = (4 << 20) + (4 << 10);

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

impl ReplicaProgress {
    /// Before `next` passes it: what was sent before, or was there before, is no progress.
    pub(crate) fn count(&mut self, piece: Piece, records: &[u8]) {
        let known = self.counted.max(self.next);
        if piece.next <= known {
            return;
        }
        let (rows, bytes) = if piece.first < known { before(&records[..piece.bytes], known) } else { (0, 0) };
        self.rows += piece.rows - rows;
        self.bytes += (piece.bytes - bytes) as u64;
        self.counted = piece.next;
    }
}

/// Rows and bytes of the records below this number.
fn before(records: &[u8], number: u64) -> (u64, usize) {
    let (mut rows, mut place) = (0, 0);
    while place < records.len() {
        let header = header_at(records, place);
        if header.record_number >= number {
            break;
        }
        rows += placed_rows(&header);
        place += ringfence_wire::align_up(RECORD_HEADER_BYTES + header.body_bytes as usize, 64);
    }
    (rows, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttled_copy_moves_a_tenth_of_a_second_or_one_record_which_it_pays_for_behind_it() {
        let place = Place { node: 2, store: [0; 16] };
        let mut replica = ReplicaProgress::new(place, (5, 1), Throttle::new(64 << 10, 1_000, 0));
        assert_eq!(replica.next_read(), (6_553, 6_553));
        assert!(!replica.throttle.allows(0, 6_553, 99) && replica.throttle.allows(0, 6_553, 100));
        replica.needs(64 << 10);
        assert_eq!(replica.next_read(), (6_553, 64 << 10), "room for the record, and no longer saved up for");
        let done = ReadDone { bytes: 64 << 10, records: 1, next_record: 1, ..ReadDone::default() };
        replica.took(&done, 1 << 20, 0, READ_BYTES_MAX);
        // Its second, and what the next piece is.
        assert!(!replica.throttle.allows(0, 6_553, 1_000) && replica.throttle.allows(0, 6_553, 1_102));
        let done = ReadDone { bytes: 6_400, records: 100, next_record: 101, ..ReadDone::default() };
        replica.took(&done, 1 << 20, 0, READ_BYTES_MAX);
        assert_eq!(replica.next_read(), (6_553, 6_553), "records are small again");
        // Set live: as few as none, and as many as reads of an unthrottled copy.
        for (bytes_per_s, read) in [(1, 1), (1 << 40, READ_BYTES), (0, READ_BYTES), (5 << 20, 512 << 10)] {
            replica.throttle.bytes_per_s = bytes_per_s;
            assert_eq!(replica.next_read().0, read, "at {bytes_per_s} bytes a second");
        }
        // What went while nothing held it back is not paid for later.
        replica.throttle.bytes_per_s = 0;
        replica.took(&ReadDone { bytes: 1 << 30, ..done }, 1 << 20, 0, READ_BYTES_MAX);
        replica.throttle.bytes_per_s = 1 << 10;
        assert!(replica.throttle.allows(0, 102, 60_000));
    }

    /// A read that found `bytes` in records of 1 KiB, ending before `next`.
    fn read(replica: &mut ReplicaProgress, next: u64, until: u64, bytes: usize) -> usize {
        let records = u32::try_from(bytes >> 10).unwrap();
        let done = ReadDone { bytes, records, next_record: next, ..ReadDone::default() };
        replica.took(&done, until, 0, READ_BYTES_MAX);
        replica.read_bytes
    }

    #[test]
    fn a_copy_reads_more_at_once_while_much_lies_ahead_and_nothing_holds_it_back() {
        let place = Place { node: 2, store: [0; 16] };
        let mut replica = ReplicaProgress::new(place, (5, 1), Throttle::new(1 << 20, 1_000, 0));
        assert_eq!(read(&mut replica, 999, 1 << 20, READ_BYTES), READ_BYTES, "what is throttled goes in small pieces");
        assert_eq!(read(&mut replica, 1_000, 1 << 20, READ_BYTES), 2 * READ_BYTES);
        assert_eq!(read(&mut replica, 3_000, 1 << 20, 2 * READ_BYTES), 4 * READ_BYTES);
        assert_eq!(read(&mut replica, 7_000, 1 << 20, 4 * READ_BYTES), READ_BYTES_MAX);
        // Little was found, or little is left.
        assert_eq!(read(&mut replica, 8_000, 1 << 20, READ_BYTES), READ_BYTES_MAX / 2);
        assert_eq!(read(&mut replica, 10_000, 10_100, 2 * READ_BYTES), READ_BYTES_MAX / 2);
        // A block that had to grow for one record never shrinks below what the next one takes.
        replica.read_bytes = 3 * READ_BYTES_MAX;
        assert_eq!(read(&mut replica, 11_000, 1 << 30, 3 * READ_BYTES_MAX), 3 * READ_BYTES_MAX);
        assert_eq!(read_bytes_max(1 << 20), READ_BYTES, "a small node reads no more than it did");
    }
}
